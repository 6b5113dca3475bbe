"""A machine as measured runs of it show it: `lumos-df calibrate`, from a CSV to a hardware file and a software file."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from lumos_df.base.errors import TruthError
from lumos_df.base.files import publish_file
from lumos_df.calibrate import corrections
from lumos_df.calibrate.datasets import Dataset, names
from lumos_df.calibrate.measured_runs import MeasuredRuns, read
from lumos_df.model import fitted
from lumos_df.model.hardware import HARDWARE_ROW, Hardware
from lumos_df.model.software import Software
from lumos_df.model.toml import dump

LEAST_RUNS: Final = 3
"""Threshold, runs. A calibration on fewer is refused. Evidence: a judgement; one alone may be odd, of two nothing tells
which."""


@dataclass(frozen=True)
class Calibration:
    """What a calibration found. Errors are mean sizes of estimate over measurement, minus one."""

    runs: int
    """Runs that it is fitted to."""
    refused: dict[str, int]
    """Number of rows that cannot be estimated, by reason."""
    mape_before_pct: float
    """Error without it."""
    mape_left_out_pct: float
    """Error of each run by a calibration on the others: what to expect of a run that was not measured."""
    mape_after_pct: float
    """Error of the runs that it is fitted to."""
    factors: dict[str, float]
    """Factor on the time of each kind of work; 1 of each habit of the software that is the other way."""
    hardware_file: str
    """The file for `--hardware`."""
    software_files: list[str]
    """The files for `software=` of a plan: the same software with this machine's host."""


def run(runs: Path, hardware: str, output: Path, software: str | None = None) -> Calibration:
    """Fit a machine to measured runs and write its hardware file to `output`, and next to it the files of its software.

    Args:
        runs: a CSV with the columns of one of the sets of measured runs (`data/validation`), or at least model, seq,
            gbs, mbs, tp, pp, dp and iteration_time_s or tokens_per_s_per_gpu.
        hardware: the GPU, by name or file.
        output: the hardware file to write.
        software: the software of the runs, by name or file; None: as the rows or their set say, else `generic`.

    Raises `TruthError` for a table that does not read or has fewer than `LEAST_RUNS` usable runs.
    """
    layout = _layout(runs, hardware, software)
    machine = Hardware.read(hardware)
    if "network_bandwidth" in layout.facts:
        bandwidth = float(layout.facts["network_bandwidth"])
        machine = replace(machine, scale_out=replace(machine.scale_out, bandwidth=bandwidth))
    measured = read(layout, runs)
    if len(measured) < LEAST_RUNS:
        why = "".join(f"; {rows} refused: {reason}" for reason, rows in measured.refused.items())
        raise TruthError(f"{runs}: {len(measured)} usable runs, and a calibration needs {LEAST_RUNS}{why}")
    refused = measured.refused
    measured = replace(
        measured,
        hardware=np.array([machine.row()], HARDWARE_ROW),
        hardware_names=(machine.name,),
        hardware_of=np.zeros(len(measured), np.int64),
    )
    factors = corrections.fit(measured)
    after = measured.estimate(*corrections.corrected(measured, factors))[:, 0]
    output.parent.mkdir(parents=True, exist_ok=True)
    fitted = hardware_figures(machine, factors, output.stem, f"calibrated on {runs.name}")
    publish_file(output, dump(fitted).encode())
    files = []
    for name in measured.software_names:
        profile = Software.read(name)
        file = output.with_name(f"{output.stem}-{profile.name}.toml")
        publish_file(file, dump(software_figures(profile, factors, file.stem)).encode())
        files.append(str(file))
    return Calibration(
        runs=len(measured),
        refused=refused,
        mape_before_pct=_mape(measured, measured.estimate()[:, 0]),
        mape_left_out_pct=_mape(measured, corrections.left_out(measured)),
        mape_after_pct=_mape(measured, after),
        factors=factors,
        hardware_file=str(output),
        software_files=files,
    )


def hardware_figures(hardware: Hardware, factors: Mapping[str, float], name: str, source: str) -> dict[str, Any]:
    """Return the figures of a hardware file with those of the factors in them that are its own."""
    tables = dict(hardware.fitted)
    known = fitted.load(hardware.fitted_from, tables)
    for table, kernels in (("gemm", known.gemm), ("attention", known.attention)):
        figures_of = tables.get(table, {})
        slower = {
            precision: {
                **figures_of.get(precision, {}),
                "training_factor": parameters.training_factor * factors["compute"],
            }
            for precision, parameters in kernels.items()
        }
        tables[table] = {**figures_of, **slower}
    memory = known.memory.training_factor * factors["memory"]
    tables["memory"] = {**tables.get("memory", {}), "training_factor": memory}
    figures = {key: value for key, value in asdict(hardware).items() if key != "fitted"}
    figures["scale_up"]["bandwidth"] /= factors["scale_up"]
    figures["scale_out"]["bandwidth"] /= factors["scale_out"]
    return {
        **figures,
        "borrowed": False,
        "name": name,
        "source": f"{hardware.name}, {source}; {hardware.source}",
        **tables,
    }


def software_figures(software: Software, factors: Mapping[str, float], name: str) -> dict[str, Any]:
    """Return the figures of a software file with the factors of `corrections.SOFTWARE_FIGURES` in them."""
    figures = {**vars(software), "name": name}
    changed = {
        name: max(figures[name] * factors[kind], corrections.LEAST.get(name, 0.0))
        for kind, names in corrections.SOFTWARE_FIGURES.items()
        for name in names
    }
    return figures | changed | {habit: not figures[habit] for habit in corrections.HABITS if habit in factors}


def _layout(runs: Path, hardware: str, software: str | None) -> Dataset:
    """Return what is known of the runs: as of the set whose columns the file has, else only what was asked for."""
    try:
        columns = set(pl.read_csv(runs, infer_schema=False, n_rows=0).columns)
    except (pl.exceptions.PolarsError, OSError):
        columns = set()  # reading the rows says what is wrong
    fitting = [
        dataset for dataset in map(Dataset.read, names()) if {*dataset.columns.values(), *dataset.needs} <= columns
    ]
    plain = Dataset(
        name=runs.stem,
        file=runs.name,
        source="",
        needs=("model", "seq", "gbs", "mbs", "tp", "pp"),
        facts={"precision": "bf16", "software": "generic"},
    )
    layout = replace(fitting[0], where={}, at_least={}) if fitting else plain
    told = {"gpu": hardware} if software is None else {"gpu": hardware, "software": software}
    return replace(layout, facts={**layout.facts, **told})


def _mape(runs: MeasuredRuns, seconds: corrections.Seconds) -> float:
    return 100.0 * float(np.mean(np.abs(seconds / runs.measured_s - 1.0)))
