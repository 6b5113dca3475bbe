"""What waits and what hides: collectives for the last host and behind products, experts for routing; slow attention."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lumos_df.model.evaluate import RESULT_COLUMNS, evaluate_rows
from lumos_df.model.hardware import Hardware
from lumos_df.model.plan import Plan
from lumos_df.model.software import Software
from lumos_df.model.transformer import Model
from lumos_df.schema.plan_words import ATTENTION_KERNELS
from tests.model.roofs import BARE, GPU, MEMORY_RATE

DENSE = Model("dense", 4, 1024, 16, 32_000, 512)
BESIDE = {"iteration_time_s", "overlapped_s", "host_busy_s"}
ROUTED = replace(DENSE, experts=8, top_k=2, expert_ffn=256, dense_layers=1)


def parts(model: Model, plan: Plan, software: Software, gpu: Hardware = GPU) -> dict[str, float]:
    """Return the results of a plan."""
    first = np.zeros(1, np.int64)
    models, gpus, profiles, plans = (np.array([noun.row()]) for noun in (model, gpu, software, plan))
    (found,) = evaluate_rows(models, gpus, profiles, plans, first, first).tolist()
    return dict(zip(RESULT_COLUMNS, found, strict=True))


@pytest.mark.parametrize(("tp", "doublings"), [(2, 1), (4, 2), (8, 3)])
def test_each_doubling_of_its_ranks_delays_a_collective(tp: int, doublings: int) -> None:
    """A host that is much slower than the GPU: what it adds a step is what its collectives wait.

    Two all-reduces a layer and one of the embedding, forwards and backwards, and what the head has.
    """
    waiting, plan = replace(BARE, run_ahead=50.0, skew_s=1.0), Plan(tp=tp, batch=4)
    once = parts(DENSE, Plan(tp=2, batch=4), waiting)["host_s"]
    assert once > 4 * 4 * 4
    assert parts(DENSE, plan, waiting)["host_s"] == pytest.approx(doublings * once, rel=1e-3)
    assert parts(DENSE, Plan(batch=4), waiting)["host_s"] == 0.0


@pytest.mark.parametrize(("recompute", "passes"), [("none", 2), ("full", 3)])
def test_the_gpu_waits_in_each_pass_of_a_layer_with_experts(recompute: str, passes: int) -> None:
    plan = Plan(batch=4, recompute=recompute)
    without, routing = (parts(ROUTED, plan, replace(BARE, routing_s=seconds)) for seconds in (0.0, 0.5))
    # Four micro-batches of three layers with experts.
    assert routing["iteration_time_s"] - without["iteration_time_s"] == pytest.approx(4 * 3 * passes * 0.5)
    assert routing["host_s"] - without["host_s"] == pytest.approx(4 * 3 * passes * 0.5)
    assert parts(DENSE, plan, replace(BARE, routing_s=0.5)) == parts(DENSE, plan, BARE)


def test_the_host_s_own_time_of_a_step_hides_where_nothing_waits() -> None:
    plan, busy = Plan(batch=4), parts(DENSE, Plan(batch=4), BARE)["iteration_time_s"]
    waiting, ahead = (
        replace(BARE, run_ahead=200.0, step_s=0.5 * busy, layer_step_s=0.1 * busy, step_waits=waits)
        for waits in (True, False)
    )
    assert parts(DENSE, plan, waiting)["iteration_time_s"] == pytest.approx((1 + 0.5 + 4 * 0.1) * busy)
    hidden = parts(DENSE, plan, ahead)
    assert hidden["iteration_time_s"] == pytest.approx(busy, rel=0.01)
    assert hidden["host_s"] == pytest.approx(0.0, abs=1e-5)


def test_a_host_that_sets_the_pace_of_a_step_leaves_room_for_the_optimizer() -> None:
    plan = Plan(batch=4)
    bare = parts(DENSE, plan, BARE)
    slow = replace(BARE, run_ahead=200.0, step_s=3 * bare["iteration_time_s"], step_waits=False)
    found = parts(DENSE, plan, slow)
    assert found["iteration_time_s"] == pytest.approx(slow.step_s, rel=0.01)
    assert found["optimizer_s"] == bare["optimizer_s"] > 0
    seconds = [value for name, value in found.items() if name.endswith("_s") and name not in BESIDE]
    assert sum(seconds) == pytest.approx(found["iteration_time_s"])


@pytest.mark.parametrize(("biases", "times"), [(True, 1), (False, 3)])
def test_a_norm_without_biases_is_a_chain_where_the_software_has_no_kernel_for_it(*, biases: bool, times: int) -> None:
    model = replace(DENSE, biases=biases, learned_positions=512)
    one, chain = (parts(model, Plan(), replace(BARE, norm_passes=passes))["elementwise_s"] for passes in (1.0, 3.0))
    # Nine norms, two and three passes of 1 MiB each.
    norms = 9 * 5 * 512 * 1024 * 2 / MEMORY_RATE
    assert chain - one == pytest.approx((times - 1) * norms, rel=0.01)
    queried = parts(replace(model, qk_norm=True), Plan(), replace(BARE, norm_passes=3.0))["elementwise_s"]
    assert queried - chain == pytest.approx(4 * times * 5 * 2 * 512 * 1024 * 2 / MEMORY_RATE, rel=0.01)


def test_single_precision_is_not_slowed_down_by_what_slows_down_tensor_cores() -> None:
    """No factor of training and no FlashAttention-2, and a tile of attention starts in the same time on either."""
    model, long = replace(DENSE, seq=4096), {}
    gemm, attention = (GPU.fitted[kind]["bf16"] for kind in ("gemm", "attention"))
    slow = {**GPU.fitted, "gemm": {**GPU.fitted["gemm"], "bf16": {**gemm, "training_factor": 1.5}}}
    start = {**GPU.fitted, "attention": {"bf16": {**attention, "overhead_keys": 1000.0}}}
    own = {**GPU.fitted, "gemm": {**GPU.fitted["gemm"], "fp32": {**gemm, "training_factor": 1.25}}}
    measured = parts(model, Plan(precision="fp32"), BARE, replace(GPU, fitted=own))["gemm_s"]
    assert measured == pytest.approx(1.25 * parts(model, Plan(precision="fp32"), BARE)["gemm_s"])
    gpus = {"plain": GPU, "slow": replace(GPU, fitted=slow, flash2_factor=2.0), "start": replace(GPU, fitted=start)}
    for precision in ("bf16", "fp32"):
        plan, older = Plan(precision=precision), replace(BARE, attention="flash2")
        found = {name: parts(model, plan, older, gpu) for name, gpu in gpus.items()}
        ratios = [found["slow"][part] / found["plain"][part] for part in ("gemm_s", "attention_s")]
        assert ratios == pytest.approx([1.5, 2.0] if precision == "bf16" else [1.0, 1.0])
        long[precision] = found["start"]["attention_s"] - found["plain"]["attention_s"]
    assert long["fp32"] == pytest.approx(long["bf16"], rel=0.01)


@pytest.mark.parametrize(("bandwidth", "binds"), [(1e13, False), (1e6, True)])
def test_no_more_communication_hides_than_products_take(*, bandwidth: float, binds: bool) -> None:
    """Half of it is asked to hide; on a link that is far slower than the products as much as those of layers take."""
    plan = Plan(tp=2, batch=4, overlap_tp=True)
    gpu = replace(GPU, scale_up=replace(GPU.scale_up, bandwidth=bandwidth))
    shown, hidden = (parts(DENSE, plan, replace(BARE, tp_hidden=share), gpu) for share in (0.0, 0.5))
    communication = shown["tp_exposed_s"]
    assert hidden["tp_exposed_s"] + hidden["overlapped_s"] == pytest.approx(communication)
    assert shown["iteration_time_s"] - hidden["iteration_time_s"] == pytest.approx(hidden["overlapped_s"])
    if binds:
        # The head's products have none beside them.
        assert 0.5 * hidden["gemm_s"] < hidden["overlapped_s"] < hidden["gemm_s"] < 1e-3 * communication
    else:
        # Nothing is there to hide the embedding's.
        assert 0.3 * communication < hidden["overlapped_s"] < 0.5 * communication


@pytest.mark.parametrize(("gpu", "slower"), [("a100-sxm-80", 1.0), ("h100-sxm", 1.6)])
def test_flash_attention_2_is_slow_on_hopper_alone(gpu: str, slower: float) -> None:
    """It was written for Ampere. The Triton one of before is slower on either."""
    generic, hardware, plan = replace(Software.read("generic"), compute_factor=1.0), Hardware.read(gpu), Plan(batch=4)
    best, second, triton = (
        parts(DENSE, plan, replace(generic, attention=kernel), hardware)["attention_s"] for kernel in ATTENTION_KERNELS
    )
    assert second == pytest.approx(slower * best)
    assert triton == pytest.approx(1.8 * second)


def test_where_flash_attention_2_does_not_run_no_software_is_slower_by_its_own() -> None:
    """On Blackwell frameworks take cuDNN's: how well a software's FlashAttention-2 does elsewhere says nothing."""
    software, hardware, plan = Software.read("llm-foundry"), Hardware.read("b200"), Plan(batch=4)
    best = replace(software, attention="best", attention_factor=1.0)
    first = parts(DENSE, plan, best, hardware)["attention_s"]
    for kernel in ("flash2", "triton"):
        slow = replace(software, attention=kernel, attention_factor=1.5)
        assert parts(DENSE, plan, slow, hardware)["attention_s"] == pytest.approx(first)


def test_a_power_limit_slows_what_multiplies_and_nothing_else() -> None:
    """700 W instead of 500, of which an idle GPU takes 70: clocks are as the cube root."""
    limited = Hardware.read("h100-sxm-hbm2e-500w")
    assert limited.power_factor == pytest.approx((630 / 430) ** (1 / 3), abs=1e-3)
    for kernel, slower in (("best", limited.power_factor), ("flash2", 1.0)):
        # FlashAttention-2 leaves the GPU idle for so long that it has the power it needs.
        software = replace(Software.read("torchtitan"), attention=kernel)
        told, free = (
            parts(DENSE, Plan(batch=4), software, gpu) for gpu in (limited, replace(limited, power_factor=1.0))
        )
        assert told["gemm_s"] == pytest.approx(limited.power_factor * free["gemm_s"], rel=1e-6)
        assert told["attention_s"] == pytest.approx(slower * free["attention_s"])
        assert told["elementwise_s"] == pytest.approx(free["elementwise_s"])


def test_recomputation_may_end_before_the_last_product() -> None:
    """The backward pass reads what the down projection reads, not what it gives."""
    software, hardware = Software.read("torchtitan"), Hardware.read("a100-sxm-80")
    plan = Plan(batch=4, recompute="full")
    # Logits that take next to nothing: a third of what products take is the layers' forward pass.
    dense, routed = (replace(model, vocab=64, seq=4096) for model in (DENSE, ROUTED))
    (ends, none), (runs, as_much) = (
        [parts(model, plan, replace(software, last_again=share), hardware)["recompute_s"] for model in (dense, routed)]
        for share in (0.0, 1.0)
    )
    down, layer = dense.hidden * dense.ffn, 4 * dense.hidden**2 + 2 * dense.hidden * dense.ffn
    forward = parts(dense, Plan(batch=4), software, hardware)["gemm_s"] / 3
    assert (runs - ends) / forward == pytest.approx(down / layer, rel=0.05)
    # What experts give is read for the router's gradient.
    assert none == as_much


def test_a_plan_says_that_products_are_made_again_whatever_its_software_calls_selective() -> None:
    """As long, as many FLOP and as much memory as where selective means that; more of all but memory than attention."""
    core, operators = (replace(Software.read("generic"), keep_products=each) for each in (False, True))
    said = [parts(DENSE, Plan(batch=4, recompute="products"), software) for software in (core, operators)]
    meant = parts(DENSE, Plan(batch=4, recompute="selective"), operators)
    assert said == [meant, meant]
    less = parts(DENSE, Plan(batch=4, recompute="selective"), core)
    assert meant["recompute_s"] > less["recompute_s"]
    assert meant["host_s"] >= less["host_s"]
    assert meant["activations_bytes"] < less["activations_bytes"]


@pytest.mark.parametrize(("changes", "added"), [({}, 8), ({"tp": 2}, 4), ({"batch": 4}, 4), ({"micro_batch": 2}, 4)])
def test_each_micro_batch_adds_its_gradients_to_those_before(changes: dict[str, Any], added: int) -> None:
    """A pass over memory of so many bytes a parameter of the rank, of layers and of both tables of the vocabulary."""
    plan = Plan(**{"batch": 8, **changes})
    without, adding = (parts(DENSE, plan, replace(BARE, add_bytes=each)) for each in (0.0, 1e4))
    layer = 4 * DENSE.hidden**2 + 2 * DENSE.hidden * DENSE.ffn
    told = added * 1e4 * (DENSE.layers * layer + 2 * DENSE.vocab * DENSE.hidden) / MEMORY_RATE
    assert adding["elementwise_s"] - without["elementwise_s"] == pytest.approx(told, rel=0.01)
    assert adding["iteration_time_s"] - without["iteration_time_s"] == pytest.approx(told, rel=0.01)


@pytest.mark.parametrize("changes", [{"zero": 2, "dp": 8}, {"zero": 3, "dp": 8}, {"lora": 8}])
def test_neither_shards_nor_adapters_have_much_to_add(changes: dict[str, Any]) -> None:
    plan = Plan(batch=8, **changes)
    assert parts(DENSE, plan, replace(BARE, add_bytes=1e4)) == parts(DENSE, plan, BARE)


def test_a_stage_adds_the_gradients_of_its_own_layers() -> None:
    """Each of two stages has half of the layers and one table: as much as the other, a micro-batch."""
    plan = Plan(pp=2, batch=8)
    without, adding = (parts(DENSE, plan, replace(BARE, add_bytes=each)) for each in (0.0, 1e4))
    layer = 4 * DENSE.hidden**2 + 2 * DENSE.hidden * DENSE.ffn
    each = 1e4 * (DENSE.layers / 2 * layer + DENSE.vocab * DENSE.hidden) / MEMORY_RATE
    assert adding["elementwise_s"] - without["elementwise_s"] == pytest.approx(8 * each, rel=0.01)
    # The pipeline fills and drains once more.
    assert adding["iteration_time_s"] - without["iteration_time_s"] == pytest.approx(9 * each, rel=0.01)
