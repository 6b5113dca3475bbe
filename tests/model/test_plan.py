"""Plans: what a text says, which are legal, and what is nearest."""

import csv
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumos_df.base.errors import PlanError, SoftwareError
from lumos_df.model.hardware import Hardware
from lumos_df.model.kernels.legality import legal, violations
from lumos_df.model.plan import PLAN_COLUMNS, PLAN_ROW, Plan
from lumos_df.model.rules import RULES
from lumos_df.model.transformer import Model
from lumos_df.schema.plan_words import SCHEDULES
from tests.conftest import ROOT

TRUTH = Path(os.environ.get("LUMOS_TRUTH", ROOT.parent / "shared" / "truth"))
DENSE = Model("dense", layers=12, hidden=48, heads=12, kv_heads=4, ffn=72, vocab=100, seq=96)
SPARSE = replace(DENSE, name="sparse", experts=6, top_k=2, expert_ffn=20, shared_ffn=24, dense_layers=1)
A100 = Hardware.read("a100")


@pytest.mark.parametrize(
    ("written", "plan"),
    [
        ("", Plan()),
        ("tp=8,pp=4,dp=8,micro_batch=1,batch=1536", Plan(tp=8, pp=4, dp=8, batch=1536)),
        (" TP=8 , mbs=2, gbs=16 ,", Plan(tp=8, micro_batch=2, batch=16)),
        ("pp=4,vpp=2,batch=8", Plan(pp=4, vp=2, batch=8, schedule="interleaved")),
        ("pp=4,schedule=AFAB", Plan(pp=4, schedule="gpipe")),
        ("sp,flash=off,offload=yes", Plan(sequence_parallel=True, flash=False, offload_optimizer=True)),
        ("recompute=full,zero=1,precision=fp8", Plan(recompute="full", zero=1, precision="fp8")),
        ("placement=tp-pp-cp-ep-dp", Plan(placement="tp-pp-cp-ep-dp")),
        ("software=nemo", Plan(software="nemo", overlap_tp=True, overlap_pp=True)),
        ("software=nemo,overlap-tp=0", Plan(software="nemo", overlap_pp=True)),
    ],
)
def test_a_text_says_a_plan(written: str, plan: Plan) -> None:
    assert Plan.parse(written) == plan


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (Plan(), ""),
        (
            Plan.parse("tp=8,pp=4,vp=2,dp=2,mbs=2,batch=64,sp"),
            "tp=8,pp=4,vp=2,dp=2,sp=on,mbs=2,batch=64",
        ),
        (Plan.parse("dp=4,overlap_dp=off,software=nanotron"), None),
        (Plan.parse("pp=2,vp=2,schedule=dualpipe"), None),
    ],
)
def test_what_a_plan_says_is_read_as_that_plan(plan: Plan, text: str | None) -> None:
    assert Plan.parse(plan.text()) == plan
    assert text in (None, plan.text())


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("tpp=8", "plan: there is no field 'tpp'; did you mean 'tp'?"),
        ("x=8", "plan: there is no field 'x'; there are tp, pp, vp, "),
        ("tp=8,tp=4", "plan: 'tp' is said twice"),
        ("batch=8,gbs=4", "plan: 'batch' is said twice"),
        ("tp", "plan: 'tp' needs a value: tp=..."),
        (
            "tp=0,dp=-1",
            "plan: tp = 0: must be at least 1; nearest is 1; dp = '-1': must be a whole number of at least 1",
        ),
        ("tp=eight", "plan: tp = 'eight': must be a whole number of at least 1"),
        (
            "tp=2,dp=2147483647",
            "plan: dp = 2147483647: makes 4,294,967,294 GPUs, and a job has at most 16,777,216; nearest is 8388608",
        ),
        # One bound is told, the smaller; of a field that no job's size is made of there is no other.
        ("dp=2147483648", "plan: dp = 2147483648: makes 2,147,483,648 GPUs, and a job has at most 16,777,216; nearest"),
        ("batch=99999999999999999999", "plan: batch = 99999999999999999999: must be at most 2147483647; nearest is 2"),
        ("zero=4", "plan: zero = 4: must be 0 to 3; nearest is 3"),
        ("flash=2", "plan: flash = '2': must be true or false"),
        (
            "recompute=ful",
            "plan: recompute = 'ful': must be one of none, selective, full, light, products; did you mean 'f",
        ),
        ("schedule=1f2b", "plan: schedule = '1f2b': must be one of 1f1b, "),
        ("placement=tp-dp-pp", "plan: placement = 'tp-dp-pp': must name each of tp-cp-ep-dp-pp once"),
    ],
)
def test_a_text_that_says_none_is_refused(written: str, complaint: str) -> None:
    with pytest.raises(PlanError) as refused:
        Plan.parse(written)
    assert str(refused.value).startswith(complaint)


