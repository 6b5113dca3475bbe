"""Every dialect reads fully: real traces against an independent count with `json`, and literal ones of odd kinds."""

import gzip
import json
import re
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lumos_df.corpus.catalog import connect
from lumos_df.trace.ingest import ingest
from tests.connection import Connection
from tests.real import ABSENT, REAL
from tests.trace.literal import Event, annotation, column, corpus_of, kernel, op, operators, rows, write, x

KIND = {
    "cpu_op": "cpu_op",
    "Operator": "cpu_op",
    "cuda_runtime": "runtime",
    "cuda_driver": "runtime",
    "Runtime": "runtime",
    "kernel": "kernel",
    "Kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "Memcpy": "memcpy",
    "gpu_memset": "memset",
    "Memset": "memset",
    "cuda_sync": "sync",
    "user_annotation": "annotation",
    "gpu_user_annotation": "gpu_annotation",
    "python_function": "python",
    "Trace": "other",
    "overhead": "other",
}


def events_of(path: Path) -> list[Event]:
    document = json.loads(gzip.decompress(path.read_bytes()))
    events: list[Event] = document if isinstance(document, list) else document["traceEvents"]
    return events


def kind(event: Event) -> str:
    own_mark = event["cat"] == "Operator" and re.match(r"ProfilerStep#|Optimizer\.", event["name"])
    return "annotation" if own_mark else KIND[event["cat"]]


@pytest.fixture(scope="session")
def corpus_of_real(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Connection]:
    """Return a function that ingests a real trace, once, and opens its corpus."""

    @cache
    def opened(path: Path) -> Connection:
        folder = tmp_path_factory.mktemp("real")
        result = ingest([path], folder, workers=1)
        assert not result.failed
        return connect(folder)

    return opened


Opened = Callable[[Path], Connection]


def real(name: str) -> Path:
    path = REAL / name
    if not path.exists():
        pytest.skip(ABSENT)
    return path


def test_real_traces_are_counted_as_json_counts_them(real_trace: Path, corpus_of_real: Opened) -> None:
    corpus, events = corpus_of_real(real_trace), events_of(real_trace)
    phases = Counter(event["ph"] for event in events)
    memory = sum(event["ph"] == "i" and event["name"] == "[memory]" for event in events)
    expected = {
        "events": len(events),
        "operators": phases["X"],
        "flows": phases["s"] + phases["f"],
        "instants": phases["i"] - memory,
        "memory_events": memory,
        "metadata_events": phases["M"],
        "counters": 0,
        "skipped": 0,
        "repaired_numbers": 0,
    }
    sums = ", ".join(f"sum({name})::BIGINT AS {name}" for name in expected)
    assert rows(corpus, f"SELECT {sums} FROM traces") == [expected]
    kinds = Counter(kind(event) for event in events if event["ph"] == "X")
    assert dict(corpus.execute("SELECT kind, count(*) FROM operators GROUP BY kind").fetchall()) == kinds
    assert corpus.execute("SELECT count(*) FROM memory_events").fetchall() == [(memory,)]
    with_args = sum("args" in event for event in events)
    assert corpus.execute("SELECT count(*) FROM args").fetchall() == [(with_args,)]


def test_real_parents_enclose_and_launches_correlate(real_trace: Path, corpus_of_real: Opened) -> None:
    corpus = corpus_of_real(real_trace)
    joined = "FROM operators c JOIN operators p ON p.trace_id = c.trace_id AND p.op_id = c.parent_id"
    host = "c.kind IN ('cpu_op', 'runtime', 'annotation', 'python')"
    tolerance = "(SELECT CASE resolution_ns WHEN 1 THEN 0 ELSE resolution_ns END FROM traces LIMIT 1)"
    outside = f"c.ts < p.ts OR c.ts + c.dur > p.ts + p.dur + {tolerance} OR c.thread <> p.thread"
    assert corpus.execute(f"SELECT count(*) {joined} WHERE {host} AND ({outside})").fetchall() == [(0,)]
    wrong = "p.kind = 'runtime' AND c.correlation IS DISTINCT FROM p.correlation OR p.kind NOT IN ('runtime', 'cpu_op')"
    gpu = "c.kind IN ('kernel', 'memcpy', 'memset', 'sync')"
    assert corpus.execute(f"SELECT count(*) {joined} WHERE {gpu} AND ({wrong})").fetchall() == [(0,)]


