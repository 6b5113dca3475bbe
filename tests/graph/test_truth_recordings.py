"""What a change would bring, as `test_truth` has it, where jobs do and profilers leave out what real ones do."""

from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray

from lumos_df.graph import switches
from lumos_df.graph.gains import gains
from lumos_df.graph.host_work import host_work
from lumos_df.graph.job import Job
from lumos_df.graph.replay_warnings import of_traces
from tests.emulator import Job as Emulated
from tests.emulator.job import Waits
from tests.graph.test_gains import held_against_each_by_itself
from tests.graph.test_truth import BRIEF, CHANGES, JOBS, Change, errors, ran, recorded, told, true

ALLOWED: Final = 0.02
"""Share of a step."""
CLOCKS = {
    "apart": replace(BRIEF, gpu_offsets_ns=(40_000, -15_000)),
    "drifting": replace(BRIEF, gpu_offsets_ns=(-30_000, 20_000), gpu_drifts_ns=(10_000, -10_000)),
}
JOINED = Emulated(ranks=2, steps=3, joined=True)
JOINED_CHANGES: list[Change] = [
    ("gemm", 0.5),
    ("gemm", 2),
    ("nccl", 4),
    ("Memcpy HtoD", 0.1),
    ("Memcpy HtoD", 3),
    ("triu", 0.1),
    ("triu", 3),
]
BARRIERS = {name: replace(JOBS[name], barrier_ns=18_000) for name in ("gpu", "prefetch", "buckets")}
"""Devices of AMD take so long from the end of one stream's work to the start of that which waits for it on another."""
SCARCE = {
    "gpu": Emulated(ranks=2, steps=3, batch=16, scarce_memory=True),
    "both": Emulated(ranks=2, steps=3, scarce_memory=True),
}
METRICS = Emulated(ranks=2, steps=3, late_metrics_rank=1)
CAPTURED = {
    "model": (Emulated(ranks=2, steps=6, batch=2, captured="model"), 7),
    "model, more work": (Emulated(ranks=2, steps=5, batch=16, captured="model"), 7),
    "layers": (Emulated(ranks=2, steps=5, batch=2, layers=4, captured="layer"), 7),
    "layers, more work": (Emulated(ranks=2, steps=5, batch=16, captured="layer"), 7),
}
"""Jobs, and of how many nodes one is recorded."""


@pytest.mark.parametrize("clocks", CLOCKS)
@pytest.mark.parametrize("name", ["gpu", "host", "prefetch"])
def test_a_gpu_clock_that_is_not_the_hosts_changes_no_answer(tmp_path: Path, name: str, clocks: str) -> None:
    job = recorded(tmp_path, JOBS[name], profiler=CLOCKS[clocks])
    assert all(graph.rows.gpu_shift for graph in job.graphs)
    off = errors(job, JOBS[name], CHANGES)
    assert max(off.values()) <= ALLOWED, off


@pytest.mark.parametrize("waits", ["described", "called", "unrecorded"])
def test_two_waits_in_a_row_are_for_two_streams(tmp_path: Path, waits: Waits) -> None:
    off = errors(recorded(tmp_path, JOINED, waits), JOINED, JOINED_CHANGES)
    assert max(off.values()) <= ALLOWED, off


@pytest.mark.parametrize("waits", ["called", "unseen"])
@pytest.mark.parametrize("name", BARRIERS)
def test_a_device_that_is_slow_from_one_stream_to_another_stays_slow(tmp_path: Path, name: str, waits: Waits) -> None:
    off = errors(recorded(tmp_path, BARRIERS[name], waits), BARRIERS[name], CHANGES)
    assert max(off.values()) <= ALLOWED, off


@pytest.mark.parametrize("name", SCARCE)
def test_an_allocator_without_memory_waits_for_all_that_was_issued(tmp_path: Path, name: str) -> None:
    off = errors(recorded(tmp_path, SCARCE[name], "unseen"), SCARCE[name], CHANGES)
    assert max(off.values()) <= ALLOWED, off


@pytest.mark.parametrize("name", CAPTURED)
def test_nodes_of_a_graph_that_were_not_recorded_go_on_to_run(tmp_path: Path, name: str) -> None:
    emulated, every = CAPTURED[name]
    job = recorded(tmp_path, emulated, profiler=replace(BRIEF, graph_nodes=every))
    assert sum(graph.rows.on_gpu.sum() for graph in job.graphs) < sum(len(of.gpu) for of in ran(emulated).recordings)
    nodes = {name[name.index("_node") :] for graph in job.graphs for name in graph.rows.names if "_node" in name}
    changed = [(node, factor) for node in sorted(nodes)[::2] for factor in (0.2, 5)]
    off = lengths_off(job, emulated, [("nothing", 1), *changed, ("nccl", 4)])
    assert max(off.values()) <= ALLOWED, off


