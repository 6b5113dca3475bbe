"""Files of ROCm's recorders: literal ones, and recorded ones beside a reading of the test's own."""

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lumos_df.corpus.catalog import connect
from lumos_df.trace.ingest import ingest
from tests.trace.nsight_files import PROFILES, write

ROWS = """
  SELECT own.kind, own.name, around.name, own.ts, own.dur, own.thread, own.device, own.stream, own.in_bytes
  FROM operators AS own LEFT JOIN operators AS around ON around.op_id = own.parent_id ORDER BY own.op_id"""
DIMENSIONS = "grid_x, grid_y, grid_z, workgroup_x, workgroup_y, workgroup_z"
WANTED = [
    ("annotation", "step 1", None, 0, 100, 8, None, None, None),
    ("runtime", "hipLaunchKernel", "step 1", 10, 10, 8, None, None, None),
    ("runtime", "hipMemcpyAsync", "step 1", 30, 10, 8, None, None, None),
    ("kernel", "Cijk_Ailk", "hipLaunchKernel", 50, 20, None, 3, 2, None),
    ("memcpy", "Memcpy HtoD", "hipMemcpyAsync", 80, 5, None, 3, 2, 64),
]


def asked(path: Path, query: str) -> list[tuple[Any, ...]]:
    result = ingest([path], path.parent / "corpus", rank=0, workers=1)
    assert not result.failed, result.failed
    with connect(path.parent / "corpus") as connection:
        return connection.sql(query).fetchall()


def rpd(path: Path) -> Path:
    texts = ["", "hipLaunchKernel", "UserMarker", "step 1", "Cijk_Ailk", "KernelExecution", "hipMemcpyAsync",
             "CopyHostToDevice", "OpTable::writeRows"]  # fmt: skip
    return write(
        path,
        rocpd_string=("id INTEGER PRIMARY KEY, string", list(enumerate(texts))),
        rocpd_api=(
            "id, pid, tid, start, end, apiName_id, args_id",
            [(1, 7, 8, 0, 100, 2, 3), (2, 7, 8, 10, 20, 1, 0), (3, 7, 8, 30, 40, 6, 0), (4, 7, 9, 90, 99, 8, 0)],
        ),
        rocpd_op=(
            "id, gpuId, queueId, start, end, description_id, opType_id",
            [(1, 3, 2, 50, 70, 4, 5), (2, 3, 2, 80, 85, 0, 7)],
        ),
        rocpd_api_ops=("api_id, op_id", [(2, 1), (3, 2)]),
        rocpd_copyapi=("api_ptr_id, size", [(3, 64)]),
        rocpd_kernelapi=(
            "api_ptr_id, gridX, gridY, gridZ, workgroupX, workgroupY, workgroupZ",
            [(2, 80, 2, 1, 256, 1, 1)],
        ),
        rocpd_monitor=("deviceType, deviceId, monitorType, start, value", [("gpu", 3, "sclk", 5, "1700")]),
    )


def test_rpd(tmp_path: Path) -> None:
    found = asked(rpd(tmp_path / "a.rpd"), ROWS)
    recorder = [row for row in found if row[0] == "other"]
    assert recorder == [("other", "OpTable::writeRows", None, 90, 9, None, None, None, None)]
    # The bytes stand on the call; the copy has those of its call.
    assert [row for row in found if row[0] != "other"] == WANTED
    with connect(tmp_path / "corpus") as connection:
        assert connection.sql("SELECT grid, block FROM operators WHERE kind = 'kernel'").fetchall() == [
            ("[80, 2, 1]", "[256, 1, 1]")
        ]
        assert connection.sql("SELECT ts, name, value FROM counters").fetchall() == [(5, "sclk", 1700.0)]


def rocpd(path: Path) -> Path:
    return write(
        path,
        rocpd_info_agent=("id, type, type_index, name, product_name", [(1, "GPU", 3, "gfx950", "MI350X")]),
        regions=(
            "category, name, pid, tid, start, end, stack_id, extdata",
            [
                ("MARKER_CORE_RANGE_API", "roctxThreadRangeA", 7, 8, 0, 100, 1, '{"message": "step 1"}'),
                ("HIP_RUNTIME_API", "hipLaunchKernel", 7, 8, 10, 20, 2, "{}"),
                ("HIP_RUNTIME_API", "hipMemcpyAsync", 7, 8, 30, 40, 3, "{}"),
            ],
        ),
        kernels=(
            "name, pid, tid, start, end, stack_id, agent_type_index, stream_id, queue_id, " + DIMENSIONS,
            [("Cijk_Ailk", 7, 8, 50, 70, 2, 3, 2, 9, 1024, 2, 1, 256, 1, 1)],
        ),
        memory_copies=(
            "name, pid, tid, start, end, size, stream_id, stack_id, dst_agent_type, dst_agent_type_index",
            [("MEMORY_COPY_HOST_TO_DEVICE", 7, 8, 80, 85, 64, 2, 3, "GPU", 3)],
        ),
    )


