"""Files that somebody made to be read badly, and files that are read once: nothing lost, nothing endless."""

import contextlib
import csv
import gzip
import io
import os
import pickle
import tempfile
import threading
import time
from pathlib import Path

import pytest

from lumos_df.corpus.catalog import connect
from lumos_df.schema.codes import EARLIEST, LATEST
from lumos_df.trace import stored_file
from lumos_df.trace.ingest import ingest
from tests.conftest import Run
from tests.trace.corpora import unread_dictionaries
from tests.trace.literal import corpus_of, kernel, launch, op, rows, write

US_OF_LATEST = LATEST // 1000


@pytest.mark.parametrize(
    ("ts", "dur"),
    [
        (EARLIEST / 1000 - 1, 1),
        (US_OF_LATEST + 1, 0),
        (9_300_000_000_000_000, 1),
        (10**17, 1),
        (5, US_OF_LATEST),
        (1e300, 1),
        (1, 1e40),
    ],
)
def test_an_event_outside_1970_to_2200_is_left_out_and_counted(tmp_path: Path, ts: float, dur: float) -> None:
    corpus = corpus_of(tmp_path, [op("good", 1, 2), op("odd", ts, dur)])
    assert [row["name"] for row in rows(corpus, "SELECT name FROM operators")] == ["good"]
    ((skipped, warnings),) = corpus.execute("SELECT skipped, warnings FROM traces").fetchall()
    assert skipped == 1
    assert "1 events without a start time, or outside the years 1970 to 2200, skipped" in warnings


def test_a_clock_origin_that_leads_beyond_2200_is_none(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, [op("a", US_OF_LATEST - 5, 1)], baseTimeNanoseconds=LATEST)
    assert corpus.execute("SELECT clock_origin_ns FROM traces").fetchall() == [(0,)]


def test_no_view_overflows_over_events_as_long_as_times_can_be(tmp_path: Path) -> None:
    most, largest = US_OF_LATEST - 100, 2**63 - 1
    facts = {"Group size": 2**31 - 1, "In msg nelems": largest, "Out msg nelems": largest, "dtype": "Byte"}
    collective = {"Collective name": "gather", "Process Group Name": "0", **facts}
    events = [op("ProfilerStep#1", 0, most), *(op("aten::mm", 1, most, tid=tid) for tid in (1, 2, 3))]
    for stream in (7, 8, 9):
        events += [
            kernel(f"gemm{stream}", stream, most, device=0, stream=stream, correlation=stream),
            kernel("ncclDevKernel_Gather", stream, most, device=0, stream=10 + stream, **collective),
        ]
    corpus = corpus_of(tmp_path, events)
    views = [name for (name,) in corpus.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()]
    assert "gpu_time" in views
    for view in views:
        corpus.sql(f"FROM {view}").to_arrow_table()  # one has four million rows


def test_no_screen_nor_page_overflows_over_kernels_whose_sum_does(tmp_path: Path, lumos: Run) -> None:
    events = [op("aten::mm", 0, 10)]
    for at in range(1, 7):
        events += [launch(at, 1, at), kernel("k", at + 10, US_OF_LATEST - 100, device=0, stream=7, correlation=at)]
    corpus_of(tmp_path, events)
    for command in (("replay",), ("report",), ("advise",), ("critical-path",), ("report", "--html", "page.html")):
        done = lumos(*command)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        assert "Warning" not in done.stderr


def test_a_name_is_cut_and_told(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, [op("a" * 70_000, 1, 2)])
    assert corpus.execute("SELECT length(name) FROM operators").fetchall() == [(1 << 16,)]
    ((warnings,),) = corpus.execute("SELECT warnings FROM traces").fetchall()
    assert "1 names longer than 64 KiB cut" in warnings


