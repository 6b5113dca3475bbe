"""Waits of streams without recorded ids, from a literal trace: what ended by accident before a row is not its cause."""

import json
from pathlib import Path
from typing import Any

from lumos_df.graph.edges import EVENT
from lumos_df.graph.job import groups, load
from lumos_df.trace.ingest import ingest

ROUNDS = 10
ROUND_US = 1000
COMPUTE, TENSOR, DATA = 7, 20, 36


def trace(near: int) -> dict[str, Any]:
    """Each round: a product, its all-reduce beside a second product, and a reduction of gradients that nothing awaits.

    In round `near` the reduction before it ended 17 us before the all-reduce began; else much earlier.
    """
    events: list[dict[str, Any]] = []
    issued = 0

    def call(name: str, **args: int) -> None:
        nonlocal issued
        issued += 1
        event = {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": 1, "ts": 10 * issued, "dur": 5}
        events.append(event | {"args": {"correlation": issued, **args}})

    def launch(name: str, stream: int, start: int, dur: int) -> None:
        call("cudaLaunchKernel")
        args = {"device": 0, "stream": stream, "correlation": issued}
        row = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": start, "dur": dur}
        events.append(row | {"args": args})

    for number in range(ROUNDS):
        at = 10_000 + number * ROUND_US
        launch("gemm_a", COMPUTE, at, 100)
        call("cudaEventRecord")
        call("cudaStreamWaitEvent")
        launch("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", TENSOR, at + 101, 200)
        launch("gemm_b", COMPUTE, at + 101, 300)
        launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", DATA, at + 402, 682 if number == near - 1 else 100)
        call("cudaStreamWaitEvent")
        launch("elementwise_kernel", COMPUTE, at + 402, 50)
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 5, "dur": 30_000}
    operator = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 6, "dur": 1}
    return {"distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": [step, operator, *events]}


def waited(folder: Path, near: int) -> set[tuple[str, str]]:
    """Return which kernel waits for which of another stream."""
    folder.mkdir()
    (folder / "rank0.json").write_text(json.dumps(trace(near)))
    assert not ingest([folder], folder / "corpus", workers=1).failed
    (graph,) = load(folder / "corpus", groups(folder / "corpus")[0]).graphs
    event = graph.edges.kind == EVENT
    name = [graph.rows.names[code] for code in graph.rows.name.tolist()]
    pairs = zip(graph.edges.src[event].tolist(), graph.edges.dst[event].tolist(), strict=True)
    return {(name[src], name[dst]) for src, dst in pairs}


def test_what_ends_by_accident_before_a_row_that_a_wait_explains_is_no_cause(tmp_path: Path) -> None:
    reduction, gradients = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    for near in (0, 5):
        found = waited(tmp_path / str(near), near)
        assert ("gemm_a", reduction) in found
        assert (gradients, reduction) not in found