def test_real_collectives_say_what_they_are(corpus_of_real: Opened) -> None:
    corpus = corpus_of_real(real("megatron_tp8_forward/rank0.json.gz"))
    found = corpus.execute(
        "SELECT collective, dtype, count(*), min(in_bytes), max(in_bytes) FROM operators"
        " WHERE kind = 'kernel' AND family = 'communication' GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    assert sum(row[2] for row in found) == 84
    assert {row[0] for row in found} == {"all_reduce"}
    assert all(low for _, _, _, low, _ in found), "no NCCL args here: bytes come from the operator around the launch"


def test_real_nccl_arguments(corpus_of_real: Opened) -> None:
    path = real("megatron_tp2_train/rank0.json.gz")
    stated = Counter(
        (event["args"]["Collective name"], event["args"]["In msg nelems"], event["args"]["Group size"])
        for event in events_of(path)
        if event.get("cat") == "kernel" and "Collective name" in event.get("args", {})
    )
    found = (
        corpus_of_real(path)
        .execute(
            "SELECT a.args->>'Collective name', (a.args->>'In msg nelems')::BIGINT, group_size, in_bytes, dtype"
            " FROM operators JOIN args a USING (trace_id, event) WHERE kind = 'kernel' AND collective IS NOT NULL"
        )
        .fetchall()
    )
    assert Counter((name, elements, size) for name, elements, size, _, _ in found) == stated
    width = {"float32": 4, "bfloat16": 2, "float16": 2, "int64": 8, "int32": 4, "uint8": 1}
    assert all(given == elements * width[dtype] for _, elements, _, given, dtype in found)


def test_nothing_between_the_backward_and_the_optimizer_is_forward(corpus_of_real: Opened) -> None:
    """DistributedDataParallel copies its buckets back there, while forward kernels of the GPU may still run."""
    found = corpus_of_real(real("single_gpu_ns/rank0.json.gz")).execute(
        "WITH ends AS (SELECT step, max(ts + dur) AS ns FROM operators"
        " WHERE name LIKE 'autograd::engine%' GROUP BY step),"
        " starts AS (SELECT step, min(ts) AS ns FROM operators WHERE name LIKE 'Optimizer.step%' GROUP BY step)"
        " SELECT DISTINCT name FROM operators JOIN ends USING (step) JOIN starts USING (step)"
        " WHERE kind = 'cpu_op' AND phase = 'forward' AND ts BETWEEN ends.ns AND starts.ns"
    )
    assert found.fetchall() == []


def test_the_dialect_of_2021(corpus_of_real: Opened) -> None:
    path = real("resnet50_2021/worker0.json.gz")
    corpus, events = corpus_of_real(path), events_of(path)
    steps = [event["name"] for event in events if event["ph"] == "X" and event["name"].startswith("ProfilerStep#")]
    found = corpus.execute(
        "SELECT name FROM operators WHERE kind = 'annotation' AND name LIKE 'ProfilerStep%'"
    ).fetchall()
    assert sorted(steps) == sorted(name for (name,) in found)
    numbers = {int(name.removeprefix("ProfilerStep#")) for name in steps}
    of_kernels = corpus.execute("SELECT list(DISTINCT step) FROM operators WHERE kind = 'kernel'").fetchall()[0][0]
    assert numbers <= set(of_kernels)
    assert corpus.execute("SELECT dialect FROM traces").fetchall() == [("kineto-2021",)]
    phases = dict(
        corpus.execute("SELECT phase, count(*) FROM operators WHERE kind = 'kernel' GROUP BY phase").fetchall()
    )
    assert {"forward", "backward", "optimizer"} <= phases.keys()
    streams = {re.sub(r"\D", "", str(event["tid"])) for event in events if event.get("cat") == "Kernel"}
    found_streams = corpus.execute("SELECT list(DISTINCT stream) FROM operators WHERE kind = 'kernel'").fetchall()[0][0]
    assert {int(stream) for stream in streams} == set(found_streams)


def test_merged_ranks_come_apart(corpus_of_real: Opened) -> None:
    path = real("rocm_ddp_merged/merged_all_events.json.gz")
    corpus, events = corpus_of_real(path), events_of(path)
    expected = Counter(event["args"]["rank"] for event in events if event["ph"] == "X")
    assert dict(corpus.execute("SELECT rank, operators FROM traces").fetchall()) == expected
    assert dict(corpus.execute("SELECT rank, count(*) FROM operators GROUP BY rank").fetchall()) == expected
    assert corpus.execute("SELECT count(DISTINCT trace_id), max(ranks_in_file) FROM traces").fetchall() == [(4, 4)]
    calls = Counter(event["name"] for event in events if event.get("cat") == "cuda_runtime")
    found = corpus.execute("SELECT name, count(*) FROM operators WHERE kind = 'runtime' GROUP BY name").fetchall()
    assert dict(found) == calls
    assert any(name.startswith("hip") for name in calls)
    assert corpus.execute("SELECT count(*) FROM operators WHERE family = 'communication'").fetchall()[0][0] > 0


@pytest.mark.parametrize("job", ["alexnet_cuda_sync", "cuda_event_sync", "cuda_event_multi_stream"])
def test_waits_know_the_record_they_wait_for(job: str, corpus_of_real: Opened) -> None:
    path = real(f"{job}/rank0.json.gz")
    key = "wait_on_cuda_event_record_corr_id"
    expected = Counter(e["args"].get(key) for e in events_of(path) if e.get("cat") == "cuda_sync")
    found = corpus_of_real(path).execute("SELECT wait_correlation FROM operators WHERE kind = 'sync'").fetchall()
    assert Counter(number for (number,) in found) == expected
    assert any(number is not None for number in expected)


def test_backward_operators_point_where_the_arrows_point(corpus_of_real: Opened) -> None:
    """The profiler's own fwdbwd arrows join a forward to a backward operator: so does forward_id."""
    path = real("single_gpu_ns/rank0.json.gz")
    exact = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]
    arrows = [event for event in exact if event.get("cat") == "fwdbwd"]
    starts = {event["id"]: (event["tid"], int(event["ts"] * 1000)) for event in arrows if event["ph"] == "s"}
    ends = {event["id"]: (event["tid"], int(event["ts"] * 1000)) for event in arrows if event["ph"] == "f"}
    expected = {(starts[k], ends[k]) for k in starts.keys() & ends.keys()}
    found = (
        corpus_of_real(path)
        .execute("SELECT f.thread, f.ts, b.thread, b.ts FROM operators b JOIN operators f ON f.op_id = b.forward_id")
        .fetchall()
    )
    joined = {((thread, ts), (other, after)) for thread, ts, other, after in found}
    assert len(expected & joined) >= 0.99 * len(expected)