@pytest.mark.parametrize(("steps", "told_of"), [(2, True), (6, False)])
def test_graphs_that_were_launched_too_seldom_to_learn_from_are_told_of(
    tmp_path: Path, steps: int, *, told_of: bool
) -> None:
    emulated = Emulated(ranks=1, steps=steps, batch=2, captured="model")
    job = recorded(tmp_path, emulated, profiler=replace(BRIEF, graph_nodes=7))
    (warnings,) = of_traces(job)
    assert any("CUDA graphs launched fewer than 5 times" in text for text in warnings) == told_of


@pytest.mark.parametrize("stacks", [False, True])
def test_a_job_without_the_sleep_of_a_rank_is_as_long_as_one_that_never_slept(tmp_path: Path, *, stacks: bool) -> None:
    asleep = Emulated(ranks=2, steps=3, sleep_rank=1, sleep_ns=5_000_000)
    job = recorded(tmp_path, asleep, profiler=replace(BRIEF, stacks=stacks))
    awake = switches.changed(job.event_graph, job.graphs, [switches.no_wait("rank=1")])
    off = off_by(told(job.replay(awake)), true(replace(asleep, sleep_rank=None, sleep_ns=0)))
    assert off.max() <= ALLOWED


@pytest.mark.parametrize("arguments", [True, False])
def test_a_rank_whose_steps_hold_other_collectives_meets_the_others(tmp_path: Path, *, arguments: bool) -> None:
    job = recorded(tmp_path, METRICS, profiler=replace(BRIEF, collective_args=arguments))
    assert members(job) == [2] * len(ran(METRICS).truth.collectives)
    assert not job.instances or not job.instances.warnings
    off = errors(job, METRICS, CHANGES)
    assert max(off.values()) <= ALLOWED, off


@pytest.mark.parametrize("arguments", [True, False])
def test_only_collectives_that_a_rank_did_not_record_are_not_matched(tmp_path: Path, *, arguments: bool) -> None:
    lost = ((0, 5), (1, 2), (1, 3))
    job = recorded(tmp_path, METRICS, profiler=replace(BRIEF, collective_args=arguments, lost=lost))
    assert members(job) == [2] * (len(ran(METRICS).truth.collectives) - len(lost))
    assert job.instances is not None
    assert [int(text.split(": ")[1].split()[0]) for text in job.instances.warnings] == [2, 1]
    job.replay()


@pytest.mark.parametrize("arguments", [True, False])
def test_ranks_meet_where_the_file_of_another_is_missing(tmp_path: Path, *, arguments: bool) -> None:
    three = Emulated(ranks=3, steps=3, batch=8)
    job = recorded(tmp_path, three, profiler=replace(BRIEF, collective_args=arguments), without=1)
    assert [graph.rows.rank for graph in job.graphs] == [0, 2]
    assert members(job) == [2] * len(ran(three).truth.collectives)
    for text, factor in CHANGES:
        changed = switches.changed(job.event_graph, job.graphs, [switches.scale(f"name~{text}:{factor}")])
        truth = true(replace(three, factors=((text, factor),)))[[0, 2]]
        assert off_by(told(job.replay(changed)), truth).max() <= ALLOWED, (text, factor)


def test_gains_of_a_rank_by_itself_leave_what_it_waits_for_others(tmp_path: Path) -> None:
    asleep = Emulated(ranks=2, steps=2, bucket_bytes=1, sleep_rank=1, sleep_ns=5_000_000)
    job = recorded(tmp_path, asleep, without=1)
    played = job.replay()
    (found,) = gains(job, played, [host_work(graph) for graph in job.graphs])
    communication = [selector.value for selector in found.selectors].index("communication")
    # Each step waits 5 ms for the sleep of the rank whose file is missing.
    assert (found.time[communication] > 5_000_000).all()
    assert (found.time[communication] - found.none[communication] > 4_900_000).all()
    assert held_against_each_by_itself(job) > 10


def members(job: Job) -> list[int]:
    """Return how many ranks each collective was matched on."""
    assert job.instances is not None
    counts: list[int] = np.bincount(job.instances.instance).tolist()
    return counts


def off_by(predicted: NDArray[np.float64], truth: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how far lengths and parts are off, as shares of the steps."""
    off: NDArray[np.float64] = np.abs(predicted - truth) / truth[..., :1]
    return off


def lengths_off(job: Job, emulated: Emulated, changes: list[Change]) -> dict[Change, float]:
    """Return how far the lengths are off, at most: parts of what was not recorded are not those of the truth."""
    off = {}
    for text, factor in changes:
        changed = switches.changed(job.event_graph, job.graphs, [switches.scale(f"name~{text}:{factor}")])
        truth = true(replace(emulated, factors=((text, factor),)))
        off[text, factor] = float(off_by(told(job.replay(changed)), truth)[..., 0].max())
    return off
