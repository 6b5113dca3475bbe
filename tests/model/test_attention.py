"""The time of attention: against its slow twin, the operations it does, and the unfused way."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumos_df.model.fitted import load, vector
from lumos_df.model.kernels.attention import attention_seconds, unfused_attention_seconds
from tests.model import kernels
from tests.model.kernels import A100, B200, GPUS, H100, Gpu, Rows

ROWS = st.builds(
    Rows,
    batch=st.integers(1, 16),
    queries=st.integers(1, 40_000),
    keys=st.integers(1, 40_000),
    heads=st.integers(1, 128),
    kv_heads=st.integers(1, 128),
    size=st.sampled_from((64, 80, 128, 192, 256)),
    causal=st.booleans(),
    backward=st.booleans(),
    window=st.sampled_from((0, 1, 128, 4096)),
)
LONG = Rows(1, 8192, 8192, 32, 8, 128, causal=True, backward=False)


def seconds(rows: Rows, gpu: Gpu, factor: float = 1.0) -> float:
    parameters = replace(load(gpu.name).attention["bf16"], training_factor=factor)
    shape = (rows.batch, rows.queries, rows.keys, rows.heads, rows.kv_heads, rows.size, rows.causal, rows.backward)
    figures = (2, gpu.peak_flops, gpu.hbm_bandwidth, gpu.sms)
    return float(attention_seconds(*shape, *figures, vector(parameters), 0, rows.window, rows.seen()))


def unfused(rows: Rows, gpu: Gpu, *, dropout: bool = False) -> float:
    fitted = load(gpu.name)
    shape = (rows.batch, rows.queries, rows.keys, rows.heads, rows.size, dropout, rows.backward)
    figures = (2, gpu.peak_flops, gpu.hbm_bandwidth, gpu.sms)
    return float(unfused_attention_seconds(*shape, *figures, vector(fitted.gemm["bf16"]), vector(fitted.memory)))


@settings(deadline=None)  # the first call compiles
@given(ROWS, st.sampled_from(GPUS), st.floats(0.5, 2))
def test_the_compiled_function_is_its_twin(rows: Rows, gpu: Gpu, factor: float) -> None:
    parameters = replace(load(gpu.name).attention["bf16"], training_factor=factor)
    assert seconds(rows, gpu, factor) == pytest.approx(kernels.attention(rows, gpu, parameters), rel=1e-9)


@settings(deadline=None)  # the first call compiles
@given(ROWS, st.sampled_from(GPUS))
def test_never_faster_than_the_peak(rows: Rows, gpu: Gpu) -> None:
    seen = min(rows.keys / (2 if rows.causal else 1), rows.seen() if rows.window else rows.keys)
    operations = 4 * rows.batch * rows.heads * rows.size * rows.queries * seen * (2.5 if rows.backward else 1)
    assert seconds(rows, gpu) >= operations / gpu.peak_flops


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_a_mask_halves_long_rows_and_backward_takes_its_ratio(gpu: Gpu) -> None:
    forward = seconds(LONG, gpu)
    assert 1.7 < seconds(replace(LONG, causal=False), gpu) / forward < 2
    backward = load(gpu.name).attention["bf16"].backward_efficiency
    assert seconds(replace(LONG, backward=True), gpu) / forward == pytest.approx(2.5 / backward, rel=0.02)


@pytest.mark.parametrize(
    ("gpu", "rows", "measured_ms"),
    [
        (H100, Rows(2, 16384, 16384, 40, 8, 128, causal=True, backward=False, window=8192), 8.154),
        (H100, Rows(1, 16384, 16384, 40, 8, 128, causal=True, backward=False, window=8192), 3.895),
        (B200, Rows(1, 16384, 16384, 32, 8, 128, causal=True, backward=False, window=1024), 0.3147),
        (B200, Rows(8, 16384, 16384, 32, 4, 128, causal=True, backward=False, window=1024), 2.464),
    ],
)
def test_a_window_takes_what_was_measured(gpu: Gpu, rows: Rows, measured_ms: float) -> None:
    """Kernels that nothing was fitted to: TensorRT-LLM 1.3 and SGLang 0.5.10 in ai-dynamo/aiconfigurator 095f58a."""
    assert 1e3 * seconds(rows, gpu) == pytest.approx(measured_ms, rel=0.08)
    whole = replace(rows, window=0)
    assert seconds(rows, gpu) < 0.8 * seconds(whole, gpu)
    assert seconds(replace(rows, window=16384), gpu) == pytest.approx(seconds(whole, gpu), rel=1e-9)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("gpu", [A100, H100], ids=lambda gpu: gpu.name)
def test_unfused_attention_moves_its_scores_through_memory(gpu: Gpu, backward: bool) -> None:  # noqa: FBT001
    rows = replace(LONG, backward=backward)
    scores = rows.heads * rows.queries * rows.keys
    plain, dropped = unfused(rows, gpu), unfused(rows, gpu, dropout=True)
    assert plain > scores * (3 if backward else 2) * 2 / gpu.hbm_bandwidth
    assert dropped - plain > scores * 5 / gpu.hbm_bandwidth
    assert plain > 2 * seconds(rows, gpu)


@pytest.mark.parametrize("heads", [1, 2, 3, 6])
def test_heads_that_fill_no_block_have_their_softmax_in_steps(heads: int) -> None:
    rows = Rows(1, 1024, 1024, heads, heads, 64, causal=True, backward=False)
    together = replace(rows, batch=4)
    scores = heads * 1024 * 1024
    steps = unfused(rows, A100) - unfused(together, A100) / 4
    assert steps > scores * 3 * 8 / A100.hbm_bandwidth
    assert unfused(together, A100) > 2 * scores * 2 / A100.hbm_bandwidth
