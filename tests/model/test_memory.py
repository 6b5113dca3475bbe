"""Memory of a rank, against the figures of the papers whose formulas it follows."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lumos_df.estimate import estimate
from lumos_df.model.evaluate import RESULT_COLUMNS, evaluate_rows
from lumos_df.model.hardware import Hardware
from lumos_df.model.kernels.memory import (
    adapter_parameters,
    attention_parameters,
    communication_bytes,
    gathered_bytes,
    layer_activation_bytes,
    recomputed_bytes,
    state_bytes,
)
from lumos_df.model.kernels.state_space import mixer_activation_bytes
from lumos_df.model.plan import Plan
from lumos_df.model.software import Software
from lumos_df.model.transformer import Model

GIB = 2.0**30

MODES: dict[str, dict[str, Any]] = {
    "none": {},
    "sequence": {"sequence_parallel": True},
    "selective": {"recompute": "selective"},
    "both": {"sequence_parallel": True, "recompute": "selective"},
}

# Korthikanti et al. 2022 (arXiv 2205.05198), table 2 with the configurations of table 3.
# Micro-batches that the first stage holds, times layers of a stage: 48 for 22B, 96 (1 + 7 / 24) for 175B, and so on.
ACTIVATIONS = [
    ("megatron-22b", 4, 48, "none", 59.25),
    ("megatron-22b", 4, 48, "sequence", 39.5625),
    ("megatron-22b", 4, 48, "selective", 29.25),
    ("megatron-22b", 4, 48, "both", 9.5625),
    ("megatron-175b", 1, 124, "none", 66.84375),
    ("megatron-175b", 1, 124, "both", 12.3515625),
    ("megatron-1t", 1, 128, "none", 131.25),
    ("megatron-1t", 1, 128, "both", 26.5625),
]


def plan(**fields: Any) -> Plan:
    return Plan(**{"tp": 8, "precision": "fp16", "flash": False, "batch": 64, **fields})


@pytest.mark.parametrize(("name", "micro_batch", "layers", "mode", "gib"), ACTIVATIONS)
def test_activations_are_those_of_the_paper(name: str, micro_batch: int, layers: int, mode: str, gib: float) -> None:
    model = replace(Model.read(name), seq=2048)
    row = plan(micro_batch=micro_batch, **MODES[mode]).row()
    layer = layer_activation_bytes(model.row(), row, Software.read("megatron-2021").row(), False)
    assert layer * layers / GIB == pytest.approx(gib, rel=1e-3)


def test_flash_attention_keeps_a_sum_a_row_and_head_instead_of_the_scores() -> None:
    """Four bytes for each of 4 * 2048 tokens and the 8 heads of a rank; Dao 2022 (arXiv 2205.14135), algorithm 1."""
    model = replace(Model.read("megatron-22b"), seq=2048)
    software = Software.read("megatron-2021").row()
    without_scores, flash = (
        layer_activation_bytes(model.row(), plan(micro_batch=4, **fields).row(), software, False)
        for fields in ({"recompute": "selective"}, {"flash": True})
    )
    assert flash - without_scores == 4 * (4 * 2048) * 8


def test_full_recomputation_keeps_a_layers_input_and_one_layer_alive() -> None:
    model = replace(Model.read("megatron-22b"), seq=2048)
    software = Software.read("megatron-2021").row()
    full = plan(micro_batch=4, recompute="full").row()
    kept = layer_activation_bytes(model.row(), full, software, False)
    assert kept == 2 * 4 * 2048 * model.hidden
    whole = layer_activation_bytes(model.row(), plan(micro_batch=4).row(), software, False)
    assert 0.5 * whole < recomputed_bytes(model.row(), full, software) < 1.5 * whole


@pytest.mark.parametrize(
    ("zero", "expected"),
    # Rajbhandari et al. 2020 (arXiv 1910.02054), figure 1: 7.5B parameters, 64 ranks, 2 + 2 + 12 bytes a parameter.
    [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.875)],
)
def test_zero_shards_states_as_its_paper_says(zero: int, expected: float) -> None:
    software = replace(Software.read("megatron"), gradient_bytes=2.0)
    states = np.zeros(3)
    state_bytes(Plan(dp=64, zero=zero, batch=64).row(), software.row(), 7.5e9, 0.0, 7.5e9, 0.0, states)
    assert states.sum() / 1e9 == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(("zero", "expected"), [(1, 4 + 12 / 8), (2, 2 + 14 / 8), (3, 16 / 8)])
def test_groups_of_ranks_shard_among_themselves(zero: int, expected: float) -> None:
    """64 ranks in 8 groups: bytes a parameter."""
    software = replace(Software.read("megatron"), gradient_bytes=2.0)
    states = np.zeros(3)
    plan = Plan(dp=32, cp=2, zero=zero, dp_replicate=8, batch=32)
    state_bytes(plan.row(), software.row(), 1e9, 0.0, 1e9, 0.0, states)
    assert states.sum() / 1e9 == pytest.approx(expected)


def test_experts_are_sharded_over_the_ranks_that_hold_the_same_ones() -> None:
    states = np.zeros(3)
    spread = Plan(dp=64, ep=8, zero=1, batch=64).row()
    state_bytes(spread, Software.read("megatron").row(), 0.0, 1e9, 0.0, 1e9, states)
    assert states[2] == pytest.approx(12e9 / 8)


def test_a_sharded_step_holds_gradients_of_its_shard_and_weights_of_all() -> None:
    """DeepSpeed's one tensor in 16 bits and one in 32, of an eighth; nanotron's weights of all ranks once more."""
    states = np.zeros(3)
    for name, zero, weights, optimizer in (
        ("megatron-deepspeed", 1, 2e9, (12 + 6) * 1e9 / 8),
        ("megatron-deepspeed", 0, 2e9, 12e9),
        ("nanotron", 1, (2 + 2) * 1e9, 12e9 / 8),
        ("nanotron", 0, 2e9, 12e9),
        ("nanotron", 3, 2e9 / 8, 12e9 / 8),
    ):
        row = Plan(dp=8, zero=zero, batch=8).row()
        state_bytes(row, Software.read(name).row(), 1e9, 0.0, 1e9, 0.0, states)
        assert (states[0], states[2]) == (weights, optimizer)
    state_bytes(Plan(zero=1, batch=1).row(), Software.read("nanotron").row(), 1e9, 0.0, 1e9, 0.0, states)
    assert states[0] == 2e9


def test_communication_of_a_split_sequence_holds_as_many_tensors_whatever_the_layers() -> None:
    """40 of a micro-batch's tokens, 4,096 wide, two bytes each."""
    model, software = Model.read("nanotron-8b"), Software.read("nanotron").row()
    split = Plan(tp=4, sequence_parallel=True, micro_batch=2, batch=2)
    held = 40 * 2 * model.seq * 4096 * 2
    assert communication_bytes(model.row(), split.row(), software, True, 0.0) == held
    # A forward pass alone has a third of the operators that the host may be ahead, and a GPU that waits none.
    assert communication_bytes(model.row(), split.row(), software, False, 0.0) == pytest.approx(held / 3)
    assert communication_bytes(model.row(), split.row(), software, True, 0.25) == 0.75 * held
    for without in (replace(split, sequence_parallel=False), replace(split, tp=1, sequence_parallel=False)):
        assert communication_bytes(model.row(), without.row(), software, True, 0.0) == 0.0


