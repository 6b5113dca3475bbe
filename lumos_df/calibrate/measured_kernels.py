"""Kernels that were measured on a machine, what the model says of them, and the hardware file that follows.

What a machine's data sheet says stays; a factor a kind of work brings the model's median to what was measured. A
machine that is in no data sheet gets the peaks that its best kernels reached.
"""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import HardwareError
from lumos_df.model import fitted
from lumos_df.model.fitted import place_of_factor
from lumos_df.model.hardware import Hardware, PeakFlops, ScaleUp
from lumos_df.model.kernels import expert_operators, network
from lumos_df.model.kernels import layer_operators as op
from lumos_df.model.kernels.attention import attention_seconds
from lumos_df.model.kernels.elementwise import elementwise_seconds
from lumos_df.model.kernels.gemm import gemm_seconds
from lumos_df.model.plan import Plan
from lumos_df.model.software import Software
from lumos_df.model.toml import dump
from lumos_df.model.transformer import Model
from lumos_df.schema.collective_kinds import COLLECTIVES, FITTED_COLLECTIVES
from lumos_df.schema.dtypes import BF16, OPERAND_BYTES, PRECISIONS

KINDS: Final = ("gemm", "attention", "memory", "collectives")
"""What can be measured."""

_PARAMETERS: Final = {
    "gemm": fitted.GemmParameters,
    "attention": fitted.AttentionParameters,
    "memory": fitted.MemoryParameters,
}
"""Kinds with a factor on the time of their kernels."""

_LARGEST_TABLE: Final = 64
_BISECTIONS: Final = 60


@dataclass(frozen=True)
class Shape:
    """One kernel to measure."""

    kind: str
    """One of `KINDS`."""
    what: str
    """Of collectives one of `collective_kinds.FITTED_COLLECTIVES`, of attention forward or backward, else empty."""
    size: tuple[int, ...]
    """gemm: m, n, k; attention: batch, length, heads, head size; memory: bytes; collectives: bytes, ranks."""


@dataclass(frozen=True)
class Measurement:
    """A kernel and how long it took."""

    shape: Shape
    """The kernel."""
    seconds: float
    """Median."""


def default_shapes(kinds: Iterable[str], *, small: bool = False) -> list[Shape]:
    """Return shapes of a usual range; `small` for a CPU."""
    sides = (64, 256, 1024) if small else (64, 512, 1024, 2048, 4096, 8192)
    sizes = tuple(1 << power for power in (range(14, 27, 3) if small else range(14, 31, 2)))
    lengths = (128, 512) if small else (512, 2048, 8192)
    every = {
        "gemm": [Shape("gemm", "", (m, n, n)) for m in sides for n in sides[1:]],
        "attention": [
            Shape("attention", way, (1, length, 8, 64)) for length in lengths for way in ("forward", "backward")
        ],
        "memory": [Shape("memory", "", (size,)) for size in sizes],
        "collectives": [Shape("collectives", kind, (size, 0)) for kind in FITTED_COLLECTIVES for size in sizes],
    }
    return [shape for kind in kinds for shape in every[kind]]


