"""A machine as the kernels of a corpus show it: `lumos-df calibrate --corpus`, and what a sweep is anchored on.

For each kind of work, the factor is measured time over modelled time, both summed over every shape of the corpus by how
often it ran. Matrix products, attention and memory-bound kernels take it as their `training_factor`, collectives on
latencies and rates of their kind, those across nodes on the network's bandwidth. The host's time for an operator is
what passes from one launch to the next, the profiler's own time included. Where the corpus has one job that the
estimator knows, its recorded step sets further figures of the software (`anchored.profile`).

A sweep is anchored by what `Anchor.hardware` and `Anchor.software` make of its GPUs and its software.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lumos_df.catalog import connect
from lumos_df.errors import HardwareError, LumosError, QueryError
from lumos_df.estimate import measured
from lumos_df.estimate.anchored import profile
from lumos_df.estimate.anchored.anchor import load as load_job
from lumos_df.estimate.anchored.estimate import chosen_jobs
from lumos_df.estimate.grid import Grid
from lumos_df.estimate.toml import dump
from lumos_df.model import fitted
from lumos_df.model.hardware import PRECISIONS, Hardware
from lumos_df.model.network import ALL_REDUCE
from lumos_df.model.software import Software

_TYPES: Final = {"float32": "fp32", "float16": "bf16", "bfloat16": "bf16", "float8_e4m3fn": "fp8", "float8_e5m2": "fp8"}
"""Fitted tables by element type: that of bf16 stands for fp16, too."""
_BYTES: Final = {"fp32": 4.0, "bf16": 2.0, "fp8": 1.0}
_MEMORY_BOUND: Final = ("elementwise", "normalization", "softmax", "copy", "fused", "loss", "reduction")
_HOST: Final = {"launch_s": "forward", "backward_launch_s": "backward"}
_FACTORS: Final = {"compute_factor": "gemm", "attention_factor": "attention", "memory_factor": "memory"}
"""Figures of a software by the findings that hold them already."""
_LEAST_NS: Final = 10_000
"""Shorter kernels are left out: a factor of theirs would say more about their floor than about their rate."""

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


@dataclass(frozen=True, slots=True)
class Anchor:
    """What a corpus says of a GPU and of the software on it."""

    gpu: str
    """The GPU that was measured."""
    findings: tuple[Finding, ...]
    """One a figure that it says anything of."""
    unfitted: str = ""
    """Why no recorded step sets figures of the software; empty where one does."""

    def hardware(self, hardware: Hardware) -> Hardware:
        """Return a GPU with the kernels as measured; on the GPU that was measured its network, too."""
        own: dict[str, Any] = {key: dict(value) for key, value in hardware.fitted.items()}
        known = fitted.load(hardware.fitted_from, hardware.fitted)
        measured_here = hardware.name == self.gpu
        scale_out = hardware.scale_out
        for one in self.findings:
            table, _, name = one.figure.partition(".")
            factor = one.after / one.before
            if table == "gemm":
                like = known.gemm.get(name, known.gemm["bf16"])
                own[table] = {**own.get(table, {}), name: _slower(like, factor)}
            elif table == "attention":
                own[table] = {**own.get(table, {}), name: _slower(known.attention[name], factor)}
            elif table == "memory":
                own[table] = _slower(known.memory, factor)
            elif table == "scale_out" and measured_here:
                scale_out = replace(scale_out, bandwidth=scale_out.bandwidth / factor)
            elif table in fitted.COLLECTIVES and measured_here:
                network = own.get("network", {})
                links = {**network.get("scale_up", {}), table: _link(known.scale_up[table], factor)}
                own["network"] = {**network, "scale_up": links}
        return replace(hardware, fitted=own, scale_out=scale_out)

    def software(self, software: Software) -> Software:
        """Return a software with the host's time for an operator, and more where a recorded step tells, as measured."""
        # What its kernels take is in the hardware's figures now.
        own: dict[str, Any] = {
            figure: 1.0
            for figure, table in _FACTORS.items()
            if any(one.figure.startswith(table) for one in self.findings)
        }
        own |= {one.figure: one.after for one in self.findings if one.figure in (*_HOST, *profile.FIGURES)}
        return replace(software, **own)


