"""Groups of ranks and layers of chunks, against numbering them one by one."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumos_df.model.kernels import placement
from lumos_df.model.plan import Plan
from lumos_df.schema.plan_words import DIMENSIONS

SIZES = st.integers(1, 4)
ORDERS = st.sampled_from(["-".join(order) for order in permutations(DIMENSIONS)])


def stride(order: list[str], sizes: dict[str, int], dimension: str) -> int:
    """Number all ranks, innermost dimension first, and see how far the neighbours of rank 0's group are apart."""
    ranks = np.arange(np.prod(list(sizes.values()))).reshape([sizes[name] for name in reversed(order)])
    group = np.moveaxis(ranks, list(reversed(order)).index(dimension), 0).reshape(sizes[dimension], -1)[:, 0]
    assert (np.diff(group) == group[1] - group[0]).all()
    return int(group[1] - group[0])


@settings(deadline=None)
@given(ORDERS, SIZES, SIZES, SIZES, SIZES)
def test_strides_are_those_of_ranks_numbered_one_by_one(order: str, tp: int, cp: int, dp: int, pp: int) -> None:
    plan = Plan(tp=tp, cp=cp, dp=dp, pp=pp, placement=order)
    sizes = {"tp": tp, "cp": cp, "ep": 1, "dp": dp, "pp": pp}
    for code, name in enumerate(DIMENSIONS):
        if sizes[name] > 1:
            assert placement.group_stride(plan.row(), code) == stride(order.split("-"), sizes, name)


@settings(deadline=None)
@given(ORDERS, SIZES, SIZES, SIZES, SIZES)
def test_strides_of_experts_are_those_of_the_same_ranks_numbered_anew(
    order: str, etp: int, ep: int, copies: int, pp: int
) -> None:
    plan = Plan(tp=etp * ep, dp=copies, pp=pp, etp=etp, ep=ep, placement=order)
    sizes = {"tp": etp, "cp": 1, "ep": ep, "dp": copies, "pp": pp}
    for code, name in enumerate(DIMENSIONS):
        if sizes[name] > 1:
            assert placement.expert_group_stride(plan.row(), code) == stride(order.split("-"), sizes, name)


@settings(deadline=None)
@given(st.integers(1, 32), st.sampled_from([1, 2, 4, 8, 16, 64]), st.sampled_from([1, 2, 4, 8, 16]))
def test_members_of_a_domain_are_the_ranks_of_the_first_group_in_it(size: int, stride: int, gpus: int) -> None:
    group = [member * stride for member in range(size)]
    assert placement.members_per_domain(size, stride, gpus) == sum(rank < gpus for rank in group)


@settings(deadline=None)
@given(st.integers(1, 200), st.integers(1, 64))
def test_chunks_have_all_the_layers_as_evenly_as_can_be(layers: int, chunks: int) -> None:
    have = [placement.chunk_layers(layers, chunks, chunk) for chunk in range(chunks)]
    assert sum(have) == layers
    assert max(have) - min(have) <= 1
    assert have[0] == min(have)


@pytest.mark.parametrize(
    ("layers", "chunks", "have"),
    [
        (126, 16, [7, *14 * [8], 7]),
        (126, 64, [1, *62 * [2], 1]),
        (80, 16, 16 * [5]),
        (61, 8, [7, 8, 8, 8, 8, 8, 7, 7]),
    ],
)
def test_what_does_not_divide_is_shorter_at_the_ends(layers: int, chunks: int, have: list[int]) -> None:
    assert [placement.chunk_layers(layers, chunks, chunk) for chunk in range(chunks)] == have
