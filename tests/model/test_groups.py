"""Who talks to whom over which links: seconds of every kind of collective in every group, worked out by hand.

All send 1 GB, as nccl-tests count it, over 100 GB/s inside a domain of 8 GPUs and 10 GB/s between domains.
"""

from dataclasses import replace

import numpy as np
import pytest

from lumos_df.model.kernels.cost import group_seconds, ranks_seconds
from lumos_df.model.kernels.data_parallel import EXPOSED_S, HIDDEN_S, OPTIMIZER_S, data_parallel_seconds
from lumos_df.model.kernels.placement import expert_group_stride, group_stride
from lumos_df.model.plan import Plan
from lumos_df.schema.collective_kinds import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, REDUCE_SCATTER, SEND
from lumos_df.schema.plan_words import CP, DP, EP, ETP, PP, TP
from tests.model.roofs import BARE, GPU, MEMORY_RATE, WITHIN

GB = 1e9
MS = 1e-3
ROW = GPU.row()


@pytest.mark.parametrize(
    ("family", "size", "ms"),
    [
        # What a rank sends, in GB, times 10 ms.
        (ALL_REDUCE, 2, 10 * 2 * 1 / 2),
        (ALL_REDUCE, 4, 10 * 2 * 3 / 4),
        (ALL_REDUCE, 8, 10 * 2 * 7 / 8),
        (ALL_GATHER, 2, 10 * 1 / 2),
        (ALL_GATHER, 4, 10 * 3 / 4),
        (ALL_GATHER, 8, 10 * 7 / 8),
        (REDUCE_SCATTER, 2, 10 * 1 / 2),
        (REDUCE_SCATTER, 4, 10 * 3 / 4),
        (REDUCE_SCATTER, 8, 10 * 7 / 8),
        (ALL_TO_ALL, 2, 10 * 1 / 2),
        (ALL_TO_ALL, 4, 10 * 3 / 4),
        (ALL_TO_ALL, 8, 10 * 7 / 8),
        (SEND, 2, 10),
    ],
)
def test_what_a_collective_sends_grows_with_its_group(family: int, size: int, ms: float) -> None:
    assert ranks_seconds(family, GB, size, 1, ROW) == pytest.approx(ms * MS, rel=WITHIN)


@pytest.mark.parametrize(
    ("family", "size", "stride", "ms"),
    [
        # Of 64 neighbours 8 are in a domain: a ring enters each once, and an eighth of it goes by each card.
        (ALL_REDUCE, 64, 1, 100 * 2 * (63 / 64) / 8),
        # Around two domains it takes 12.5 ms, and the work inside them longer.
        (ALL_REDUCE, 16, 1, 10 * 2 * 7 / 8),
        # Of 4 ranks that are 4 apart 2 are in a domain, and each domain sums up first.
        (ALL_REDUCE, 4, 4, 100 * 2 * (1 / 2) / 2),
        # Each alone in its domain.
        (ALL_REDUCE, 4, 8, 100 * 2 * 3 / 4),
        (ALL_GATHER, 4, 4, 100 * (3 / 4) / 2),
        (ALL_GATHER, 4, 8, 100 * 3 / 4),
        (REDUCE_SCATTER, 4, 4, 100 * (3 / 4) / 2),
        (REDUCE_SCATTER, 4, 8, 100 * 3 / 4),
        # Half of the ranks, and so of what is sent, are in the other domain.
        (ALL_TO_ALL, 4, 4, 100 * 2 / 4),
        (ALL_TO_ALL, 4, 8, 100 * 3 / 4),
        (SEND, 2, 4, 10),
        (SEND, 2, 8, 100),
    ],
)
def test_what_leaves_the_domain_goes_by_the_network(family: int, size: int, stride: int, ms: float) -> None:
    assert ranks_seconds(family, GB, size, stride, ROW) == pytest.approx(ms * MS, rel=WITHIN)


WIDE = Plan(tp=2, cp=2, dp=4, pp=4, ep=4, etp=2, batch=4)
"""64 ranks: tp neighbours 1 apart, cp 2, dp 4, pp 16; experts' etp 1, ep 2, copies 8."""
NARROW = Plan(tp=1, cp=2, dp=2, pp=2, ep=2, batch=2)
"""8 ranks: cp 1 apart, dp 2, pp 4; ep 1, copies 2."""


@pytest.mark.parametrize(
    ("plan", "strides", "of_experts"),
    [
        (WIDE, {TP: 1, CP: 2, DP: 4, PP: 16}, {TP: 1, EP: 2, DP: 8, PP: 16}),
        (NARROW, {TP: 1, CP: 1, DP: 2, PP: 4}, {TP: 1, EP: 1, DP: 2, PP: 4}),
    ],
)
def test_groups_lie_as_far_apart_as_their_plan_says(
    plan: Plan, strides: dict[int, int], of_experts: dict[int, int]
) -> None:
    assert {name: group_stride(plan.row(), name) for name in strides} == strides
    assert {name: expert_group_stride(plan.row(), name) for name in of_experts} == of_experts