def anchor(
    corpus: Path,
    hardware: Hardware | None = None,
    software: Software | None = None,
    job: str | None = None,
    stand_in: Hardware | None = None,
) -> Anchor:
    """Return what the kernels of a corpus say, and the step of its job.

    Args:
        corpus: the corpus folder.
        hardware: the GPU; None: that of `data/hardware` on which the corpus spent most time.
        software: whose figures of the host the findings are set against; None: Megatron's.
        job: whose step counts, where the corpus has several.
        stand_in: taken for the corpus's only GPU where `data/hardware` does not have that.

    Raises:
        LumosError: no such corpus, a GPU that is not known or not in it, or no kernel that says anything.
    """
    with connect(corpus) as connection:
        shapes = connection.sql("FROM kernel_efficiency").pl()
        host = connection.sql(
            "SELECT host_cost.*, coalesce(device_name, 'unknown') AS device FROM host_cost JOIN traces USING (trace_id)"
        ).pl()
    if shapes["gpu"].drop_nulls().is_empty() and shapes["device"].n_unique() == 1:
        hardware = hardware or stand_in
    gpu, rows = _of_gpu(corpus, shapes, hardware)
    host = host.filter(pl.col("device").is_in(rows["device"].unique()))
    base = software or Software.read("megatron")
    found = (*_kernels(gpu, rows), *_collectives(gpu, rows), *_launches(host, base))
    if not found:
        raise QueryError(
            f"{corpus}: no kernel has a shape, no collective a size and no launch a successor; "
            "record with torch.profiler's record_shapes=True"
        )
    return _with_step(Anchor(gpu.name, found), corpus, gpu, base, job)


def anchored(grid: Grid, corpus: Path, job: str | None = None) -> tuple[Grid, str]:
    """Return a grid whose GPUs and software are as a corpus shows them, and why no recorded step counts, or nothing.

    Raises as `anchor` does.
    """
    only = grid.hardware[0] if len(grid.hardware) == 1 else None
    found = anchor(corpus, job=job, stand_in=only)
    hardware, software = map(found.hardware, grid.hardware), map(found.software, grid.software)
    return replace(grid, hardware=tuple(hardware), software=tuple(software)), found.unfitted


def calibrate(
    corpus: Path, output: Path, hardware: str | None = None, software: str = "megatron"
) -> tuple[Anchor, Path]:
    """Write a hardware file as a corpus shows it to `output`, and beside it its software's file.

    Args:
        corpus: the corpus folder.
        output: the hardware file to write.
        hardware: the GPU, by name or file; None: as the traces say.
        software: the software, by name or file.

    Returns:
        What was found, and the software's file. Raises `LumosError` as `anchor` does.
    """
    profile = Software.read(software)
    found = anchor(corpus, None if hardware is None else Hardware.read(hardware), profile)
    base = Hardware.read(hardware or found.gpu)
    machine = replace(
        found.hardware(base), name=output.stem, source=f"{base.name}, calibrated on a corpus; {base.source}"
    )
    beside = output.with_name(f"{output.stem}-{profile.name}.toml")
    figures = {key: value for key, value in asdict(machine).items() if key != "fitted"}
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(dump({**figures, **machine.fitted}), "utf-8")
        beside.write_text(dump({**vars(found.software(profile)), "name": beside.stem}), "utf-8")
    except OSError as error:
        raise LumosError(
            f"{output}: cannot be written ({error.strerror}); give a folder that you may write to"
        ) from None
    return found, beside


def table(found: Anchor) -> pl.DataFrame:
    """Return the findings, a row each."""
    return pl.DataFrame([asdict(one) for one in found.findings])


