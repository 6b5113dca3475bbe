"""One estimate from outside: what its figures must be to one another, and what is refused."""

import math
from dataclasses import replace

import pytest

from lumos_df.base.errors import HardwareError, LumosError, ModelError, PlanError, SoftwareError
from lumos_df.estimate.answer import ANSWERS
from lumos_df.estimate.configuration import estimate
from lumos_df.model.hardware import Hardware
from lumos_df.model.plan import Plan
from lumos_df.model.software import Software
from lumos_df.model.transformer import Model

JOBS = (
    ("llama-3-70b", "h100-sxm", "tp=8,pp=4,dp=4,batch=256,sp,zero=1"),
    ("gpt3-175b", "a100-sxm-80", "tp=8,pp=8,vp=2,dp=2,batch=128,recompute=selective,flash=0"),
    ("mixtral-8x7b", "h200-sxm", "tp=2,pp=4,dp=8,ep=8,batch=512,sp,recompute=full,overlap_tp"),
    ("deepseek-v3", "b200", "tp=1,pp=8,dp=32,ep=32,batch=1024,schedule=dualpipe,precision=fp8"),
    ("llama-3-8b", "h100-sxm", "dp=64,batch=256,schedule=fsdp,zero=3,software=torchtitan"),
    ("gpt3-350m", "l40s", "dp=2,micro_batch=4,batch=64"),
    # All compute has communication beside it.
    ("megatron-76b", "gh200", "tp=8,dp=32,micro_batch=2,batch=64,precision=fp8"),
    ("llama-2-13b", "v100-sxm2-32", "tp=4,pp=2,dp=1,batch=8,schedule=zb-h1,precision=fp16,offload"),
)
EVERY = pytest.mark.parametrize("job", JOBS, ids=lambda job: f"{job[0]} {job[2]}")
COMPUTE = ("gemm_s", "attention_s", "elementwise_s", "recompute_s", "optimizer_s")
COMMUNICATION = ("tp_exposed_s", "cp_exposed_s", "ep_exposed_s", "pp_exposed_s", "dp_exposed_s")


@EVERY
def test_parts_add_up(job: tuple[str, str, str]) -> None:
    found = estimate(*job).answers
    assert list(found) == [name for name, _ in ANSWERS]
    step = found["iteration_time_s"]
    four = ("exposed_compute_s", "overlapped_s", "exposed_communication_s", "other_s")
    assert all(found[name] >= 0.0 for name in four)
    assert sum(found[name] for name in four) == pytest.approx(step, rel=1e-12)
    assert sum(found[name] for name in (*COMPUTE, *COMMUNICATION, "bubble_s", "host_s")) == pytest.approx(
        step, rel=1e-12
    )
    assert found["exposed_communication_s"] == pytest.approx(sum(found[name] for name in COMMUNICATION), rel=1e-12)
    assert found["exposed_compute_s"] + found["overlapped_s"] == pytest.approx(sum(found[name] for name in COMPUTE))
    sizes = [name for name in found if name.endswith("_gb") and name not in {"memory_gb", "memory_margin_gb"}]
    assert sum(found[name] for name in sizes) == pytest.approx(found["memory_gb"], rel=1e-12)


@EVERY
def test_rates_follow_from_the_step(job: tuple[str, str, str]) -> None:
    done = estimate(*job)
    found, model, gpu, plan = done.answers, done.model, done.hardware, done.plan
    step, gpus = found["iteration_time_s"], plan.tp * plan.cp * plan.dp * plan.pp
    assert found["gpus"] == gpus
    assert found["tokens_per_s_per_gpu"] == pytest.approx(plan.batch * model.seq / step / gpus)
    peak = getattr(gpu.peak_flops, plan.precision)
    flops = 3 * model.flops_per_token(causal=True) * plan.batch * model.seq
    assert found["mfu_pct"] == pytest.approx(100 * flops / (step * gpus * peak))
    assert (found["hfu_pct"] > found["mfu_pct"]) == (plan.recompute != "none")
    assert found["fits"] == (found["memory_gb"] * 1e9 <= gpu.hbm_bytes)
    assert found["memory_margin_gb"] == pytest.approx(gpu.hbm_bytes / 1e9 - found["memory_gb"])
    joules = gpus * (gpu.tdp_w * (step - found["other_s"]) + gpu.idle_w * found["other_s"])
    assert found["energy_j"] == pytest.approx(joules)
    assert found["low_s"] < step < found["high_s"]


def test_a_gpu_that_the_software_was_not_measured_on_widens_the_interval() -> None:
    plan = "tp=2,dp=4,batch=64,software=nemo"
    ends = {
        gpu: estimate("llama-2-7b", gpu, plan).answers["high_s"]
        / estimate("llama-2-7b", gpu, plan).answers["iteration_time_s"]
        for gpu in ("h100-sxm", "h800", "mi300x", "l40s")
    }
    # The H800 is of the H100's architecture, and was measured with it; the others are of none that NeMo ran on.
    assert ends["h800"] == pytest.approx(ends["h100-sxm"])
    assert ends["mi300x"] == pytest.approx(ends["l40s"])
    assert ends["mi300x"] > 1.01 * ends["h100-sxm"]


