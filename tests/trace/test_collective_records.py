"""Recorders of communication alone: PyTorch's flight recorder, NCCL's Inspector and plugin, as their sources write."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from lumos_df.base.errors import CorpusError
from lumos_df.corpus.catalog import connect
from lumos_df.graph.job import jobs
from lumos_df.page.write import write as write_page
from lumos_df.trace.ingest import ingest

COLUMNS = """rank, "group", group_description, group_size, group_ranks, collective, peer, seq, dtype, message_bytes,
  state, created_ts, completed_ts, duration_ns, stack"""


def entry(name: str, seq: int, created: int, **more: Any) -> dict[str, Any]:
    return {
        "record_id": seq, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": seq, "p2p_seq_id": 0,
        "op_id": 1, "profiling_name": name, "time_created_ns": created, "input_sizes": [[8, 4]],
        "input_dtypes": ["Float"], "output_sizes": [[8, 4]], "output_dtypes": ["Float"], "state": "completed",
        "time_discovered_started_ns": created + 5, "time_discovered_completed_ns": created + 50, "retired": True,
        "timeout_ms": 600000, "is_p2p": False, "frames": [{"name": "step", "filename": "train.py", "line": 3}], **more,
    }  # fmt: skip


# PyTorch 2.15, torch/csrc/distributed/c10d/FlightRecorder.hpp, version 2.10 of the dump.
DUMP = {
    "version": "2.10",
    "nccl_version": "2.30.7",
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "pg_status": {"0": {"last_enqueued_collective": 2}},
    "entries": [
        entry("nccl:all_reduce", 1, 10**18, duration_ms=1.5),
        entry("nccl:send 0->1", 1, 10**18 + 20, is_p2p=True, p2p_seq_id=7, state="started",
              time_discovered_completed_ns=None, frames=[]),
    ],
}  # fmt: skip
WANTED = [
    (1, "0", "default_pg", 2, [0, 1], "all_reduce", None, 1, "float32", 128, "completed", 0, 50, 1_500_000,
     "step (train.py:3)"),
    (1, "0", "default_pg", 2, [0, 1], "send", 1, 7, "float32", 128, "started", 20, None, None, None),
]  # fmt: skip


# PyTorch 2.2, torch/csrc/distributed/c10d/TraceUtils.h: a list, and no version.
OLDEST = [
    {"pg_id": 0, "seq_id": seq, "profiling_name": "nccl:all_reduce", "time_created_us": 10**15 + 20 * seq,
     "input_sizes": [[8, 4]], "output_sizes": [[8, 4]], "state": state, "retired": False,
     "frames": [{"name": "step", "filename": "train.py", "line": 3}]}
    for seq, state in ((1, "completed"), (2, "started"))
]  # fmt: skip
# The same file in PyTorch 2.3, version 1.4 of the dump.
OLD = {
    "entries": [
        {"record_id": 0, "pg_id": 0, "seq_id": 1, "op_id": 1, "profiling_name": "nccl:all_reduce",
         "time_created_ns": 10**18, "duration_ms": 1.5, "input_sizes": [[8, 4]], "output_sizes": [[8, 4]],
         "state": "completed", "time_discovered_started_ns": 10**18 + 5, "time_discovered_completed_ns": 10**18 + 50,
         "retired": True, "frames": []},
    ],
    "version": "1.4",
    "pg_config": {0: [0, 1]},
}  # fmt: skip


@pytest.mark.parametrize(
    ("dump", "wanted"),
    [
        (
            OLDEST,
            [
                (1, "0", None, None, None, "all_reduce", None, 1, None, None, "completed", 0, None, None,
                 "step (train.py:3)"),
                (1, "0", None, None, None, "all_reduce", None, 2, None, None, "started", 20_000, None, None,
                 "step (train.py:3)"),
            ],
        ),
        (OLD, [(1, "0", None, 2, [0, 1], "all_reduce", None, 1, None, None, "completed", 0, 50, 1_500_000, None)]),
    ],
)  # fmt: skip
def test_old_dumps_of_the_flight_recorder(tmp_path: Path, dump: Any, wanted: list[tuple[Any, ...]]) -> None:
    path = tmp_path / "nccl_trace_rank_1"
    path.write_bytes(pickle.dumps(dump, 2))
    assert stored(path) == wanted


def stored(path: Path, **options: Any) -> list[tuple[Any, ...]]:
    result = ingest([path], path.parent / "corpus", workers=1, **options)
    assert not result.failed, result.failed
    with connect(path.parent / "corpus") as connection:
        return connection.sql(f"SELECT {COLUMNS} FROM collective_records ORDER BY record").fetchall()


@pytest.mark.parametrize(
    "pack",
    [
        pickle.dumps,
        lambda dump: json.dumps(dump, sort_keys=True).encode(),
        lambda dump: json.dumps({"version": dump["version"], **dump}, indent=1).encode(),
    ],
    ids=["pickle", "JSON", "JSON of a pickle"],
)
def test_a_dump_of_the_flight_recorder(tmp_path: Path, pack: Any) -> None:
    path = tmp_path / "nccl_trace_rank_1"
    path.write_bytes(pack(DUMP))
    assert stored(path) == WANTED
    with connect(tmp_path / "corpus") as connection:
        traces = connection.sql("SELECT rank, dialect, nccl_version, clock_origin_ns, warnings FROM traces").fetchall()
        groups = connection.sql('SELECT "group", size, ranks FROM process_groups').fetchall()
    assert traces == [(1, "flight-recorder", "2.30.7", 10**18, [])]
    assert groups == [("0", 2, [0, 1])]


def test_a_version_that_holds_itself_is_a_text(tmp_path: Path) -> None:
    version: list[Any] = []
    version.append(version)
    path = tmp_path / "rank0.pickle"
    path.write_bytes(pickle.dumps(DUMP | {"version": version}))
    assert not ingest([path], tmp_path / "corpus", workers=1).failed
    with connect(tmp_path / "corpus") as connection:
        assert connection.sql("SELECT versions FROM traces").fetchall() == [('{"flight_recorder": "[[...]]"}',)]


def test_lists_as_pytorch_s_own_pickler_writes_them_are_plain_data(tmp_path: Path) -> None:
    built = b"ctorch.jit._pickle\nbuild_intlist\n(](K\x08K\x04e\x85R"  # protocol 2, as C++ writes it
    data = pickle.dumps({"version": "2.10", "entries": [], "pg_config": {}, "x": "MARK"}, protocol=2)
    at = data.index(b"X\x04\x00\x00\x00MARK")
    path = tmp_path / "rank0.pickle"
    path.write_bytes(data[:at] + built.replace(b"(](", b"](") + data[at + 9 :])
    assert stored(path) == []


@pytest.mark.parametrize(
    "content", [{"version": "2.10", "entries": [{}]}, {"version": 1, "pg_config": {"0": 5}}, {"version": [1]}]
)
def test_other_pickles_are_one_line(tmp_path: Path, content: object) -> None:
    path = tmp_path / "rank0.pickle"
    path.write_bytes(pickle.dumps(content))
    failed = ingest([path], tmp_path / "corpus", workers=1).failed
    told = [failure.message for failure in failed]
    assert not told or told[0].startswith(f"{path}: no dump of PyTorch's flight recorder (")


def test_who_is_missing_from_the_last_collective(tmp_path: Path) -> None:
    late = DUMP | {"entries": [entry("nccl:all_reduce", 1, 10**18)]}
    waits = DUMP | {
        "entries": [entry("nccl:all_reduce", 1, 10**18), entry("nccl:all_gather", 2, 10**18 + 9, state="started")]
    }
    for rank, dump in enumerate((waits, late)):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump))
    assert not ingest([tmp_path / "nccl_trace_rank_*"], tmp_path / "corpus", job="j", workers=1).failed
    with connect(tmp_path / "corpus") as connection:
        found = connection.sql("SELECT rank, verdict, seq, collective, issued_seq FROM collective_hang").fetchall()
    assert found == [(0, "waiting", 2, "all_gather", 2), (1, "missing", 2, "all_gather", 1)]


def gloo(name: str, seq: int, created: int, *, over: bool, group: str = "0") -> dict[str, Any]:
    description = {"0": "default_pg", "1": "mine"}[group]
    return entry(
        f"gloo:{name}", seq, created, pg_id=int(group), process_group=(group, description), state="scheduled",
        retired=over, time_discovered_started_ns=None, time_discovered_completed_ns=None, thread_name="python",
        thread_id="140088170027904",
    )  # fmt: skip


@pytest.mark.parametrize("form", ["pickle", "JSON"])
def test_dumps_of_gloo_say_who_is_missing(tmp_path: Path, form: str) -> None:
    """As PyTorch 2.13 writes them: tests/recipes/record_flight_recorder.py."""
    config = {"": {"name": "", "desc": "", "ranks": "[]"}}
    for rank, last in enumerate((5, 4)):
        calls = [gloo("all_reduce", seq, 10**18 + seq, over=seq < 5) for seq in range(1, last + 1)]
        calls.append(gloo("all_gather", 1, 10**18 + 9, over=True, group="1"))
        dump = {"comm_lib_version": "", "entries": calls, "pg_config": config, "version": "2.10"}
        if form == "JSON":
            for one in calls:
                one |= {"time_discovered_started_ns": 0, "time_discovered_completed_ns": 0}
            (tmp_path / f"rank{rank}.json").write_text(json.dumps(dump, sort_keys=True))
        else:
            (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump, protocol=2))
    assert not ingest([tmp_path / "*rank*"], tmp_path / "corpus", job="j", workers=1).failed
    with connect(tmp_path / "corpus") as connection:
        hang = connection.sql('SELECT rank, "group", verdict, seq, issued_seq FROM collective_hang').fetchall()
        summary = connection.sql(
            "SELECT rank, collective, calls, in_bytes, total_ns FROM collective_summary"
        ).fetchall()
        ends = connection.sql("SELECT count(started_ts), count(completed_ts) FROM collective_records").fetchall()
        groups = connection.sql('SELECT "group" FROM process_groups').fetchall()
    write_page(tmp_path / "corpus", tmp_path / "page.html")
    assert "records of their calls alone" in (tmp_path / "page.html").read_text()
    assert hang == [(0, "0", "waiting", 5, 5), (1, "0", "missing", 5, 4)]
    assert sorted(summary) == [
        (0, "all_gather", 1, 128, None),
        (0, "all_reduce", 5, 128, None),
        (1, "all_gather", 1, 128, None),
        (1, "all_reduce", 4, 128, None),
    ]
    assert (ends, groups) == ([(0, 0)], [])


def line(**parts: Any) -> str:
    return json.dumps(parts)


def performed(coll: str, number: int, size: int, took: float) -> dict[str, Any]:
    return {"coll": coll, "coll_sn": number, "coll_msg_size_bytes": size, "coll_exec_time_us": took,
            "coll_algo": "RING", "coll_proto": "LL", "coll_busbw_gbs": 1.5}  # fmt: skip


def test_records_of_nccl_inspector(tmp_path: Path) -> None:
    """NVIDIA/nccl, ext-profiler/inspector, output formats 4.0, each line with a header, and 5.0, behind a marker."""
    metadata = {"inspector_output_format_version": "v4.0", "dump_timestamp_us": 1_711_800_000_000_000, "hostname": "a"}
    world, pair = {"id": "0x1f", "rank": 3, "n_ranks": 8, "nnodes": 1}, {"id": "0x2f", "rank": 1, "n_ranks": 2}
    path = tmp_path / "a-pid7.log"
    path.write_text(
        "\n".join(
            [
                line(header=pair, metadata=metadata, coll_perf=performed("AllGather", 4, 256, 20)),
                line(header=world, metadata=metadata, dump_stats={"coll_records": 1}),
                line(coll_perf=performed("AllReduce", 9, 1024, 61.5)),
                '{"coll_perf": {"coll": "AllRed',
            ]
        )
    )
    assert stored(path) == [
        (3, "0x2f", None, 2, None, "all_gather", None, 4, None, 256, "completed", None, None, 20_000, None),
        (3, "0x1f", None, 8, None, "all_reduce", None, 9, None, 1024, "completed", None, None, 61_500, None),
    ]
    with connect(tmp_path / "corpus") as connection:
        found = connection.sql(
            "SELECT algorithm, host, world_size FROM collective_records JOIN traces USING (trace_id)"
        )
        assert set(found.fetchall()) == {("RING LL", "a", 8)}


@pytest.mark.parametrize(
    ("header", "dumped"),
    [({}, -(2**62)), ({}, 2**63 - 1), ({"rank": 2**40}, 5), ({"rank": -7}, 5), ({"n_ranks": 2**40}, 5)],
)
def test_records_of_nccl_inspector_with_numbers_that_cannot_be(
    tmp_path: Path, header: dict[str, int], dumped: int
) -> None:
    path = tmp_path / "rank5.log"
    said = {"id": "0x1f", "rank": 3, "n_ranks": 8} | header
    performs = performed("AllGather", 4, 256, 1e300)
    path.write_text(line(header=said, metadata={"dump_timestamp_us": dumped}, coll_perf=performs))
    result = ingest([path], tmp_path / "corpus", workers=1)
    assert not result.failed, result.failed
    with connect(tmp_path / "corpus") as connection:
        ((rank, world, origin),) = connection.sql("SELECT rank, world_size, clock_origin_ns FROM traces").fetchall()
        assert connection.sql("SELECT duration_ns FROM collective_records").fetchall() == [(None,)]
    assert rank == (5 if "rank" in header else 3)
    assert world == (None if "n_ranks" in header else 8)
    assert origin == (5000 if dumped == 5 else 0)


def test_records_of_nccl_inspector_name_groups_and_say_what_was_timed(tmp_path: Path) -> None:
    """NVIDIA/nccl 35d819ec, plugins/profiler/inspector, output format 4.2: no kernel was seen of the second one."""
    header = {"id": "0x1f", "comm_name": "DP Group 0", "rank": 2, "n_ranks": 8, "nnodes": 1}
    path = tmp_path / "a-pid7.log"
    path.write_text(
        "\n".join(
            line(
                header=each,
                metadata={"inspector_output_format_version": "v4.2"},
                coll_perf=performed("AllReduce", number, 64, 5) | {"coll_timing_source": source},
            )
            for number, (each, source) in enumerate(
                [(header, "kernel_gpu"), (header, "collective_cpu"), (header | {"comm_name": "unknown"}, "kernel_cpu")]
            )
        )
    )
    assert [(row[2], row[7], row[13]) for row in stored(path)] == [
        ("DP Group 0", 0, 5000),
        ("DP Group 0", 1, None),
        (None, 2, 5000),
    ]


def test_records_of_nccl_inspector_without_the_size_of_a_group(tmp_path: Path) -> None:
    path = tmp_path / "a-pid7.log"
    path.write_text(line(header={"id": "0x1f", "rank": 3}, coll_perf=performed("AllGather", 4, 256, 20)))
    assert [row[:4] for row in stored(path)] == [(3, "0x1f", None, None)]


def test_records_of_nccl_inspector_without_a_rank_go_by_the_file_s_name(tmp_path: Path) -> None:
    path = tmp_path / "rank5.log"
    path.write_text(line(header={"id": "0x1f", "n_ranks": 8}, coll_perf=performed("AllGather", 4, 256, 20)))
    assert [row[:4] for row in stored(path)] == [(5, "0x1f", None, 8)]


def chrome(name: str, cat: str, ph: str, ts: float, **args: Any) -> str:
    """Return an event as print_event.c of NCCL's example plugin writes it, which ends each line with a comma."""
    event = {"name": name, "cat": cat, "ph": ph, "id": 0, "pid": 77, "tid": 1, "ts": ts}
    return json.dumps(event | ({"args": args} if args else {})) + ","