def test_a_text_that_is_escaped_in_two_ways_is_stored_once(tmp_path: Path) -> None:
    events = [
        op(name, 10 * place, 2, **{"Module Hierarchy": name}) for place, name in enumerate(("top/a", "top.a", "b") * 9)
    ]
    path = write(tmp_path / "trace.json", events)
    path.write_text(path.read_text().replace('"b"', '"\\u0062"', 1))
    assert not ingest([path], tmp_path / "c", workers=1).failed
    assert not unread_dictionaries(tmp_path / "c")
    with connect(tmp_path / "c") as connection:
        found = connection.execute("SELECT name, module, count(*) FROM operators GROUP BY ALL ORDER BY name").fetchall()
    assert found == [("b", "b", 9), ("top.a", "top/a", 9), ("top/a", "top/a", 9)]


def test_an_operator_without_a_name_has_an_empty_one(tmp_path: Path) -> None:
    nameless = {key: value for key, value in op("a", 1, 2).items() if key != "name"}
    corpus = corpus_of(tmp_path, [nameless, op("b", 2, 3)])
    assert corpus.execute("SELECT name FROM operators ORDER BY ts").fetchall() == [("",), ("b",)]
    ((warnings,),) = corpus.execute("SELECT warnings FROM traces").fetchall()
    assert "1 operator without a name" in warnings


def test_more_threads_than_there_was_room_for_keep_their_numbers(tmp_path: Path) -> None:
    events = [op("a", index, 1, tid=(index * 7919) % 3000) for index in range(6000)]
    corpus = corpus_of(tmp_path, events)
    found = corpus.execute("SELECT thread FROM operators ORDER BY ts").fetchall()
    assert found == [(event["tid"],) for event in events]


@pytest.mark.parametrize("inside", [b'{"traceEvents": [%s], "x": "%s"}', b'{"traceEvents": [%s, {"name": "%s"}]}'])
def test_what_unpacks_to_more_than_is_held_ends_the_file_there(tmp_path: Path, inside: bytes) -> None:
    event = b'{"ph": "X", "name": "good", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 1, "dur": 2}'
    (tmp_path / "rank0.json.gz").write_bytes(gzip.compress(inside % (event, b"a" * (130 << 20)), 1))
    (done,) = ingest([tmp_path / "rank0.json.gz"], tmp_path / "c", workers=1).done
    assert done.operators == 1
    assert any("longer than 64 MiB" in warning for warning in done.warnings)


def test_a_gzip_file_is_unpacked_only_as_far_as_there_is_room() -> None:
    from lumos_df.trace.stored_file import StoredFile  # noqa: PLC0415 - the others need it through ingest only

    packed = gzip.compress(bytes(50 << 20)) + bytes(10) + gzip.compress(b"end")
    read, write_end = os.pipe()
    os.write(write_end, packed)
    os.close(write_end)
    with os.fdopen(read, "rb", buffering=0) as stream:
        file = StoredFile(stream, "bomb")
        target = memoryview(bytearray(1 << 20))
        sizes = []
        while size := file.fill(target):
            sizes.append(size)
    assert (sum(sizes), bytes(target[: sizes[-1]])[-3:], file.damage) == ((50 << 20) + 3, b"end", "")


