"""One report of Nsight Systems as its exports of 2022 to 2026 have it: columns differ, what is read does not.

Columns are those of recorded exports: schemas 2.9 (2022.2), 3.13 (2024.5), 3.17 (2025.1), 3.24 (2025.5), 3.27 (2026.3);
of 2023 (3.1) those that both neighbours have, with the name that the table of metadata got then.
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from lumos_df.corpus.catalog import connect
from lumos_df.trace.ingest import ingest
from tests.trace.nsight_files import CALLS, GEMM, KERNELS, LAUNCH, WAIT, gid, kernels, ranges, write

_GPU_2022: Final = "start, end, deviceId, contextId, streamId, correlationId, globalPid"
_GPU_2024: Final = "start, end, deviceId, contextId, greenContextId, streamId, correlationId, globalPid"
_KERNEL: Final = (
    "demangledName, shortName, mangledName, launchType, cacheConfig, registersPerThread, gridX, gridY, gridZ, blockX, "
    "blockY, blockZ, staticSharedMemory, dynamicSharedMemory, localMemoryPerThread, localMemoryTotal, gridId, "
    "sharedMemoryExecuted, graphNodeId, sharedMemoryLimitConfig"
)
_KERNEL_2025: Final = (
    f"{_KERNEL}, qmdBulkReleaseDone, qmdPreexitDone, qmdLastCtaDone, graphId, clusterX, clusterY, clusterZ, "
    "clusterSchedulingPolicy, maxPotentialClusterSize, maxActiveClusters"
)
_COPY: Final = (
    "bytes, copyKind, deprecatedSrcId, srcKind, dstKind, srcDeviceId, srcContextId, dstDeviceId, dstContextId, "
    "migrationCause, graphNodeId, virtualAddress"
)
_NVTX_2022: Final = (
    "start, end, eventType, rangeId, category, color, text, globalTid, endGlobalTid, textId, domainId, uint64Value, "
    "int64Value, doubleValue, uint32Value, int32Value, floatValue, jsonTextId, jsonText"
)
_SCHEMAS: Final[dict[str, dict[str, str]]] = {
    year: {
        KERNELS: f"{gpu}, {kernel}",
        "CUPTI_ACTIVITY_KIND_MEMCPY": f"{gpu}, {copy}",
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": f"{gpu}, {sync}",
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT": event,
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": f"{gpu}, graphId, graphExecId",
        CALLS: "start, end, eventClass, globalTid, correlationId, nameId, returnValue, callchainId",
        "NVTX_EVENTS": nvtx,
        metadata: "name, value",
    }
    for year, gpu, kernel, copy, sync, event, nvtx, metadata in (
        ("2022", _GPU_2022, _KERNEL, f"{_COPY}, name", "syncType, eventId",
         "deviceId, contextId, streamId, correlationId, globalPid, eventId", _NVTX_2022, "EXPORT_META_DATA"),
        ("2023", _GPU_2022, _KERNEL, _COPY, "syncType, eventId",
         "deviceId, contextId, streamId, correlationId, globalPid, eventId", _NVTX_2022, "META_DATA_EXPORT"),
        ("2024", _GPU_2024, _KERNEL, _COPY, "syncType, eventId",
         "deviceId, contextId, greenContextId, streamId, correlationId, globalPid, eventId",
         f"{_NVTX_2022}, binaryData", "META_DATA_EXPORT"),
        ("2025", _GPU_2024, _KERNEL_2025, f"{_COPY}, copyCount", "deprecatedSyncType, syncType, eventId, eventSyncId",
         "timestamp, deviceId, contextId, greenContextId, streamId, correlationId, globalPid, eventId, eventSyncId",
         f"{_NVTX_2022}, binaryData", "META_DATA_EXPORT"),
        ("2026", _GPU_2024, f"{_KERNEL_2025}, sharedMemoryRequestedPercentage, tensorSizeMinusOneElements",
         f"{_COPY}, copyCount", "deprecatedSyncType, syncType, eventId, eventSyncId",
         "timestamp, deviceId, contextId, greenContextId, streamId, correlationId, globalPid, eventId, eventSyncId",
         f"{_NVTX_2022}, binaryData", "META_DATA_EXPORT"),
    )
}  # fmt: skip


def _rows(columns: str, *rows: dict[str, Any]) -> tuple[str, list[tuple[Any, ...]]]:
    names = columns.split(", ")
    return columns, [tuple(row.get(name) for name in names) for row in rows]


def report(path: Path, year: str) -> Path:
    """Write a call with its kernel, a copy, a graph, a wait for an event, and a range of an operator."""
    process, thread = {"globalPid": gid(111)}, {"globalTid": gid(111, 5)}
    on_gpu = {**process, "deviceId": 0, "contextId": 1}
    event = {"eventId": 3, "eventSyncId": 1}
    rows: dict[str, list[dict[str, Any]]] = {
        KERNELS: [
            {**on_gpu, "start": 300, "end": 500, "streamId": 7, "correlationId": 9, "demangledName": GEMM,
             "gridX": 80, "gridY": 2, "gridZ": 1, "blockX": 256, "blockY": 1, "blockZ": 1, "registersPerThread": 64},
        ],
        "CUPTI_ACTIVITY_KIND_MEMCPY": [
            {**on_gpu, "start": 600, "end": 650, "streamId": 7, "correlationId": 10, "bytes": 4096, "copyKind": 1,
             "srcKind": 1, "dstKind": 2},
        ],
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [
            {**on_gpu, "start": 700, "end": 900, "streamId": 8, "correlationId": 11, "graphId": 2, "graphExecId": 3},
        ],
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT": [{**on_gpu, **event, "streamId": 7, "correlationId": 11}],
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": [
            {**on_gpu, **event, "start": 660, "end": 661, "streamId": 8, "correlationId": 12, "syncType": 2},
        ],
        CALLS: [
            {**thread, "start": start, "end": start + 20, "correlationId": number, "nameId": name}
            for start, number, name in ((100, 9, LAUNCH), (130, 10, 2), (160, 11, LAUNCH), (190, 12, WAIT))
        ],
        "NVTX_EVENTS": [
            {**thread, "start": 90, "end": 210, "eventType": 59, "text": "aten::mm, seq = 7, sizes = [[2, 3], [3, 4]]"},
        ],
    }  # fmt: skip
    tables = {
        table: _rows(columns, *rows.get(table, [{"name": "EXPORT_SCHEMA_VERSION", "value": "3.1"}]))
        for table, columns in _SCHEMAS[year].items()
    }
    return write(path, **tables)


@pytest.mark.parametrize("year", _SCHEMAS)
def test_a_report_says_the_same_in_the_columns_of_every_year(tmp_path: Path, year: str) -> None:
    result = ingest([report(tmp_path / "a.sqlite", year)], tmp_path / "corpus", workers=1)
    assert not result.failed, result.failed
    with connect(tmp_path / "corpus") as connection:
        query = """
          SELECT kind, name, ts, dur, stream, grid, in_bytes, parent_id, input_dims, wait_stream
          FROM operators WHERE kind <> 'runtime' ORDER BY op_id"""
        assert connection.sql(query).fetchall() == [
            ("cpu_op", "aten::mm", 90, 120, None, None, None, None, "[[2, 3], [3, 4]]", None),
            ("kernel", "ampere_sgemm", 300, 200, 7, "[80, 2, 1]", None, 1, None, None),
            ("memcpy", "Memcpy HtoD (Pinned -> Device)", 600, 50, 7, None, 4096, 2, None, None),
            ("sync", "Stream Wait Event", 660, 1, 8, None, None, 4, None, 7),
            ("kernel", "CUDA graph 2", 700, 200, 8, None, None, 3, None, None),
        ]
        assert connection.sql("SELECT gpu_rows, busy_ns FROM gpu_time").fetchall() == [(3, 450)]


def test_a_schema_of_a_later_version_is_read_as_far_as_it_is_known(tmp_path: Path) -> None:
    path = report(tmp_path / "a.sqlite", "2026")
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE META_DATA_EXPORT SET value = '9.0.0'")
        database.execute(f"ALTER TABLE {KERNELS} ADD COLUMN later")
        database.execute("CREATE TABLE LATER_EVENTS (start, end)")
        database.execute("INSERT INTO LATER_EVENTS VALUES (1, 2)")
    (done,) = ingest([path], tmp_path / "corpus", workers=1).done
    assert done.operators == 9
    assert "left out: LATER_EVENTS (1 row)" in done.warnings
    assert "schema 9.0.0 is not known: what it has in other columns than 2 and 3 do is missing" in done.warnings


def test_domains_and_categories_of_ranges_stand_in_their_args(tmp_path: Path) -> None:
    columns = "start, end, globalTid, text, eventType, textId, domainId, category"
    own, other = gid(111, 5), gid(222, 5)
    rows = [
        (1, None, own, "cuBLAS", 75, None, 1, None),
        (1, None, other, "CCCL", 75, None, 1, None),
        (2, None, own, "data", 33, None, 1, 4),
        (10, 20, own, "in both", 59, None, 1, 4),
        (30, 40, own, "in none", 59, None, 0, 0),
        (50, 60, other, "of the other process", 59, None, 1, 4),
        (70, 80, own, "of a domain without a name", 59, None, 6, None),
    ]
    path = write(
        tmp_path / "a.sqlite",
        NVTX_EVENTS=(columns, rows),
        **{KERNELS: kernels((1, 2, 0, 7, 9, 111), (1, 2, 1, 7, 9, 222))},
    )
    assert not ingest([path], tmp_path / "corpus", workers=1).failed
    with connect(tmp_path / "corpus") as connection:
        raw = connection.sql(
            "SELECT ts, args FROM args JOIN operators USING (trace_id, event) WHERE kind = 'annotation' ORDER BY ts"
        ).fetchall()
    found = {ts: json.loads(text) for ts, text in raw}
    assert {ts: (said["domain"], said["category"]) for ts, said in found.items()} == {
        10: ("cuBLAS", "data"),
        30: (None, None),
        50: ("CCCL", "4"),
        70: ("6", None),
    }


def test_ranges_without_payloads_and_domains_hold_only_their_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", NVTX_EVENTS=ranges((1, 9, 111, 5, "mine")))
    assert not ingest([path], tmp_path / "corpus", workers=1).failed
    with connect(tmp_path / "corpus") as connection:
        ((raw,),) = connection.sql("SELECT args FROM args").fetchall()
    assert json.loads(raw) == {"text": "mine"}
