"""Bad files among good ones, odd events, and places where no corpus can be written: one clear line each."""

import bz2
import gzip
import json
import lzma
import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lumos_df.base.errors import CorpusError
from lumos_df.base.files import draft_of
from lumos_df.corpus import table_files
from lumos_df.corpus.catalog import connect
from lumos_df.corpus.layout import MANIFEST, STAGING
from lumos_df.graph.run import replay
from lumos_df.trace.ingest import ingest
from tests.conftest import Run, full_disk
from tests.trace.corpora import GPU, ONE, counts, names, small
from tests.trace.literal import annotation, op, write

# --- bad input

GOOD = json.dumps({"schemaVersion": 1, "traceEvents": [op("good", 1, 2), op("good too", 4, 2)]}).encode()

BAD: dict[str, tuple[bytes, str]] = {
    "not_json": (b"hello", "not JSON"),
    "no_events": (b'{"a": 1}', "without traceEvents"),
    "empty": (b"", "empty file"),
    "binary": (bytes(range(256)), "no format that is read begins with"),
    "zip": (b"PK\x03\x04" + bytes(64), "packed by zip, which is not read; unpack it, or pack it with gzip"),
    "zstd": (pa.compress(GOOD * 9, codec="zstd", asbytes=True) + bytes(8), "packed by Zstandard"),
    "bzip2": (bz2.compress(GOOD) + bytes(8), "packed by bzip2"),
    "xz": (lzma.compress(GOOD), "packed by xz"),
    "gzip_twice": (gzip.compress(gzip.compress(GOOD)), "packed by gzip twice"),
    "a_list_of_none": (b'{"traceEvents": null}', "not a list"),
    "cut_in_the_first": (GOOD[:60], "first event"),
    "cut_gzip_in_the_first": (gzip.compress(GOOD)[:12], ""),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_one_line_and_the_others_go_in(tmp_path: Path, kind: str) -> None:
    content, message = BAD[kind]
    bad = tmp_path / f"{kind}.json"
    bad.write_bytes(content)
    good = small(tmp_path / "rank1.json", "good")
    result = ingest([bad, good], tmp_path / "c", workers=1)
    assert [done.path for done in result.done] == [str(good)]
    assert names(tmp_path / "c") == ["good"]
    told = result.failed[0].message
    assert told.startswith(f"{bad}: ")
    assert message in told
    assert "\n" not in told
    assert "fault" not in told
    assert not list((tmp_path / "c" / STAGING).iterdir())


@pytest.mark.parametrize("kind", ["missing", "a folder in its place", "not ours to read"])
def test_a_path_that_cannot_be_read_is_one_line_and_the_others_go_in(tmp_path: Path, kind: str) -> None:
    bad = tmp_path / "bad.json"
    if kind == "a folder in its place":
        bad.mkdir()
        small(bad / "rank5.json").chmod(0)
    elif kind == "not ours to read":
        small(bad).chmod(0)
    if kind != "missing" and os.geteuid() == 0:
        pytest.skip("root reads everything")
    result = ingest([bad, small(tmp_path / "rank1.json", "good")], tmp_path / "c", workers=1)
    assert names(tmp_path / "c") == ["good"]
    assert result.failed[0].message.startswith(str(bad))


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_cut_file_goes_in_with_a_warning(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    data = pack(json.dumps({"traceEvents": [op(f"op {k}", 10 * k, 5) for k in range(2000)]}).encode())
    cut = tmp_path / "rank0.json"
    cut.write_bytes(data[: len(data) * 2 // 3])
    result = ingest([cut], tmp_path / "c", workers=1)
    assert result.done[0].warnings
    found = names(tmp_path / "c")
    assert 1000 < len(found) < 2000
    assert set(found) == {f"op {k}" for k in range(len(found))}
    with connect(tmp_path / "c") as connection:
        assert connection.execute("SELECT truncated, len(warnings) > 0 FROM traces").fetchall() == [(True, True)]


ODD_EVENTS: dict[str, list[Any]] = {
    "no name": [{"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 1, "dur": 1}],
    "a kernel without a name": [
        {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7, "ts": 1, "dur": 1, "args": {"stream": 7}}
    ],
    "no category": [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}],
    "no thread": [{"ph": "X", "name": "a", "cat": "cpu_op", "ts": 1, "dur": 1}],
    "no arguments": [op("a", 1, 2), {"ph": "i", "name": "[memory]", "ts": 2}, {"ph": "C", "name": "c", "ts": 2}],
    "null everywhere": [dict.fromkeys(op("a", 1, 2)), {**op("b", 1, 2), "args": None, "cat": None, "tid": None}],
    "a lone surrogate": [op("a\ud800", 1, 2)],
    "empty name": [op("", 1, 2)],
    "huge shapes": [op("aten::mm", 1, 2, Input_Dims=[[10**7, 10**7], [10**7, 10**7]])],
    "no shapes": [op("nccl:all_reduce", 1, 2, Input_Dims=None, Input_type=None)],
    "shapes that are none": [op("aten::mm", 1, 2, Input_Dims=[[2, "x"], [3, "y"]])],
    "a step far away": [annotation("ProfilerStep#99999999999", 1, 2)],
    "a sequence number far away": [
        op("a", 1, 2, Sequence_number=2**40, Fwd_thread_id=0),
        op("b", 4, 2, Sequence_number=2**40, Fwd_thread_id=1),
    ],
    "thread and process numbers far below": [
        {**op(f"a{number}", 1, 2, tid=number), "pid": number} for number in (-(2**62), -(2**62) + 5, -(2**63) + 1)
    ],
    "a rank far away": [op("a", 1, 2, rank=2**40)],
    "an unknown collective type": [op("nccl:all_reduce", 1, 2, Input_Dims=[[2]], Input_type=["quint4x2"])],
    "arguments of a collective where there is none": [
        op("a", 1, 2, dtype="float", Seq=1, Group_size=8, Collective_name="x", Process_Group_Name="0"),
    ],
    "a group size far away": [
        {**op("ncclDevKernel", 1, 2, Group_size=2**40, Collective_name="allreduce"), "cat": "kernel"},
    ],
}


@pytest.mark.parametrize("kind", ODD_EVENTS)
def test_odd_events_go_in(tmp_path: Path, kind: str) -> None:
    events = ODD_EVENTS[kind]
    result = ingest([write(tmp_path / "rank0.json", events)], tmp_path / "c", workers=1)
    assert [failed.message for failed in result.failed] == []
    assert [done.events for done in result.done] == [len(events)]


ODD_TOPS: dict[str, dict[str, Any]] = {
    "rank far away": {"distributedInfo": {"rank": 10**12}},
    "world size far away": {"distributedInfo": {"rank": 0, "world_size": 10**12}},
    "origin far away": {"baseTimeNanoseconds": 10**30},
    "ranks as texts": {
        "distributedInfo": {"rank": 0, "pg_config": [{"pg_name": "0", "ranks": ["0", "1"], "pg_size": "2"}]}
    },
    "description as a number": {"distributedInfo": {"rank": 0, "pg_config": [{"pg_name": "0", "pg_desc": 5}]}},
    "device id as a list": {"deviceProperties": [{"id": [0], "name": "x"}]},
    "a lone surrogate": {"deviceProperties": [{"id": 0, "name": "\ud800"}]},
    "nothing as it should be": {"distributedInfo": 3, "deviceProperties": "x", "baseTimeNanoseconds": []},
}


@pytest.mark.parametrize("kind", ODD_TOPS)
def test_odd_metadata_does_not_keep_a_trace_out(tmp_path: Path, kind: str) -> None:
    result = ingest([write(tmp_path / "rank0.json", [op("a", 1, 2)], **ODD_TOPS[kind])], tmp_path / "c", workers=1)
    assert [failed.message for failed in result.failed] == []
    assert names(tmp_path / "c") == ["a"]


def test_metadata_nested_without_end_does_not_keep_a_trace_out(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    path.write_text(f'{{"deep": {"[" * 100_000}{"]" * 100_000}, "traceEvents": [{json.dumps(op("a", 1, 2))}]}}')
    assert not ingest([path], tmp_path / "c", workers=1).failed


def test_a_rank_in_the_file_name_that_is_none(tmp_path: Path) -> None:
    result = ingest([small(tmp_path / "rank99999999999.json", "a")], tmp_path / "c", workers=1)
    assert not any("fault" in failed.message for failed in result.failed)


# --- a corpus that cannot be written


def test_a_folder_of_other_things_is_no_corpus(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(CorpusError, match="not empty and not a corpus"):
        ingest([ONE], tmp_path, workers=1)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ('{"format": 99, "made_by": "lumos-df 9.9"}', "corpus format 99, made by lumos-df 9.9"),
        ("{}", "not a corpus manifest"),
        ("", "not a corpus manifest"),
        ("[]", "not a corpus manifest"),
        ("[" * 100_000, "not a corpus manifest"),
        ('{"format": 1e999, "made_by": "lumos-df 9.9"}', "not a corpus manifest"),
    ],
)
def test_a_corpus_of_another_version_is_refused_in_one_line(tmp_path: Path, manifest: str, message: str) -> None:
    (tmp_path / MANIFEST).write_text(manifest)
    for opened in (lambda: ingest([ONE], tmp_path, workers=1), lambda: connect(tmp_path)):
        with pytest.raises(CorpusError, match=message) as caught:
            opened()
        assert str(caught.value).startswith(str(tmp_path))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("table", "column", "kind"),
    [("traces", "job", None), ("operators", "step", None), ("operators", "dur", pa.string()), ("gains", "rank", None)],
)
def test_a_corpus_with_columns_of_another_state_is_refused_in_one_line(
    tmp_path: Path, table: str, column: str, kind: pa.DataType | None
) -> None:
    corpus = tmp_path / "c"
    assert not ingest([small(tmp_path / "job/rank0.json")], corpus, workers=1).failed
    for file in corpus.glob(f"trace_id=*/{table}.parquet"):
        rows = pq.ParquetFile(file).read()
        place = rows.column_names.index(column)
        others = rows.remove_column(place)
        pq.write_table(others.add_column(place, column, pa.nulls(len(rows), kind)) if kind else others, file)
    before = {file: file.read_bytes() for file in corpus.rglob("*.parquet")}
    told = f"{corpus}: its table {table} has no column {column} of type "
    (failed,) = ingest([small(tmp_path / "job/rank1.json")], corpus, workers=1).failed
    with pytest.raises(CorpusError) as caught:
        replay(corpus)
    for message in (failed.message, str(caught.value)):
        assert told in message
        assert message.endswith("ingest the traces again into a new folder")
    assert {file: file.read_bytes() for file in corpus.rglob("*.parquet")} == before


def test_a_trace_that_lost_its_row_is_named_by_the_next_ingest(lumos: Run, tmp_path: Path) -> None:
    first, second = (small(tmp_path / f"job/rank{rank}.json", f"operator {rank}") for rank in range(2))
    corpus = tmp_path / "c"
    ingest([first], corpus, workers=1)
    assert lumos("replay", "--corpus", corpus).returncode == 0
    (file,) = corpus.glob("trace_id=[0-9a-f]*/traces.parquet")
    file.unlink()
    for path in (first, second):
        (failed,) = ingest([path], corpus, workers=1).failed
        assert failed.message.startswith(f"{path}: {file}: cannot be read")
        assert failed.message.endswith("; remove the folder around it and ingest the trace again")
    shutil.rmtree(file.parent)
    assert counts(ingest([first, second], corpus, workers=1)) == (2, 0, 0)


@pytest.mark.parametrize("whole", [True, False])
def test_a_trace_that_is_removed_while_it_is_replayed_is_gone(
    lumos: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, whole: bool
) -> None:
    """`rm -r` lists a folder, removes what it has listed, and then the folder, which fails where a file came in."""
    corpus = tmp_path / "c"
    for rank in range(2):
        ingest([small(tmp_path / f"job/rank{rank}.json", f"operator {rank}")], corpus, workers=1)

    def beside_rm(path: Path) -> AbstractContextManager[Path]:
        if path.stem == "replays":
            for file in path.parent.iterdir():
                file.unlink()
            if whole:
                path.parent.rmdir()
        return draft_of(path)

    with monkeypatch.context() as patch:
        patch.setattr(table_files, "draft_of", beside_rm)
        done = lumos("replay", "--corpus", corpus)
    assert (done.returncode, done.stdout) == (1, "")
    gone = done.stderr.split(": ")[1]
    assert done.stderr == f"lumos-df: {gone}: removed while the command ran; run it again, or ingest the trace again\n"
    assert not Path(gone).exists()
    assert counts(ingest([tmp_path / "job"], corpus, workers=1)) == (1, 1, 0)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(CorpusError, match="cannot be written"):
        ingest([ONE], tmp_path / "c", workers=1)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("limit", [2, 4_000, 20_000])
def test_a_full_disk_is_one_line_and_leaves_no_half_trace(lumos: Run, tmp_path: Path, limit: int, workers: int) -> None:
    corpus = tmp_path / "c"
    ingest([small(tmp_path / "rank9.json", "before")], corpus, workers=1)
    with full_disk(limit):
        done = lumos("ingest", GPU / "rank0.json.gz", GPU / "rank1.json.gz", "--corpus", corpus, "--workers", workers)
    assert done.returncode == 1
    told = [line for line in done.stderr.splitlines() if line.startswith("lumos-df: ")]
    assert len(told) == 2, done.stderr
    assert all("cannot be written" in line and "space" in line for line in told), told
    assert names(corpus) == ["before"]
    assert not list((corpus / STAGING).iterdir())
    assert not list(corpus.glob("*.wal"))
    assert counts(ingest([GPU], corpus, workers=1)) == (4, 0, 0)


def test_a_full_disk_at_a_new_corpus(lumos: Run, tmp_path: Path) -> None:
    for limit in (100, 5000, 20_000):
        corpus = tmp_path / str(limit)
        with full_disk(limit):
            done = lumos("ingest", ONE, "--corpus", corpus, "--workers", 1)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        told = [line for line in done.stderr.splitlines() if not line.startswith("[1/1]")]
        assert [line[:10] for line in told] == ["lumos-df: "], done.stderr
        assert counts(ingest([ONE], corpus, workers=1)) == (1, 0, 0)
        shutil.rmtree(corpus)
