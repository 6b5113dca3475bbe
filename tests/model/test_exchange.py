"""What expert and context parallelism spare: tokens sent once to a place, and the half that a causal mask leaves."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from lumos_df.model.fitted import load, vector
from lumos_df.model.hardware import Hardware
from lumos_df.model.kernels.attention import attention_seconds
from lumos_df.model.kernels.cost import (
    ATTENTION_S,
    BACKWARD_INPUT,
    CP_S,
    EP_S,
    FORWARD,
    KINDS,
    PASSES,
    block_cost,
    kernel_factor,
    ranks_seconds,
    ring_seconds,
)
from lumos_df.model.kernels.data_parallel import data_parallel_seconds
from lumos_df.model.kernels.expert_operators import expert_block
from lumos_df.model.kernels.layer_operators import (
    COLUMNS,
    COMBINE,
    DISPATCH,
    FORWARD_S,
    INPUT_S,
    NAME,
    NORM,
    attention_block,
    collective,
)
from lumos_df.model.pipeline.stages import pass_seconds
from lumos_df.model.plan import Plan
from lumos_df.model.software import Software
from lumos_df.model.transformer import Model
from lumos_df.schema.collective_kinds import ALL_GATHER
from lumos_df.schema.dtypes import BF16
from lumos_df.schema.plan_words import CP
from tests.model.roofs import BARE, GPU, WITHIN

MODEL = Model("routed", 2, 1000, 8, 1000, 1_000_000, experts=64, top_k=8, expert_ffn=100)


def exchange_s(plan: Plan, *, once: bool) -> float:
    """Return the seconds of the two exchanges of a forward pass."""
    return float(block(plan, replace(BARE, token_once=once))[1][FORWARD, EP_S])


def block(plan: Plan, software: Software) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the operators of a layer's experts with their seconds, and what the block costs."""
    ops = np.zeros((48, COLUMNS))
    cost = np.zeros((PASSES, KINDS))
    rows = expert_block(MODEL.row(), plan.row(), software.row(), ops, 0)
    block_cost(ops, 0, rows, MODEL.row(), plan.row(), GPU.row(), software.row(), cost)
    return ops[:rows], cost


@pytest.mark.parametrize("once", [False, True])
def test_a_token_goes_once_to_each_node(*, once: bool) -> None:
    # A million tokens of 2000 bytes; 32 ranks on 4 nodes of 8 at 10 GB/s a rank between them.
    copies = 4.0 * (1.0 - 0.75**8) if once else 8.0
    crossing = 1e6 * 2000 * copies * 3 / 4
    assert exchange_s(Plan(dp=32, ep=32, batch=32), once=once) == pytest.approx(2 * crossing / 10e9, rel=WITHIN)


@pytest.mark.parametrize("once", [False, True])
def test_inside_a_node_it_goes_once_to_each_rank(*, once: bool) -> None:
    copies = 8.0 * (1.0 - 0.875**8) if once else 8.0
    assert exchange_s(Plan(dp=8, ep=8, batch=8), once=once) == pytest.approx(
        2 * 1e6 * 2000 * copies * 7 / 8 / 100e9, rel=WITHIN
    )


@pytest.mark.parametrize(("precision", "sent_bytes"), [("fp8", 1 + 4 / 128), ("bf16", 2.0)])
def test_what_goes_to_experts_has_8_bits_where_products_have(precision: str, sent_bytes: float) -> None:
    plan = Plan(dp=8, ep=8, batch=8, precision=precision)
    ops, cost = block(plan, replace(BARE, fp8_dispatch=True))
    wide, wide_cost = block(plan, BARE)
    full_s = 1e6 * 8 * 2000 * 7 / 8 / 100e9
    sent_s = full_s * sent_bytes / 2
    dispatch, combine = (int(np.flatnonzero(ops[:, NAME] == name)[0]) for name in (DISPATCH, COMBINE))
    # Tokens go there and their gradients come back; outputs come back and their gradients go there.
    assert ops[dispatch, [FORWARD_S, INPUT_S]] == pytest.approx([sent_s, full_s], rel=WITHIN)
    assert ops[combine, [FORWARD_S, INPUT_S]] == pytest.approx([full_s, sent_s], rel=WITHIN)
    others = np.delete(np.arange(len(ops)), [dispatch, combine])
    assert (ops[others] == wide[others]).all()
    assert (np.delete(cost, EP_S, axis=1) == np.delete(wide_cost, EP_S, axis=1)).all()