@pytest.mark.parametrize(
    ("pp", "batch", "schedule", "tensors"),
    [(1, 2, "1f1b", 8), (1, 4, "1f1b", 24), (4, 8, "1f1b", 8), (4, 16, "1f1b", 24), (4, 16, "gpipe", 8)],
)
def test_communication_holds_most_where_a_forward_pass_follows_a_backward_one(
    pp: int, batch: int, schedule: str, tensors: int
) -> None:
    """One micro-batch, or no more than a pipeline's first stage has in flight, are all forwards first."""
    model = Model.read("nanotron-8b")
    rows = np.array([Software.read("nanotron").row()] * 2)
    rows["held_gathered"] = 0.0, 24.0
    # A host that takes no time leaves no GPU waiting.
    for figure in ("launch_s", "backward_launch_s", "collective_s", "skew_s", "hop_s", "micro_batch_s"):
        rows[figure] = 0.0
    plan = Plan(tp=4, sequence_parallel=True, micro_batch=2, pp=pp, batch=batch, schedule=schedule)
    plans = np.array([plan.row()] * 2)
    plans["software"] = 0, 1
    of = np.zeros(2, np.int64)
    out = evaluate_rows(np.array([model.row()]), np.array([Hardware.read("h100-sxm").row()]), rows, plans, of, of)
    held = tensors * 2 * model.seq * 4096 * 2
    assert np.diff(out[:, RESULT_COLUMNS.index("activations_bytes")]) == pytest.approx(held)