def _with_step(found: Anchor, corpus: Path, gpu: Hardware, base: Software, job: str | None) -> Anchor:
    """Return what a corpus says with the figures that its job's recorded step sets."""
    try:
        jobs = chosen_jobs(corpus, None, job)
        if len(jobs) > 1:
            raise QueryError(f"{corpus} has {len(jobs)} jobs")
        ran = load_job(corpus, jobs[0], {})
        if ran.known_hardware and ran.hardware.name != gpu.name:
            raise QueryError(f"{ran.about.job} ran on {ran.hardware.name}")
        known = found.software(base)
        software = profile.fitted(ran, found.hardware(gpu), known)
    except LumosError as error:
        return replace(found, unfitted=str(error))
    kernels = sum(len(graph.gpu.row) for graph in ran.job.graphs)
    told = [one for one in profile.FIGURES if getattr(software, one) != getattr(known, one)]
    step = [Finding(one, kernels, 0, getattr(base, one), getattr(software, one), None, None) for one in told]
    return replace(found, findings=(*(one for one in found.findings if one.figure not in told), *step))


def _of_gpu(corpus: Path, shapes: pl.DataFrame, hardware: Hardware | None) -> tuple[Hardware, pl.DataFrame]:
    """Return the GPU and the rows of it; a GPU that was named may stand for the only one of the corpus."""
    devices = sorted(shapes["device"].unique())
    if hardware is None:
        time = shapes.drop_nulls("gpu").group_by("gpu").agg((pl.col("calls") * pl.col("p50_ns")).sum().alias("ns"))
        if time.is_empty() and not devices:
            raise HardwareError(f"{corpus}: no kernel ran; ingest a trace of a GPU")
        if time.is_empty():
            raise HardwareError(
                f"{corpus}: its GPU is '{devices[0]}', which is not in data/hardware; give --hardware NAME|FILE"
            )
        hardware = Hardware.read(time.sort("ns", "gpu")["gpu"][-1])
    rows = shapes.filter(pl.col("gpu") == hardware.name)
    if rows.is_empty():
        if len(devices) != 1:
            raise HardwareError(f"{corpus}: no kernel ran on '{hardware.name}'; its GPUs are {', '.join(devices)}")
        rows = shapes
    return hardware, rows


def _kernels(hardware: Hardware, rows: pl.DataFrame) -> Iterator[Finding]:
    """Yield what products, attention and memory-bound kernels say."""
    gpu = hardware.row()
    known = fitted.load(hardware.fitted_from, hardware.fitted)
    peaks = dict(zip(PRECISIONS, gpu["peak_flops"].tolist(), strict=True))
    peaks["bf16"] = peaks["bf16"] or peaks["fp16"]
    bandwidth, sms = gpu["hbm_bandwidth"].item(), gpu["sms"].item()
    sized = rows.filter(pl.col("p50_ns") >= _LEAST_NS).with_columns(
        precision=pl.col("dtype").replace_strict(_TYPES, default=None)
    )
    for precision, size in _BYTES.items():
        of = sized.filter(family="gemm", precision=precision).drop_nulls("m")
        if len(of) and peaks[precision]:
            x, params = _columns(of), gpu["gemm"][PRECISIONS.index(precision)]
            model = measured.products(
                x["m"], x["n"], x["k"], x["batch"], size, peaks[precision], bandwidth, sms, params
            )
            before = known.gemm.get(precision, known.gemm["bf16"]).training_factor
            yield _finding(f"gemm.{precision}", of, "p50_ns", before, model)
    of = sized.filter(pl.col("family") == "attention", pl.col("precision") == "bf16").drop_nulls("m")
    if len(of):
        x, params = _columns(of), gpu["attention"][PRECISIONS.index("bf16")]
        backward = of["operator"].str.to_lowercase().str.contains("backward").fill_null(value=False).to_numpy()
        model = measured.attention(
            x["m"], x["n"], x["k"], x["batch"], backward, _BYTES["bf16"], peaks["bf16"], bandwidth, sms, params
        )
        yield _finding("attention.bf16", of, "p50_ns", known.attention["bf16"].training_factor, model)
    of = sized.filter(pl.col("family").is_in(_MEMORY_BOUND)).drop_nulls("bytes")
    if len(of):
        model = measured.passes(_columns(of)["bytes"], bandwidth, gpu["memory"])
        yield _finding("memory", of, "p50_ns", known.memory.training_factor, model)


