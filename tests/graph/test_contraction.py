"""A contracted graph against the whole one: what is left of it has the same times, and lets others be as late."""

from dataclasses import dataclass

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lumos_df.graph.simulate import backward, forward
from lumos_df.graph.simulate.contraction import SOURCES, contract
from lumos_df.schema.codes import END_END, END_START, NONE, START_START


@dataclass(frozen=True)
class Case:
    """A random graph whose edges go from lower to higher nodes; calls, the odd nodes, may wait for an end."""

    own: list[int]
    edges: list[tuple[int, int, int, int]]
    """Source, target, binding points, lag."""
    kept: list[int]
    """Even nodes."""
    transfer: list[int]
    """Of each pair of kept nodes, the first with the second and so on, which are collectives."""


@st.composite
def cases(draw: st.DrawFn) -> Case:
    many = draw(st.integers(2, 24))
    own = draw(st.lists(st.integers(0, 50), min_size=many, max_size=many))
    edge = st.tuples(
        st.integers(0, many - 1),
        st.integers(0, many - 1),
        st.sampled_from((END_START, START_START, END_END)),
        st.integers(-10, 30),
    ).filter(lambda e: e[0] < e[1] and (e[2] != END_END or e[1] % 2 == 1))
    edges = draw(st.lists(edge, max_size=80))
    kept = sorted(draw(st.sets(st.integers(0, (many - 1) // 2).map(lambda half: 2 * half), max_size=10)))
    return Case(own, edges, kept, draw(st.lists(st.integers(0, 40), min_size=5, max_size=5)))


def simulated(
    edges: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    own: np.ndarray,
    floor: np.ndarray,
    instance: np.ndarray,
    transfer: np.ndarray,
    order: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Simulate and return start, end, and by when each collective has to end so that the last node stays."""
    src, dst, binds, lag = edges
    pointer, edge = forward.forward_star(src, len(own))
    members = np.bincount(instance[instance >= 0], minlength=len(transfer)).astype(np.int32)
    instance = instance.astype(np.int32)
    start, end, _, _ = forward.simulate(order, pointer, edge, dst, binds, lag, own, floor, instance, members, transfer)
    limit = np.full(len(own), backward.FAR)
    limit[-1] = end[-1]
    _, decided = backward.slack(order, pointer, edge, dst, binds, lag, own, instance, transfer, limit, start)
    return start, end, decided


TWO_WAYS = Case(
    own=[0] * 5,
    edges=[(0, 1, END_START, 5), (0, 3, END_START, 9), (1, 4, END_START, 0), (3, 4, END_START, 0)],
    kept=[0, 4],
    transfer=[0] * 5,
)
"""The second way from a node to another takes longer."""


@example(TWO_WAYS)
@settings(deadline=None, max_examples=300)  # the first call compiles
@given(cases())
def test_what_is_left_of_a_graph_has_the_times_that_it_had(case: Case) -> None:
    many = len(case.own)
    src, dst, binds, lag = np.array(case.edges, np.int64).reshape(-1, 4).T.copy()
    src, dst, binds = src.astype(np.int32), dst.astype(np.int32), binds.astype(np.int8)
    own, order = np.array(case.own), np.arange(many, dtype=np.int32)
    led = np.isin(order, dst[binds != END_END])
    floor = np.where(led, forward.UNSET, 7 * order).astype(np.int64)
    pairs = len(case.kept) // 2
    transfer = np.array(case.transfer[:pairs], np.int64)
    instance = np.full(many, NONE)
    # Two members follow one another only where no edge leads from one to the other: else nobody could ever go on.
    instance[case.kept[: 2 * pairs]] = np.repeat(np.arange(pairs), 2)
    for collective in range(pairs):
        if reaches(case, *case.kept[2 * collective : 2 * collective + 2]):
            instance[instance == collective] = NONE
    pointer, edge = forward.forward_star(src, many)
    members = np.bincount(instance[instance >= 0], minlength=pairs).astype(np.int32)
    whole_order = forward.topological(order, pointer, edge, dst, many, instance.astype(np.int32), members)
    if in_a_circle(whole_order, src, dst, instance):
        return
    # The same graph twice, once with other times.
    lags, owns = np.stack((lag, lag // 2), axis=1), np.stack((own, 2 * own), axis=1)
    kept = np.full(many, NONE, np.int32)
    kept[case.kept] = np.arange(len(case.kept))
    moment, sink = np.array([2 * many - 2, 2 * many - 1]), np.array([0, 1])
    new_src, new_dst, new_binds, new_lags, new_order, new_floors, of_node = contract(
        order, pointer, edge, dst, binds, lags, owns, floor, kept, moment, sink, len(case.kept), 2
    )
    nodes = len(new_floors)
    assert sorted(new_order.tolist()) == list(range(nodes))
    assert (np.bincount(new_dst, minlength=nodes)[len(case.kept) : -2] == SOURCES).all()
    assert of_node[: len(case.kept)].tolist() == case.kept
    new_instance = np.full(nodes, NONE)
    new_instance[: len(case.kept)] = instance[case.kept]
    pointer, edge = forward.forward_star(new_src, nodes)
    joint = forward.topological(new_order, pointer, edge, new_dst, nodes, new_instance.astype(np.int32), members)
    assert not in_a_circle(joint, new_src, new_dst, new_instance)
    for k in range(2):
        whole = (src, dst, binds, lags[:, k].copy())
        start, end, latest = simulated(whole, owns[:, k].copy(), floor, instance, transfer, whole_order)
        new_own = np.zeros(nodes, np.int64)
        new_own[: len(case.kept)] = owns[case.kept, k]
        new = (new_src, new_dst, new_binds, new_lags[:, k].copy())
        left, left_end, left_latest = simulated(new, new_own, new_floors[:, k].copy(), new_instance, transfer, joint)
        assert left[: len(case.kept)].tolist() == start[case.kept].tolist()
        assert left_end[: len(case.kept)].tolist() == end[case.kept].tolist()
        assert left[-2:].tolist() == [start[-1], end[-1]]
        bounded = latest < backward.FAR // 2
        assert (bounded == (left_latest < backward.FAR // 2)).all()
        assert left_latest[bounded].tolist() == latest[bounded].tolist()


def reaches(case: Case, source: int, target: int) -> bool:
    found = {source}
    for src, dst, _, _ in sorted(case.edges):
        found |= {dst} if src in found else set()
    return target in found


def in_a_circle(order: np.ndarray, src: np.ndarray, dst: np.ndarray, instance: np.ndarray) -> bool:
    place = {node: at for at, node in enumerate(order.tolist())}
    member_at: dict[int, int] = {}
    for node, collective in enumerate(instance.tolist()):
        member_at[collective] = max(member_at.get(collective, -1), place[node])
    return any(
        place[target] < (member_at[instance[source]] if instance[source] >= 0 else place[source])
        for source, target in zip(src.tolist(), dst.tolist(), strict=True)
    )
