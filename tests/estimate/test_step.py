"""A configuration's step: its parts add up, and it moves as physics says when one thing changes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lumos_df.model.evaluate import RESULT_COLUMNS, evaluate_rows
from lumos_df.model.hardware import Hardware
from lumos_df.model.kernels.legality import legal
from lumos_df.model.pipeline import stages
from lumos_df.model.plan import Plan
from lumos_df.model.software import Software
from lumos_df.model.transformer import Model

H100 = Hardware.read("h100-sxm")
GPT = Model.read("gpt3-13b")
MIXTRAL = Model.read("mixtral-8x7b")
BASE = Plan(tp=4, pp=2, dp=4, micro_batch=1, batch=64, sequence_parallel=True, zero=1)

PARTS = [
    *("gemm_s", "attention_s", "elementwise_s", "recompute_s", "optimizer_s", "tp_exposed_s", "cp_exposed_s"),
    *("ep_exposed_s", "pp_exposed_s", "dp_exposed_s", "bubble_s", "host_s"),
]


def estimate(
    *plans: Plan, model: Model = GPT, hardware: Hardware = H100, software: Software | None = None
) -> NDArray[np.float64]:
    none = np.zeros(len(plans), np.int64)
    rows = np.array([plan.row() for plan in plans])
    profile = (software or Software.read("megatron")).row()
    return evaluate_rows(np.array([model.row()]), np.array([hardware.row()]), np.array([profile]), rows, none, none)


def column(name: str, *plans: Plan, **nouns: object) -> list[float]:
    return list(estimate(*plans, **nouns)[:, RESULT_COLUMNS.index(name)])  # type: ignore[arg-type]


def seconds(*plans: Plan, **nouns: object) -> list[float]:
    return column("iteration_time_s", *plans, **nouns)


CHOICES = st.builds(
    Plan,
    tp=st.sampled_from([1, 2, 4, 8]),
    pp=st.sampled_from([1, 2, 4, 8]),
    dp=st.sampled_from([1, 2, 8]),
    cp=st.sampled_from([1, 2]),
    ep=st.sampled_from([1, 2, 8]),
    micro_batch=st.sampled_from([1, 2]),
    batch=st.just(64),
    sequence_parallel=st.booleans(),
    recompute=st.sampled_from(["none", "selective", "full"]),
    schedule=st.sampled_from(["1f1b", "zb-h1", "dualpipe", "gpipe"]),
    zero=st.integers(0, 3),
    flash=st.booleans(),
    overlap_tp=st.booleans(),
    overlap_dp=st.booleans(),
    overlap_pp=st.booleans(),
)


@given(plan=CHOICES, model=st.sampled_from([GPT, MIXTRAL]))
@settings(max_examples=200, deadline=None)
def test_parts_add_up_and_none_is_negative(plan: Plan, model: Model) -> None:
    if legal(np.array([plan.row()]), model.row(), H100.row())[0]:
        return
    (row,) = estimate(plan, model=model)
    parts = row[[RESULT_COLUMNS.index(name) for name in PARTS]]
    assert parts.sum() == pytest.approx(row[0], rel=1e-12)
    assert (parts > -1e-9 * row[0]).all()
    assert np.isfinite(row).all()


def test_the_parts_are_those_of_the_stage_that_sets_the_pace() -> None:
    # The first stage has DeepSeek-V3's three dense layers and one with experts; the others have four with experts.
    model = Model.read("deepseek-v3")
    plan = Plan(pp=16, dp=64, ep=64, batch=64 * 64, zero=1)
    exchanged, bubble, step = (
        column(name, plan, model=model)[0] for name in ("ep_exposed_s", "bubble_s", "iteration_time_s")
    )
    assert exchanged > 0.1 * step
    # 15 of 64 micro-batches fill and drain.
    assert bubble == pytest.approx(step * 15 / 79, rel=0.1)


CHANGES = [
    *({"tp": 4}, {"pp": 4}, {"dp": 8}, {"cp": 4}, {"ep": 2}, {"etp": 1}, {"micro_batch": 2}, {"batch": 128}),
    *({"sequence_parallel": False}, {"recompute": "full"}, {"zero": 3}, {"dp_replicate": 2}, {"precision": "fp8"}),
    *(
        {"flash": False},
        {"overlap_tp": True},
        {"overlap_dp": False},
        {"overlap_pp": True},
        {"lora": 16},
        {"lora": 16, "lora_targets": "all"},
    ),
    *({"offload_optimizer": True}, {"schedule": "zb-h1"}, {"vp": 2, "schedule": "interleaved"}),
    {"placement": "dp-tp-cp-ep-pp"},
]
"""Every field of a plan but the software changed."""


@pytest.mark.parametrize("placement", ["tp-ep-pp-cp-dp", "tp-cp-pp-ep-dp", "cp-ep-pp-tp-dp"])
def test_a_sweeps_row_is_the_single_estimate_bit_for_bit(placement: str) -> None:
    # What a block costs is remembered from row to row, by all that it follows from: more stages part ranks, too.
    base = Plan(tp=2, pp=2, dp=4, cp=2, ep=4, etp=2, batch=64, sequence_parallel=True, zero=1, placement=placement)
    tables = (
        np.array([MIXTRAL.row(), Model.read("deepseek-v3").row()]),
        np.array([H100.row(), Hardware.read("a100-sxm-80").row()]),
        np.array([Software.read("megatron").row(), Software.read("torchtitan").row()]),
    )
    changed = [(replace(base, **change).row(), 0, 0) for change in CHANGES]  # type: ignore[arg-type]
    changed += [(base.row(1), 0, 0), (base.row(), 1, 0), (base.row(), 0, 1)]
    # Each between two of the base.
    table = [row for change in changed for row in ((base.row(), 0, 0), change)]
    plans, model_of, gpu_of = (np.array(column) for column in zip(*table, strict=True))
    alone = [evaluate_rows(*tables, plans[[i]], model_of[[i]], gpu_of[[i]])[0] for i in range(len(table))]
    assert np.isfinite(alone).all()
    np.testing.assert_array_equal(evaluate_rows(*tables, plans, model_of, gpu_of), alone)


@pytest.mark.parametrize(
    ("less", "more"),
    [
        (BASE, replace(BASE, recompute="full")),
        (BASE, replace(BASE, batch=128)),
        (replace(BASE, overlap_dp=True), replace(BASE, overlap_dp=False)),
        (replace(BASE, schedule="zb-h1"), BASE),
        (replace(BASE, precision="fp8"), BASE),
        (BASE, replace(BASE, flash=False)),
        (replace(BASE, pp=4, vp=2, schedule="interleaved"), replace(BASE, pp=4)),
    ],
)
def test_steps_are_longer_where_more_is_done(less: Plan, more: Plan) -> None:
    short, long = seconds(less, more)
    assert short < long


@pytest.mark.parametrize(
    ("less", "more"),
    [
        (replace(BASE, recompute="full"), BASE),
        (replace(BASE, recompute="selective", flash=False), replace(BASE, flash=False)),
        (BASE, replace(BASE, zero=0)),
        (replace(BASE, zero=3), replace(BASE, zero=2)),
        (BASE, replace(BASE, micro_batch=2)),
        (replace(BASE, tp=8), BASE),
        (BASE, replace(BASE, sequence_parallel=False)),
    ],
)
def test_memory_is_more_where_more_is_kept(less: Plan, more: Plan) -> None:
    small, large = column("memory_bytes", less, more)
    assert small < large


def test_faster_links_and_gpus_are_not_slower() -> None:
    across = replace(BASE, tp=8, dp=8, pp=1)
    faster = replace(H100, hbm_bandwidth=2 * H100.hbm_bandwidth)
    wider = replace(H100, scale_out=replace(H100.scale_out, bandwidth=2 * H100.scale_out.bandwidth))
    (base,) = seconds(across)
    assert seconds(across, hardware=faster)[0] < base
    assert seconds(across, hardware=wider)[0] < base


def test_a_small_model_waits_for_the_host() -> None:
    small = replace(GPT, layers=4, hidden=256, heads=4, ffn=1024, kv_heads=4, head_dim=64, v_dim=64, vocab=1000)
    host, step = (column(name, Plan(batch=8), model=small)[0] for name in ("host_s", "iteration_time_s"))
    assert host > 0.2 * step
    eager = replace(Software.read("megatron"), launch_s=60e-6, backward_launch_s=60e-6)
    assert seconds(Plan(batch=8), model=small, software=eager)[0] > 2 * step


def test_a_pipelines_bubble_is_that_of_its_formula() -> None:
    # 1F1B, every chunk alike but for embedding and head: bubble = (p - 1) / m of what the stage computes.
    plan = Plan(pp=4, batch=64)
    model = replace(GPT, vocab=1000)
    bubble, step, optimizer = (
        column(name, plan, model=model)[0] for name in ("bubble_s", "iteration_time_s", "optimizer_s")
    )
    host = Software.read("megatron").step_s
    assert bubble == pytest.approx((step - optimizer - host - bubble) * 3 / 64, rel=0.1)


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("pp", [1, 2, 3, 4, 7, 8])
def test_every_layer_is_on_one_chunk(pp: int, *, balanced: bool) -> None:
    chunks = np.zeros((stages.CHUNK_ROWS, 64))
    software = replace(Software.read("megatron"), balanced=balanced).row()
    stages.cut(GPT.row(), Plan(pp=pp, batch=pp).row(), software, chunks)
    layers = chunks[stages.DENSE_LAYERS, :pp] + chunks[stages.EXPERT_LAYERS, :pp]
    assert layers.sum() == GPT.layers
    assert layers.max() - layers.min() <= (GPT.layers if balanced else 1)


def test_a_balanced_pipeline_gives_the_head_its_share() -> None:
    # nanotron 1B: 16 layers and a head as heavy as four of them, so four stages have 5, 5, 5 and 1.
    chunks = np.zeros((stages.CHUNK_ROWS, 64))
    model = Model.read("nanotron-1b")
    stages.cut(model.row(), Plan(pp=4, batch=4).row(), Software.read("nanotron").row(), chunks)
    assert list(chunks[stages.DENSE_LAYERS, :4]) == [5, 5, 5, 1]


def test_a_balanced_pipeline_that_runs_out_of_layers_has_a_time() -> None:
    # Its head is as heavy as several layers, so none are left for the last two of eight chunks.
    model = Model.read("nemotron-3-nano")
    chunks = np.zeros((stages.CHUNK_ROWS, 64))
    plan, nanotron = Plan(pp=2, vp=4, schedule="interleaved", batch=16), Software.read("nanotron")
    stages.cut(model.row(), plan.row(), nanotron.row(), chunks)
    assert not (chunks[stages.DENSE_LAYERS, :8] + chunks[stages.EXPERT_LAYERS, :8]).all()
    assert np.isfinite(estimate(plan, model=model, software=nanotron)).all()


def test_a_pipeline_longer_than_the_working_arrays_is_no_number() -> None:
    deep = replace(GPT, layers=5000)
    assert np.isfinite(estimate(Plan(pp=512, batch=4), model=deep)).all()
    assert np.isnan(estimate(Plan(pp=2000, batch=4), model=deep)).all()


def test_a_schedule_that_cannot_run_is_no_number() -> None:
    assert np.isnan(estimate(Plan(pp=4, vp=2, schedule="interleaved", batch=6))).all()


def test_layers_with_a_window_attend_to_no_more_than_it() -> None:
    """Gemma 3 27B at 32,768 tokens: 52 of 62 layers see 1,024; with an unfused kernel the mask saves nothing."""
    plan = replace(BASE, batch=8, pp=1)
    gemma = replace(Model.read("gemma-3-27b"), seq=32768)
    whole = replace(gemma, window=0, window_layers=0)
    windowed, full = (column("attention_s", plan, model=model)[0] for model in (gemma, whole))
    # Of a mean of 16,384 keys those see 1,008, and some more where tiles of keys begin and end.
    assert 10 / 62 + 52 / 62 * 1008 / 16384 < windowed / full < 10 / 62 + 52 / 62 * 1.8 * 1008 / 16384
    unfused = replace(plan, flash=False)
    assert column("attention_s", unfused, model=gemma) == column("attention_s", unfused, model=whole)
    # Of a chunk half is seen on average, of a window that moves all but its beginning.
    scout = replace(Model.read("llama-4-scout"), seq=65536)
    chunks, last = (column("attention_s", plan, model=replace(scout, chunked=way))[0] for way in (True, False))
    assert 0.7 < chunks / last < 0.9
    # A sequence that is no longer than the window sees all of itself.
    short = replace(scout, seq=8192)
    assert column("attention_s", plan, model=short) == column("attention_s", plan, model=replace(short, window=9000))
