"""The GPU that a trace was recorded on, and the one it shall run on."""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from lumos_df.base.errors import HardwareError
from lumos_df.model.hardware import Hardware
from lumos_df.model.library import names
from lumos_df.schema.dtypes import BF16, FP16, FP32, PRECISION_TABLE, PRECISIONS, Precision

_STAND_IN: Final = "a100-sxm-80"
"""Whose ratios hold for a GPU that the library does not have."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A GPU, and the precision of what it multiplies."""

    hardware: Hardware
    row: np.void
    """Its `HARDWARE_ROW`."""
    precision: int
    """Place in `schema.dtypes.PRECISIONS`."""
    element_bytes: float

    @classmethod
    def of(cls, hardware: Hardware, precision: Precision, *, tensor_float: bool = False) -> Self:
        """Return a machine. Raise `HardwareError` where the GPU has no such precision.

        Args:
            hardware: the GPU.
            precision: that of its products.
            tensor_float: whether those of float32 run in tensor cores (TF32): at half the rate of 16 bits.
        """
        place = PRECISIONS.index(precision.name)
        row = hardware.row()
        if tensor_float:
            row["peak_flops"][FP32] = max(row["peak_flops"][FP32], row["peak_flops"][BF16] / 2)
        peaks = row["peak_flops"]
        if not peaks[place]:
            offered = [other.dtype for other, peak in zip(PRECISION_TABLE, peaks, strict=True) if peak]
            raise HardwareError(f"{hardware.name} multiplies no {precision.dtype}; it has {', '.join(offered)}")
        return cls(hardware, row, place, precision.bytes)

    @property
    def memory_rate(self) -> float:
        """Bytes/s that a kernel bound by memory reaches."""
        return float(self.row["hbm_bandwidth"] * self.row["memory"][1])

    @property
    def sms(self) -> int:
        """Multiprocessors."""
        return int(self.row["sms"])


def usual_precision(hardware: Hardware) -> Precision:
    """Return the precision of 16 bits that a GPU multiplies, for jobs that do not tell theirs: TPUs have one alone."""
    return PRECISION_TABLE[FP16 if hardware.row()["peak_flops"][FP16] else BF16]


def recorded_on(device: str | None) -> tuple[Hardware, str | None, bool]:
    """Return the GPU of a trace by its device's name, a warning where another stands in for it, and whether none does.

    One that is known by its chip alone may have other peaks, memory and power: only ratios are like.
    """
    if device:
        try:
            return Hardware.read(device), None, True
        except HardwareError:
            pass
        words = device.casefold().replace("-", " ").split()
        like = [name for name in names("hardware") if name.split("-")[0] in words]
        if like:
            # Where the name does not say how it is built in, it is not on a card.
            best = next((name for name in like if ("pcie" in name) == ("pcie" in words)), like[0])
            return Hardware.read(best), f"{device}: its ratios are taken from {best}", False
    why = device or "the trace names no GPU"
    return Hardware.read(_STAND_IN), f"{why}: not among the known GPUs; ratios are taken from {_STAND_IN}", False
