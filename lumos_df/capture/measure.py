"""`lumos-df calibrate --measure`: kernels of this machine, measured; a hardware file of what they say."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lumos_df.base.errors import CaptureError, HardwareError, nearest
from lumos_df.base.files import publish_file
from lumos_df.calibrate import measured_kernels
from lumos_df.capture import no_torch
from lumos_df.model.hardware import Hardware
from lumos_df.model.plan import Plan
from lumos_df.model.transformer import Model


def parse_kinds(text: str) -> list[str]:
    """Return the kinds that a text such as `gemm,memory` names. Raises `CaptureError` for another."""
    kinds = [word.strip() for word in text.split(",") if word.strip()]
    for kind in kinds:
        if kind not in measured_kernels.KINDS:
            choices = list(measured_kernels.KINDS)
            raise CaptureError(f"cannot measure '{kind}'{nearest(kind, choices)}; known are {', '.join(choices)}")
    return kinds


def calibrate(
    kinds: Sequence[str], model: str | None, plan: str | None, hardware: str | None, output: Path
) -> list[dict[str, Any]]:
    """Measure kernels, write the hardware file, return each kernel measured and as the file's model has it.

    Args:
        kinds: of `measured_kernels.KINDS`.
        model, plan: whose kernels are measured; a usual range without them.
        hardware: whose figures stand for what is not measured (power, memory size, network); by default the GPU's own.
        output: the file.

    Raises `CaptureError` without torch, `HardwareError` for a machine that is not known and no `hardware`, and what is
    wrong with model and plan.
    """
    try:
        from lumos_df.capture import microbenchmarks  # noqa: PLC0415 - torch
    except ModuleNotFoundError as error:
        raise no_torch(error) from None
    name = microbenchmarks.device_name()
    base, known = _base(name, hardware)
    precision = "fp32" if name == "cpu" else "bf16"
    if model is not None:
        shapes = measured_kernels.shapes_of(Model.read(model), Plan.parse(plan or ""), kinds)
    else:
        shapes = measured_kernels.default_shapes(kinds, small=name == "cpu")
    measurements = microbenchmarks.measure(shapes, precision)
    fitted = measured_kernels.fit(base, measurements, precision, name=output.stem, known=known)
    text = f"# lumos-df calibrate --measure {','.join(kinds)} on {name}\n{measured_kernels.to_toml(fitted)}"
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        publish_file(output, text.encode())
    except OSError as error:
        raise CaptureError(f"{output}: cannot be written ({error.strerror or error}); check the folder") from None
    row = Hardware.read(os.fspath(output)).row()
    return [
        _line(measured, measured_kernels.modelled_seconds(measured.shape, row, precision), precision)
        for measured in measurements
    ]


def compare(corpus: Path, most: int) -> list[dict[str, Any]]:
    """Return the `most` operators that a corpus spends most time in, each as recorded and as run again here.

    Raises `CaptureError` without torch, and for a corpus without operators that have shapes.
    """
    try:
        from lumos_df.capture.rerun import rerun_operators  # noqa: PLC0415 - torch
    except ModuleNotFoundError as error:
        raise no_torch(error) from None
    rows = [asdict(operator) for operator in rerun_operators(corpus, most)]
    if not rows:
        raise CaptureError(f"{corpus}: no ATen operators with shapes inside steps; record with record_shapes=True")
    return rows


def _base(name: str, hardware: str | None) -> tuple[Hardware, bool]:
    try:
        this_machine = Hardware.read(name)
    except HardwareError:
        if hardware is None:
            raise HardwareError(
                f"this machine's '{name}' is in no data sheet here; give --hardware NAME, whose power, memory size and "
                "network stand in for what is not measured"
            ) from None
        return Hardware.read(hardware), False
    named = Hardware.read(hardware) if hardware is not None else this_machine
    return named, named == this_machine


def _line(measured: measured_kernels.Measurement, modelled_s: float, precision: str) -> dict[str, Any]:
    return {
        "kind": measured.shape.kind,
        "what": measured.shape.what or None,
        "size": "x".join(map(str, measured.shape.size)),
        "precision": precision,
        "measured_ns": round(measured.seconds * 1e9),
        "modelled_ns": round(modelled_s * 1e9),
        "error_pct": round(100 * (modelled_s / measured.seconds - 1), 2),
    }
