"""`lumos-df calibrate --measure`: kernels of this machine, measured; a hardware file of what they say."""

import os
import secrets
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lumos_df.capture import no_torch
from lumos_df.errors import CaptureError, HardwareError, nearest
from lumos_df.model import measured
from lumos_df.model.hardware import Hardware
from lumos_df.model.plan import Plan
from lumos_df.model.transformer import Model


def parse_kinds(text: str) -> list[str]:
    """Return the kinds that a text such as `gemm,memory` names. Raises `CaptureError` for another."""
    kinds = [word.strip() for word in text.split(",") if word.strip()]
    for kind in kinds:
        if kind not in measured.KINDS:
            choices = list(measured.KINDS)
            raise CaptureError(f"cannot measure '{kind}'{nearest(kind, choices)}; known are {', '.join(choices)}")
    return kinds


def calibrate(
    kinds: Sequence[str], model: str | None, plan: str | None, hardware: str | None, output: Path
) -> list[dict[str, Any]]:
    """Measure kernels, write the hardware file, return each kernel measured and as the file's model has it.

    Args:
        kinds: of `measured.KINDS`.
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
        shapes = measured.shapes_of(Model.read(model), Plan.parse(plan or ""), kinds)
    else:
        shapes = measured.default_shapes(kinds, small=name == "cpu")
    found = microbenchmarks.measure(shapes, precision)
    fitted = measured.fit(base, found, precision, name=output.stem, known=known)
    text = f"# lumos-df calibrate --measure {','.join(kinds)} on {name}\n{measured.to_toml(fitted)}"
    draft = output.with_name(f".{output.name}.{secrets.token_hex(4)}")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(text, "utf-8")
        draft.replace(output)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise CaptureError(f"{output}: cannot be written ({error.strerror or error}); check the folder") from None
    row = Hardware.read(os.fspath(output)).row()
    return [_line(each, measured.modelled_seconds(each.shape, row, precision), precision) for each in found]


def compare(corpus: Path, most: int) -> list[dict[str, Any]]:
    """Return the `most` operators that a corpus spends most time in, each replayed here beside recorded.

    Raises `CaptureError` without torch, and for a corpus without operators that have shapes.
    """
    try:
        from lumos_df.capture.operators import replay_operators  # noqa: PLC0415 - torch
    except ModuleNotFoundError as error:
        raise no_torch(error) from None
    found = [asdict(each) for each in replay_operators(corpus, most)]
    if not found:
        raise CaptureError(f"{corpus}: no ATen operators with shapes inside steps; record with record_shapes=True")
    return found


def _base(name: str, hardware: str | None) -> tuple[Hardware, bool]:
    try:
        own = Hardware.read(name)
    except HardwareError:
        if hardware is None:
            raise HardwareError(
                f"this machine's '{name}' is in no data sheet here; give --hardware NAME, whose power, memory size and "
                "network stand in for what is not measured"
            ) from None
        return Hardware.read(hardware), False
    return (Hardware.read(hardware), False) if hardware is not None and Hardware.read(hardware) != own else (own, True)


def _line(each: measured.Measurement, modelled_s: float, precision: str) -> dict[str, Any]:
    return {
        "kind": each.shape.kind,
        "what": each.shape.what or None,
        "size": "x".join(map(str, each.shape.size)),
        "precision": precision,
        "measured_ns": round(each.seconds * 1e9),
        "modelled_ns": round(modelled_s * 1e9),
        "error_pct": round(100 * (modelled_s / each.seconds - 1), 2),
    }
