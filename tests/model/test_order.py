"""Newer and larger GPUs are no slower, in any precision, and what was never measured is no faster than its peers."""

from dataclasses import replace
from itertools import pairwise

import pytest

from lumos_df.estimate import estimate
from lumos_df.model.hardware import Hardware
from lumos_df.model.transformer import Model
from lumos_df.schema.dtypes import PRECISIONS

ORDER = ("a100-sxm-80", "h100-sxm", "h200-sxm", "b200", "gb200", "gb300")
AMD = {"mi300x": "h100-sxm", "mi325x": "h200-sxm", "mi350x": "b200", "mi355x": "b200"}
PLAN = "tp=2,dp=4,batch=64,micro_batch=1,sp,zero=1"


def rate(gpu: str, precision: str, model: str = "llama-3-8b") -> float:
    """Return tokens a second of a GPU."""
    answers = estimate(model, gpu, f"{PLAN},precision={precision}").answers
    return float(answers["tokens_per_s_per_gpu"])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_newer_gpus_are_no_slower(precision: str) -> None:
    have = [gpu for gpu in ORDER if getattr(Hardware.read(gpu).peak_flops, precision)]
    rates = [rate(gpu, precision) for gpu in have]
    assert all(older <= 1.0001 * newer for older, newer in pairwise(rates)), dict(zip(have, rates, strict=True))


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
@pytest.mark.parametrize(("gpu", "peer"), AMD.items())
def test_unmeasured_gpus_do_no_better_beside_their_peak(gpu: str, peer: str, precision: str) -> None:
    own, other = Hardware.read(gpu), Hardware.read(peer)
    peak = getattr(own.peak_flops, precision) / getattr(other.peak_flops, precision)
    assert rate(gpu, precision) <= max(peak, own.hbm_bandwidth / other.hbm_bandwidth) * rate(peer, precision)


@pytest.mark.parametrize(("seq", "cp"), [(8192, 1), (131072, 8), (1048576, 64)])
def test_no_gpu_does_more_than_its_peak(seq: int, cp: int) -> None:
    model = replace(Model.read("llama-3-8b"), seq=seq)
    answers = estimate(model, "h100-sxm", f"cp={cp},dp=1,tp=8,batch=1,sp").answers
    assert 0.0 < answers["mfu_pct"] <= answers["hfu_pct"] < 90.0