@pytest.mark.parametrize("at_once", [1 << 12, 1 << 22])
def test_a_broken_gzip_file_gives_what_is_before_the_fault(at_once: int) -> None:
    text = b"".join(b'{"ts": %d}, ' % (place * 7919 % 999983) for place in range(100_000))
    stored = bytearray(gzip.compress(text, 1))
    stored[len(stored) // 2] ^= 0xFF
    stored[-8] ^= 0xFF  # the fault may decode to something, of which the checksum is wrong
    file, found = stored_file.StoredFile(io.BytesIO(stored), "x"), b""
    target = memoryview(bytearray(at_once))
    while size := file.fill(target):
        found += target[:size]
    assert "broken" in file.damage
    assert found[: len(text) * 4 // 10] == text[: len(text) * 4 // 10]
    assert len(text) - len(found) < len(text) // 2 + (1 << 16)


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    ingest([write(tmp_path / "first" / "rank1.json", [op("a", 1, 2)])], tmp_path / "c", workers=1)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    content = write(tmp_path / "rank0.json", [op("b", 1, 2)]).read_bytes()
    threading.Thread(target=lambda: pipe.write_bytes(content)).start()
    assert len(ingest([pipe], tmp_path / "c").done) == 1


def test_a_pipe_that_nobody_writes_to_is_said_to_be_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lumos_df.trace.sources._WAITING_S", 0.01)
    told = io.StringIO()
    monkeypatch.setattr("sys.stderr", told)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    content = write(tmp_path / "rank0.json", [op("b", 1, 2)]).read_bytes()

    def write_once_told() -> None:
        while not told.getvalue():
            time.sleep(0.01)
        pipe.write_bytes(content)

    threading.Thread(target=write_once_told, daemon=True).start()
    assert len(ingest([pipe], tmp_path / "c").done) == 1
    assert told.getvalue().startswith(f"{pipe}: a pipe; waiting for what writes to it")


def test_what_is_skipped_of_a_folder_is_named(tmp_path: Path, lumos: Run) -> None:
    write(tmp_path / "traces" / "rank0.json", [op("a", 1, 2)])
    (tmp_path / "traces" / "rank1.json").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "traces" / "rank2.json")
    result = lumos("ingest", tmp_path / "traces", "--corpus", tmp_path / "c")
    assert result.returncode == 1
    assert "rank1.json: a link to what is not there" in result.stderr
    assert "rank2.json: no regular file" in result.stderr
    assert "read 1 file" in result.stdout


def test_secrets_of_every_kind_are_hidden(tmp_path: Path) -> None:
    env = {
        "GH_PAT": "hunter2",
        "PROXY_AUTH": ["hunter2"],
        "password": 2222,
        "url": "https://bob:hunter2@host/x",
        "list": ["api_key=hunter2", "ftp://u:hunter2@h", "PATH=/bin"],
        "author": "bob",
        "max_tokens": 4096,
        "command": "train.py --hf-token hunter2 --api-key='hunter2 hunter2' --moe-token-dispatcher alltoall --lr 1",
        "argv": ["train.py", "--auth-token", "hunter2", "--secret", "--pad-tokens", "4097", "-p", "5"],
    }
    corpus = corpus_of(tmp_path, [op("a", 1, 2)], env=env)
    ((metadata,),) = corpus.execute("SELECT metadata FROM traces").fetchall()
    assert "hunter2" not in metadata
    assert "2222" not in metadata
    assert all(text in metadata for text in ("bob:<hidden>@host", "PATH=/bin", '"author": "bob"', "4096"))
    assert all(text in metadata for text in ("--hf-token <hidden>", "--moe-token-dispatcher alltoall --lr 1", "4097"))


def test_a_cell_that_a_spreadsheet_would_run_is_text(tmp_path: Path, lumos: Run) -> None:
    """Numbers, also those that are stored as texts, and texts inside of which something stands, are as they were."""
    run = ["=1+1", "+1+1", "-1-x", "@x", "\t=1", "\n=1", "＝1", "＠x", "=", '=HYPERLINK("http://x")']  # noqa: RUF001
    plain = ["plain=1", " =1", "x,=1", 'x"\n=1', "-1", "+1.5e-3", "[=1]"]
    corpus_of(tmp_path, [op(name, index, 1) for index, name in enumerate(run + plain)])
    query = "SELECT name, -op_id AS number, [name] AS list, name::ENUM('-1-x') AS word FROM operators ORDER BY ts"
    query = query.replace("name::ENUM", "nullif(name, nullif(name, '-1-x'))::ENUM")
    report = lumos("sql", query, "--corpus", tmp_path / "corpus", "--format", "csv")
    found = list(csv.DictReader(io.StringIO(report.stdout)))
    assert [row["name"] for row in found] == [f"'{name}" for name in run] + plain
    assert [row["number"] for row in found] == [str(-index) for index in range(len(found))]
    assert [row["word"] for row in found if row["word"]] == ["'-1-x"]
    lumos("report", "--corpus", tmp_path / "corpus", "--output", tmp_path / "report", "--format", "csv")
    cells = [
        cell
        for file in (tmp_path / "report").glob("*.csv")
        for row in csv.reader(file.read_text().splitlines())
        for cell in row
    ]
    assert "'=1+1" in cells
    assert "=1+1" not in cells


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b'{"version": "2.10", "entries": [], "x": %s}', "a flight recorder's dump that is no whole JSON"),
        (b'{"version": "2.10", "entries": [], "pg_config": {"0": {"name": "0", "ranks": "%s"}}}', "no dump of"),
        (b'{"rocprofiler-sdk-tool": [%s]}', "not as rocprofv3 writes it"),
    ],
)
def test_what_is_nested_without_end_is_one_line(tmp_path: Path, content: bytes, told: str) -> None:
    file = tmp_path / "rank0.json"
    file.write_bytes(content % (b"[" * 100_000 + b"]" * 100_000))
    (failed,) = ingest([file], tmp_path / "c", workers=1).failed
    assert failed.message.startswith(f"{file}: {told}")


