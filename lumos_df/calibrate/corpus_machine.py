"""A machine as the kernels of a corpus show it: `lumos-df calibrate --corpus`, and what a sweep with a corpus runs on.

Matrix products, attention and memory-bound kernels take what the corpus says of them as their `training_factor`,
collectives on latencies and rates of their kind, those across nodes on the network's bandwidth. Where the corpus has
one job that the estimator knows, its recorded step sets further figures of the software (`whatif.software_profile`).
"""

from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

import polars as pl

from lumos_df.base.errors import HardwareError, LumosError, QueryError, UnwritableError
from lumos_df.base.files import publish_file, unwritable
from lumos_df.calibrate.corpus_findings import (
    HOST_FIGURES,
    Finding,
    collective_findings,
    kernel_findings,
    launch_findings,
)
from lumos_df.corpus.catalog import connect
from lumos_df.estimate.grid import Grid
from lumos_df.graph.job import groups
from lumos_df.graph.matching import match_collectives
from lumos_df.model import fitted
from lumos_df.model.hardware import Hardware
from lumos_df.model.software import Software
from lumos_df.model.toml import dump
from lumos_df.schema.collective_kinds import FITTED_COLLECTIVES
from lumos_df.whatif import software_profile
from lumos_df.whatif.job.recorded_job import load as load_job

_FACTORS: Final = {"compute_factor": "gemm", "attention_factor": "attention", "memory_factor": "memory"}
"""Figures of a software by the findings that hold them already."""


@dataclass(frozen=True, slots=True)
class CorpusMachine:
    """What a corpus says of a GPU and of the software on it."""

    gpu: str
    """The GPU that was measured."""
    findings: tuple[Finding, ...]
    """One a figure that it says anything of."""
    unfitted: str = ""
    """Why no recorded step sets figures of the software; empty where one does."""

    def hardware(self, hardware: Hardware) -> Hardware:
        """Return a GPU with the kernels as measured; on the GPU that was measured its network, too."""
        tables: dict[str, Any] = {key: dict(value) for key, value in hardware.fitted.items()}
        known = fitted.load(hardware.fitted_from, hardware.fitted)
        measured_here = hardware.name == self.gpu
        scale_out = hardware.scale_out
        for finding in self.findings:
            table, _, name = finding.figure.partition(".")
            factor = finding.after / finding.before
            if table == "gemm":
                like = known.gemm.get(name, known.gemm["bf16"])
                tables[table] = {**tables.get(table, {}), name: _slower(like, factor)}
            elif table == "attention":
                tables[table] = {**tables.get(table, {}), name: _slower(known.attention[name], factor)}
            elif table == "memory":
                tables[table] = _slower(known.memory, factor)
            elif table == "scale_out" and measured_here:
                scale_out = replace(scale_out, bandwidth=scale_out.bandwidth / factor)
            elif table in FITTED_COLLECTIVES and measured_here:
                network = tables.get("network", {})
                links = {**network.get("scale_up", {}), table: _link(known.scale_up[table], factor)}
                tables["network"] = {**network, "scale_up": links}
        return replace(hardware, fitted=tables, scale_out=scale_out)

    def software(self, software: Software) -> Software:
        """Return a software with the host's time for an operator, and more where a recorded step tells, as measured."""
        # What its kernels take is in the hardware's figures now.
        figures: dict[str, Any] = {
            figure: 1.0
            for figure, table in _FACTORS.items()
            if any(finding.figure.startswith(table) for finding in self.findings)
        }
        told = (*HOST_FIGURES, *software_profile.FIGURES)
        figures |= {finding.figure: finding.after for finding in self.findings if finding.figure in told}
        return replace(software, **figures)

    def table(self) -> pl.DataFrame:
        """Return the findings, a row each."""
        return pl.DataFrame([asdict(finding) for finding in self.findings])


def machine_of(
    corpus: Path,
    hardware: Hardware | None = None,
    software: Software | None = None,
    job: str | None = None,
    stand_in: Hardware | None = None,
) -> CorpusMachine:
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
    with suppress(UnwritableError):
        match_collectives(corpus)
    with connect(corpus) as connection:
        shapes = connection.sql("FROM _kernel_efficiency WHERE of_all_jobs ORDER BY ALL").pl()
        host = connection.sql(
            "SELECT host_cost.*, coalesce(device_name, 'unknown') AS device_name "
            "FROM host_cost JOIN traces USING (trace_id)"
        ).pl()
    if shapes["gpu"].drop_nulls().is_empty() and shapes["device_name"].n_unique() == 1:
        hardware = hardware or stand_in
    gpu, shapes = _of_gpu(corpus, shapes, hardware)
    host = host.filter(pl.col("device_name").is_in(shapes["device_name"].unique().implode()))
    base = software or Software.read("megatron")
    findings = (*kernel_findings(gpu, shapes), *collective_findings(gpu, shapes), *launch_findings(host, base))
    if not findings:
        raise QueryError(
            f"{corpus}: no kernel has a shape, no collective a size and no launch a successor; "
            "record with torch.profiler's record_shapes=True"
        )
    return _with_step(CorpusMachine(gpu.name, findings), corpus, gpu, base, job)


