"""Reports of Nsight Systems: literal ones, and recorded ones beside what was computed of them by other means."""

import gzip
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lumos_df.corpus.catalog import connect
from lumos_df.schema.codes import EARLIEST, LATEST
from lumos_df.trace.ingest import IngestResult, ingest
from tests.trace.nsight_files import (
    CALLS,
    COPY,
    KERNELS,
    LAUNCH,
    POLL,
    PROFILES,
    WAIT,
    calls,
    export_parquet,
    gid,
    kernels,
    payload,
    ranges,
    write,
)  # fmt: skip

REFERENCE = PROFILES.parent / "reference" / "nsys.json"


UNKNOWN = (
    f"SQLite without a table of a profiler that this version knows, such as {KERNELS} or NVTX_EVENTS; write it with: "
    "nsys export --type sqlite REPORT.nsys-rep"
)


def taken(path: Path, **options: Any) -> IngestResult:
    result = ingest([path], path.parent / "corpus", workers=1, **options)
    assert not result.failed, result.failed
    return result


def asked(path: Path, query: str, **options: Any) -> list[tuple[Any, ...]]:
    taken(path, **options)
    with connect(path.parent / "corpus") as connection:
        return connection.sql(query).fetchall()


ONE = {KERNELS: kernels((300, 500, 0, 7, 9, 111)), CALLS: calls((100, 200, 111, 5, 9, LAUNCH))}