# --- literal traces


def test_one_graph_launch_starts_many_kernels(tmp_path: Path) -> None:
    graph = x("cudaGraphLaunch", "cuda_runtime", 2, 3, correlation=7)
    found = operators(
        tmp_path,
        [annotation("ProfilerStep#3", 0, 20), op("replay", 1, 10), graph]
        + [kernel(f"k{k}", 10 + 20 * k, 5, correlation=7) for k in range(5)]
        + [x("Memcpy", "gpu_memcpy", 200, 1, 7, correlation=7, stream=9, device=0)],
    )
    gpu = [row for row in found if row["kind"] in ("kernel", "memcpy")]
    assert len(gpu) == 6
    assert {(row["parent"], row["step"]) for row in gpu} == {("cudaGraphLaunch", 3)}


def test_categories(tmp_path: Path) -> None:
    expected = {
        "cpu_op": "cpu_op",
        "Operator": "cpu_op",
        "cuda_runtime": "runtime",
        "cuda_driver": "runtime",
        "hip_runtime": "runtime",
        "xpu_runtime": "runtime",
        "Runtime": "runtime",
        "Kernel": "kernel",
        "gpu_memcpy": "memcpy",
        "Memset": "memset",
        "cuda_sync": "sync",
        "user_annotation": "annotation",
        "gpu_user_annotation": "gpu_annotation",
        "python_function": "python",
        "Trace": "other",
        "overhead": "other",
        "mtia_ccp_events": "other",
        "": "other",
    }
    found = operators(tmp_path, [x(category, category, 1, 2) for category in expected])
    assert column(found, "kind") == expected


@pytest.mark.parametrize(
    ("ts", "dur", "expected"),
    [
        ("1712195495519689.047", "0.5", (1712195495519689047, 500)),
        ("1712195495519689", "1", (1712195495519689000, 1000)),
        ('"1712195495519689.047"', '"2.25"', (1712195495519689047, 2250)),
        ("1.712195495519689e+15", "1.5e-1", (1712195495519689000, 150)),  # as C++ writers print large doubles
        ("1.7121954955196890475E15", "2.5E0", (1712195495519689048, 2500)),
        ("12e0", "0.0004", (12000, 0)),
        ("-3.5", "1", (-3500, 1000)),
    ],
)
def test_times_in_every_spelling(tmp_path: Path, ts: str, dur: str, expected: tuple[int, int]) -> None:
    path = tmp_path / "rank0.json"
    path.write_text(f'[{{"ph": "X", "name": "a", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": {ts}, "dur": {dur}}}]')
    assert not ingest([path], tmp_path / "c", workers=1).failed
    with connect(tmp_path / "c") as corpus:
        assert corpus.execute("SELECT ts, dur FROM operators").fetchall() == [expected]