def test_an_offloaded_optimizer_takes_no_gpu_memory() -> None:
    states = np.zeros(3)
    state_bytes(
        Plan(offload_optimizer=True, batch=1).row(), Software.read("megatron").row(), 1e9, 0.0, 1e9, 0.0, states
    )
    assert states[2] == 0.0
    assert states[0] == 2e9


def test_adapters_alone_have_gradients_and_states() -> None:
    """Llama 2 70B, rank 16, tp 4: beside query, key and value 8192 x 16 and 16 x 10240 / 4, beside the output as much.

    So 16 * (8192 + 2560) + 16 * (2048 + 8192) = 335,872 parameters a layer.
    """
    adapted = Plan(tp=4, dp=2, zero=1, lora=16, batch=2)
    assert adapter_parameters(Model.read("llama-2-70b").row(), adapted.row(), False) == (335872, 0)
    states = np.zeros(3)
    software = Software.read("nemo")
    state_bytes(adapted.row(), software.row(), 17e9, 0.0, 26e6, 0.0, states)
    assert states.tolist() == [2 * 17e9, 2 * 26e6, 12 * 26e6 / 2]


def test_inputs_of_frozen_products_are_not_kept() -> None:
    """The MLP's input, 8192 wide, and that of its second product, 28672 wide, two bytes each."""
    model = Model.read("llama-2-70b")
    software = Software.read("nemo").row()
    plans = Plan(batch=1), Plan(lora=16, batch=1), Plan(lora=16, lora_targets="all", batch=1)
    trained, adapted, everywhere = (layer_activation_bytes(model.row(), plan.row(), software, False) for plan in plans)
    assert trained - adapted == model.seq * 2 * (8192 + 28672)
    assert everywhere == trained


def test_adapters_beside_every_product_are_as_many_as_these() -> None:
    """Llama 2 70B, rank 16, tp 4: 16 * (8192 + 2 * 28672 / 4 + 28672 / 4 + 8192) more a layer.

    DeepSeek-V3, ep 64: beside the shared expert 16 * (2 * 7168 + 3 * 2048), beside each of 4 experts as much.
    """
    plan = Plan(tp=4, lora=16, lora_targets="all").row()
    assert adapter_parameters(Model.read("llama-2-70b").row(), plan, False) == (335872 + 16 * (2 * 8192 + 3 * 7168), 0)
    shared, experts = Plan(ep=64, dp=64, batch=64, lora=16), Plan(ep=64, dp=64, batch=64, lora=16, lora_targets="all")
    model = Model.read("deepseek-v3").row()
    less, more = (adapter_parameters(model, plan.row(), True) for plan in (shared, experts))
    assert (more[0] - less[0], more[1]) == (16 * (2 * 7168 + 3 * 2048), 4 * 16 * (2 * 7168 + 3 * 2048))


def test_a_gate_is_kept_and_what_it_gates() -> None:
    """Llama 3 8B with one: of 32 heads of 128 attention's output before it, and the gate, two bytes each."""
    plain, plan, software = Model.read("llama-3-8b"), Plan(batch=1).row(), Software.read("nemo").row()
    gated = replace(plain, output_gate=True)
    less, more = (layer_activation_bytes(model.row(), plan, software, False) for model in (plain, gated))
    assert more - less == plain.seq * 2 * (4096 + 4096)
    assert attention_parameters(gated.row()) - attention_parameters(plain.row()) == 4096 * 4096


@pytest.mark.parametrize(("software", "word"), [("torchtitan", "selective"), ("nemo", "products")])
def test_torchtitan_keeps_every_second_product_of_a_layer(software: str, word: str) -> None:
    """Llama 3 8B a token: the input, query, value, gate, down and attention's output, and its sum for 32 heads."""
    model = Model.read("llama-3-8b")
    plan = Plan(recompute=word, batch=1).row()
    kept = layer_activation_bytes(model.row(), plan, Software.read(software).row(), False)
    assert kept == model.seq * (2 * (4096 + 4096 + 1024 + 14336 + 4096 + 4096) + 4 * 32)