@pytest.mark.parametrize(("ranks", "low", "high"), [(2, 1.48, 1.5), (16, 1.7, 1.94)])
def test_even_pieces_have_half_of_the_keys(ranks: int, low: float, high: float) -> None:
    gpu = Hardware.read("h100-sxm")
    parameters = vector(load("h100-sxm").attention["bf16"])

    def seconds(*, even: bool) -> float:
        args = (
            1,
            131072 // ranks,
            131072,
            8,
            8,
            128,
            True,
            False,
            2.0,
            gpu.peak_flops.bf16,
            gpu.hbm_bandwidth,
            gpu.sms,
        )
        return float(attention_seconds(*args, parameters, int(even)))

    # The last of n ranks sees 1 - 1 / 2 n of the keys; less the end of a kernel, which is as long either way.
    assert low < seconds(even=False) / seconds(even=True) <= high


@pytest.mark.parametrize(
    ("plan", "rate"),
    [
        (Plan(cp=8), 100e9),
        # 16 neighbours leave their node, and all wait for the one link by which they do.
        (Plan(cp=16), 10e9),
        (Plan(tp=8, cp=4), 10e9),
    ],
)
def test_keys_go_round_a_ring_and_backwards_their_gradients_too(plan: Plan, rate: float) -> None:
    # All but a rank's own part pass through it.
    passed = 8e9 * (plan.cp - 1) / plan.cp / rate
    assert ring_seconds(8e9, plan.row(), GPU.row()) == pytest.approx(passed, rel=WITHIN)
    keys = np.zeros((1, COLUMNS))
    collective(keys, 0, NORM, ALL_GATHER, CP, 8e9)
    ring, gathered = (np.zeros((PASSES, KINDS)) for _ in range(2))
    for software, cost in ((replace(BARE, zigzag=True), ring), (replace(BARE, zigzag=False), gathered)):
        block_cost(keys, 0, 1, MODEL.row(), plan.row(), GPU.row(), software.row(), cost)
    assert ring[[FORWARD, BACKWARD_INPUT], CP_S] == pytest.approx([passed, 2 * passed], rel=WITHIN)
    assert gathered[BACKWARD_INPUT, CP_S] == pytest.approx(gathered[FORWARD, CP_S], rel=WITHIN)


@pytest.mark.parametrize(("exchange_s", "seen_s"), [(0.5, 0.5 * 0.1), (1.0, 0.25 + 0.75 * 0.1)])
def test_a_ring_hides_behind_all_parts_of_attention_but_the_last(exchange_s: float, seen_s: float) -> None:
    cost = np.zeros((PASSES, KINDS))
    cost[FORWARD, ATTENTION_S], cost[FORWARD, CP_S] = 1.0, exchange_s
    plan, software = Plan(cp=4).row(), replace(BARE, zigzag=True, slowdown=0.1)
    assert pass_seconds(cost, FORWARD, plan, software.row()) == pytest.approx(1.0 + seen_s)
    assert pass_seconds(cost, FORWARD, plan, replace(software, zigzag=False).row()) == pytest.approx(1.0 + exchange_s)