def test_a_plan_of_unknown_software_is_refused() -> None:
    with pytest.raises(SoftwareError, match="did you mean 'megatron'"):
        Plan.parse("software=megatrn")


def test_a_row_has_every_field() -> None:
    plan = Plan(tp=2, pp=3, vp=2, schedule="interleaved", recompute="full", precision="fp8", overlap_tp=True)
    row = plan.row(software=5)
    codes = {"recompute": 2, "schedule": 1, "precision": 3, "lora_targets": 0, "software": 5, "placement": 0o43210}
    assert row.dtype == PLAN_ROW
    assert {column.name: row[column.name] for column in PLAN_COLUMNS} == vars(plan) | codes


@pytest.mark.parametrize(
    ("written", "model", "complaint"),
    [
        ("tp=5", DENSE, "tp = 5: does not divide the model's 12 heads; nearest is 4"),
        ("dp=6,zero=3,hsdp=4,gbs=6", DENSE, "dp_replicate = 4: does not divide dp * cp = 6 * 1; nearest is 3"),
        ("dp=4,hsdp=2,gbs=4", DENSE, "dp_replicate = 2: zero is 0, so nothing is sharded that groups could hold; "),
        ("lora_targets=all", DENSE, "lora_targets = all: lora is 0, so there are no adapters; nearest is attention"),
        ("tp=8", replace(DENSE, heads=24, kv_heads=3), "tp = 8: neither divides the model's 3 key and value heads"),
        ("tp=12", replace(DENSE, ffn=74), "tp = 12: does not divide the width 74 of the model's MLP; nearest is 2"),
        ("tp=12", replace(SPARSE, shared_ffn=6), "tp = 12: does not divide the width 6 of the model's shared experts"),
        ("cp=5", DENSE, "cp = 5: must divide half the sequence of 96, as each rank takes two pieces of it"),
        ("tp=4,cp=16,sp", DENSE, "tp = 4: with sequence_parallel it must divide each rank's sequence of 96 / 16"),
        ("pp=13,gbs=13", DENSE, "pp = 13: the model's 12 layers are fewer than pp * vp = 13 * 1 chunks; nearest is 12"),
        ("dp=3,mbs=2,gbs=16", DENSE, "batch = 16: is no multiple of dp * micro_batch = 3 * 2; nearest is 18"),
        ("schedule=zb-h1", DENSE, "schedule = zb-h1: 'zb-h1' needs a pipeline, and pp is 1; nearest is 1f1b"),
        ("pp=2,schedule=interleaved,gbs=2", DENSE, "vp = 1: schedule 'interleaved' needs two chunks a stage or more"),
        ("pp=2,vp=2,schedule=1f1b", DENSE, "vp = 2: schedule '1f1b' has one chunk a stage; 'interleaved' has more"),
        ("pp=4,vp=2,gbs=6", DENSE, "pp = 4: schedule 'interleaved' needs micro-batches"),
        ("pp=3,schedule=dualpipe,gbs=6", DENSE, "pp = 3: schedule 'dualpipe' needs an even number of stages"),
        ("pp=4,schedule=dualpipe,gbs=7", DENSE, "batch = 7: schedule 'dualpipe' needs an even number"),
        ("pp=2,schedule=fsdp,zero=3", DENSE, "pp = 2: schedule 'fsdp' has no pipeline; nearest is 1"),
        ("schedule=fsdp,zero=1", DENSE, "zero = 1: schedule 'fsdp' shards gradients (2) or parameters"),
        ("dp=4,ep=4,gbs=4", SPARSE, "ep = 4: does not divide the model's 6 experts; nearest is 2"),
        ("dp=4,ep=3,gbs=4", SPARSE, "ep = 3: etp * ep = 1 * 3 does not divide tp * cp * dp = 1 * 1 * 4; nearest is 2"),
        ("tp=3,etp=3", replace(SPARSE, kv_heads=3), "etp = 3: does not divide the width 20 of an expert; nearest is 1"),
        ("precision=fp8", DENSE, "precision = fp8: a100-sxm-80 has no fp8; nearest is bf16"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_named_with_the_nearest(written: str, model: Model, complaint: str) -> None:
    with pytest.raises(PlanError) as refused:
        Plan.parse(written).check(model, A100)
    assert str(refused.value).startswith(f"plan: {complaint}")


def test_a_gpu_without_fp16_multiplies_the_other_16_bits() -> None:
    with pytest.raises(PlanError, match=r"tpu-v6e has no fp16; nearest is bf16$"):
        Plan.parse("precision=fp16").check(DENSE, Hardware.read("tpu-v6e"))


def test_one_complaint_a_field() -> None:
    with pytest.raises(PlanError) as refused:
        Plan.parse("tp=5,pp=20,dp=3,gbs=4,precision=fp8,ep=4").check(SPARSE, A100)
    for name in ("tp = 5", "pp = 20", "batch = 4", "precision = fp8", "ep = 4"):
        assert str(refused.value).count(f"{name}: ") == 1


SMALL = st.sampled_from([1, 1, 2, 3, 4, 5, 6, 8, 12])
PLANS = st.builds(
    Plan,
    tp=SMALL,
    pp=SMALL,
    vp=st.sampled_from([1, 1, 2, 3]),
    dp=SMALL,
    cp=SMALL,
    ep=SMALL,
    etp=SMALL,
    sequence_parallel=st.booleans(),
    micro_batch=SMALL,
    batch=st.sampled_from([1, 2, 8, 12, 48, 144, 288]),
    schedule=st.sampled_from(SCHEDULES),
    zero=st.integers(0, 3),
    precision=st.sampled_from(["bf16", "fp8"]),
)
MODELS = st.sampled_from(
    [DENSE, SPARSE, replace(DENSE, ffn=50), replace(SPARSE, kv_heads=1, shared_ffn=0, dense_layers=0)]
)


def even(things: int, parts: int) -> bool:
    """Say whether parts of things are of one size, by cutting them."""
    return len({len(part) for part in np.array_split(np.arange(things), parts)}) == 1


def tp_is_wrong(plan: Plan, model: Model) -> bool:
    ranks_of_head = [[rank for rank in range(plan.tp) if rank % model.kv_heads == k] for k in range(model.kv_heads)]
    copied = plan.tp > model.kv_heads and len({len(ranks) for ranks in ranks_of_head}) == 1
    own, left = divmod(model.seq, plan.cp)
    dense = not model.experts or model.dense_layers > 0
    return not (
        even(model.heads, plan.tp)
        and (even(model.kv_heads, plan.tp) or copied)
        and (not dense or even(model.ffn, plan.tp))
        and even(model.shared_ffn, plan.tp)
        and (not plan.sequence_parallel or left > 0 or even(own, plan.tp))
    )


def schedule_is_wrong(plan: Plan) -> set[str]:
    """Say which fields its schedule forbids, schedule by schedule."""
    m = plan.batch // (plan.dp * plan.micro_batch)
    pipelines = {"interleaved", "zb-h1", "dualpipe"}
    faults = {
        "schedule": plan.schedule in pipelines and plan.pp == 1,
        "vp": (plan.vp > 1) != (plan.schedule == "interleaved"),
        "pp": {"interleaved": m % plan.pp > 0, "dualpipe": plan.pp % 2 > 0, "fsdp": plan.pp > 1}.get(plan.schedule),
        "batch": plan.schedule == "dualpipe" and (m % 2 > 0 or m < 2 * plan.pp),
        "zero": plan.schedule == "fsdp" and plan.zero not in {2, 3},
    }
    return {name for name, wrong in faults.items() if wrong}


def experts_are_wrong(plan: Plan, model: Model) -> set[str]:
    ranks = plan.tp * plan.cp * plan.dp
    faults = {
        "ep": plan.ep > 1 and (not model.experts or not even(model.experts, plan.ep)),
        "etp": plan.etp > 1 and (not model.experts or not even(model.expert_ffn, plan.etp)),
    }
    unshared = "etp" if not even(ranks, plan.etp) else "ep" if not even(ranks // plan.etp, plan.ep) else None
    return {name for name, wrong in faults.items() if wrong} | ({unshared} if unshared else set())


def fields_that_are_wrong(plan: Plan, model: Model) -> set[str]:
    """Say which fields break a rule, the slow way: by building what the plan asks for."""
    faults = {
        "tp": tp_is_wrong(plan, model),
        "cp": plan.cp > 1 and not even(model.seq, 2 * plan.cp),
        "pp": plan.pp * plan.vp > model.layers,
        "batch": not even(plan.batch, plan.dp * plan.micro_batch),
        "precision": plan.precision == "fp8",
    }
    own = {name for name, wrong in faults.items() if wrong}
    return own | schedule_is_wrong(plan) | experts_are_wrong(plan, model)


@settings(max_examples=500, deadline=None)
@given(PLANS, MODELS)
def test_the_kernels_agree_with_a_slow_twin_and_with_check(plan: Plan, model: Model) -> None:
    rows = np.array([plan.row()], PLAN_ROW), model.row(), A100.row()
    found, code = int(violations(*rows)[0]), int(legal(*rows)[0])
    broken = [rule for place, rule in enumerate(RULES) if found >> place & 1]
    wrong = fields_that_are_wrong(plan, model)
    assert {rule.field for rule in broken} == wrong
    assert broken[0] is RULES[code - 1] if broken else code == 0
    if not wrong:
        plan.check(model, A100)
        return
    with pytest.raises(PlanError) as refused:
        plan.check(model, A100)
    assert all(f"{name} = {getattr(plan, name)}: " in str(refused.value) for name in wrong)


@settings(max_examples=200, deadline=None)
@given(PLANS, MODELS)
def test_the_nearest_value_mends_the_field(plan: Plan, model: Model) -> None:
    """Taking one piece of advice after the other, the first each time, ends at a legal plan."""
    for _ in range(20):
        try:
            plan.check(model, A100)
        except PlanError as error:
            advice = [part for part in str(error).removeprefix("plan: ").split("; ") if not part.startswith("'")]
            if "nearest is" not in advice[1]:
                pytest.fail(str(error))
            name, nearest = advice[0].split(" = ")[0], advice[1].removeprefix("nearest is ")
            value: Any = nearest if isinstance(getattr(plan, name), str) else int(nearest)
            plan = replace(plan, **{name: value})
        else:
            return
    pytest.fail(f"no end of advice: {plan}")


@pytest.mark.parametrize("file", ["playbook_h100_runs.csv", "vtrain_a100_multi.csv", "vtrain_a100_single.csv"])
def test_plans_that_ran_are_legal(file: str) -> None:
    if not (TRUTH / file).is_file():
        pytest.skip(f"no runs in LUMOS_TRUTH ({TRUTH})")
    for row in csv.DictReader((TRUTH / file).read_text("utf-8").splitlines()):
        if "mbs" in row:
            model, h100 = Model.read(f"nanotron-{row['model']}"), Hardware.read(row["gpu"])
            plan = ",".join(f"{name}={row[name]}" for name in ("tp", "pp", "dp", "mbs", "gbs"))
            Plan.parse(f"{plan},zero={row['zero_stage']},software=nanotron").check(model, h100)
        else:
            hidden, heads, layers, seq = (
                int(row[name]) for name in ("hidden size", "attention heads", "# layers", "sequence length")
            )
            model = Model("gpt", layers=layers, hidden=hidden, heads=heads, vocab=51200, seq=seq)
            named = {"tensor": "tp", "data": "dp", "pipeline": "pp"}
            plan = ",".join(f"{short}={row[f'{long} parallelism']}" for long, short in named.items())
            Plan.parse(f"{plan},mbs={row['micro batch']},gbs={row['global batch']}").check(model, A100)