def reduces(number: int, count: int, *inside: str, **more: Any) -> list[str]:
    known = {"SeqNum": number, "CommHash": 2**64 - 9, "Rank": 3, "Count": count, "Datatype": "ncclBfloat16"}
    args = known | {"Algorithm": "RING", "Protocol": "LL", "nMaxChannels": 2} | more
    begins, ends = chrome("AllReduce", "COLL", "b", 10.5, **args), chrome("AllReduce", "COLL", "e", 12.5)
    return [chrome("Group", "GROUP", "b", 10.0, groupId=0), begins, *inside, ends, chrome("Group", "GROUP", "e", 13.0)]


def channel(number: int, begin: float, end: float, proxy: str = "", **clocks: int) -> list[str]:
    first, last = chrome("KernelCh", "GPU", "b", begin, Channel=number, **clocks), chrome("KernelCh", "GPU", "e", end)
    return [first, *([proxy] if proxy else []), last]


def plugin(path: Path, *events: str, end: str = "{}]\n") -> Path:
    path.write_text("[\n" + "".join(f"{event}\n" for event in events) + end)
    return path


def test_times_of_nccl_s_profiler_plugin_that_no_column_holds_are_unknown(tmp_path: Path) -> None:
    path = plugin(tmp_path / "nccl_7_3.json", *reduces(4, 512, *channel(0, -1e300, 1e300)))
    assert [row[-2] for row in stored(path)] == [None]


