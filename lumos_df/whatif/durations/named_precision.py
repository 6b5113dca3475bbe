"""What a kernel that multiplies runs on, before and after a change: in the precision that its name says, of several."""

import re
from dataclasses import replace
from functools import cache
from typing import Final

from lumos_df.model.hardware import Hardware
from lumos_df.model.kernels.attention import OVERHEAD_KEYS
from lumos_df.schema.dtypes import BF16, FP4, FP8, FP16, FP32, PRECISION_TABLE, PRECISIONS
from lumos_df.whatif.job.recorded_gpu import TENSOR_FLOAT, Machine, usual_precision

_TOLD: Final = (
    (TENSOR_FLOAT, FP32),
    # Their scales are in 8 bits.
    (re.compile(r"(?i)e2m1|nvjet_(?:sm\d+_)?o"), FP4),
    (re.compile(r"(?i)e4m3|e5m2|fp8|nvjet_(?:sm\d+_)?q|Cijk_\w{4}_\w{4}_[FB]8"), FP8),
    (re.compile(r"(?i)bf16|bfloat|nvjet_(?:sm\d+_)?t|Cijk_\w{4}_\w{4}_B"), BF16),
    (re.compile(r"(?i)fp?16|half|h884|h1688|h16816|hgemm|nvjet_(?:sm\d+_)?h|Cijk_\w{4}_\w{4}_H"), FP16),
    (re.compile(r"(?i)sgemm|scudnn|ffma|simt|float|f32|Cijk_\w{4}_\w{4}_S"), FP32),
)
"""What names of kernels that multiply hold of their precision, the first that is found: those of cuBLAS (`nvjet_tst_`,
from Blackwell on `nvjet_sm100_tst_`: the first letter is the type that is read), cuDNN, CUTLASS, and rocBLAS and
hipBLASLt (`Cijk_Ailk_Bljk_HHS_`: likewise)."""


def machines(name: str, old: Machine, new: Machine) -> tuple[Machine, Machine]:
    """Return a kernel's GPU before and after a change, each with the precision that it multiplies there.

    What multiplies in a precision of another width than the job keeps it. A GPU without it has one of 16 bits. The same
    program runs on either: what a tile of attention takes to start, as a number of keys, stays.

    Args:
        name: the kernel's.
        old: the GPU that was measured, and the precision of the job's products.
        new: those of the changed job.
    """
    told = _told(name)
    if told is None:
        return old, _with_tiles_of(new, old)
    was, will = (_machine(each.hardware, told, tensor_float=bool(TENSOR_FLOAT.search(name))) for each in (old, new))
    follows = old.precision != new.precision and PRECISION_TABLE[told].bytes == old.element_bytes
    return was, _with_tiles_of(new if follows else will, was)


def _with_tiles_of(machine: Machine, other: Machine) -> Machine:
    if machine.hardware == other.hardware:
        return machine
    row = machine.row.copy()
    row["attention"][:, OVERHEAD_KEYS] = other.row["attention"][:, OVERHEAD_KEYS]
    return replace(machine, row=row)


@cache
def _told(name: str) -> int | None:
    return next((precision for pattern, precision in _TOLD if pattern.search(name)), None)


def _machine(hardware: Hardware, precision: int, *, tensor_float: bool) -> Machine:
    """Return a GPU that multiplies a precision, a place in PRECISIONS, or what it has of 16 bits in its place."""
    has = precision if hardware.row()["peak_flops"][precision] else PRECISIONS.index(usual_precision(hardware).name)
    return Machine.of(hardware, PRECISION_TABLE[has], tensor_float=tensor_float)
