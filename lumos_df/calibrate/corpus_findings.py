"""What the kernels of a corpus say of the figures that an estimate takes for them.

For each kind of work, the factor is measured time over modelled time, both summed over every shape of the corpus by how
often it ran. The host's time for an operator is what passes from one launch to the next, the profiler's own time
included.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lumos_df.model import fitted
from lumos_df.model.hardware import Hardware
from lumos_df.model.kernels import kernel_columns
from lumos_df.model.software import Software
from lumos_df.schema.collective_kinds import COLLECTIVES, FITTED_COLLECTIVES
from lumos_df.schema.dtypes import BF16, ELEMENT_TYPES, OPERAND_BYTES, PRECISIONS, precision_of

_FITTED_AS: Final = {
    kind.name: precision.fitted_as or precision.name for kind in ELEMENT_TYPES if (precision := precision_of(kind.name))
}
"""Fitted tables by element type."""
_MEMORY_BOUND: Final = ("elementwise", "normalization", "softmax", "copy", "fused", "loss", "reduction")
HOST_FIGURES: Final = {"launch_s": "forward", "backward_launch_s": "backward"}
"""Figures of a software that launches tell, and the phase of those launches."""
_LEAST_NS: Final = 10_000
"""Threshold, ns. Shorter kernels say nothing of a factor. Evidence: theirs would say more about their floor than about
their rate."""

Columns = dict[str, NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Finding:
    """What a corpus says of one figure."""

    figure: str
    """gemm.bf16, attention.bf16, memory, all_reduce, ..., scale_out, or a figure of the software."""
    kernels: int
    """Kernels that say so."""
    shapes: int
    """Distinct shapes of them; 0: a recorded step, all of it together."""
    before: float
    """The figure as the catalogue has it: a factor on time, or seconds of the host."""
    after: float
    """The figure as measured."""
    error_before_pct: float | None
    """Mean size of modelled over measured time minus one, each shape by its time; None for the host."""
    error_after_pct: float | None
    """The same with the figure as measured."""


def kernel_findings(hardware: Hardware, shapes: pl.DataFrame) -> Iterator[Finding]:
    """Yield what products, attention and memory-bound kernels say; `shapes`: `_kernel_efficiency` of all jobs."""
    gpu = hardware.row()
    known = fitted.load(hardware.fitted_from, hardware.fitted)
    peaks = dict(zip(PRECISIONS, gpu["peak_flops"].tolist(), strict=True))
    peaks["bf16"] = peaks["bf16"] or peaks["fp16"]
    bandwidth, sms = gpu["hbm_bandwidth"].item(), gpu["sms"].item()
    sized = shapes.filter(pl.col("p50_ns") >= _LEAST_NS).with_columns(
        precision=pl.col("dtype").replace_strict(_FITTED_AS, default=None)
    )
    for place, (precision, size) in enumerate(zip(PRECISIONS, OPERAND_BYTES, strict=True)):
        products = sized.filter(family="gemm", precision=precision).drop_nulls("m")
        if len(products) and peaks[precision]:
            sizes, params = _columns(products), gpu["gemm"][place]
            seconds = kernel_columns.products(
                sizes["m"], sizes["n"], sizes["k"], sizes["batch"], size, peaks[precision], bandwidth, sms, params
            )
            before = known.gemm.get(precision, known.gemm["bf16"]).training_factor
            yield _finding(f"gemm.{precision}", products, "p50_ns", before, seconds)
    attention = sized.filter(pl.col("family") == "attention", pl.col("precision") == "bf16").drop_nulls("m")
    if len(attention):
        sizes, params = _columns(attention), gpu["attention"][BF16]
        backward = attention["operator"].str.to_lowercase().str.contains("backward").fill_null(value=False).to_numpy()
        seconds = kernel_columns.attention(
            sizes["m"],
            sizes["n"],
            sizes["k"],
            sizes["batch"],
            backward,
            OPERAND_BYTES[BF16],
            peaks["bf16"],
            bandwidth,
            sms,
            params,
        )
        yield _finding("attention.bf16", attention, "p50_ns", known.attention["bf16"].training_factor, seconds)
    passes = sized.filter(pl.col("family").is_in(_MEMORY_BOUND)).drop_nulls("bytes")
    if len(passes):
        seconds = kernel_columns.passes(_columns(passes)["bytes"], bandwidth, gpu["memory"])
        yield _finding("memory", passes, "p50_ns", known.memory.training_factor, seconds)


def collective_findings(hardware: Hardware, shapes: pl.DataFrame) -> Iterator[Finding]:
    """Yield what collectives say: the shortest of each size, since any longer one may have waited for a rank."""
    gpu = hardware.row()
    node = hardware.scale_up.gpus
    links = (gpu["scale_up_bandwidth"].item(), gpu["scale_out_bandwidth"].item(), gpu["scale_up"], gpu["scale_out"])
    sized = shapes.filter(
        pl.col("family") == "communication", pl.col("ranks") > 1, pl.col("bytes") > 0, pl.col("min_ns") > 0
    )
    inside, across = sized.filter(pl.col("ranks") <= node), sized.filter(pl.col("ranks") > node)
    for name in FITTED_COLLECTIVES:
        for figure, reached in ((name, inside), ("scale_out", across)):
            alike = reached.filter(operator=name)
            # The network between nodes is told by all-reduces, which every data-parallel job has.
            if len(alike) and name in (figure, "all_reduce"):
                sizes = _columns(alike)
                seconds = kernel_columns.collectives(
                    COLLECTIVES.index(name), sizes["bytes"], sizes["ranks"], node, *links
                )
                yield _finding(figure, alike, "min_ns", 1.0, seconds)


def launch_findings(host: pl.DataFrame, software: Software) -> Iterator[Finding]:
    """Yield the host's time for an operator: the mean over launches; `host`: rows of the view `host_cost`."""
    for figure, phase in HOST_FIGURES.items():
        launches = host.filter(pl.col("phase") == phase, pl.col("mean_ns") > 0)
        if len(launches):
            count = int(launches["launches"].sum())
            mean_s = float((launches["launches"] * launches["mean_ns"]).sum()) / count * 1e-9
            yield Finding(figure, count, len(launches), getattr(software, figure), mean_s, None, None)


def _columns(shapes: pl.DataFrame) -> Columns:
    """Return the sizes of shapes as kernels take them."""
    names = ("m", "n", "k", "batch", "ranks", "bytes")
    return {name: shapes[name].cast(pl.Float64).fill_null(1.0).to_numpy() for name in names}


def _finding(figure: str, shapes: pl.DataFrame, time: str, before: float, modelled_s: NDArray[np.float64]) -> Finding:
    """Return what some shapes say: the factor by which all of them together differ from `modelled_s` [shapes]."""
    seconds, calls = shapes[time].to_numpy() * 1e-9, shapes["calls"].to_numpy()
    factor = float((seconds * calls).sum() / (modelled_s * calls).sum())
    errors = [
        100.0 * float(np.average(np.abs(modelled_s * by / seconds - 1.0), weights=seconds * calls))
        for by in (1.0, factor)
    ]
    return Finding(figure, int(calls.sum()), len(shapes), before, before * factor, *errors)
