"""A machine is found again from what its own model says of kernels."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from lumos_df.base.errors import HardwareError
from lumos_df.calibrate.corrections import CORRECTIONS
from lumos_df.calibrate.measured_kernels import (
    KINDS,
    Measurement,
    Shape,
    default_shapes,
    fit,
    modelled_seconds,
    shapes_of,
    to_toml,
)
from lumos_df.calibrate.runs_machine import hardware_figures
from lumos_df.model.hardware import Hardware
from lumos_df.model.plan import Plan
from lumos_df.model.transformer import Model

H100 = Hardware.read("h100")


def measured(hardware: Hardware, factors: dict[str, float]) -> list[Measurement]:
    """What a machine would measure whose kernels take `factors` times what the model of `hardware` says."""
    shapes = [
        replace(shape, size=(shape.size[0], 8)) if shape.kind == "collectives" else shape
        for shape in default_shapes(KINDS)
    ]
    row = hardware.row()
    return [Measurement(shape, factors[shape.kind] * modelled_seconds(shape, row, "bf16")) for shape in shapes]


def test_a_machine_that_was_measured_borrows_no_kernels(tmp_path: Path) -> None:
    unmeasured = Hardware.read("tpu-v5p")
    assert unmeasured.borrowed
    (tmp_path / "mine.toml").write_text(to_toml(unmeasured))
    assert not Hardware.read(tmp_path / "mine.toml").borrowed
    factors = {correction.name: 1.0 for correction in CORRECTIONS}
    assert hardware_figures(unmeasured, factors, "mine", "calibrated")["borrowed"] is False


def test_factors_of_a_known_machine_are_found(tmp_path: Path) -> None:
    factors = {"gemm": 1.3, "attention": 0.9, "memory": 1.2, "collectives": 1.0}
    found = fit(H100, measured(H100, factors), "bf16", name="mine", known=True)
    assert found.peak_flops == H100.peak_flops
    of_h100 = H100.fitted["gemm"]["bf16"]["training_factor"]
    assert found.fitted["gemm"]["bf16"]["training_factor"] == pytest.approx(1.3 * of_h100, abs=2e-3)
    assert found.scale_up.bandwidth == pytest.approx(H100.scale_up.bandwidth, rel=0.01)
    (tmp_path / "mine.toml").write_text(to_toml(found))
    again = Hardware.read(tmp_path / "mine.toml")
    row = again.row()
    for each in measured(H100, factors):
        assert modelled_seconds(each.shape, row, "bf16") == pytest.approx(each.seconds, rel=0.02)
    assert again.fitted["gemm"]["fp8"] == H100.fitted["gemm"]["fp8"]


def test_an_unknown_machine_gets_the_peaks_that_it_reached() -> None:
    slow = replace(
        H100,
        peak_flops=replace(H100.peak_flops, bf16=H100.peak_flops.bf16 / 10),
        hbm_bandwidth=H100.hbm_bandwidth / 10,
    )
    found = fit(H100, measured(slow, dict.fromkeys(KINDS, 1.0)), "bf16", name="mine", known=False)
    assert found.peak_flops.bf16 == pytest.approx(slow.peak_flops.bf16, rel=0.35)
    assert found.hbm_bandwidth == pytest.approx(slow.hbm_bandwidth, rel=0.2)
    assert (found.name, found.tdp_w) == ("mine", H100.tdp_w)


def test_an_unknown_machine_needs_its_peaks_measured() -> None:
    only = [each for each in measured(H100, dict.fromkeys(KINDS, 1.0)) if each.shape.kind == "gemm"]
    with pytest.raises(HardwareError, match="needs --measure gemm,memory for its peaks"):
        fit(H100, only, "bf16", name="mine", known=False)


def test_shapes_are_those_of_the_model_and_plan() -> None:
    model, plan = Model.read("llama-3-8b"), Plan.parse("tp=8,dp=1,micro_batch=2,batch=2")
    found = shapes_of(model, plan, KINDS)
    tokens = 2 * model.seq
    assert Shape("gemm", "", (tokens, 4096, 4096 // 8)) in found  # the attention's output
    assert Shape("gemm", "", (4096 // 8, 4096, tokens)) in found  # ... and its weight's gradient
    assert Shape("attention", "backward", (2, model.seq, 32 // 8, 128)) in found
    (payload,) = {shape.size[0] for shape in found if shape.kind == "collectives"}
    assert payload == tokens * 4096 * 2
    assert {shape.kind for shape in shapes_of(model, plan, ["memory"])} == {"memory"}


@pytest.mark.parametrize("small", [False, True])
def test_every_default_shape_has_a_time(small: bool) -> None:  # noqa: FBT001
    row = H100.row()
    shapes = default_shapes(("gemm", "attention", "memory"), small=small)
    assert {shape.kind for shape in shapes} == {"gemm", "attention", "memory"}
    assert all(math.isfinite(modelled_seconds(shape, row, "bf16")) for shape in shapes)