def test_events_of_nccl_s_profiler_plugin(tmp_path: Path) -> None:
    """An operation runs from its first channel to its last; where none is recorded its end is that of the launch."""
    send = {"CommHash": 2**64 - 9, "Rank": 3, "Peer": 1, "Count": 8, "Datatype": "ncclFloat32"}
    proxy = chrome("Send", "PROXY", "b", 100.0, Channel=0, Peer=1, Steps=4, ChunkSize=8, transSize=64)
    path = plugin(
        tmp_path / "nccl_18446744073709551607_3.json",
        *reduces(4, 512, *channel(0, 20.0, 60.0, proxy), *channel(1, 25.0, 81.5)),
        *reduces(5, 512, *channel(0, 20.0, 90.0, StartGpuClk=1000, StopGpuClk=41_000),
                 *channel(1, 20.0, 90.0, StartGpuClk=3000, StopGpuClk=51_000)),
        *reduces(6, 512, Datatype="ncclNew"),
        chrome("Send", "P2P", "b", 200.0, **send),
        chrome("Send", "P2P", "e", 201.0),
    )  # fmt: skip
    group = str(2**64 - 9)
    assert stored(path) == [
        (3, group, None, None, None, "all_reduce", None, 4, "bfloat16", 1024, "completed", None, None, 61_500, None),
        (3, group, None, None, None, "all_reduce", None, 5, "bfloat16", 1024, "completed", None, None, 50_000, None),
        (3, group, None, None, None, "all_reduce", None, 6, None, None, "completed", None, None, None, None),
        (3, group, None, None, None, "send", 1, None, "float32", 32, "completed", None, None, None, None),
    ]
    with connect(tmp_path / "corpus") as connection:
        assert connection.sql("SELECT DISTINCT algorithm FROM collective_records WHERE seq = 4").fetchall() == [
            ("RING LL",)
        ]