@pytest.mark.parametrize(
    ("plan", "family", "group", "ms"),
    [
        # Two neighbours.
        (WIDE, ALL_REDUCE, TP, 10 * 2 * 1 / 2),
        # Ranks 0 and 2.
        (WIDE, ALL_GATHER, CP, 10 * 1 / 2),
        # Ranks 0, 2, 4 and 6.
        (WIDE, ALL_TO_ALL, EP, 10 * 3 / 4),
        # Ranks 0 and 1.
        (WIDE, ALL_GATHER, ETP, 10 * 1 / 2),
        # Ranks 0 and 16.
        (WIDE, SEND, PP, 100),
        # Ranks 0 and 4.
        (NARROW, SEND, PP, 10),
        (NARROW, ALL_TO_ALL, EP, 10 * 1 / 2),
        # Stages next to each other, and tp neighbours 4 apart.
        (Plan(tp=4, pp=4, batch=4, placement="pp-tp-cp-ep-dp"), SEND, PP, 10),
        (Plan(tp=4, pp=4, batch=4, placement="pp-tp-cp-ep-dp"), ALL_REDUCE, TP, 100 * 2 * (1 / 2) / 2),
        # dp innermost: the four of cp are 8 apart.
        (Plan(cp=4, dp=8, batch=8, placement="dp-cp-tp-ep-pp"), ALL_GATHER, CP, 100 * 3 / 4),
        # Eight experts' ranks that are 2 apart: 4 in a domain, and half of what is sent leaves it.
        (Plan(tp=2, dp=8, ep=8, etp=2, batch=8), ALL_TO_ALL, EP, 100 * 4 / 8),
    ],
)
def test_a_group_of_a_plan_talks_over_the_links_between_its_ranks(
    plan: Plan, family: int, group: int, ms: float
) -> None:
    assert group_seconds(family, GB, group, plan.row(), ROW, BARE.row()) == pytest.approx(ms * MS, rel=WITHIN)


def data_parallel(plan: Plan, shared: float, expert: float, micro_batches: int = 1) -> tuple[float, float]:
    """Return seconds of communication and of the optimizer of a stage, with nothing to hide behind."""
    found = np.zeros(3)
    row = plan.row()
    data_parallel_seconds(shared, expert, shared, expert, 4, 0.0, 0.0, micro_batches, row, ROW, BARE.row(), found)
    return float(found[EXPOSED_S]), float(found[OPTIMIZER_S])


@pytest.mark.parametrize(
    ("plan", "ms"),
    [
        # 10^9 parameters: 4 GB of gradients, and 2 GB of parameters to gather. 8 neighbours.
        (Plan(dp=8, zero=0, batch=8), 4 * 10 * 2 * 7 / 8),
        (Plan(dp=8, zero=1, batch=8), (4 + 2) * 10 * 7 / 8),
        (Plan(dp=8, zero=2, batch=8), (4 + 2) * 10 * 7 / 8),
        # Gathered for both passes.
        (Plan(dp=8, zero=3, batch=8), (4 + 2 * 2) * 10 * 7 / 8),
        # As products read them.
        (Plan(dp=8, zero=3, batch=8, precision="fp8"), (4 + 2 * 1) * 10 * 7 / 8),
        (Plan(dp=8, zero=1, batch=8, precision="fp8"), (4 + 1) * 10 * 7 / 8),
        # Ranks of cp hold the same parameters: 2 x 4 ranks reduce together.
        (Plan(dp=2, cp=4, zero=0, batch=2), 4 * 10 * 2 * 7 / 8),
        # 8 ranks in two domains: 2 apart, so 4 of them in each.
        (Plan(tp=2, dp=8, zero=0, batch=8), 4 * 100 * 2 * (1 / 2) / 4),
        # 4 ranks that are 8 apart.
        (Plan(tp=8, dp=4, zero=0, batch=4), 4 * 100 * 2 * 3 / 4),
        # 2 x 2 ranks of which cp's neighbours are 4 apart and dp's 8: 2 in each domain.
        (Plan(tp=4, cp=2, dp=2, zero=0, batch=2), 4 * 100 * 2 * (1 / 2) / 2),
        # Groups of 8 neighbours share, and eighths go between two of them.
        (Plan(dp=16, zero=1, dp_replicate=2, batch=16), (4 + 2) * 10 * 7 / 8 + 4 / 8 * 100 * 2 * (1 / 2)),
        (Plan(dp=16, zero=3, dp_replicate=2, batch=16), (4 + 2 * 2) * 10 * 7 / 8 + 4 / 8 * 100 * 2 * (1 / 2)),
        # As many groups as ranks: nothing is shared.
        (Plan(dp=8, zero=1, dp_replicate=8, batch=8), 4 * 10 * 2 * 7 / 8),
    ],
)
def test_gradients_are_reduced_among_all_ranks_that_hold_the_same_parameters(plan: Plan, ms: float) -> None:
    assert data_parallel(plan, 1e9, 0.0)[0] == pytest.approx(ms * MS, rel=WITHIN)