def test_ranks_nested_without_end_are_no_list(tmp_path: Path) -> None:
    stated = {"Collective name": "allreduce", "Process Group Ranks": "[" * 100_000}
    corpus = corpus_of(tmp_path, [kernel("ncclDevKernel_AllReduce", 1, 2, device=0, stream=7, correlation=1, **stated)])
    assert corpus.execute("SELECT count(*) FROM operators").fetchall() == [(1,)]


@pytest.mark.parametrize(
    ("content", "bound", "why"),
    [
        (
            b"SQLite format 3\0" + bytes(4096),
            "MOST_COPIED",
            "from an unpacked copy; unpack it yourself, or record less",
        ),
        (pickle.dumps({"segments": [0] * 4096}, protocol=4), "MOST_IN_MEMORY", "as a whole; record less"),
        (b'{"entries": []' + b" " * 4096 + b"}", "MOST_IN_MEMORY", "as a whole; record less"),
        (b'{"rocprofiler-sdk-tool": []' + b" " * 4096 + b"}", "MOST_IN_MEMORY", "as a whole; record less"),
        (b"\n/host:CPU" + bytes(4096), "MOST_IN_MEMORY", "as a whole; record less"),
        (b'{"coll_perf": {}}' + b" " * 4096, "MOST_IN_MEMORY", "as a whole; record less"),
    ],
    ids=["SQLite", "snapshot", "flight recorder", "rocprofv3", "XPlane", "NCCL Inspector"],
)
@pytest.mark.parametrize("is_packed", [True, False])
def test_what_a_file_unpacks_to_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, bound: str, why: str, *, is_packed: bool
) -> None:
    monkeypatch.setattr(stored_file, bound, 2048)
    monkeypatch.setattr(stored_file, "_BLOCK", 1024)
    file = tmp_path / "trace.file"
    file.write_bytes(gzip.compress(content) if is_packed else content)
    (failed,) = ingest([file], tmp_path / "c", workers=1).failed
    told = f"{file}: more than 2.00 KiB, and its format is read {why}"
    assert (failed.message == told) == (is_packed or bound == "MOST_IN_MEMORY")


def test_a_full_disk_under_the_copy_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("wb") as full:
        monkeypatch.setattr(tempfile, "NamedTemporaryFile", lambda **_: full)
        file = tmp_path / "trace.sqlite"
        file.write_bytes(gzip.compress(b"SQLite format 3\0" + bytes(1 << 16)))
        (failed,) = ingest([file], tmp_path / "c", workers=1).failed
        # What it still holds never goes out.
        with contextlib.suppress(OSError):
            full.close()
    told = "cannot be unpacked to /dev (No space left on device); unpack it yourself, or set TMPDIR to a larger disk"
    assert failed.message == f"{file}: {told}"