def test_ranks_are_compared_by_the_events_of_nccl_s_plugin(tmp_path: Path) -> None:
    for rank, end in enumerate((60.0, 45.0)):
        plugin(tmp_path / f"nccl_9_{rank}.json", *reduces(1, 512, *channel(0, 20.0, end), Rank=rank))
    assert not ingest([tmp_path], tmp_path / "corpus", job="j", workers=1).failed
    with connect(tmp_path / "corpus") as connection:
        waited = connection.sql("SELECT rank, total_ns FROM collective_summary ORDER BY rank").fetchall()
    assert waited == [(0, 40_000), (1, 25_000)]


def test_half_a_file_of_nccl_s_plugin_is_read_and_what_is_left_out_counted(tmp_path: Path) -> None:
    path = plugin(tmp_path / "nccl_9_3.json", *reduces(4, 512, *channel(0, 20.0, 60.0)), end='{"name": "AllRed')
    assert [row[13] for row in stored(path)] == [40_000]
    with connect(tmp_path / "corpus") as connection:
        warned = connection.sql("SELECT warnings FROM traces").fetchall()
    assert any("1 line that" in text for text in warned[0][0])


def test_events_of_nccl_s_plugin_without_operations_say_how_to_record_them(tmp_path: Path) -> None:
    path = plugin(tmp_path / "nccl_9_3.json", chrome("Sleep", "PROXY", "b", 1.0), chrome("Sleep", "PROXY", "e", 2.0))
    outcome = ingest([path], tmp_path / "corpus", workers=1)
    assert ["NCCL_PROFILE_EVENT_MASK=70" in failure.message for failure in outcome.failed] == [True]


def test_events_of_nccl_s_plugin_are_no_ranks_to_replay(tmp_path: Path) -> None:
    plugin(tmp_path / "nccl_9_3.json", *reduces(4, 512, *channel(0, 20.0, 60.0)))
    assert not ingest([tmp_path], tmp_path / "corpus", workers=1).failed
    with pytest.raises(CorpusError, match="no trace here has operators"):
        jobs(tmp_path / "corpus")