def _collectives(hardware: Hardware, rows: pl.DataFrame) -> Iterator[Finding]:
    """Yield what collectives say: the shortest of each size, since any longer one may have waited for a rank."""
    gpu = hardware.row()
    node = hardware.scale_up.gpus
    links = (gpu["scale_up_bandwidth"].item(), gpu["scale_out_bandwidth"].item(), gpu["scale_up"], gpu["scale_out"])
    sized = rows.filter(
        pl.col("family") == "communication", pl.col("ranks") > 1, pl.col("bytes") > 0, pl.col("min_ns") > 0
    )
    inside, across = sized.filter(pl.col("ranks") <= node), sized.filter(pl.col("ranks") > node)
    for kind, name in enumerate(fitted.COLLECTIVES):
        for figure, of in ((name, inside), ("scale_out", across)):
            alike = of.filter(operator=name)
            # The network between nodes is told by all-reduces, which every data-parallel job has.
            if len(alike) and (figure == name or kind == ALL_REDUCE):
                x = _columns(alike)
                model = measured.collectives(kind, x["bytes"], x["ranks"], node, *links)
                yield _finding(figure, alike, "min_ns", 1.0, model)


def _launches(host: pl.DataFrame, software: Software) -> Iterator[Finding]:
    """Yield the host's time for an operator: the mean over launches of all traces."""
    for figure, phase in _HOST.items():
        of = host.filter(pl.col("phase") == phase, pl.col("mean_ns") > 0)
        if len(of):
            launches = int(of["launches"].sum())
            mean_s = float((of["launches"] * of["mean_ns"]).sum()) / launches * 1e-9
            yield Finding(figure, launches, len(of), getattr(software, figure), mean_s, None, None)


def _columns(rows: pl.DataFrame) -> Columns:
    """Return the sizes of shapes as kernels take them."""
    names = ("m", "n", "k", "batch", "ranks", "bytes")
    return {name: rows[name].cast(pl.Float64).fill_null(1.0).to_numpy() for name in names}


def _finding(figure: str, rows: pl.DataFrame, time: str, before: float, model: NDArray[np.float64]) -> Finding:
    """Return what some shapes say: the factor by which all of them together differ from `model`, seconds [rows]."""
    seconds, calls = rows[time].to_numpy() * 1e-9, rows["calls"].to_numpy()
    factor = float((seconds * calls).sum() / (model * calls).sum())
    errors = [
        100.0 * float(np.average(np.abs(model * by / seconds - 1.0), weights=seconds * calls)) for by in (1.0, factor)
    ]
    return Finding(figure, int(calls.sum()), len(rows), before, before * factor, *errors)


def _slower(
    parameters: fitted.GemmParameters | fitted.AttentionParameters | fitted.MemoryParameters, factor: float
) -> dict[str, float]:
    """Return parameters whose kernels take `factor` times as long."""
    return _within(parameters, {"training_factor": parameters.training_factor * factor})


def _link(parameters: fitted.ScaleUpParameters, factor: float) -> dict[str, float]:
    """Return parameters whose collectives take `factor` times as long: latencies longer, rates lower."""
    figures = asdict(parameters)
    times = {name: value * factor for name, value in figures.items() if name.endswith("_s")}
    rates = {name: value / factor for name, value in figures.items() if name.endswith("_rate")}
    return _within(parameters, {**times, **rates})


def _within(parameters: Any, changed: dict[str, float]) -> dict[str, float]:
    """Return the figures with some changed, none beyond what may be in a file."""
    bounds = {each.name: each.metadata for each in fields(parameters)}
    return {
        name: min(max(value, bounds[name]["low"]), bounds[name]["high"])
        for name, value in {**asdict(parameters), **changed}.items()
    }
