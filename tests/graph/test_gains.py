"""Gains, simulated many at once, against each change simulated by itself."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lumos_df.graph.event_graph import of_trace, run
from lumos_df.graph.gains import gains
from lumos_df.graph.host_work import host_work
from lumos_df.graph.job import Job, build
from lumos_df.graph.replay import windows
from lumos_df.graph.rows import Rows
from lumos_df.graph.simulate import backward, forward
from lumos_df.graph.simulate.variants import CHANGES, FACTORS, VARIANTS, simulate_variants
from lumos_df.graph.switches import Change, changed
from lumos_df.schema import FAMILIES
from lumos_df.schema.codes import KERNEL


def held_against_each_by_itself(job: Job) -> int:
    """Simulate every change by itself, compare all steps of all traces, and return how many gain something."""
    played = job.replay()
    found = gains(job, played, [host_work(graph) for graph in job.graphs])
    selectors = {selector for of_rank in found for selector in of_rank.selectors}
    gaining = 0
    for selector in selectors:
        for factor, part in ((0.0, "none"), (0.5, "half")):
            result = run(changed(job.event_graph, job.graphs, [Change(selector, factor)]))
            for k, (graph, replay) in enumerate(zip(job.graphs, played.replays, strict=True)):
                low, high = windows(graph, of_trace(job.event_graph, result, k), replay.steps)
                if selector not in found[k].selectors:
                    assert not selector.rows(graph).any()
                    continue
                gain = getattr(found[k], part)[found[k].selectors.index(selector)]
                assert gain.tolist() == (replay.high - replay.low - (high - low)).tolist(), (selector, factor)
                gaining += bool(gain.any())
    return gaining


def without_marks(rows: Rows) -> Rows:
    """Return the rows with their steps' marks named like any other annotation."""
    return replace(rows, names=[name.replace("ProfilerStep#", "step ") for name in rows.names])


def with_other_times(rows: Rows, seed: int) -> Rows:
    """Return the rows with random durations of the GPU's, none longer: who waits for whom changes."""
    factor = np.random.default_rng(seed).uniform(0.01, 1, len(rows))
    return replace(rows, dur=np.where(rows.on_gpu, (rows.dur * factor).astype(np.int64), rows.dur))


def test_gains_of_a_job_are_what_each_change_brings(generated: Job) -> None:
    assert held_against_each_by_itself(generated) > 100


def test_gains_of_a_trace_without_marks_are_what_each_change_brings(generated: Job) -> None:
    assert held_against_each_by_itself(build([without_marks(graph.rows) for graph in generated.graphs[:2]])) > 50


@pytest.mark.parametrize("seed", range(3))
def test_gains_are_what_each_change_brings_whatever_the_kernels_take(generated: Job, seed: int) -> None:
    assert held_against_each_by_itself(build([with_other_times(generated.graphs[seed].rows, seed)])) > 10


def test_time_counts_nested_operators_once_and_only_inside_steps(generated: Job) -> None:
    graph = generated.graphs[0]
    rows = graph.rows
    (found,) = gains(job := build([rows]), played := job.replay(), [host_work(graph)])
    steps = played.replays[0].steps.number.tolist()
    for k, selector in enumerate(found.selectors):
        if selector.field == "family":
            meant = (rows.kind >= KERNEL) & rows.on_gpu & (rows.family == FAMILIES.index(selector.value))
        else:
            meant = np.array([name == selector.value for name in rows.names])[rows.name]
        want = dict.fromkeys(steps, 0)
        for row in np.flatnonzero(meant).tolist():
            above = int(rows.parent[row])
            while above >= 0 and not meant[above]:
                above = int(rows.parent[above])
            if above < 0 and int(rows.step[row]) in want:
                want[int(rows.step[row])] += int(rows.dur[row])
        assert found.time[k].tolist() == list(want.values()), selector


@dataclass(frozen=True)
class Case:
    """A random graph, one collective that ends it, and what lasts less in which change."""

    own: list[int]
    edges: list[tuple[int, int, int, int]]
    """Source, target, binding points, lag."""
    members: list[int]
    transfer: int
    less: dict[tuple[int, int], tuple[int, ...]]
    """By item and change: what is left in either variant."""


@st.composite
def cases(draw: st.DrawFn) -> Case:
    alone, together = draw(st.integers(2, 10)), draw(st.sampled_from((0, 2, 3)))
    many = alone + together
    own = draw(st.lists(st.integers(0, 50), min_size=many, max_size=many))
    edge = st.tuples(
        st.integers(0, alone - 1), st.integers(0, many - 1), st.sampled_from((0, 1, 2)), st.integers(0, 30)
    ).filter(lambda e: e[0] < e[1] or (e[0] > e[1] and e[2] == 2))
    found = draw(st.lists(edge, max_size=30))
    # A copying call comes before the row whose end it waits for, and that before what follows the call.
    follows = {(dst, after) for _, dst, _, _ in found for src, after, binds, _ in found if src == dst and binds != 1}
    ends = {src for src, _, binds, _ in found if binds == 2}
    edges = [
        (src, dst, binds, lag)
        for src, dst, binds, lag in found
        if src < dst or (dst not in ends and all(after > src for call, after in follows if call == dst))
    ]
    members = list(range(alone, many))
    item = st.integers(0, many + len(edges) - (0 if members else 1))
    keys = draw(st.lists(st.tuples(item, st.integers(0, CHANGES - 1)), max_size=20, unique=True))
    times = [*own, *(lag for *_, lag in edges), 40]
    less = {key: tuple(draw(st.integers(0, times[key[0]])) for _ in range(FACTORS)) for key in keys}
    return Case(own, edges, members, 40, less)