def on_corpus_machine(grid: Grid, corpus: Path, job: str | None = None) -> tuple[Grid, str]:
    """Return a grid whose GPUs and software are as a corpus shows them, and why no recorded step counts, or nothing.

    Raises as `machine_of` does.
    """
    only = grid.hardware[0] if len(grid.hardware) == 1 else None
    # A step tells of a software only what the software's other figures leave of it.
    machines = [machine_of(corpus, software=software, job=job, stand_in=only) for software in grid.software]
    hardware = tuple(map(machines[0].hardware, grid.hardware))
    software = tuple(machine.software(of) for machine, of in zip(machines, grid.software, strict=True))
    return replace(grid, hardware=hardware, software=software), machines[0].unfitted


def calibrate(
    corpus: Path, output: Path, hardware: str | None = None, software: str = "megatron"
) -> tuple[CorpusMachine, Path]:
    """Write a hardware file as a corpus shows it to `output`, and next to it its software's file.

    Args:
        corpus: the corpus folder.
        output: the hardware file to write.
        hardware: the GPU, by name or file; None: as the traces say.
        software: the software, by name or file.

    Returns:
        What the corpus says, and the software's file. Raises `LumosError` as `machine_of` does.
    """
    base_software = Software.read(software)
    machine = machine_of(corpus, None if hardware is None else Hardware.read(hardware), base_software)
    base = Hardware.read(hardware or machine.gpu)
    gpu = replace(
        machine.hardware(base), name=output.stem, source=f"{base.name}, calibrated on a corpus; {base.source}"
    )
    software_file = output.with_name(f"{output.stem}-{base_software.name}.toml")
    figures = {key: value for key, value in asdict(gpu).items() if key != "fitted"}
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        publish_file(output, dump({**figures, **gpu.fitted}).encode())
        software_figures = vars(machine.software(base_software))
        publish_file(software_file, dump({**software_figures, "name": software_file.stem}).encode())
    except OSError as error:
        raise LumosError(unwritable(output, error)) from None
    return machine, software_file


def _with_step(machine: CorpusMachine, corpus: Path, gpu: Hardware, base: Software, job: str | None) -> CorpusMachine:
    """Return what a corpus says with the figures that its job's recorded step sets."""
    try:
        jobs = groups(corpus, name=job)
        if len(jobs) > 1:
            raise QueryError(f"{corpus} has {len(jobs)} jobs")
        recorded = load_job(corpus, jobs[0], {})
        if recorded.known_hardware and recorded.hardware.name != gpu.name:
            raise QueryError(f"{recorded.about.job} ran on {recorded.hardware.name}")
        known = machine.software(base)
        software = software_profile.fitted(recorded, machine.hardware(gpu), known)
    except LumosError as error:
        return replace(machine, unfitted=str(error))
    kernels = sum(len(graph.gpu.row) for graph in recorded.job.graphs)
    told = [figure for figure in software_profile.FIGURES if getattr(software, figure) != getattr(known, figure)]
    step = [
        Finding(figure, kernels, 0, getattr(base, figure), getattr(software, figure), None, None) for figure in told
    ]
    kept = (finding for finding in machine.findings if finding.figure not in told)
    return replace(machine, findings=(*kept, *step))


def _of_gpu(corpus: Path, shapes: pl.DataFrame, hardware: Hardware | None) -> tuple[Hardware, pl.DataFrame]:
    """Return the GPU and the shapes of it; a GPU that was named may stand for the only one of the corpus."""
    devices = sorted(shapes["device_name"].unique())
    if hardware is None:
        time = shapes.drop_nulls("gpu").group_by("gpu").agg((pl.col("calls") * pl.col("p50_ns")).sum().alias("ns"))
        if time.is_empty() and not devices:
            raise HardwareError(f"{corpus}: no kernel ran; ingest a trace of a GPU")
        if time.is_empty():
            raise HardwareError(
                f"{corpus}: its GPU is '{devices[0]}', which is not in data/hardware; give --hardware NAME|FILE"
            )
        hardware = Hardware.read(time.sort("ns", "gpu")["gpu"][-1])
    of_gpu = shapes.filter(pl.col("gpu") == hardware.name)
    if of_gpu.is_empty():
        if len(devices) != 1:
            raise HardwareError(f"{corpus}: no kernel ran on '{hardware.name}'; its GPUs are {', '.join(devices)}")
        of_gpu = shapes
    return hardware, of_gpu


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
    bounds = {field.name: field.metadata for field in fields(parameters)}
    return {
        name: min(max(value, bounds[name]["low"]), bounds[name]["high"])
        for name, value in {**asdict(parameters), **changed}.items()
    }