def test_rocpd(tmp_path: Path) -> None:
    assert asked(rocpd(tmp_path / "a.db"), ROWS) == WANTED
    with connect(tmp_path / "corpus") as connection:
        found = connection.sql(
            "SELECT grid, block, device_name FROM operators JOIN traces USING (trace_id) WHERE kind = 'kernel'"
        )
        assert found.fetchall() == [("[4, 2, 1]", "[256, 1, 1]", "MI350X")]


def span(start: int, end: int, correlation: int, **more: Any) -> dict[str, Any]:
    return {"start_timestamp": start, "end_timestamp": end, "correlation_id": {"internal": correlation}, **more}


def document() -> dict[str, Any]:
    agent, stream = {"handle": 40}, {"handle": 2}
    ends = {"src_agent_id": {"handle": 1}, "dst_agent_id": agent}
    kinds = [("MARKER_CORE_API", ["roctxRangePushA"]), ("HIP_RUNTIME_API", ["hipLaunchKernel", "hipMemcpyAsync"]),
             ("MEMORY_COPY", ["NONE", "MEMORY_COPY_HOST_TO_DEVICE"])]  # fmt: skip
    dispatch = {
        "agent_id": agent,
        "kernel_id": 5,
        "workgroup_size": {"x": 256, "y": 1, "z": 1},
        "grid_size": {"x": 1024, "y": 2, "z": 1},
    }
    return {
        "rocprofiler-sdk-tool": [{
            "metadata": {"pid": 7},
            "agents": [{"id": agent, "type": 2, "logical_node_type_id": 3, "product_name": "MI350X"}],
            "strings": {
                "buffer_records": [{"kind": kind, "operations": operations} for kind, operations in kinds],
                "marker_api": [{"key": 1, "value": "step 1"}],
            },
            "kernel_symbols": [{"kernel_id": 5, "kernel_name": "mangled", "formatted_kernel_name": "Cijk_Ailk"}],
            "buffer_records": {
                "marker_api": [span(0, 100, 1, kind=0, operation=0, thread_id=8)],
                "hip_api": [
                    span(10, 20, 2, kind=1, operation=0, thread_id=8),
                    span(30, 40, 3, kind=1, operation=1, thread_id=8),
                ],
                "kernel_dispatch": [span(50, 70, 2, dispatch_info=dispatch, stream_id=stream)],
                "memory_copy": [span(80, 85, 3, kind=2, operation=1, stream_id=stream, bytes=64) | ends],
                "scratch_memory": [{}, {}],
            },
        }]
    }  # fmt: skip


@pytest.mark.parametrize("kept", ["hip_api", "marker_api", "kernel_dispatch"])
def test_a_file_of_rocprofv3_with_one_kind_of_records_is_read(tmp_path: Path, kept: str) -> None:
    content = document()
    (process,) = content["rocprofiler-sdk-tool"]
    process["buffer_records"] = {name: rows for name, rows in process["buffer_records"].items() if name == kept}
    (tmp_path / "a.json").write_text(json.dumps(content))
    (done,) = ingest([tmp_path / "a.json"], tmp_path / "corpus", workers=1).done
    assert done.operators == len(process["buffer_records"][kept])


def test_kernels_of_rocprofv3_without_symbols_have_no_name(tmp_path: Path) -> None:
    content = document()
    del content["rocprofiler-sdk-tool"][0]["kernel_symbols"]
    (tmp_path / "a.json").write_text(json.dumps(content))
    (done,) = ingest([tmp_path / "a.json"], tmp_path / "corpus", workers=1).done
    assert "1 operator without a name" in done.warnings


def test_rocprofv3(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(document()))
    assert asked(path, ROWS) == WANTED
    with connect(tmp_path / "corpus") as connection:
        columns = "grid, block, device_name, warnings"
        found = connection.sql(f"SELECT {columns} FROM operators JOIN traces USING (trace_id) WHERE kind = 'kernel'")
        assert found.fetchall() == [("[4, 2, 1]", "[256, 1, 1]", "MI350X", ["left out: scratch_memory (2 rows)"])]


@pytest.mark.parametrize("agents", [None, []])
def test_gpus_that_rocprofv3_does_not_list_are_those_that_ran_kernels(tmp_path: Path, agents: list[Any] | None) -> None:
    content = document()
    (process,) = content["rocprofiler-sdk-tool"]
    process["agents"] = agents
    if agents is None:
        del process["agents"]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(content))
    wanted = [(*row[:6], None if row[6] is None else 0, *row[7:]) for row in WANTED]
    assert asked(path, ROWS) == wanted
    with connect(tmp_path / "corpus") as connection:
        ((device_name, warnings),) = connection.sql("SELECT device_name, warnings FROM traces").fetchall()
    assert device_name is None
    assert "no agent describes 1 GPU: numbered by their handles" in warnings