def test_nouns_may_be_given_ready_made() -> None:
    plan = Plan(tp=2, dp=4, batch=64, software="nemo")
    made = estimate(Model.read("llama-2-7b"), Hardware.read("h100-sxm"), plan)
    assert made.software == Software.read("nemo")
    assert (
        made.answers
        == estimate("llama-2-7b", "h100-sxm", "tp=2,dp=4,batch=64,software=nemo,overlap_tp=0,overlap_pp=0").answers
    )
    larger = estimate(replace(made.model, layers=64), made.hardware, plan)
    assert larger.answers["iteration_time_s"] > 1.8 * made.answers["iteration_time_s"]


@EVERY
def test_operators_are_those_of_the_parts(job: tuple[str, str, str]) -> None:
    done = estimate(*job)
    rows = done.operators
    assert [row["op_id"] for row in rows] == list(range(len(rows)))
    blocks = {row["block"] for row in rows}
    assert blocks == {"attention", "embedding", "head"} | ({"experts"} if done.model.experts else {"mlp"}) | (
        {"mlp"} if done.model.dense_layers else set()
    )
    again = {row["family"] for row in rows if row["phase"] == "recompute"}
    assert (again == set()) == (done.plan.recompute == "none")
    if done.plan.recompute == "selective":
        assert again == {"attention"}
    products = [row for row in rows if row["family"] == "gemm" and row["phase"] == "forward"]
    assert all(row["flops"] == round(2 * row["m"] * row["n"] * row["k"] * row["batch"]) for row in products)
    # All GPUs of a replica together do a micro-batch's products and attention, over tp * cp ranks, whatever is padded.
    forward = sum(row["flops"] * row["blocks"] for row in rows if row["phase"] == "forward" and row["flops"])
    share = done.plan.micro_batch * done.model.seq * done.model.flops_per_token() / (done.plan.tp * done.plan.cp)
    assert forward == pytest.approx(share, rel=0.05)


@pytest.mark.parametrize("model", ["llama-3-8b", "qwen3-30b-a3b"])
def test_seconds_of_the_operators_are_the_compute_of_a_step(model: str) -> None:
    done = estimate(model, "h100-sxm", "tp=4,dp=1,micro_batch=8,batch=64,recompute=full")
    assert {row["block"] for row in done.operators if row["name"] == "add_gradients"} == {
        *("attention", "embedding", "head"),
        "experts" if done.model.experts else "mlp",
    }
    timed = dict.fromkeys(("gemm", "attention", "elementwise"), 0)
    again = 0
    for row in done.operators:
        family = row["family"].removeprefix("grouped_")
        if row["phase"] == "recompute":
            again += row["blocks"] * row["dur"] * (family in timed)
        elif family in timed:
            timed[family] += row["blocks"] * row["dur"]
    for family, nanoseconds in timed.items():
        assert 8e-9 * nanoseconds == pytest.approx(done.answers[f"{family}_s"], rel=1e-3)
    # What is left out of a layer's products is left out by its share of their operations.
    assert 8e-9 * again == pytest.approx(done.answers["recompute_s"], rel=1e-2)


def test_json_has_every_answer_once() -> None:
    done = estimate(*JOBS[0])
    said = done.to_dict()
    flat = {**said, **said["breakdown"], **said["parts"], **said["memory"]}
    renamed = {"memory_margin_gb": "margin_gb", "memory_stage": "stage"}
    for name, value in done.answers.items():
        assert flat[renamed.get(name, name)] == value
    assert sum(said["breakdown"].values()) == pytest.approx(said["iteration_time_s"], rel=1e-12)
    assert all(math.isfinite(value) for value in done.answers.values())


@pytest.mark.parametrize(
    ("job", "error", "why"),
    [
        (("llama-3-70", "h100-sxm", "tp=1"), ModelError, "did you mean 'llama-3-70b'"),
        (("llama-3-8b", "h100-sx", "tp=1"), HardwareError, "did you mean 'h100-sxm'"),
        (("llama-3-8b", "h100-sxm", "tp=1,software=megatrom"), SoftwareError, "did you mean 'megatron'"),
        (("llama-3-8b", "h100-sxm", "precison=fp8"), PlanError, "no field 'precison'; did you mean 'precision'"),
        (("llama-3-8b", "h100-sxm", "tp=3,batch=8"), PlanError, "tp = 3: does not divide"),
        (("llama-3-8b", "h100-sxm", "tp=2,dp=3,batch=8"), PlanError, "batch = 8: is no multiple of dp"),
        (("llama-3-8b", "v100-sxm2-32", "tp=2,batch=8"), PlanError, "has no bf16"),
    ],
)
def test_what_cannot_be_is_named(job: tuple[str, str, str], error: type[LumosError], why: str) -> None:
    with pytest.raises(error, match=why):
        estimate(*job)