def test_a_kernel_lies_below_its_call_and_the_call_in_its_range(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", **ONE, NVTX_EVENTS=ranges((50, 250, 111, 5, "forward")))
    query = """
      SELECT own.kind, own.name, around.name, own.ts, own.dur, own.thread, own.device, own.stream, own.grid
      FROM operators AS own LEFT JOIN operators AS around ON around.op_id = own.parent_id ORDER BY own.op_id"""
    assert asked(path, query) == [
        ("annotation", "forward", None, 50, 200, 5, None, None, None),
        ("runtime", "cudaLaunchKernel", "forward", 100, 100, 5, None, None, None),
        ("kernel", "ampere_sgemm", "cudaLaunchKernel", 300, 200, None, 0, 7, "[80, 2, 1]"),
    ]


def test_each_process_and_gpu_is_a_trace_and_correlations_hold_within_a_process(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.sqlite",
        **{
            # Ranks are in the order of the GPUs: process 222 has GPU 0. Process 333 has none.
            KERNELS: kernels((300, 500, 1, 7, 9, 111), (310, 400, 0, 7, 9, 222)),
            CALLS: calls((100, 200, 111, 5, 9, LAUNCH), (150, 160, 222, 6, 9, LAUNCH), (1, 2, 333, 7, 9, LAUNCH)),
        },
    )
    query = """
      SELECT rank, rank_source, ts, dur, (SELECT ts FROM operators AS call WHERE call.op_id = gpu.parent_id
      AND call.trace_id = gpu.trace_id) FROM operators AS gpu JOIN traces USING (trace_id, rank)
      WHERE kind = 'kernel' ORDER BY rank"""
    assert asked(path, query) == [(0, "process order", 310, 90, 150), (1, "process order", 300, 200, 100)]
    with connect(tmp_path / "corpus") as connection:
        assert "processes without a GPU (1 row)" in connection.sql("SELECT warnings[1] FROM traces").fetchall()[0][0]


def test_the_first_of_several_processes_has_the_rank_that_is_given(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", **{KERNELS: kernels((3, 5, 1, 7, 9, 111), (3, 4, 0, 7, 9, 222))})
    assert asked(path, "SELECT rank FROM traces ORDER BY rank", rank=8) == [(8,), (9,)]


def test_a_process_with_two_gpus_is_two_traces_with_the_calls_of_each(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.sqlite",
        **{
            KERNELS: kernels((300, 500, 0, 7, 1, 111), (310, 400, 1, 7, 2, 111)),
            CALLS: calls((100, 200, 111, 5, 1, LAUNCH), (210, 220, 111, 5, 2, LAUNCH), (230, 240, 111, 5, 3, POLL)),
        },
    )
    query = "SELECT rank, list(ts ORDER BY ts) FROM operators GROUP BY rank ORDER BY rank"
    assert asked(path, query) == [(0, [100, 230, 300]), (1, [210, 230, 310])]


def test_ranges_of_emit_nvtx_are_operators_with_shapes_and_their_forward_operators(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.sqlite",
        NVTX_EVENTS=ranges(
            (10, 30, 1, 5, "aten::mm, seq = 7, op_id = 3, sizes = [[2, 3], [3, 4]], input_op_ids = [(1,0), (2,0)]"),
            (12, 20, 1, 5, "aten::empty, op_id = 4, sizes = [[], []]"),
            (40, 90, 1, 6, "autograd::engine::evaluate_function: MmBackward0, op_id = 5"),
            (50, 80, 1, 6, "MmBackward0, seq = 7, op_id = 6"),
            (100, 200, 1, 5, "Optimizer.step#SGD.step, op_id = 8"),
            (300, 400, 1, 5, "seq = 2, mine"),
        ),
    )
    query = """
      SELECT own.kind, own.name, own.input_dims, own.sequence_number, maker.name, own.phase, own.flops
      FROM operators AS own LEFT JOIN operators AS maker ON maker.op_id = own.forward_id ORDER BY own.op_id"""
    assert asked(path, query) == [
        ("cpu_op", "aten::mm", "[[2, 3], [3, 4]]", 7, None, "forward", 48),
        ("cpu_op", "aten::empty", "[[], []]", None, None, "forward", None),
        ("cpu_op", "autograd::engine::evaluate_function: MmBackward0", None, None, None, "backward", None),
        ("cpu_op", "MmBackward0", None, 7, "aten::mm", "backward", None),
        ("annotation", "Optimizer.step#SGD.step", None, None, None, "optimizer", None),
        ("annotation", "seq = 2, mine", None, None, None, "other", None),
    ]
    with connect(tmp_path / "corpus") as connection:
        (raw,) = connection.sql("SELECT args FROM args WHERE event = 0").fetchall()
    assert json.loads(raw[0])["text"].endswith("input_op_ids = [(1,0), (2,0)]")


def test_copies_and_fills_have_the_words_of_kineto_and_bytes(tmp_path: Path) -> None:
    columns = "start, end, deviceId, streamId, correlationId, globalPid, bytes"
    path = write(
        tmp_path / "a.sqlite",
        CUPTI_ACTIVITY_KIND_MEMCPY=(f"{columns}, copyKind, srcKind, dstKind", [(1, 3, 0, 7, 1, gid(1), 64, 2, 2, 0)]),
        CUPTI_ACTIVITY_KIND_MEMSET=(f"{columns}, memKind", [(5, 6, 0, 7, 2, gid(1), 32, 2)]),
    )
    found = asked(path, "SELECT kind, name, in_bytes FROM operators ORDER BY ts")
    assert found == [("memcpy", "Memcpy DtoH (Device -> Pageable)", 64), ("memset", "Memset (Device)", 32)]


def test_a_graph_of_which_no_node_was_recorded_is_one_row(tmp_path: Path) -> None:
    columns = "start, end, deviceId, streamId, correlationId, globalPid, graphId"
    path = write(
        tmp_path / "a.sqlite",
        CUPTI_ACTIVITY_KIND_GRAPH_TRACE=(columns, [(10, 90, 0, 7, 4, gid(1), 3), (100, 180, 0, 7, 5, gid(1), 3)]),
    )
    assert (
        asked(path, "SELECT name, gpu_rows, busy_ns FROM operators JOIN gpu_time USING (trace_id)")
        == [("CUDA graph 3", 2, 160)] * 2
    )


@pytest.mark.parametrize("turn", [True, False], ids=["numbered records", "by the order of calls"])
def test_a_wait_names_the_record_of_its_event(tmp_path: Path, *, turn: bool) -> None:
    """Event 2 is recorded twice; the wait, of correlation 25, is for the second time."""
    where = "deviceId, streamId, correlationId, globalPid, eventId"
    path = write(
        tmp_path / "a.sqlite",
        **{CALLS: calls((10, 20, 1, 5, 25, WAIT))},
        CUPTI_ACTIVITY_KIND_CUDA_EVENT=(
            f"{where}, eventSyncId",
            [(0, stream, number, gid(1), event, stream if turn else None)
             for stream, number, event in ((20, 11, 2), (21, 21, 2), (22, 31, 2), (23, 22, 3))],
        ),
        CUPTI_ACTIVITY_KIND_SYNCHRONIZATION=(
            f"start, end, {where}, eventSyncId",
            [(12, 15, 0, 7, 25, gid(1), 2, 21 if turn else None), (16, 17, 0, (1 << 32) - 1, 26, gid(1), None, None)],
        ),
    )  # fmt: skip
    query = "SELECT name, stream, wait_stream, wait_correlation FROM operators WHERE kind = 'sync' ORDER BY ts"
    assert asked(path, query) == [("Stream Wait Event", 7, 21, 21), ("Sync", None, None, None)]


def test_metrics_of_a_gpu_are_counters_of_the_process_that_used_it(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.sqlite",
        **{KERNELS: kernels((300, 500, 0, 7, 9, 111), (310, 400, 1, 7, 9, 222))},
        GPU_METRICS=("timestamp, typeId, metricId, value", [(5, 256, 1, 40), (6, 257, 1, 70)]),
        TARGET_INFO_GPU_METRICS=("typeId, metricId, metricName", [(256, 1, "SMs Active [%]")]),
        TARGET_INFO_GPU=("id, name, cuDevice", [(0, "A", 1), (1, "B", 0)]),
    )
    query = "SELECT counters.rank, name, value, device_name FROM counters JOIN traces USING (trace_id) ORDER BY 1"
    assert asked(path, query) == [(0, "SMs Active [%]", 70.0, "B"), (1, "SMs Active [%]", 40.0, "A")]


def test_calls_of_nccl_say_what_the_kernel_that_they_launch_moves(tmp_path: Path) -> None:
    said = json.dumps({"NCCL communicator ID": "0x1f", "Message size [bytes]": 4096, "Reduction operation": "Sum"})
    path = write(tmp_path / "a.sqlite", **ONE, NVTX_EVENTS=ranges((50, 250, 111, 5, "ncclAllReduce", said)))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE StringIds SET value = 'ncclDevKernel_AllReduce_Sum_bf16_RING_LL' WHERE id = 0")
    query = """SELECT collective, "group", in_bytes, dtype FROM operators WHERE kind = 'kernel'"""
    assert asked(path, query, rank=0) == [("all_reduce", "0x1f", 4096, "bfloat16")]


COMMUNICATOR = (
    *((1, 7, 0, 18, "NCCL communicator ID", None), (1, 7, 1, 5, "No. of ranks", 8), (1, 7, 2, 5, "Rank", 12)),
    *((1, 8, 0, 18, "NCCL communicator ID", None), (1, 8, 1, 22, "Message size [bytes]", 8)),
    *((1, 8, 2, 5, "Peer rank", 16), (1, 8, 3, 1 << 24, "Reduction operation", 20)),
)
SCHEMAS = ("domainId, schemaId, idx, type, name, offset", COMMUNICATOR + COMMUNICATOR)


def test_binary_payloads_of_nccl_say_ranks_groups_and_bytes(tmp_path: Path) -> None:
    said = payload(1, 8, "QQii", 31, 4096, 1, 0)
    path = write(
        tmp_path / "a.sqlite",
        NVTX_PAYLOAD_SCHEMA_ENTRIES=SCHEMAS,
        # By the GPUs process 222 would be rank 0: its communicator says 1.
        **{
            KERNELS: kernels((300, 500, 1, 7, 9, 111), (310, 400, 0, 7, 9, 222)),
            CALLS: calls((100, 200, 111, 5, 9, LAUNCH), (100, 200, 222, 5, 9, LAUNCH)),
        },
        NVTX_EVENTS=ranges(
            (1, 9, 111, 5, "ncclCommInitRank", None, payload(1, 7, "Qii", 31, 2, 0)),
            (1, 9, 222, 5, "ncclCommInitRank", None, payload(1, 7, "Qii", 31, 2, 1)),
            (2, 3, 222, 5, "ncclCommInitRank", None, payload(1, 7, "Qii", 30, 1, 0)),
            (50, 250, 111, 5, "ncclAllGather", None, said),
            (50, 250, 222, 5, "ncclAllGather", None, said[:40]),
        ),
    )
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE StringIds SET value = 'ncclDevKernel_AllGather_RING_LL' WHERE id = 0")
    query = """
      SELECT rank, rank_source, "group", group_size, in_bytes, out_bytes,
      (SELECT raw.args ->> 'payload' FROM args AS raw JOIN operators AS call USING (trace_id, event)
       WHERE raw.trace_id = kernels.trace_id AND name = 'ncclAllGather')
      FROM operators AS kernels JOIN traces USING (trace_id, rank) WHERE kind = 'kernel' ORDER BY rank"""
    one = '{"NCCL communicator ID":31,"Message size [bytes]":4096,"Peer rank":1}'
    assert asked(path, query) == [(0, "NCCL", "31", 2, 4096, 8192, one), (1, "NCCL", None, None, None, None, None)]
    other = export_parquet(path, tmp_path / "first" / "a_pqtdir")
    assert [row[:2] for row in asked(other, query, rank=4)] == [(4, "option"), (5, "option")]


def test_a_group_of_nccl_launches_what_the_calls_in_it_say(tmp_path: Path) -> None:
    def called(name: str, start: int, size: int | None = None) -> tuple[Any, ...]:
        json_text = json.dumps({"NCCL communicator ID": "0x1f", "Message size [bytes]": size}) if size else None
        return (start, start + 4, 111, 5, name, json_text)

    end = (200, 290, 111, 5, "ncclGroupEnd")
    path = write(
        tmp_path / "a.sqlite",
        **{
            KERNELS: kernels((300, 500, 0, 7, 9, 111), (600, 700, 0, 7, 10, 111)),
            CALLS: calls((210, 220, 111, 5, 9, LAUNCH), (410, 420, 111, 5, 10, LAUNCH)),
        },
        NVTX_EVENTS=ranges(
            *(called("ncclGroupStart", 100), called("ncclSend", 110, 512), called("ncclRecv", 120, 256)),
            *(called("ncclGroupStart", 130), called("ncclSend", 140, 64), called("ncclGroupEnd", 150), end),
            *(called("ncclGroupStart", 300), called("ncclAllReduce", 310, 8), called("ncclAllReduce", 320, 8)),
            (400, 490, 111, 5, "ncclGroupEnd"),
        ),
    )
    query = """SELECT collective, in_bytes, "group" FROM operators WHERE kind = 'kernel' ORDER BY ts"""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE StringIds SET value = 'ncclDevKernel_Generic' WHERE id = 0")
    assert asked(path, query, rank=0) == [("send_recv", 576, "0x1f"), ("all_reduce", 16, "0x1f")]


def test_metrics_of_network_cards_are_counters_of_every_process(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.sqlite",
        **{KERNELS: kernels((3, 5, 0, 7, 9, 111), (3, 4, 1, 7, 9, 222))},
        NET_NIC_METRIC=(
            "start, end, globalId, metricsListId, metricsIdx, value",
            [(5, 9, 40, 1, 2, 70), (6, 9, 41, 1, 2, 3)],
        ),
        NIC_ID_MAP=("nicId, globalId", [(8, 40)]),
        TARGET_INFO_NIC_INFO=("nicId, name", [(8, "mlx5_0")]),
        TARGET_INFO_NETWORK_METRICS=(
            "metricsListId, metricsIdx, name",
            [(1, 2, "Bytes sent"), (2, 2, "Bytes received")],
        ),
    )
    of_each = [(5, "mlx5_0 Bytes sent", 70.0), (6, "NIC 41 Bytes sent", 3.0)]
    query = "SELECT rank, ts, name, value FROM counters ORDER BY ALL"
    assert asked(path, query) == [(rank, *row) for rank in (0, 1) for row in of_each]


@pytest.mark.parametrize("inside", ["", "reports"], ids=["named", "in a folder"])
def test_a_folder_of_parquet_is_read_as_its_sqlite(tmp_path: Path, inside: str) -> None:
    path = write(
        tmp_path / "of_sqlite" / "a.sqlite",
        **ONE,
        CUPTI_ACTIVITY_KIND_MEMCPY=(
            "start, end, deviceId, streamId, correlationId, globalPid, bytes, copyKind, srcKind, dstKind",
            [(520, 530, 0, 7, 10, gid(111), 64, 1, 0, 2)],
        ),
        NVTX_EVENTS=ranges((50, 250, 111, 5, "aten::mm, op_id = 3"), (260, None, 111, 5, "mark")),
    )
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE StringIds SET value = CAST(X'61FF' AS TEXT) WHERE id = 0")
    folder = tmp_path / "of_parquet" / inside / "a_pqtdir"
    export_parquet(path, folder)
    query = "SELECT o.* EXCLUDE (trace_id), repaired_utf8 FROM operators o JOIN traces USING (trace_id) ORDER BY op_id"
    found = asked(path, query, job="one")
    assert not ingest([folder.parent if inside else folder], tmp_path / "corpus", workers=1, job="one").failed
    with connect(tmp_path / "corpus") as connection:
        assert (len(found), connection.sql(query).fetchall()) == (4, found)


def test_a_table_of_an_export_alone_and_a_folder_of_no_report_are_one_line(tmp_path: Path) -> None:
    folder = export_parquet(write(tmp_path / "a.sqlite", **ONE), tmp_path / "a_pqtdir")
    (alone,) = ingest([folder / f"{KERNELS}.parquet"], tmp_path / "corpus", workers=1).failed
    assert alone.message == f"{folder / KERNELS}.parquet: one table of an export; name the folder that it lies in"
    (folder / f"{CALLS}.parquet").write_bytes(b"PAR1 and no more")
    ((warnings,),) = asked(folder, "SELECT warnings FROM traces", rank=0)
    assert any(f"{CALLS}.parquet" in warning for warning in warnings)
    (folder / f"{KERNELS}.parquet").unlink()
    (failed,) = ingest([folder], tmp_path / "other", workers=1).failed
    assert failed.message.startswith(f"{folder}: Parquet without a table of a profiler")


def test_ranges_named_by_the_user_are_steps(tmp_path: Path) -> None:
    marks = [(100 * n, 100 * n + 90, 1, 5, f"Iteration {n}") for n in (4, 5)]
    inside = [(410, 420, 1, 5, "Iteration of the loader")]
    path = write(tmp_path / "a.sqlite", NVTX_EVENTS=ranges(*marks, *inside, (10, 20, 1, 5, "Load")))
    found = asked(path, "SELECT name, step FROM operators ORDER BY op_id", step_from="Iteration *")
    assert found == [
        ("Load", None),
        *(("ProfilerStep#4", 4), ("Iteration 4", 4), ("Iteration of the loader", 4)),
        *(("ProfilerStep#5", 5), ("Iteration 5", 5)),
    ]


def test_a_name_that_no_range_has_marks_no_step_and_says_so(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", **ONE, NVTX_EVENTS=ranges((90, 600, 111, 5, "Iteration 4")))
    said = "--step-from 'Iterations *': no range has that name, so it marks no step"
    assert taken(path, rank=0, step_from="Iterations *").done[0].warnings == (said,)


@pytest.mark.parametrize(("length", "steps"), [(90, {4, 5}), (30, {None})], ids=["most of it", "little of it"])
def test_ranges_that_repeat_are_steps_where_they_last_for_half_of_the_work(
    tmp_path: Path, length: int, steps: set[int | None]
) -> None:
    marks = [(100 * n, 100 * n + length, 1, 5, f"Iteration {n}") for n in (4, 5)]
    work = calls((405, 410, 1, 5, 1, LAUNCH), (505, 510, 1, 5, 2, LAUNCH), (595, 600, 1, 5, 3, LAUNCH))
    path = write(tmp_path / "a.sqlite", **{CALLS: work}, NVTX_EVENTS=ranges(*marks))
    found = asked(path, "SELECT DISTINCT step FROM operators WHERE kind = 'runtime' AND ts < 590")
    assert {step for (step,) in found} == steps


def test_ranges_say_the_rank_of_their_process(tmp_path: Path) -> None:
    marks = [(n, n + 1, pid, 5, f"rank {rank} of 8") for n, (pid, rank) in enumerate([(111, 6), (222, 2)])]
    path = write(
        tmp_path / "a.sqlite",
        **{KERNELS: kernels((300, 500, 0, 7, 9, 111), (310, 400, 1, 7, 9, 222))},
        NVTX_EVENTS=ranges(*marks),
    )
    found = asked(path, "SELECT rank, ts FROM operators WHERE kind = 'kernel' ORDER BY 1", rank_from="rank * of *")
    assert found == [(2, 310), (6, 300)]


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["rank two"], "no range of that name with a number for its first '*'; give one that every process has"),
        (["rank 2", "rank 6"], "ranges of that name of ranks 2, 6; give one that tells them apart"),
    ],
    ids=["none", "two"],
)
def test_ranges_that_say_no_rank_or_two_are_one_line(tmp_path: Path, texts: list[str], said: str) -> None:
    marks = [(n, n + 1, 111, 5, text) for n, text in enumerate(texts)]
    path = write(tmp_path / "a.sqlite", **ONE, NVTX_EVENTS=ranges(*marks))
    (failed,) = ingest([path], tmp_path / "corpus", workers=1, rank_from="rank *").failed
    assert failed.message.endswith(f"--rank-from 'rank *': a process has {said}")


