"""The GPU that a trace was recorded on, and the one it shall run on."""

import re
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from lumos_df.base.errors import HardwareError
from lumos_df.model.hardware import Hardware
from lumos_df.model.library import names
from lumos_df.schema.dtypes import BF16, FP16, FP32, PRECISION_TABLE, PRECISIONS, Precision

TENSOR_FLOAT: Final = re.compile(r"(?i)tf32|tfloat32|s1688gemm_\d|nvjet_(?:sm\d+_)?s(?!m\d)|Cijk_\w{4}_\w{4}_S_MX_")
"""What names of kernels hold that multiply float32 in tensor cores: nvjet's are for these alone."""
_STAND_IN: Final = "a100-sxm-80"
"""Whose ratios hold for a GPU that the library does not have."""
_SAME_CHIP_ERROR: Final = 0.31
"""Threshold, relative error. So far off are the rates of a GPU that is known by its chip alone, against another build
of that chip. Evidence: 8 of 10 ratios of memory rates and peaks between the library's builds of one chip are nearer."""
_OTHER_GPU_ERROR: Final = 3.5
"""Threshold, relative error. The same of a GPU of which nothing is known. Evidence: 8 of 10 ratios of the library's
memory rates and peaks to those of `_STAND_IN` are nearer."""


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


@dataclass(frozen=True, slots=True)
class RecordedGpu:
    """The GPU of a trace, or the one that stands in for it."""

    hardware: Hardware
    error: float = 0.0
    """By how much its rates may differ from those of the one that ran, relative; 0: it is the one."""
    warning: str | None = None
    """What to say where another stands in."""

    @property
    def known(self) -> bool:
        """Whether it is the one that ran."""
        return self.error == 0

    @property
    def guessed(self) -> bool:
        """Whether nothing is known of the one that ran, not even its chip."""
        return self.error == _OTHER_GPU_ERROR


def recorded_on(device: str | None) -> RecordedGpu:
    """Return the GPU of a trace by its device's name.

    One that is known by its chip alone may have other peaks, memory and power: only ratios are like.
    """
    if device:
        try:
            return RecordedGpu(Hardware.read(device))
        except HardwareError:
            pass
        words = device.casefold().replace("-", " ").split()
        like = [name for name in names("hardware") if _chip(name) <= {*words}]
        if like:
            # Where the name does not say how it is built in, it is not on a card.
            best = next((name for name in like if ("pcie" in name) == ("pcie" in words)), like[0])
            warning = f"{device}: its ratios are taken from {best}"
            return RecordedGpu(Hardware.read(best), _SAME_CHIP_ERROR, warning)
    why = f"{device} is not among the known GPUs" if device else "the trace names no GPU"
    warning = f"{why}: what depends on it is taken from {_STAND_IN}; tell it with --known hardware=NAME|FILE"
    return RecordedGpu(Hardware.read(_STAND_IN), _OTHER_GPU_ERROR, warning)


def _chip(name: str) -> set[str]:
    """Return the words of a library's name that tell the chip: those up to the first with a digit."""
    words = name.split("-")
    last = next((place for place, word in enumerate(words) if any(map(str.isdigit, word))), len(words))
    return {*words[: last + 1]}