@pytest.mark.parametrize("seq", [4096, 1 << 20])
def test_a_ring_attends_in_parts_that_start_anew_and_are_summed_up(seq: int) -> None:
    """Eight parts of a short sequence cost as much again; of a long one next to nothing."""
    model = replace(Model.read("llama-3-8b"), seq=seq)
    software = Software.read("megatron")

    def attention_s(*, zigzag: bool) -> float:
        ops, cost = np.zeros((48, COLUMNS)), np.zeros((PASSES, KINDS))
        row, plan = replace(software, zigzag=zigzag).row(), Plan(cp=8).row()
        rows = attention_block(model.row(), plan, row, ops, 0)
        block_cost(ops, 0, rows, model.row(), plan, Hardware.read("h100-sxm").row(), row, cost)
        return float(cost[[FORWARD, BACKWARD_INPUT], ATTENTION_S].sum())

    ratio = attention_s(zigzag=True) / attention_s(zigzag=False)
    # The last of eight ranks, without zigzag, sees 1.875 times the keys.
    assert (1.3 < 1.875 * ratio < 3.0) if seq == 4096 else 0.9 < 1.875 * ratio < 1.1


def test_gradients_of_chunks_hide_behind_the_last_micro_batches_of_a_pipeline() -> None:
    software = replace(BARE, dp_hidden=1.0, overlap_dp=True).row()

    def exposed(plan: Plan, micro_batches: int) -> float:
        out = np.zeros(3)
        plan = replace(plan, overlap_dp=True, zero=0)
        # 1e9 parameters of 4 bytes: an all-reduce of 8 * 3 / 4 / 10 = 0.6 s; a backward pass of 0.1 s.
        data_parallel_seconds(1e9, 0.0, 1e9, 0.0, 4, 0.15, 0.1, micro_batches, plan.row(), GPU.row(), software, out)
        return float(out[0])

    one = exposed(Plan(tp=8, pp=4, dp=4, batch=64), 16)
    chunks = exposed(Plan(tp=8, pp=4, vp=4, dp=4, batch=64, schedule="interleaved"), 16)
    # pp micro-batches but for their last chunk: 4 * 3 / 4 = 3 times as much.
    assert one - chunks == pytest.approx(2 * 0.1, rel=0.01)


def test_layers_are_gathered_behind_all_compute_but_before_the_first() -> None:
    software = replace(BARE, dp_hidden=0.7).row()
    plan = Plan(dp=8, zero=3, overlap_dp=True, batch=8)

    def exposed(compute_s: float) -> float:
        out = np.zeros(3)
        # 1e9 parameters, gathered twice in 2 bytes and scattered in 4: 8e9 * 7 / 8 / 100e9 = 0.07 s.
        data_parallel_seconds(1e9, 0.0, 1e9, 0.0, 10, compute_s, 0.6, 1, plan.row(), GPU.row(), software, out)
        return float(out[0])

    first = 2 * 0.07 / (3 * 10)
    assert exposed(0.071) == pytest.approx(first, rel=0.01)
    assert exposed(0.05) == pytest.approx(0.02 + first, rel=0.01)


@pytest.mark.parametrize("bandwidth", [50e9, 12.5e9])
def test_what_a_network_loses_is_the_same_time_a_byte_on_any(bandwidth: float) -> None:
    gpu = replace(GPU, scale_out=replace(GPU.scale_out, bandwidth=bandwidth)).row()
    # Two ranks, a node each: half of the bytes crosses.
    alone, shared = (ranks_seconds(ALL_GATHER, 20e9, 2, 8, gpu, share) for share in (1.0, 0.25))
    assert alone == pytest.approx(10e9 / bandwidth, rel=0.01)
    assert shared - alone == pytest.approx(10e9 * (1 / 0.25 - 1) / 50e9, rel=0.01)


@pytest.mark.parametrize(
    ("gpu", "attention", "times"),
    [
        # As the software's products; an older kernel on a newer GPU is not of its pace.
        ("h100-sxm", "best", 1.25),
        ("a100-sxm-80", "flash2", 1.25),
        ("h100-sxm", "flash2", 1.0),
    ],
)
def test_attention_is_of_the_pace_of_products_in_training(gpu: str, attention: str, times: float) -> None:
    hardware = Hardware.read(gpu).row()
    alone, training = (
        kernel_factor(BF16, hardware, replace(BARE, attention=attention, compute_factor=factor).row())
        for factor in (1.0, 1.25)
    )
    assert training / alone == pytest.approx(times)