def test_the_launcher_s_environment_says_the_rank_and_nothing_else_of_it_is_kept(tmp_path: Path) -> None:
    variables = [("PROCESS_0:ENVIRONMENT_VARIABLE", text) for text in ("RANK=3", "WORLD_SIZE=4", "API=hf_very_secret")]
    path = write(tmp_path / "a.sqlite", **ONE, META_DATA_CAPTURE=("name, value", variables))
    ((rank, source, size, metadata),) = asked(path, "SELECT rank, rank_source, world_size, metadata FROM traces")
    assert (rank, source, size) == (3, "environment", 4)
    assert json.loads(metadata) == {"environment": {"RANK": "3", "WORLD_SIZE": "4"}}


def test_tables_that_are_not_read_are_named_with_their_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", **ONE, SCHED_EVENTS=("start, cpu", [(1, 2)] * 3), NEW_IN_2030=("start", [(1,)]))
    result = taken(path, rank=0)
    assert result.done[0].warnings == ("left out: NEW_IN_2030 (1 row), SCHED_EVENTS (3 rows)",)


def test_columns_that_a_version_lacks_are_unknown(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.sqlite",
        **{
            KERNELS: ("start, end, shortName, correlationId", [(30, 50, 0, 4)]),
            CALLS: calls((10, 20, 1, 5, 4, LAUNCH)),
        },
    )
    assert asked(path, "SELECT name, device, stream, parent_id, grid FROM operators WHERE kind = 'kernel'") == [
        ("ampere_sgemm", None, None, 0, None)
    ]


