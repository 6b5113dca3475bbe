"""What a change would bring, against an emulated job that really ran with it: edges that merely fit would not tell."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from lumos_df.graph import switches
from lumos_df.graph.job import Job, Played, groups, load
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import EVENT
from lumos_df.trace.ingest import ingest
from tests.emulator import Job as Emulated
from tests.emulator import Outcome, Profiler, simulate, write
from tests.emulator.gpu import APART_STREAM
from tests.emulator.job import Waits

WAITS: tuple[Waits, ...] = get_args(Waits)
JOBS = {
    "gpu": Emulated(ranks=2, steps=2, batch=32),
    "host": Emulated(ranks=2, steps=2, batch=1, hidden=512),
    "prefetch": Emulated(ranks=2, steps=2, batch=16, prefetch_bytes=200_000_000),
    "small prefetch": Emulated(ranks=2, steps=2, batch=8, prefetch_bytes=2_000_000),
    "buckets": Emulated(ranks=2, steps=2, batch=8, bucket_bytes=8_000_000),
    "apart": Emulated(ranks=2, steps=2, apart=True),
}
NOISY = {
    "late launches": Emulated(ranks=2, steps=2, apart=True, jitter_ns=40_000),
    "late launches, more work": Emulated(ranks=2, steps=2, batch=16, apart=True, jitter_ns=40_000),
    "late launches, prefetch": Emulated(
        ranks=2, steps=2, batch=16, apart=True, jitter_ns=20_000, prefetch_bytes=20_000_000
    ),
}
OFFLOADED = Emulated(ranks=2, steps=3, offloaded_bytes=40_000_000, offloads_apart=True)
"""Of launches on an idle stream half are those of copies, behind a wait for kernels."""
FULL_QUEUE = Emulated(ranks=2, steps=2, batch=32, layers=8, queue_depth=300)
"""The host is so far ahead that launch calls wait for room in the queue of the compute stream."""
BRIEF = Profiler(stacks=False, memory=False)
Change = tuple[str, float]
"""(text, factor): GPU work with that text in its name takes so many times as long."""
CHANGES: list[Change] = [
    ("gemm", 0.5),
    ("gemm", 2),
    ("nccl", 0.25),
    ("nccl", 4),
    ("Memcpy HtoD", 0.1),
    ("Memcpy HtoD", 100),
    ("elementwise", 3),
    ("Histogram", 0.1),
    ("Histogram", 3),
]
FASTER: list[Change] = [("", 0.02), ("", 0.1), ("", 0.3), ("gemm", 0.02)]
"""What leaves the queue empty."""


@cache
def ran(job: Emulated) -> Outcome:
    return simulate(job)


def recorded(
    folder: Path, job: Emulated, waits: Waits = "called", profiler: Profiler = BRIEF, without: int | None = None
) -> Job:
    """Return the job as the profiler has it, `without` the file of a rank."""
    paths = write(ran(job), replace(profiler, waits=waits), folder / "traces")
    if without is not None:
        paths[without].unlink()
    corpus = folder / "corpus"
    assert not ingest([folder / "traces"], corpus, workers=1).failed
    return load(corpus, groups(corpus)[0])


def told(played: Played) -> NDArray[np.float64]:
    """Length and four parts of each step of each rank, ns."""
    return np.array(
        [
            (
                one.high - one.low,
                one.replayed.exposed_compute,
                one.replayed.overlapped,
                one.replayed.exposed_communication,
                one.replayed.other,
            )
            for one in played.replays
        ]
    ).transpose(0, 2, 1)


@cache
def true(job: Emulated) -> NDArray[np.float64]:
    """The same as it happened."""
    steps = sorted(simulate(job).truth.steps, key=lambda step: (step.rank, step.step))
    return np.array(
        [
            (
                step.step_ns,
                step.exposed_compute_ns,
                step.overlapped_ns,
                step.exposed_communication_ns,
                step.memory_ns + step.idle_ns,
            )
            for step in steps
        ]
    ).reshape(job.ranks, job.steps, 5)


def errors(job: Job, emulated: Emulated, changes: list[Change]) -> dict[Change, float]:
    """How far each change's length and parts are off, at most, as a share of the step."""
    off = {}
    for text, factor in changes:
        selector = f"name~{text}" if text else "kind=gpu"
        changed = switches.changed(job.event_graph, job.graphs, [switches.scale(f"{selector}:{factor}")])
        truth = true(replace(emulated, factors=((text, factor),)))
        off[text, factor] = float((np.abs(told(job.replay(changed)) - truth) / truth[..., :1]).max())
    return off


