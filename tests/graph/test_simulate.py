"""The loops of the graph against slow twins that say what they mean."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumos_df.graph.simulate import forward as loops

END_START, START_START, END_END = 0, 1, 2
ALONE = np.empty(0, np.int32)


@dataclass(frozen=True)
class Case:
    """A random graph whose edges go from lower to higher nodes, and collectives of neighbouring ranks."""

    own: list[int]
    edges: list[tuple[int, int, int, int]]
    """Source, target, binding points, lag."""


@st.composite
def cases(draw: st.DrawFn) -> Case:
    many = draw(st.integers(1, 12))
    own = draw(st.lists(st.integers(0, 50), min_size=many, max_size=many))
    edge = st.tuples(
        st.integers(0, many - 1), st.integers(0, many - 1), st.sampled_from((0, 1, 2)), st.integers(-10, 30)
    ).filter(lambda e: e[0] < e[1])
    return Case(own, draw(st.lists(edge, max_size=30)) if many > 1 else [])


def columns(case: Case) -> tuple[np.ndarray, ...]:
    return tuple(np.array(case.edges, np.int64).reshape(-1, 4).T.copy())


def run(case: Case, order: list[int] | None = None) -> tuple[np.ndarray, np.ndarray]:
    src, dst, binds, lag = columns(case)
    many = len(case.own)
    pointer, edge = loops.forward_star(src.astype(np.int32), many)
    start, end, _, _ = loops.simulate(
        np.array(order or range(many), np.int32),
        pointer,
        edge,
        dst.astype(np.int32),
        binds.astype(np.int8),
        lag,
        np.array(case.own, np.int64),
        np.zeros(many, np.int64),
        np.full(many, -1, np.int32),
        ALONE,
        np.empty(0, np.int64),
    )
    return start, end


def slow_twin(case: Case) -> tuple[list[int], list[int]]:
    start: list[int] = []
    end: list[int] = []
    for node, own in enumerate(case.own):
        before = [edge for edge in case.edges if edge[1] == node]
        begins = [
            (end if binds == END_START else start)[src] + lag for src, _, binds, lag in before if binds != END_END
        ]
        start.append(max([0, *begins]))
        ends = [end[src] + lag for src, _, binds, lag in before if binds == END_END]
        end.append(max([start[node] + own, *ends]))
    return start, end


@settings(deadline=None)  # the first call compiles
@given(cases())
def test_simulation_does_what_the_slow_twin_says(case: Case) -> None:
    start, end = run(case)
    assert (start.tolist(), end.tolist()) == slow_twin(case)


@settings(deadline=None)  # the first call compiles
@given(cases(), st.integers(0, 11), st.integers(1, 100))
def test_nothing_ends_earlier_when_something_lasts_longer(case: Case, which: int, more: int) -> None:
    longer = list(case.own)
    longer[which % len(longer)] += more
    assert (run(Case(longer, case.edges))[1] >= run(case)[1]).all()


@settings(deadline=None)  # the first call compiles
@given(cases(), st.integers(2, 5))
def test_scaling_everything_scales_the_result(case: Case, factor: int) -> None:
    scaled = Case([own * factor for own in case.own], [(a, b, binds, lag * factor) for a, b, binds, lag in case.edges])
    assert (run(scaled)[1] == factor * run(case)[1]).all()


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [1, 0, 2, 3]])
def test_a_collective_ends_together_one_transfer_after_its_last_member(order: list[int]) -> None:
    # Nodes 0 and 1 are members; 1 comes at 70, in whatever order they are met, and what follows either waits for both.
    src, dst = np.array([0, 1], np.int32), np.array([2, 3], np.int32)
    pointer, edge = loops.forward_star(src, 4)
    start, end, _, cause = loops.simulate(
        np.array(order, np.int32),
        pointer,
        edge,
        dst,
        np.zeros(2, np.int8),
        np.array([5, 5]),
        np.array([1000, 1000, 10, 10]),
        np.array([20, 70, loops.UNSET, loops.UNSET]),
        np.array([0, 0, -1, -1], np.int32),
        np.array([2], np.int32),
        np.array([30]),
    )
    assert end.tolist() == [100, 100, 115, 115]
    assert start.tolist() == [20, 70, 105, 105]
    assert cause[0] == -2 - 1
    assert cause[1] == -1


edge_lists = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda e: e[0] != e[1]), max_size=30)


@settings(deadline=None)  # the first call compiles
@given(edge_lists)
def test_an_order_holds_every_node_once_whatever_the_edges(found: list[tuple[int, int]]) -> None:
    order = ordered(found)
    assert sorted(order) == list(range(10))


@settings(deadline=None)  # the first call compiles
@given(edge_lists)
def test_edges_without_a_circle_all_go_forward(found: list[tuple[int, int]]) -> None:
    straight = [(min(edge), max(edge)) for edge in found]
    order = ordered(straight)
    assert all(order.index(src) < order.index(dst) for src, dst in straight)


def ordered(found: list[tuple[int, int]]) -> list[int]:
    src, dst = np.array(found, np.int32).reshape(-1, 2).T.copy()
    pointer, edge = loops.forward_star(src, 10)
    result: list[int] = loops.topological(
        np.arange(10, dtype=np.int32), pointer, edge, dst, 10, np.full(10, -1, np.int32), ALONE
    ).tolist()
    return result


@settings(deadline=None)  # the first call compiles
@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 30)), max_size=12),
    st.lists(st.integers(0, 100), min_size=2, max_size=6, unique=True),
)
def test_share_counts_each_covered_moment_once(spans: list[tuple[int, int]], cuts: list[int]) -> None:
    spans = sorted((begin, begin + length) for begin, length in spans)
    cuts = sorted(cuts)
    low, high = np.array(cuts[:-1]), np.array(cuts[1:])
    begin, end = np.array([s for s, _ in spans], np.int64), np.array([e for _, e in spans], np.int64)
    covered = [sum(any(s <= t < e for s, e in spans) for t in range(a, b)) for a, b in zip(low, high, strict=True)]
    assert loops.share(begin, end, low, high).tolist() == covered


@given(st.data())
def test_rows_around_marked_ones(data: st.DataObject) -> None:
    """Rows are numbered in any order: those of the GPU may come before their call, where clocks disagree."""
    many = data.draw(st.integers(1, 12))
    parent = [data.draw(st.integers(-1, row - 1)) for row in range(many)]
    parent.append(data.draw(st.integers(-1, many - 1)))
    order = data.draw(st.permutations(range(many + 1)))
    parents = np.full(many + 1, -1, np.int32)
    for row, above in enumerate(parent):
        parents[order[row]] = order[above] if above >= 0 else -1
    marked = np.array(data.draw(st.lists(st.booleans(), min_size=many + 1, max_size=many + 1)))

    def ancestors(row: int) -> set[int]:
        return {int(parents[row])} | ancestors(int(parents[row])) if parents[row] >= 0 else set()

    expected = {above for row in np.flatnonzero(marked).tolist() for above in ancestors(row)}
    assert set(np.flatnonzero(loops.around(marked, parents)).tolist()) == expected