def test_a_bare_list_and_a_byte_order_mark(tmp_path: Path) -> None:
    for number, text in enumerate(
        (json.dumps([op("a", 1, 2)]), "\ufeff" + json.dumps({"traceEvents": [op("a", 1, 2)]}))
    ):
        path = tmp_path / f"rank{number}.json"
        path.write_text(text, "utf-8")
        assert not ingest([path], tmp_path / str(number), workers=1).failed
        with connect(tmp_path / str(number)) as corpus:
            assert corpus.execute("SELECT name, dialect FROM operators JOIN traces USING (trace_id)").fetchall() == [
                ("a", "chrome")
            ]


def test_the_clock_origin_and_what_the_file_says_of_itself(tmp_path: Path) -> None:
    corpus = corpus_of(
        tmp_path,
        [kernel("k", 1, 2, device=1)],
        baseTimeNanoseconds=1727746128000000000,
        deviceProperties=[{"id": 0, "name": "A100"}, {"id": 1, "name": "H100"}],
        distributedInfo={"backend": "nccl", "rank": 1, "world_size": 2, "nccl_version": "2.21.5"},
        cuda_runtime_version=12040,
        with_stack=0,
    )
    (trace,) = rows(corpus, "SELECT * FROM traces")
    assert trace["clock_origin_ns"] == 1727746128000000000
    assert (trace["device_name"], trace["device_count"]) == ("H100", 2)
    assert (trace["backend"], trace["nccl_version"], trace["world_size"]) == ("nccl", "2.21.5", 2)
    assert json.loads(trace["versions"])["cuda_runtime_version"] == 12040
    assert json.loads(trace["metadata"])["with_stack"] == 0


MERGED: list[Any] = [
    op("a", 1, 2, rank=0),
    op("b", 1, 2, rank=1),
    op("of no rank", 1, 2),
    {"ph": "C", "name": "c", "ts": 1, "pid": 1, "tid": 1, "args": {"used": 1, "rank": 1}},
    {"ph": "X", "name": "no time", "cat": "cpu_op", "pid": 1, "tid": 1, "args": {"rank": 0}},
    {"ph": "s", "id": 1, "ts": 1, "name": "x", "cat": "fwdbwd", "pid": 1, "tid": 1},
    {"ph": "M", "name": "process_name", "pid": 1, "tid": 1, "args": {"name": "x"}},
]


def test_what_a_merged_file_says_of_no_rank_is_not_lost(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, MERGED)
    assert corpus.execute("SELECT list(name ORDER BY name) FROM operators").fetchall() == [(["a", "b", "of no rank"],)]
    counted = ("events", "operators", "flows", "metadata_events", "skipped")
    sums = ", ".join(f"sum({name})::BIGINT AS {name}" for name in counted)
    assert rows(corpus, f"SELECT {sums} FROM traces") == [
        {"events": len(MERGED), "operators": 3, "flows": 1, "metadata_events": 1, "skipped": 1}
    ]
    assert corpus.execute("SELECT rank, series FROM counters").fetchall() == [(1, "used")]


def test_a_merged_file_with_a_given_rank_is_one_trace(tmp_path: Path) -> None:
    path = write(tmp_path / "all.json", [op("a", 1, 2, rank=0), op("b", 4, 2, rank=1)])
    assert not ingest([path], tmp_path / "c", rank=7, workers=1).failed
    with connect(tmp_path / "c") as corpus:
        assert corpus.execute("SELECT rank, operators FROM traces").fetchall() == [(7, 2)]


def test_ids_that_are_texts_or_negative(tmp_path: Path) -> None:
    found = operators(
        tmp_path,
        [
            op("number", 1, 9, tid=-5),
            op("text", 2, 5, tid="-5"),
            op("name", 3, 2, tid="main"),
            op("other", 4, 1, tid="main 2"),
        ],
    )
    assert column(found, "thread") == {"number": -5, "text": -5, "name": None, "other": 2}
    assert column(found, "parent") == {"number": None, "text": "number", "name": None, "other": None}


def test_2021_annotations_without_a_name_are_no_annotations(tmp_path: Path) -> None:
    nameless = {"ph": "X", "cat": "Operator", "pid": 1, "tid": 1, "ts": 50, "dur": 1}
    events = [x("aten::add", "Operator", 1, 2), nameless, x("ProfilerStep#4", "Operator", 0, 20)]
    found = operators(tmp_path, events)
    assert [row["kind"] for row in found] == ["annotation", "cpu_op", "cpu_op"]
    assert [row["step"] for row in found] == [4, 4, None]