@pytest.mark.parametrize(
    ("plan", "ms"),
    [
        # 16 ranks over ep=4: 4 copies, 4 apart, so 2 in a domain.
        (Plan(dp=16, ep=4, zero=0, batch=16), 4 * 100 * 2 * (1 / 2) / 2),
        # etp=2, too: 2 copies, 8 apart.
        (Plan(tp=2, dp=8, ep=4, etp=2, zero=0, batch=8), 4 * 100 * 2 * 1 / 2),
        # Every expert once.
        (Plan(dp=8, ep=8, zero=0, batch=8), 0),
        # Of 4 copies, 4 apart, two neighbours share, and halves go between pairs, 8 apart.
        (Plan(dp=16, ep=4, zero=1, dp_replicate=2, batch=16), (4 + 2) * 10 / 2 + 4 / 2 * 100 * 2 / 2),
        # Of more groups than copies each copy is one.
        (Plan(dp=16, ep=4, zero=1, dp_replicate=8, batch=16), 4 * 100 * 2 * (1 / 2) / 2),
    ],
)
def test_gradients_of_experts_are_reduced_among_their_copies(plan: Plan, ms: float) -> None:
    assert data_parallel(plan, 0.0, 1e9)[0] == pytest.approx(ms * MS, rel=WITHIN)


def test_sharded_parameters_are_gathered_for_every_micro_batch() -> None:
    plan = Plan(dp=8, zero=3, batch=8)
    assert data_parallel(plan, 1e9, 0.0, micro_batches=3)[0] == pytest.approx(3 * 70 * MS, rel=WITHIN)
    twice = Plan(dp=16, zero=3, dp_replicate=2, batch=16)
    assert data_parallel(twice, 1e9, 0.0, micro_batches=3)[0] == pytest.approx((3 * 70 + 50) * MS, rel=WITHIN)


def test_sharded_gradients_are_scattered_for_every_micro_batch() -> None:
    # 4 GB of gradients each time; 2 GB of parameters come once.
    plan = Plan(dp=8, zero=2, batch=8)
    assert data_parallel(plan, 1e9, 0.0, micro_batches=3)[0] == pytest.approx((3 * 35 + 17.5) * MS, rel=WITHIN)
    twice = Plan(dp=16, zero=2, dp_replicate=2, batch=16)
    assert data_parallel(twice, 1e9, 0.0, micro_batches=3)[0] == pytest.approx((3 * 35 + 17.5 + 50) * MS, rel=WITHIN)
    # Whoever keeps all of them scatters the sum.
    whole = Plan(dp=8, zero=1, batch=8)
    assert data_parallel(whole, 1e9, 0.0, micro_batches=3)[0] == pytest.approx((35 + 17.5) * MS, rel=WITHIN)


def test_sharded_gradients_of_every_micro_batch_hide_behind_its_own_backward_pass() -> None:
    software = replace(BARE, dp_hidden=0.5, overlaps_sharded=True)
    found = np.zeros(3)
    plan = Plan(dp=8, zero=2, batch=8).row()
    data_parallel_seconds(1e9, 0.0, 1e9, 0.0, 4, 90 * MS, 60 * MS, 3, plan, ROW, software.row(), found)
    # 35 ms behind half of 60, 17.5 behind half of 30.
    assert found[EXPOSED_S] == pytest.approx((3 * 5 + 2.5) * MS, rel=WITHIN)
    assert found[HIDDEN_S] == pytest.approx((3 * 30 + 15) * MS, rel=WITHIN)


def test_what_goes_layer_after_layer_has_the_whole_rate_of_a_network() -> None:
    found = {}
    for zero in (1, 2, 3):
        for share in (1.0, 0.5):
            for micro_batches in (1, 3):
                seconds = np.zeros(3)
                plan, software = Plan(zero=zero, tp=8, dp=4, batch=4).row(), replace(BARE, network_share=share).row()
                data_parallel_seconds(1e9, 0.0, 1e9, 0.0, 4, 0.0, 0.0, micro_batches, plan, ROW, software, seconds)
                found[zero, share, micro_batches] = seconds[EXPOSED_S]
    assert found[3, 0.5, 3] == found[3, 1.0, 3]
    # What is reduced once a step has its share, and so has ZeRO 2's last micro-batch.
    assert found[1, 0.5, 1] > found[1, 1.0, 1]
    assert found[2, 0.5, 1] == found[1, 0.5, 1]
    further = {share: found[2, share, 3] - found[2, share, 1] for share in (1.0, 0.5)}
    assert further[0.5] == pytest.approx(further[1.0])


def test_the_optimizer_goes_over_its_share_of_the_parameters() -> None:
    moved = 40 * 1e9  # bytes, 40 a parameter
    assert BARE.optimizer_traffic == 40
    assert data_parallel(Plan(dp=8, zero=0, batch=8), 1e9, 0.0)[1] == pytest.approx(moved / MEMORY_RATE)
    assert data_parallel(Plan(dp=4, cp=2, zero=1, batch=4), 1e9, 0.0)[1] == pytest.approx(moved / 8 / MEMORY_RATE)
    twice = Plan(dp=4, cp=2, zero=1, dp_replicate=2, batch=4)
    assert data_parallel(twice, 1e9, 0.0)[1] == pytest.approx(moved / 4 / MEMORY_RATE)