@pytest.mark.parametrize("waits", WAITS)
@pytest.mark.parametrize("name", JOBS)
def test_a_change_brings_what_it_would_have_brought(tmp_path: Path, name: str, waits: Waits) -> None:
    off = errors(recorded(tmp_path, JOBS[name], waits), JOBS[name], CHANGES)
    # A wait that never lasted, of which the profiler shows nothing, cannot be known.
    allowed = 0.03 if (name, waits) == ("host", "unseen") else 0.01
    assert max(off.values()) <= allowed, off


@pytest.mark.parametrize("waits", ["described", "unseen"])
@pytest.mark.parametrize("name", NOISY)
def test_rows_that_start_late_by_chance_are_not_taken_to_wait(tmp_path: Path, name: str, waits: Waits) -> None:
    off = errors(recorded(tmp_path, NOISY[name], waits), NOISY[name], CHANGES)
    assert max(off.values()) <= 0.02, off


@pytest.mark.parametrize("waits", ["described", "called", "unrecorded"])
def test_launches_behind_a_wait_tell_nothing_of_launch_latency(tmp_path: Path, waits: Waits) -> None:
    off = errors(recorded(tmp_path, OFFLOADED, waits), OFFLOADED, [("gemm", 1), ("gemm", 0.5), ("Memcpy DtoH", 3)])
    assert max(off.values()) <= 0.01, off


def test_launches_that_waited_for_room_wait_no_more_where_the_gpu_is_faster(tmp_path: Path) -> None:
    off = errors(recorded(tmp_path, FULL_QUEUE, "called"), FULL_QUEUE, FASTER)
    assert max(off.values()) <= 0.01, off


@pytest.mark.parametrize("waits", WAITS)
@pytest.mark.parametrize("name", NOISY)
def test_no_stream_waits_for_one_that_nothing_waits_for(tmp_path: Path, name: str, waits: Waits) -> None:
    for graph in recorded(tmp_path, NOISY[name], waits).graphs:
        rows, edges = graph.rows, graph.edges
        ends = np.stack((edges.src, edges.dst))[:, edges.kind == EVENT]
        apart = (rows.stream_keys[rows.stream[ends], 1] == APART_STREAM).any(axis=0)
        assert apart.sum() <= ends.shape[1] // 50, waits


def awaited(graph: TraceGraph) -> dict[tuple[int, int], int]:
    """Return the last row of each stream for which each row waits: the others are over by then."""
    rows, edges = graph.rows, graph.edges.where(graph.edges.kind == EVENT)
    last: dict[tuple[int, int], int] = {}
    for src, dst in zip(edges.src.tolist(), edges.dst.tolist(), strict=True):
        of = int(rows.correlation[dst]), int(rows.stream_keys[rows.stream[src], 1])
        last[of] = max(last.get(of, 0), int(rows.correlation[src]))
    return last


@pytest.mark.parametrize("name", ["gpu", "prefetch", "buckets"])
def test_what_is_inferred_is_what_the_profiler_would_have_said(tmp_path: Path, name: str) -> None:
    pairs = {}
    for waits in ("described", "called", "unrecorded"):
        job = recorded(tmp_path / waits, JOBS[name], waits)
        pairs[waits] = [awaited(graph) for graph in job.graphs]
        assert all(pairs[waits])
    assert pairs["described"] == pairs["called"] == pairs["unrecorded"]