def test_sharded_parameters_are_whole_for_two_layers_and_the_head() -> None:
    """Two layers and the head in 16 bits, a layer's gradients in 32; FSDP's shards are the optimizer's own."""
    fsdp = Plan(dp=8, zero=3, schedule="fsdp", batch=8)
    software = Software.read("torchtitan").row()
    assert gathered_bytes(2e8, 0.0, 5e8, fsdp.row(), software) == 2 * (2 * 2e8 + 5e8) + 4 * 2e8
    assert gathered_bytes(2e8, 0.0, 5e8, replace(fsdp, zero=2).row(), software) == 0.0
    states = np.zeros(3)
    state_bytes(fsdp.row(), software, 8e9, 0.0, 8e9, 0.0, states)
    assert states.tolist() == [0.0, 4e9, 12e9]


def test_what_a_rank_holds_whole_is_not_gathered() -> None:
    software = replace(Software.read("megatron"), reduce_bytes=4.0).row()

    def gathered(plan: Plan) -> float:
        return float(gathered_bytes(2e8, 1e8, 5e8, plan.row(), software))

    shared, experts = 2 * (2 * 2e8 + 5e8) + 4 * 2e8, (2 * 2 + 4) * 1e8
    assert gathered(Plan(dp=8, ep=4, zero=3, batch=8)) == shared + experts
    # Of eight ranks each has an eighth of the experts; of one, and of groups of one, all is whole.
    assert gathered(Plan(dp=8, ep=8, zero=3, batch=8)) == shared
    assert gathered(Plan(tp=8, zero=3, batch=1)) == experts
    assert gathered(Plan(tp=8, ep=8, zero=3, batch=1)) == 0.0
    assert gathered(Plan(dp=8, dp_replicate=8, zero=3, batch=8)) == 0.0
    assert gathered(Plan(zero=3, schedule="fsdp", batch=1)) == shared + experts


def test_light_recomputation_keeps_what_cannot_be_had_for_little() -> None:
    """DeepSeek-V3's expert layer in 8 bits, a token.

    Inputs of both norms, 2 * 7168 * 2; compressed query, key and value, (1536 + 2 * 512) * 2; attention's output, 128 *
    128, and its sum for 128 heads; routed copies, 8 * 7168; gate and up of 8 experts and the shared one, 9 * 2 * 2048;
    4 bytes an expert of the router.
    """
    model = Model.read("deepseek-v3")
    light = Plan(recompute="light", precision="fp8", batch=1).row()
    kept = layer_activation_bytes(model.row(), light, Software.read("nemo").row(), True)
    norms, latents, attended = 2 * 7168 * 2, (1536 + 2 * 512) * 2, 128 * 128 + 4 * 128
    assert kept == model.seq * (norms + latents + attended + 8 * 7168 + 9 * 2 * 2048 + 4 * 256)


def test_deepseek_v3_fits_its_gpus_as_it_was_trained() -> None:
    """On 2,048 H800: 16 stages both ways, experts over 64 ranks, ZeRO 1, FP8, gradients in single precision."""
    trained = Plan(
        pp=16,
        dp=128,
        ep=64,
        batch=15360,
        zero=1,
        schedule="dualpipe",
        recompute="light",
        precision="fp8",
        software="megatron",
    )
    assert estimate("deepseek-v3", "h800", trained).answers["fits"]
    assert not estimate("deepseek-v3", "h800", replace(trained, recompute="none")).answers["fits"]


def test_a_state_space_mixer_keeps_its_projections_and_its_scan() -> None:
    """Nemotron 3 Nano, a token: the norm's input and output, the input projection, the convolution, the scan.

    2688 twice, 10,304, 6,144 and, before and after the gate, twice 4,096; two bytes each.
    """
    model = Model.read("nemotron-3-nano").row()
    kept = mixer_activation_bytes(model, Plan(batch=1).row(), 2.0)
    assert kept == 8192 * 2 * (2 * 2688 + 10304 + 6144 + 2 * 4096)
