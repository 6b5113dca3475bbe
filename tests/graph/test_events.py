"""Waits of streams without recorded ids, from literal traces.

What ended by accident before a row is not its cause, and two waits in a row are for two streams.
"""

import json
from pathlib import Path
from typing import Any

from lumos_df.graph import switches
from lumos_df.graph.job import Job, groups, load
from lumos_df.schema.codes import EVENT
from lumos_df.trace.ingest import ingest

ROUNDS = 10
ROUND_US = 1000
COMPUTE, TENSOR, DATA = 7, 20, 36


class Recording:
    """A trace as it is written: calls 10 us apart, and kernels that start when they are told to."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._issued = 0
        self._now = 10

    def host_at(self, moment: int) -> None:
        """Let the next call begin then, us."""
        self._now = moment

    def call(self, name: str) -> None:
        self._issued += 1
        event = {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": 1, "ts": self._now, "dur": 5}
        self._now += 10
        self.events.append(event | {"args": {"correlation": self._issued}})

    def launch(self, name: str, stream: int, start: int, dur: int) -> None:
        self.call("cudaLaunchKernel")
        args = {"device": 0, "stream": stream, "correlation": self._issued}
        row = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": start, "dur": dur}
        self.events.append(row | {"args": args})

    def whole(self) -> dict[str, Any]:
        mark = {
            "ph": "X",
            "cat": "user_annotation",
            "name": "ProfilerStep#1",
            "pid": 1,
            "tid": 1,
            "ts": 5,
            "dur": 30_000,
        }
        operator = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 6, "dur": 1}
        return {"distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": [mark, operator, *self.events]}


def accidents(near: int) -> Recording:
    """Each round: a product, its all-reduce beside a second product, and a reduction of gradients that nothing awaits.

    In round `near` the reduction before it ended 17 us before the all-reduce began; else much earlier.
    """
    trace = Recording()
    for number in range(ROUNDS):
        at = 10_000 + number * ROUND_US
        trace.launch("gemm_a", COMPUTE, at, 100)
        trace.call("cudaEventRecord")
        trace.call("cudaStreamWaitEvent")
        trace.launch("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", TENSOR, at + 101, 200)
        trace.launch("gemm_b", COMPUTE, at + 101, 300)
        trace.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", DATA, at + 402, 682 if number == near - 1 else 100)
        trace.call("cudaStreamWaitEvent")
        trace.launch("elementwise_kernel", COMPUTE, at + 402, 50)
    return trace


LONG_US, SHORT_US = 300, 100


def two_waits() -> Recording:
    """Each round a kernel waits for two streams, one wait behind the other; in every third round the second is late."""
    trace = Recording()
    for number in range(ROUNDS):
        at = 10_000 + number * ROUND_US
        first, second = (SHORT_US, LONG_US) if number % 3 == 2 else (LONG_US, SHORT_US)
        trace.host_at(at - 20)
        trace.launch("lookup", TENSOR, at, first)
        trace.launch("exchange", DATA, at, second)
        trace.call("cudaStreamWaitEvent")
        trace.call("cudaStreamWaitEvent")
        trace.launch("interaction", COMPUTE, at + LONG_US + 1, 50)
    return trace


def early_records() -> Recording:
    """Each round a kernel waits for the first of four rows of a stream; the first of two of another ends just then."""
    trace = Recording()
    for number in range(ROUNDS):
        at = 10_000 + number * ROUND_US
        trace.host_at(at - 100)
        trace.launch("lookup", TENSOR, at, LONG_US)
        trace.launch("exchange", DATA, at, LONG_US)
        trace.launch("lookup_again", TENSOR, at + LONG_US, LONG_US)
        for place in range(3):
            trace.launch(f"exchange_{place}", DATA, at + LONG_US + place * SHORT_US, SHORT_US)
        trace.call("cudaStreamWaitEvent")
        trace.launch("interaction", COMPUTE, at + LONG_US + 1, 50)
    return trace


def job_of(folder: Path, trace: Recording) -> Job:
    folder.mkdir()
    (folder / "rank0.json").write_text(json.dumps(trace.whole()))
    assert not ingest([folder], folder / "corpus", workers=1).failed
    return load(folder / "corpus", groups(folder / "corpus")[0])


def waited(job: Job) -> set[tuple[str, str]]:
    """Return which kernel waits for which of another stream."""
    (graph,) = job.graphs
    event = graph.edges.kind == EVENT
    name = [graph.rows.names[code] for code in graph.rows.name.tolist()]
    pairs = zip(graph.edges.src[event].tolist(), graph.edges.dst[event].tolist(), strict=True)
    return {(name[src], name[dst]) for src, dst in pairs}


def test_what_ends_by_accident_before_a_row_that_a_wait_explains_is_no_cause(tmp_path: Path) -> None:
    reduction, gradients = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    for near in (0, 5):
        pairs = waited(job_of(tmp_path / str(near), accidents(near)))
        assert ("gemm_a", reduction) in pairs
        assert (gradients, reduction) not in pairs


def test_two_waits_in_a_row_are_for_two_streams(tmp_path: Path) -> None:
    job = job_of(tmp_path / "two", two_waits())
    assert {("lookup", "interaction"), ("exchange", "interaction")} <= waited(job)


def test_an_early_event_is_of_the_stream_whose_row_would_be_found_least_by_accident(tmp_path: Path) -> None:
    pairs = waited(job_of(tmp_path / "early", early_records()))
    assert ("exchange", "interaction") in pairs
    assert ("lookup", "interaction") not in pairs


def test_without_the_one_the_other_is_waited_for(tmp_path: Path) -> None:
    job = job_of(tmp_path / "two", two_waits())
    (graph,) = job.graphs
    rows = graph.rows
    consumer = [row for row, name in enumerate(rows.name.tolist()) if rows.names[name] == "interaction"]
    changed = job.replay(switches.changed(job.event_graph, job.graphs, [switches.scale("name=lookup:0")]))
    start = changed.replays[0].start[consumer] - rows.ts[consumer]
    # Where the exchange is the late one, nothing is gained: those rounds stay so much behind the others.
    late = [number % 3 == 2 for number in range(ROUNDS)]
    gained = [moment - start[2] for moment in start.tolist()]
    assert gained == [0 if stays else -(LONG_US - SHORT_US) * 1000 for stays in late]
