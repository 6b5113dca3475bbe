"""Tables beside the operators, on small traces: memory, counters, process groups, counts, args; whose rank it is."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lumos_df.base.errors import LumosError
from lumos_df.corpus.catalog import connect
from lumos_df.corpus.layout import EMPTY_PARTITION
from lumos_df.trace import recorded_tables
from lumos_df.trace.ingest import ingest
from tests.trace.literal import (
    Event,
    annotation,
    column,
    corpus_of,
    kernel,
    launch,
    op,
    operators,
    rows,
    stated,
    write,
    x,
)

# --- the other tables


def test_memory_events(tmp_path: Path) -> None:
    def memory(ts: float, **args: Any) -> Event:
        named = {key.replace("_", " "): value for key, value in args.items()}
        return {
            "ph": "i",
            "s": "t",
            "name": "[memory]",
            "cat": "cpu_instant_event",
            "ts": ts,
            "pid": 1,
            "tid": 5,
            "args": named,
        }

    corpus = corpus_of(
        tmp_path,
        [
            memory(9.5, Addr=140, Bytes=512, Device_Type=1, Device_Id=3, Total_Allocated=1024, Total_Reserved=4096),
            memory(3.5, Addr=7, Bytes=-64, Device_Type=0, Device_Id=-1),
            memory(4.5, Bytes=1, Device_Type=20),
            memory(5.5, Addr=7, Device_Type=0, Device_Id=-1),
            op("a", 1, 2),
        ],
    )
    found = corpus.execute("SELECT * EXCLUDE (trace_id, rank, event) FROM memory_events ORDER BY ts").fetchall()
    assert found == [
        (3500, 5, "cpu", -1, 7, -64, None, None),
        (4500, 5, "20", -1, None, 1, None, None),
        (5500, 5, "cpu", -1, 7, None, None, None),
        (9500, 5, "gpu", 3, 140, 512, 1024, 4096),
    ]
    ((warnings,),) = corpus.execute("SELECT warnings FROM traces").fetchall()
    assert warnings == ["1 memory event without 'Bytes': how much changed is unknown"]


def test_counters(tmp_path: Path) -> None:
    def counter(name: str, ts: float, **args: Any) -> Event:
        return {"ph": "C", "name": name, "ts": ts, "pid": 1, "tid": 1, "args": args}

    values = {"a": 0.3, "b": -12.345678, "c": 1e-7, "d": 2**53 + 0.0, "e": 1.7976931348623157e308, "f": 3}
    corpus = corpus_of(
        tmp_path, [counter("one", 1.5, **values), counter("two", 2, x=1, text="no number", none=None), op("a", 1, 2)]
    )
    found = corpus.execute("SELECT name, ts, series, value FROM counters ORDER BY ALL").fetchall()
    assert found == [("one", 1500, series, value) for series, value in values.items()] + [("two", 2000, "x", 1.0)]


def test_counters_with_many_series_keep_them_all(tmp_path: Path) -> None:
    series = {f"s{k}": k for k in range(200)}
    events = [{"ph": "C", "name": "c", "ts": k, "pid": 1, "tid": 1, "args": series} for k in range(1500)]
    corpus = corpus_of(tmp_path, [*events, op("a", 1, 2)])
    assert corpus.execute("SELECT count(*), count(DISTINCT series) FROM counters").fetchall() == [(300_000, 200)]


def test_marks_without_a_time_are_counted_as_skipped(tmp_path: Path) -> None:
    events = [
        {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "args": {"Bytes": 3}},
        {"ph": "C", "name": "c", "pid": 1, "tid": 1, "args": {"a": 1}},
        op("a", 1, 2),
    ]
    corpus = corpus_of(tmp_path, events)
    assert corpus.execute("SELECT ts FROM memory_events UNION ALL SELECT ts FROM counters").fetchall() == []
    assert corpus.execute("SELECT skipped FROM traces").fetchall() == [(2,)]


SHAPES = {
    "[[2, 3], [], [[4], [5, 6]]]": True,
    "[]": True,
    "[[0, 3]]": True,
    "[[2, 3": False,
    "3": False,
    "[3]": False,
    '[[2, "3"]]': False,
    "[[2, [3]]]": False,
    "[[-2]]": False,
    "[[2.0]]": False,
    "[[true]]": False,
    "[[4294967296, 4294967296]]": False,
    "[" * 100_000: False,
}


def test_shapes_that_do_not_read_are_unknown_and_counted(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, [op("a", number, 1, Input_Dims=text) for number, text in enumerate(SHAPES)])
    found = [dims for (dims,) in corpus.execute("SELECT input_dims FROM operators ORDER BY op_id").fetchall()]
    assert found == [text if reads else None for text, reads in SHAPES.items()]
    kept = corpus.execute("SELECT args->>'Input Dims' FROM args ORDER BY event").fetchall()
    assert kept == [(text,) for text in SHAPES]
    ((warnings,),) = corpus.execute("SELECT warnings FROM traces").fetchall()
    assert warnings == ["malformed 'Input Dims' of 10 operators taken as unknown: [[2, 3"]


def test_types_and_grids_that_do_not_read_are_unknown_and_counted(tmp_path: Path) -> None:
    events = [
        op("a", 1, 2, Input_type='["float", 3]', grid="grid(4096,)"),
        kernel("k", 5, 1, grid="[1, 2", block=[[1]]),
        kernel("l", 7, 1, grid=[1, 2, 3], block=[32, 1, 1]),
    ]
    corpus = corpus_of(tmp_path, events)
    query = "SELECT input_types, grid, block FROM operators ORDER BY op_id"
    found = corpus.execute(query).fetchall()
    assert found == [(None, "grid(4096,)", None), (None, None, None), (None, "[1, 2, 3]", "[32, 1, 1]")]
    ((warnings,),) = corpus.execute("SELECT warnings FROM traces").fetchall()
    assert [warning for warning in warnings if "malformed" in warning] == [
        "malformed 'Input type' of 1 operator taken as unknown: [\"float\", 3]",
        "malformed 'grid' of 1 operator taken as unknown: [1, 2",
        "malformed 'block' of 1 operator taken as unknown: [[1]]",
    ]


def test_process_groups(tmp_path: Path) -> None:
    config = [
        {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": 4, "ranks": [0, 1, 2, 3]},
        {"pg_name": "5", "pg_desc": "tp", "backend_config": "cuda:nccl", "pg_size": 2},
    ]
    groups = stated("allreduce", 1, 1, Group_size=2)
    corpus = corpus_of(
        tmp_path,
        [
            kernel("ncclA", 1, 2, **{**groups, "Process_Group_Name": "5", "Process_Group_Ranks": "[2, 3]"}),
            kernel("ncclB", 4, 2, **{**groups, "Process_Group_Name": "9", "Process_Group_Description": "dp"}),
        ],
        distributedInfo={"backend": "nccl", "rank": 3, "world_size": 4, "pg_config": config},
    )
    found = corpus.execute('SELECT * EXCLUDE trace_id FROM process_groups ORDER BY "group"').fetchall()
    assert found == [
        (3, "0", "default_pg", "cuda:nccl", 4, [0, 1, 2, 3]),
        (3, "5", "tp", "cuda:nccl", 2, [2, 3]),
        (3, "9", "dp", None, 2, None),
    ]


EVERYTHING = [
    op("a", 1, 2),
    launch(1.5, 0.25, 1),
    kernel("k", 2, 2, correlation=1),
    x("Memcpy", "gpu_memcpy", 5, 1, 7, stream=7),
    x("Memset", "gpu_memset", 7, 1, 7, stream=7),
    x("Sync", "cuda_sync", 9, 1, 7, stream=7),
    annotation("note", 1, 50),
    x("note", "gpu_user_annotation", 1, 50, 7),
    x("f.py(1): f", "python_function", 1, 1),
    x("PyTorch Profiler (0)", "Trace", 0, 100, "PyTorch Profiler"),
    x("?", "from_the_future", 1, 1),
    {"ph": "s", "id": 1, "cat": "ac2g", "name": "ac2g", "ts": 1, "pid": 1, "tid": 1},
    {"ph": "f", "id": 1, "cat": "ac2g", "name": "ac2g", "ts": 2, "pid": 1, "tid": 7, "bp": "e"},
    {"ph": "s", "id": 2, "cat": "fwdbwd", "name": "fwdbwd", "ts": 1, "pid": 1, "tid": 1},
    {"ph": "i", "name": "[memory]", "ts": 3, "pid": 1, "tid": 1, "args": {"Bytes": 4, "Device Type": 0}},
    {"ph": "i", "name": "Iteration Start", "ts": 3, "pid": 1, "tid": 1},
    {"ph": "C", "name": "c", "ts": 3, "pid": 1, "tid": 1, "args": {"x": 1, "y": 2}},
    {"ph": "M", "name": "process_name", "pid": 1, "tid": 1, "args": {"name": "python"}},
    {"ph": "B", "name": "begin", "ts": 3, "pid": 1, "tid": 1},
    {"ph": "X", "name": "no time", "cat": "cpu_op", "pid": 1, "tid": 1},
    op("negative", 60, -3),
    op("no duration", 70, 1) | {"dur": "long"},
    17,
    "text",
]


def test_every_event_is_counted_once(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, EVERYTHING)
    (trace,) = rows(corpus, "SELECT * FROM traces")
    counted = {
        "operators": 13,
        "cpu_ops": 3,
        "runtime_calls": 1,
        "kernels": 1,
        "memcpys": 1,
        "memsets": 1,
        "syncs": 1,
        "annotations": 2,
        "python_functions": 1,
        "others": 2,
        "flows": 3,
        "instants": 1,
        "memory_events": 1,
        "counters": 2,
        "metadata_events": 1,
        "skipped": 4,
        "events": len(EVERYTHING),
    }
    assert {name: trace[name] for name in counted} == counted
    assert (trace["first_ts"], trace["last_ts"], trace["resolution_ns"]) == (0, 100_000, 1)
    for words in ("without a start time", "type (ph)", "no event", "negative durations", "missing or no number"):
        assert any(words in warning for warning in trace["warnings"]), words
    kinds = dict(corpus.execute("SELECT name, kind FROM operators WHERE name <> 'note'").fetchall())
    assert (kinds["?"], kinds["Sync"], kinds["PyTorch Profiler (0)"]) == ("other", "sync", "other")


def test_numbers_that_no_column_holds_are_null(tmp_path: Path) -> None:
    found = operators(
        tmp_path,
        [
            op("text's place", 1, 2, tid=-(2**62) + 1),  # where the scanner keeps the numbers of names
            op("lowest", 4, 2, tid=-(2**62) + 2**31),
            kernel("far", 7, 2, device=2**32 + 1),
            kernel("near", 10, 2, device=2**31 - 1),
        ],
    )
    assert column(found, "thread") == {"text's place": None, "lowest": -(2**62) + 2**31, "far": None, "near": None}
    assert column(found, "device") == {"text's place": None, "lowest": None, "far": None, "near": 2**31 - 1}


def test_args_of_every_event_stay(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, EVERYTHING)
    found = corpus.execute("SELECT count(*) FROM args").fetchall()
    assert found == [(sum(isinstance(event, dict) and "args" in event for event in EVERYTHING),)]
    joined = corpus.execute(
        "SELECT args->>'correlation' FROM operators JOIN args USING (trace_id, event) WHERE kind = 'kernel'"
    )
    assert joined.fetchall() == [("1",)]


def test_columns_that_are_never_null_are_stored_as_such(tmp_path: Path) -> None:
    corpus_of(tmp_path, [op("a", 1, 2), kernel("k", 3, 4, correlation=1)])
    (file,) = (file for file in tmp_path.glob("**/operators.parquet") if file.parent.name != EMPTY_PARTITION)
    required = [column.name for column in list(pq.ParquetFile(file).schema) if column.max_definition_level == 0]
    assert required == ["rank", "op_id", "kind", "ts", "dur", "event"]


def test_what_looks_like_a_secret_is_left_out_of_the_metadata_and_named(tmp_path: Path) -> None:
    secrets = (
        "HF_TOKEN",
        "client_secret",
        "DB_PASSWORD",
        "credentials",
        "OPENAI_API_KEY",
        "x-api-key",
        "private_key",
        "ssh_key",
        "AWS_ACCESS_KEY_ID",
    )
    harmless = {"tokenizer": "bpe", "key": "a", "monkey": "b", "tokens": 512, "secret": ""}
    corpus = corpus_of(tmp_path, [op("a", 1, 2)], env=[dict.fromkeys(secrets, "hunter2") | harmless])
    ((metadata, warnings),) = corpus.execute("SELECT metadata, warnings FROM traces").fetchall()
    assert json.loads(metadata)["env"] == [dict.fromkeys(secrets, "<hidden>") | harmless]
    hidden = "left out of the metadata, as it looks like a secret: "
    assert [line for line in warnings if line.startswith(hidden)] == [hidden + ", ".join(secrets)]


# --- ranks


@pytest.mark.parametrize(
    ("name", "top", "given", "expected"),
    [
        ("rank3.json", {}, None, (3, "file name")),
        ("worker12.pt.trace.json", {}, None, (12, "file name")),
        ("trace_rank-05_step10.json", {}, None, (5, "file name")),
        ("node1_rank12_step300.json", {}, None, (12, "file name")),
        ("2024-05-17_job7-rank2.pt.trace.json", {}, None, (2, "file name")),
        ("worker0_rank3.json", {}, None, (3, "file name")),
        ("rank1/rank4.json", {}, None, (4, "file name")),
        ("trace.json", {}, None, (0, "assumed")),
        ("rank3.json", {"distributedInfo": {"rank": 6, "world_size": 8}}, None, (6, "distributedInfo")),
        ("rank3.json", {"distributedInfo": {"backend": "nccl"}}, None, (3, "file name")),
        ("rank3.json", {"distributedInfo": {"rank": 6}}, 1, (1, "option")),
        ("frank2.json", {}, None, (0, "assumed")),
        ("gpu12_4711.1700000000.pt.trace.json", {}, None, (0, "assumed")),  # host_pid.time, as torch.profiler names it
        ("worker12_4711.1700000000.pt.trace.json", {}, None, (0, "assumed")),
    ],
)
def test_where_the_rank_comes_from(
    tmp_path: Path, name: str, top: dict[str, Any], given: int | None, expected: tuple[int, str]
) -> None:
    path = write(tmp_path / name, [op("a", 1, 2)], **top)
    assert not ingest([path], tmp_path / "c", rank=given, workers=1).failed
    with connect(tmp_path / "c") as corpus:
        assert corpus.execute("SELECT rank, rank_source FROM traces").fetchall() == [expected]
        assert corpus.execute("SELECT DISTINCT rank FROM operators").fetchall() == [expected[:1]]


def test_a_rank_in_the_args_of_every_event(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, [op("a", 1, 2, rank=5), op("b", 4, 2, rank=5)], "trace.json")
    assert corpus.execute("SELECT rank, rank_source FROM traces").fetchall() == [(5, "args")]


_HOST = {"deviceProperties": [{"id": gpu} for gpu in range(4)]}


@pytest.mark.parametrize(
    ("collectives", "top", "expected"),
    [
        # A rank is in each of its groups; what its place says, and its GPU, comes after that.
        ([("allreduce", "[4, 5]", 0), ("allreduce", "[1, 5]", None)], {}, (5, "process groups")),
        ([("allreduce", "[7]", None)], {}, (7, "process groups")),
        ([("_allgather_base", "[2, 6, 9]", 1)], {}, (6, "process groups")),
        ([("allreduce", "[2, 6]", 1), ("reduce_scatter", "[0, 2, 6]", 2)], {}, (6, "process groups")),
        ([("allreduce", "[0, 1, ...]", 0), ("allreduce", "[1, 3]", 1)], {}, (3, "process groups")),
        ([("allreduce", "[4, 5, 6]", None)], _HOST, (6, "process groups and GPU")),
        ([("broadcast", "[4, 6]", 0)], _HOST, (6, "process groups and GPU")),
        # Nothing decides: a root, a peer, two hosts, no list, groups that share no rank.
        ([("broadcast", "[4, 5]", 0)], {}, None),
        ([("send", "[4, 5]", 1)], {}, None),
        ([("allreduce", "[2, 6]", None)], _HOST, None),
        ([("allreduce", "[0, 1, ...]", 0)], {}, None),
        ([("allreduce", "[0, 1]", None), ("allreduce", "[2, 3]", None)], {}, None),
        ([("allreduce", "[0, 1]", 0), ("allreduce", "[1, 0]", 0)], {}, None),
        ([("allreduce", "[0, 1]", 2)], {}, None),
    ],
)
def test_process_groups_tell_the_rank(
    tmp_path: Path,
    collectives: list[tuple[str, str, int | None]],
    top: dict[str, Any],
    expected: tuple[int, str] | None,
) -> None:
    events = [
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 10 * place, 2, device=2)
        | {"args": {"device": 2, "stream": 7, "Collective name": name, "Process Group Ranks": ranks}}
        for place, (name, ranks, _) in enumerate(collectives)
    ]
    for event, (_, _, in_group) in zip(events, collectives, strict=True):
        event["args"] |= {} if in_group is None else {"Rank": in_group}
    path = write(tmp_path / "libkineto_activities_4711.json", events, **top)
    result = ingest([path], tmp_path / "c", workers=1)
    if expected is None:
        assert "rank unknown" in result.failed[0].message
        return
    with connect(tmp_path / "c") as corpus:
        assert corpus.execute("SELECT rank, rank_source FROM traces").fetchall() == [expected]
        warned = corpus.execute("SELECT len(warnings) FROM traces WHERE warnings[1] LIKE 'rank taken%'").fetchall()
    assert bool(warned) == (expected[1] == "process groups and GPU")


@pytest.mark.parametrize(
    "event",
    [
        op("nccl:all_reduce", 1, 2),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 1, 2),
        kernel("_combine_all_to_all_kernel", 1, 2),
    ],
)
def test_collectives_need_a_rank(tmp_path: Path, event: Event) -> None:
    path = write(tmp_path / "trace.json", [event])
    result = ingest([path], tmp_path / "c", workers=1)
    unknown = "rank unknown: neither distributedInfo, the file name nor process groups say it"
    said = [failed.message.split("; give it")[0] for failed in result.failed]
    assert said == [f"{path}: {unknown}, and the trace has collectives"]
    assert not ingest([path], tmp_path / "c", rank=2, workers=1).failed


def test_a_path_says_the_rank_of_its_file(tmp_path: Path) -> None:
    for name, ts in (("node1/gpu0", 1), ("node1/gpu12", 2), ("node1/none", 3)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / f"{name}.json", [kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", ts, 2)])
    result = ingest([tmp_path / "node1"], tmp_path / "c", rank_from="path:(?:node|gpu)([0-9]+)", workers=1)
    assert not result.failed
    with connect(tmp_path / "c") as corpus:  # the last of several matches
        found = corpus.execute("SELECT rank, first_ts, rank_source FROM traces ORDER BY 2").fetchall()
    assert [(rank, source) for rank, _, source in found] == [(0, "option"), (12, "option"), (1, "option")]
    refused = ingest([tmp_path / "node1"], tmp_path / "d", rank_from="path:gpu([0-9]+)", workers=1).failed
    assert [failed.message.split(": ", 1)[1] for failed in refused] == [
        "--rank-from 'path:gpu([0-9]+)': it does not match; give a pattern of every path"
    ]


@pytest.mark.parametrize(
    ("pattern", "message"), [("path:gpu([0-9]+", "no regular expression"), ("path:gpu[0-9]+", "one pair of parenth")]
)
def test_a_rule_for_paths_is_checked_before_any_file_is_read(tmp_path: Path, pattern: str, message: str) -> None:
    path = write(tmp_path / "gpu1.json", [op("a", 1, 2)])
    with pytest.raises(LumosError, match=message):
        ingest([path], tmp_path / "c", rank_from=pattern)


def test_names_of_the_host_are_no_kernels_that_communicate(tmp_path: Path) -> None:
    names = ["torch/cuda/nccl.py(30): version", "torch/distributed/nn.py: all_reduce", "nvshmem is absent"]
    path = write(tmp_path / "trace.json", [op(name, 3 * place, 2) for place, name in enumerate(names)])
    assert not ingest([path], tmp_path / "c", workers=1).failed


@pytest.mark.parametrize("events_of_host_alone", [False, True])
def test_operators_are_the_same_in_many_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, events_of_host_alone: bool
) -> None:
    mixed = [
        annotation("ProfilerStep#4", 1, 90),
        *(op(f"aten::mm{k}", 2 + 5 * k, 4, Input_Dims=[[k, 8], [8, 2]]) for k in range(6)),
        *(launch(3 + 5 * k, 1, 100 + k) for k in range(6)),
        *(kernel("gemm", 5 + 5 * k, 3, correlation=100 + k, grid=[k, 1, 1]) for k in range(6)),
        kernel("ncclDevKernel_AllReduce", 60, 3, **stated("allreduce", 40, 40)),
    ]
    events = [op(f"a{k}", 2 + 5 * k, 4) for k in range(8)] if events_of_host_alone else mixed
    path = write(tmp_path / "rank3.json", events, distributedInfo={"rank": 3})
    found = []
    for rows_of_group in (1 << 17, 4):
        monkeypatch.setattr(recorded_tables, "_ROWS", rows_of_group)
        corpus = tmp_path / f"c{rows_of_group}"
        assert not ingest([path], corpus, workers=1).failed
        file = pq.ParquetFile(next(corpus.glob("trace_id=*[0-9a-f]/operators.parquet")))
        assert file.num_row_groups == -(-len(events) // rows_of_group)
        with connect(corpus) as connection:
            found.append(rows(connection, "SELECT * FROM operators ORDER BY op_id"))
        assert [row["rank"] for row in found[-1]] == [3] * len(events)
    assert found[0] == found[1]