def shapes_of(model: Model, plan: Plan, kinds: Iterable[str]) -> list[Shape]:
    """Return the kernels of a layer and of the head that a rank of `plan` runs for `model`, forward and backward."""
    software = Software.read(plan.software)
    row, plan_row, software_row = model.row(), plan.row(), software.row()
    table = np.zeros((_LARGEST_TABLE, op.COLUMNS))
    used = op.attention_block(row, plan_row, software_row, table, 0)
    block = expert_operators.expert_block if model.experts else op.dense_block
    used = op.head_block(row, plan_row, software_row, table, block(row, plan_row, software_row, table, used))
    shapes: dict[Shape, None] = {}
    for code, m, n, k, batch, moved in zip(
        table[:used, op.FAMILY].astype(int).tolist(),
        *(table[:used, column].astype(int).tolist() for column in (op.M, op.N, op.K, op.BATCH, op.BYTES)),
        strict=True,
    ):
        family = op.FAMILIES[code]
        if family == "gemm":
            shapes |= dict.fromkeys(Shape("gemm", "", size) for size in ((m, n, k), (m, k, n), (k, n, m)))
        elif family == "attention":
            heads = max(batch // plan.micro_batch, 1)
            size = (plan.micro_batch, m, heads, k)
            shapes |= dict.fromkeys(Shape("attention", way, size) for way in ("forward", "backward"))
        elif family == "elementwise":
            shapes[Shape("memory", "", (moved,))] = None
        elif family in FITTED_COLLECTIVES:
            shapes[Shape("collectives", family, (moved, 0))] = None
    wanted = set(kinds)
    return [shape for shape in shapes if shape.kind in wanted]


def modelled_seconds(shape: Shape, hardware: np.void, precision: str) -> float:
    """Return what the model says of a kernel on `HARDWARE_ROW` `hardware`, in one of `PRECISIONS`."""
    place = PRECISIONS.index(precision)
    peak, bandwidth, sms = hardware["peak_flops"][place], hardware["hbm_bandwidth"], float(hardware["sms"])
    width = OPERAND_BYTES[place]
    if shape.kind == "gemm":
        m, n, k = shape.size
        return float(gemm_seconds(m, n, k, 1.0, width, peak, bandwidth, sms, hardware["gemm"][place]))
    if shape.kind == "attention":
        batch, length, heads, size = shape.size
        backward = shape.what == "backward"
        parameters = hardware["attention"][place]
        return float(
            attention_seconds(
                *(batch, length, length, heads, heads, size, True, backward),
                *(width, peak, bandwidth, sms, parameters),
            )
        )
    if shape.kind == "memory":
        return float(elementwise_seconds(shape.size[0], bandwidth, hardware["memory"]))
    moved, ranks = shape.size
    kind = COLLECTIVES.index(shape.what)
    up = hardware["scale_up_bandwidth"]
    table, out = hardware["scale_up"], hardware["scale_out"]
    return float(network.collective_seconds(kind, moved, ranks, ranks, up, up, table, out))


def fit(base: Hardware, measured: Sequence[Measurement], precision: str, *, name: str, known: bool) -> Hardware:
    """Return `base` with factors that bring the median of each kind of kernel to what was measured.

    Args:
        base: the machine's own figures where it is `known`, else another's, whose peaks are replaced.
        measured: kernels of `KINDS`.
        precision: one of `PRECISIONS`, of what was measured.
        name: what to call the result.
        known: whether the peaks of `base` are this machine's.
    """
    hardware = base if known else _with_reached_peaks(base, measured, precision)
    tables: dict[str, Any] = deepcopy(dict(hardware.fitted))
    row = hardware.row()
    for kind, parameters in _PARAMETERS.items():
        ratios = _ratios(measured, kind, row, precision)
        if not len(ratios):
            continue
        fitted_row = row[kind] if kind == "memory" else row[kind][PRECISIONS.index(precision)]
        place = place_of_factor(parameters)
        bounds = fields(parameters)[place].metadata
        factor = float(np.clip(fitted_row[place] * np.median(ratios), bounds["low"], bounds["high"]))
        table = tables.setdefault(kind, {})
        # Products and attention are fitted for bf16, and other formats take its figures.
        (table if kind == "memory" else table.setdefault("bf16", {}))["training_factor"] = round(factor, 4)
    hardware = replace(hardware, fitted=tables)
    if any(measurement.shape.kind == "collectives" for measurement in measured):
        hardware = _with_bandwidth(hardware, measured, precision)
    return replace(hardware, name=name, source=f"measured on this machine; what was not: {base.name}, {base.source}")


def _ratios(measured: Sequence[Measurement], kind: str, row: np.void, precision: str) -> NDArray[np.float64]:
    """Return measured over modelled seconds of the kernels of a kind."""
    alike = (measurement for measurement in measured if measurement.shape.kind == kind)
    return np.array(
        [measurement.seconds / modelled_seconds(measurement.shape, row, precision) for measurement in alike]
    )


def _with_reached_peaks(base: Hardware, measured: Sequence[Measurement], precision: str) -> Hardware:
    """Return `base` with the rates that the best kernels reached, over the share of a peak that its model reaches."""
    row = base.row()
    flops = [
        2.0 * np.prod(measurement.shape.size) / measurement.seconds
        for measurement in measured
        if measurement.shape.kind == "gemm"
    ]
    moved = [
        measurement.shape.size[0] / measurement.seconds
        for measurement in measured
        if measurement.shape.kind == "memory"
    ]
    if not flops or not moved:
        raise HardwareError("a machine that is in no data sheet needs --measure gemm,memory for its peaks")
    peak = float(max(flops) / row["gemm"][BF16][1])
    peaks = PeakFlops(**{name: peak if name in {"fp32", precision} else 0.0 for name in PRECISIONS})
    return replace(base, peak_flops=peaks, hbm_bandwidth=float(max(moved) / row["memory"][1]))


def _with_bandwidth(hardware: Hardware, measured: Sequence[Measurement], precision: str) -> Hardware:
    """Return `hardware` with the bandwidth of fast links that brings the median of collectives to what was measured."""
    low, high = 1e6, 1e13
    ranks = max(measurement.shape.size[1] for measurement in measured if measurement.shape.kind == "collectives")
    for _ in range(_BISECTIONS):
        middle = float(np.sqrt(low * high))
        tried = replace(hardware, scale_up=ScaleUp(max(hardware.scale_up.gpus, ranks), middle))
        ratio = np.median(_ratios(measured, "collectives", tried.row(), precision))
        low, high = (low, middle) if ratio > 1.0 else (middle, high)
    return replace(hardware, scale_up=ScaleUp(max(hardware.scale_up.gpus, ranks), float(f"{low:.4g}")))


def to_toml(hardware: Hardware) -> str:
    """Return a hardware as the text of a file that `Hardware.read` reads."""
    figures = {key: value for key, value in asdict(hardware).items() if key != "fitted"} | {"borrowed": False}
    return dump({**figures, **hardware.fitted}, digits=6)