@pytest.mark.parametrize(("other", "said"), [(1, []), (2, ["2 rows of GPUs may be another process's"])])
def test_rows_that_may_be_of_several_processes_are_counted(tmp_path: Path, other: int, said: list[str]) -> None:
    path = write(
        tmp_path / "a.sqlite",
        **{
            KERNELS: ("start, end, shortName, correlationId", [(30, 50, 0, 4), (60, 70, 0, 5)]),
            CALLS: calls((10, 20, 1, 5, 4, LAUNCH), (40, 50, 1, 5, 5, LAUNCH), (60, 61, other, 6, 8, LAUNCH)),
        },
    )
    warnings = taken(path, rank=0).done[0].warnings
    assert [text.split(":")[0] for text in warnings if "another process's" in text] == said


@pytest.mark.parametrize(
    ("other", "operators", "said"),
    [
        (1, 4, []),
        (2, 2, ["2 rows of GPUs may be another process's", "left out: processes without a GPU (2 rows)"]),
    ],
)
def test_rows_without_a_process_or_a_call_are_of_the_only_process(
    tmp_path: Path, other: int, operators: int, said: list[str]
) -> None:
    path = write(
        tmp_path / "a.sqlite",
        **{
            KERNELS: ("start, end, shortName, correlationId", [(30, 50, 0, 4), (60, 70, 0, 5)]),
            "NVTX_EVENTS": ranges((10, 90, 1, 5, "mine"), (20, 30, other, 6, "another")),
        },
    )
    (done,) = taken(path, rank=0).done
    with connect(tmp_path / "corpus") as connection:
        assert connection.sql("SELECT sum(operators)::INT FROM traces").fetchall() == [(operators,)]
    assert [text for text in said if not any(warning.startswith(text) for warning in done.warnings)] == []
    assert any("process" in warning for warning in done.warnings) == bool(said)