@pytest.mark.parametrize("change", ["cut", "no process id", "an empty one"])
def test_bad_files_of_rocprofv3_are_one_line(tmp_path: Path, change: str) -> None:
    data = document()
    if change == "no process id":
        del data["rocprofiler-sdk-tool"][0]["metadata"]["pid"]
    if change == "an empty one":
        data["rocprofiler-sdk-tool"][0]["buffer_records"] = {}
    text = json.dumps(data)
    path = tmp_path / "a.json"
    path.write_text(text[: len(text) // 2] if change == "cut" else text)
    (failed,) = ingest([path], tmp_path / "corpus", workers=1).failed
    assert ("in which nothing lasts" if change == "an empty one" else "not as rocprofv3 writes it") in failed.message
    assert "fault of lumos-df" not in failed.message


def test_an_rpd_file_in_which_nothing_lasts_is_one_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.rpd", rocpd_api=("id, pid, tid, start, end, apiName_id, args_id", []),
                 rocpd_string=("id, string", []))  # fmt: skip
    (failed,) = ingest([path], tmp_path / "corpus", workers=1).failed
    assert failed.message == f"{path}: an RPD file in which nothing lasts; record with runTracer.sh"


def recorded(name: str) -> Path:
    path = PROFILES / "rocm" / name
    if not path.exists():
        pytest.skip(f"no recorded files at {PROFILES}; see LUMOS_PROFILES")
    return path


def stored(tmp_path: Path, file: Path) -> list[tuple[Any, ...]]:
    assert not ingest([file], tmp_path / "corpus", rank=0, workers=1).failed
    query = (
        "SELECT device, count(*), sum(dur)::BIGINT, min(ts), max(ts + dur) FROM operators WHERE device >= 0 GROUP BY 1"
    )
    with connect(tmp_path / "corpus") as connection:
        return connection.sql(query).fetchall()


def test_a_recorded_rpd_file_adds_up(tmp_path: Path) -> None:
    file = recorded("matmul.rpd")
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        query = "SELECT gpuId, count(*), sum(end - start), min(start), max(end) FROM rocpd_op GROUP BY 1"
        assert stored(tmp_path, file) == database.execute(query).fetchall()


def test_a_recorded_file_of_rocprofv3_adds_up(tmp_path: Path) -> None:
    file = recorded("rocprofv3_mi350.json.gz")
    with gzip.open(file) as stream:
        (process,) = json.load(stream)["rocprofiler-sdk-tool"]
    spans = [(one["start_timestamp"], one["end_timestamp"]) for one in process["buffer_records"]["kernel_dispatch"]]
    starts, ends = zip(*spans, strict=True)
    assert stored(tmp_path, file) == [(0, len(spans), sum(ends) - sum(starts), min(starts), max(ends))]


def changed(path: Path, statement: str) -> Path:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(statement)
    return path


def test_text_that_should_be_json_costs_a_range_its_message_alone(tmp_path: Path) -> None:
    path = changed(rocpd(tmp_path / "a.db"), "UPDATE regions SET extdata = '{\"mess' WHERE start = 0")
    assert asked(path, ROWS) == [tuple(str(cell).replace("step 1", "roctxThreadRangeA") if cell == "step 1" else cell
                                       for cell in row) for row in WANTED]  # fmt: skip


def test_ranges_without_a_category_are_operators_all_the_same(tmp_path: Path) -> None:
    path = changed(rocpd(tmp_path / "a.db"), "UPDATE regions SET category = NULL")
    for table in ("kernels", "memory_copies"):
        changed(path, f"DELETE FROM {table}")
    assert asked(path, "SELECT kind, dur FROM operators ORDER BY ts") == [("other", 100), ("other", 10), ("other", 10)]


def test_an_rpd_file_without_its_texts_is_one_line(tmp_path: Path) -> None:
    path = rpd(tmp_path / "a.rpd")
    changed(
        path, "CREATE VIEW api AS SELECT start, string FROM rocpd_api JOIN rocpd_string ON rocpd_string.id = apiName_id"
    )
    changed(path, "DROP TABLE rocpd_string")
    (failed,) = ingest([path], tmp_path / "corpus", rank=0, workers=1).failed
    why = "nothing says which rows are kernels, nor their names; record with runTracer.sh"
    assert failed.message == f"{path}: an RPD file without the table rocpd_string: {why}"


def test_a_view_whose_table_is_missing_is_left_out_alone(tmp_path: Path) -> None:
    path = rocpd(tmp_path / "a.db")
    changed(path, "DROP TABLE memory_copies")
    changed(path, "CREATE VIEW memory_copies AS SELECT * FROM rocpd_memory_copy")
    found = asked(path, "SELECT count(*) FILTER (kind = 'kernel'), count(*) FILTER (kind = 'memcpy') FROM operators")
    assert found == [(1, 0)]
    with connect(tmp_path / "corpus") as connection:
        ((warnings,),) = connection.sql("SELECT warnings FROM traces").fetchall()
    assert "left out: memory_copies (no such table: main.rocpd_memory_copy)" in warnings


def test_a_file_whose_rows_have_no_times_is_one_line(tmp_path: Path) -> None:
    path = rocpd(tmp_path / "a.db")
    for table in ("regions", "kernels", "memory_copies"):
        changed(path, f'UPDATE {table} SET "start" = NULL')
    (failed,) = ingest([path], tmp_path / "corpus", workers=1).failed
    assert failed.message == f"{path}: no row in it has a start and an end; record it again"
