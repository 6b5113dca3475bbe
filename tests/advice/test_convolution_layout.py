"""Convolutions that transpose their tensors; the gain is that of the job without these kernels."""

from pathlib import Path
from typing import Any

import pytest

from lumos_df.advice.job_advice import JobAdvice, advise
from lumos_df.trace.ingest import ingest
from tests.trace.literal import annotation, kernel, launch, op, write, x

_TO, _BACK = "void cudnn::ops::nchwToNhwcKernel<__half>", "void cudnn::ops::nhwcToNchwKernel<__half>"
_STEPS, _LAYERS, _PRODUCT_US, _TURN_US = 3, 10, 100, 20


def recorded(folder: Path, operator: str, to: str = _TO, back: str = _BACK) -> JobAdvice:
    """Return the advice on steps of convolutions with a kernel before and one behind each."""
    events: list[dict[str, Any]] = []
    host, gpu, correlation = 0, 100, 0
    for step in range(_STEPS):
        begin, host = host, host + 5
        for _ in range(_LAYERS):
            events.append(op(operator, host, 30))
            for place, (name, dur) in enumerate(((to, _TURN_US), ("cudnn_conv", _PRODUCT_US), (back, _TURN_US))):
                correlation += 1
                events.append(launch(host + 1 + 9 * place, 5, correlation))
                events.append(kernel(name, gpu, dur, correlation=correlation))
                gpu += dur + 1
            host += 40
        correlation += 1
        events.append(x("cudaDeviceSynchronize", "cuda_runtime", host, gpu + 5 - host, 1, correlation=correlation))
        host, gpu = gpu + 10, gpu + 110
        events.append(annotation(f"ProfilerStep#{step + 1}", begin, host - begin))
    write(folder / "job" / "rank0.json", events)
    assert not ingest([folder / "job"], folder / "corpus", workers=1).failed
    (found,) = advise(folder / "corpus")
    return found


@pytest.mark.parametrize(
    ("operator", "names"),
    [
        ("aten::cudnn_convolution", (_TO, _BACK)),
        ("aten::convolution_backward", (_TO, _BACK)),
        ("aten::miopen_convolution", ("batched_transpose_16x32_half", "batched_transpose_32x32_half")),
    ],
)
def test_layouts_turned_around_are_the_first_advice(tmp_path: Path, operator: str, names: tuple[str, str]) -> None:
    first = recorded(tmp_path, operator, *names).advice[0]
    assert first.remedy.rule == "convolution_layout"
    assert first.remedy.what.startswith(
        "convolutions transpose their tensors from NCHW to NHWC and back, 400 us a step"
    )
    assert first.remedy.rests_on == f"{2 * _LAYERS * _STEPS} kernels on 1 rank"
    assert first.gain_ns == pytest.approx(1000 * 2 * _TURN_US * _LAYERS, rel=0.1)


@pytest.mark.parametrize(
    ("operator", "names"),
    [("aten::transpose", (_TO, _BACK)), ("aten::cudnn_convolution", ("add_bias", "relu"))],
)
def test_other_work_is_left_alone(tmp_path: Path, operator: str, names: tuple[str, str]) -> None:
    said = recorded(tmp_path, operator, *names).advice
    assert "convolution_layout" not in [advice.remedy.rule for advice in said]
