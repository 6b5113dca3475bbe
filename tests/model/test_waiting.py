"""What waits and what hides: collectives for the last host and behind products, experts for routing; slow attention."""

from dataclasses import replace

import numpy as np
import pytest

from lumos_df.model.evaluate import RESULT_COLUMNS, evaluate_rows
from lumos_df.model.hardware import Hardware
from lumos_df.model.plan import Plan
from lumos_df.model.software import Software
from lumos_df.model.transformer import Model
from tests.model.roofs import BARE, GPU

DENSE = Model("dense", 4, 1024, 16, 32_000, 512)
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
    """It was written for Ampere. So has a software nobody named."""
    generic, hardware, plan = Software.read("generic"), Hardware.read(gpu), Plan(batch=4)
    assert generic.flash2
    second, best = (parts(DENSE, plan, replace(generic, flash2=on), hardware)["attention_s"] for on in (True, False))
    assert second == pytest.approx(slower * best)


def test_where_flash_attention_2_does_not_run_no_software_is_slower_by_its_own() -> None:
    """On Blackwell frameworks take cuDNN's: how well a software's FlashAttention-2 does elsewhere says nothing."""
    software, hardware, plan = Software.read("llm-foundry"), Hardware.read("b200"), Plan(batch=4)
    assert software.flash2
    assert software.attention_factor > 1.0
    best = replace(software, flash2=False, attention_factor=1.0)
    second, first = (parts(DENSE, plan, told, hardware)["attention_s"] for told in (software, best))
    assert second == pytest.approx(first)