def test_a_report_with_copies_and_without_kernels_says_so(tmp_path: Path) -> None:
    copies = ("start, end, deviceId, streamId, correlationId, globalPid, bytes", [(1, 5, 0, 7, 1, gid(5), 64)] * 2)
    path = write(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_MEMCPY=copies)
    warnings = taken(path, rank=0).done[0].warnings
    assert "no kernel in the file: of its GPUs copies and fills alone are known (2 rows)" in warnings


def test_call_chains_are_left_out_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", **ONE, CUDA_CALLCHAINS=("id, symbol", [(1, 2)] * 3), OTHER=("id", [(1,)]))
    assert taken(path, rank=0).done[0].warnings == ("left out: CUDA_CALLCHAINS (3 rows)",)


def test_texts_that_are_no_utf8_are_mended_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", **ONE)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE StringIds SET value = CAST(x'61ff62' AS TEXT) WHERE id = 0")
    query = "SELECT name, repaired_utf8 FROM operators JOIN traces USING (trace_id) WHERE kind = 'kernel'"
    assert asked(path, query) == [("a\ufffdb", 1)]


def test_a_report_of_ranges_alone_is_read_and_says_so(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", NVTX_EVENTS=ranges((1, 5, 1, 5, "mine"), (2, None, 1, 5, "endless")))
    (done,) = taken(path, rank=0).done
    assert done.operators == 1
    assert done.warnings == (
        "1 NVTX range without an end read as instants",
        "no row of a GPU in the file: nothing that ran on one was recorded",
    )


def test_a_report_is_told_by_its_content_and_may_be_packed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", **ONE)
    packed = tmp_path / "job" / "rank3.json.gz"
    packed.parent.mkdir()
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert asked(packed, "SELECT rank, dialect, operators FROM traces") == [(3, "nsight", 2)]


def test_a_locked_file_other_databases_and_nothing_that_lasts_are_one_line(tmp_path: Path) -> None:
    locked = write(tmp_path / "locked.sqlite", **ONE)
    others = write(tmp_path / "others.sqlite", mine=("a", [(1,)]))
    empty = write(tmp_path / "empty.sqlite", NVTX_EVENTS=ranges())
    lock = f"import sqlite3; sqlite3.connect({str(locked)!r}).execute('BEGIN EXCLUSIVE'); print(flush=True); input()"
    # A process does not lock itself out: another has to.
    with subprocess.Popen([sys.executable, "-c", lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout
        other.stdout.readline()
        failed = ingest([locked, others, empty], tmp_path / "corpus", workers=1).failed
        other.communicate(b"\n")
    told = (
        ": SQLite cannot read it (database is locked); another program writes it: wait until it is done",
        f": {UNKNOWN}",
        ": none of its tables holds anything that lasts; record with --trace=cuda,nvtx",
    )
    assert tuple(failure.message.removeprefix(failure.path) for failure in failed) == told


@pytest.mark.parametrize("left", [0.02, 0.4, 0.7, 0.95])
def test_of_a_file_that_breaks_off_what_can_be_read_is_read(tmp_path: Path, left: float) -> None:
    rows = kernels(*((10 * n, 10 * n + 5, 0, 7, n, 111) for n in range(20_000)))
    path = write(tmp_path / "a.sqlite", **{KERNELS: rows, CALLS: calls((1, 2, 111, 5, 1, COPY))})
    data = path.read_bytes()
    path.write_bytes(data[: int(left * len(data))])
    result = ingest([path], tmp_path / "corpus", workers=1)
    told = [failure.message for failure in result.failed] or [" ".join(done.warnings) for done in result.done]
    assert "SQLite cannot read it" in told[0] or "the rest of" in told[0]


@pytest.mark.parametrize("end", [LATEST + 1, 2**63 - 1])
def test_a_row_outside_1970_to_2200_is_left_out_and_counted(tmp_path: Path, end: int) -> None:
    path = write(
        tmp_path / "a.sqlite",
        **{KERNELS: kernels((10, 20, 0, 7, 1, 111), (2 * EARLIEST, 20, 0, 7, 2, 111), (30, end, 0, 7, 3, 111))},
    )
    assert asked(path, "SELECT operators, skipped FROM traces") == [(1, 2)]


@pytest.mark.parametrize("name", ["a.nsys-rep", "a.qdrep", "a.nsys-rep.gz"])
def test_a_report_that_was_not_exported_says_how_to(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    content = bytes(range(200)) * 5
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    (failed,) = ingest([path], tmp_path / "corpus", workers=1).failed
    assert failed.message == f"{path}: a report of Nsight Systems; export it: nsys export --type sqlite {path}"


def test_a_file_of_no_format_says_how_a_report_would_be_exported(tmp_path: Path) -> None:
    path = tmp_path / "report"
    path.write_bytes(b"\n\x02\0ABC")
    (failed,) = ingest([path], tmp_path / "corpus", workers=1).failed
    assert failed.message == (
        f"{path}: no format that is read begins with b'\\n\\x02\\x00ABC'; if Nsight Systems wrote it: "
        f"nsys export --type sqlite {path}"
    )


def test_a_name_makes_no_report_of_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "a.nsys-rep"
    path.write_text('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2}]}')
    assert not ingest([path], tmp_path / "corpus", workers=1).failed


def _recorded() -> list[Any]:
    files = sorted((PROFILES / "nsys").glob("*.sqlite"))
    absent = pytest.param(None, marks=pytest.mark.skip(reason=f"no recorded reports at {PROFILES}; see LUMOS_PROFILES"))
    return [pytest.param(file, id=file.stem) for file in files] or [absent]


@pytest.mark.parametrize("file", _recorded())
def test_gpu_time_of_recorded_reports_is_what_was_computed_by_other_means(tmp_path: Path, file: Path) -> None:
    want = json.loads(REFERENCE.read_text())[file.stem]
    assert not ingest([file], tmp_path / "corpus", workers=1).failed
    with connect(tmp_path / "corpus") as connection:
        found = connection.sql(
            "SELECT (SELECT any_value(device) FROM operators WHERE trace_id = gpu_time.trace_id AND kind = 'kernel'), "
            "gpu_rows, span_ns, busy_ns FROM gpu_time ORDER BY 1"
        ).fetchall()
        ((calls_read,),) = connection.sql("SELECT sum(runtime_calls)::BIGINT FROM traces").fetchall()
    assert found == [
        (int(number), gpu["kernels"] + gpu["copies"] + gpu["graphs"], gpu["span_ns"], gpu["busy_ns"])
        for number, gpu in sorted(want["devices"].items())
    ]
    assert calls_read == want["runtime_rows"]