COPY = Case([5, 100, 10], [(0, 1, 1, 0), (1, 0, 2, 1), (0, 2, 0, 3)], [], 40, {(1, 0): (0, 50), (4, 1): (0, 0)})
"""A call issues a copy that it waits for, and what follows the call waits, too."""


def simulated(case: Case, change: int | None, variant: int) -> tuple[np.ndarray, ...]:
    """Simulate one variant by itself."""
    times = [*case.own, *(lag for *_, lag in case.edges), case.transfer]
    for (item, of), left in case.less.items():
        if of == change:
            times[item] = left[variant]
    many = len(case.own)
    src, dst, binds = (np.array([edge[k] for edge in case.edges], np.int32) for k in range(3))
    pointer, edge = forward.forward_star(src, many)
    instance = np.full(many, -1, np.int32)
    instance[case.members] = 0
    result: tuple[np.ndarray, ...] = forward.simulate(
        np.arange(many, dtype=np.int32),
        pointer,
        edge,
        dst,
        binds.astype(np.int8),
        np.array(times[many:-1], np.int64),
        np.array(times[:many], np.int64),
        np.zeros(many, np.int64),
        instance,
        np.array([len(case.members)] if case.members else [], np.int32),
        np.array(times[-1:] if case.members else [], np.int64),
    )
    return result


@settings(deadline=None)  # the first call compiles
@example(COPY)
@given(cases())
def test_variants_together_are_what_each_is_by_itself(case: Case) -> None:
    many, m = len(case.own), len(case.edges)
    src, dst, binds, lag = (np.array([edge[k] for edge in case.edges], np.int64) for k in range(4))
    pointer, edge = forward.forward_star(src.astype(np.int32), many)
    place = np.empty(m, np.int64)
    place[edge] = np.arange(m)
    instance = np.full(many, -1, np.int32)
    instance[case.members] = 0
    item = [key if key < many or key >= many + m else many + place[key - many] for key, _ in case.less]
    start, end = (np.empty((many, VARIANTS), np.int64) for _ in range(2))
    first_time = np.full(many + m + 1, -1, np.int32)
    raised = np.zeros(many, np.bool_)
    raised[dst[binds == 2]] = True
    first, last = simulate_variants(
        pointer,
        dst[edge].astype(np.int32),
        binds[edge].astype(np.int8),
        lag[edge],
        np.array(case.own, np.int64),
        np.zeros(many, np.int64),
        instance,
        np.array([len(case.members)] if case.members else [], np.int32),
        np.array([case.transfer] if case.members else [], np.int64),
        raised,
        np.ones(many, np.bool_),
        np.where(raised, -1, 0).astype(np.int32),
        1,
        np.array(item, np.int32),
        np.array([change for _, change in case.less], np.int8),
        np.array([*case.less.values()], np.int64).reshape(-1, FACTORS),
        first_time,
        start,
        end,
    )
    for change in range(CHANGES):
        for variant in range(FACTORS):
            k = FACTORS * change + variant
            want_start, want_end, _, _ = simulated(case, change, variant)
            assert start[:, k].tolist() == want_start.tolist()
            assert end[:, k].tolist() == want_end.tolist()
            if not raised.all():
                assert (first[0, k], last[0, k]) == (want_start[~raised].min(), want_end[~raised].max())
    assert (first_time == -1).all()


@settings(deadline=None)  # the first call compiles
@given(cases(), st.integers(0, 12), st.integers(0, CHANGES - 1), st.integers(0, FACTORS - 1))
def test_what_a_node_does_not_follow_from_makes_it_no_earlier(case: Case, node: int, change: int, variant: int) -> None:
    node %= len(case.own)
    start, end, start_cause, end_cause = simulated(case, None, 0)
    instance = np.full(len(case.own), -1, np.int32)
    instance[case.members] = 0
    src, binds = (np.array([edge[k] for edge in case.edges], np.int32) for k in (0, 2))
    counts = np.concatenate(
        backward.decisive(
            np.array([node]), src, binds.astype(np.int8), instance, int(bool(case.members)), start_cause, end_cause
        )
    )
    less = {key: left for key, left in case.less.items() if not counts[key[0]]}
    again_start, again_end, _, _ = simulated(replace(case, less=less), change, variant)
    assert (again_start[node], again_end[node]) == (start[node], end[node])
