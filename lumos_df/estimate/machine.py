"""A machine as measured runs of it show it: `lumos-df calibrate`, from a CSV to a hardware file and a software file."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from lumos_df.errors import TruthError
from lumos_df.estimate import calibrate
from lumos_df.estimate.dataset import Dataset, names
from lumos_df.estimate.toml import dump
from lumos_df.estimate.truth import Truth, read
from lumos_df.model import fitted
from lumos_df.model.hardware import HARDWARE_ROW, Hardware
from lumos_df.model.software import Software

LEAST_RUNS: Final = 3
"""Runs without which a calibration says nothing."""


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
    """Factor on the time of each kind of work."""
    hardware_file: str
    """The file for `--hardware`."""
    software_files: list[str]
    """The files for `software=` of a plan: the same software with this machine's host."""


def run(runs: Path, hardware: str, output: Path, software: str | None = None) -> Calibration:
    """Fit a machine to measured runs and write its hardware file to `output`, its software's files beside it.

    Args:
        runs: a CSV with the columns of one of the sets of measured runs (`data/validation`), or at least model, seq,
            gbs, mbs, tp, pp, dp and iteration_time_s or tokens_per_s_per_gpu.
        hardware: the GPU, by name or file.
        output: the hardware file to write.
        software: the software of the runs, by name or file; None: as the rows or their set say, else Megatron.

    Raises `TruthError` for a table that does not read or has fewer than `LEAST_RUNS` usable runs.
    """
    layout = _layout(runs, hardware, software)
    machine = Hardware.read(hardware)
    if "network_bandwidth" in layout.facts:
        bandwidth = float(layout.facts["network_bandwidth"])
        machine = replace(machine, scale_out=replace(machine.scale_out, bandwidth=bandwidth))
    truth = read(layout, runs)
    if len(truth) < LEAST_RUNS:
        why = "".join(f"; {rows} refused: {reason}" for reason, rows in truth.refused.items())
        raise TruthError(f"{runs}: {len(truth)} usable runs, and a calibration needs {LEAST_RUNS}{why}")
    refused = truth.refused
    rows = np.array([machine.row()], HARDWARE_ROW)
    truth = replace(truth, hardware=rows, hardware_names=(machine.name,), hardware_of=np.zeros(len(truth), np.int64))
    factors = calibrate.fit(truth)
    after = truth.estimate(*calibrate.corrected(truth, factors))[:, 0]
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(dump(hardware_figures(machine, factors, output.stem, f"calibrated on {runs.name}")), "utf-8")
    files = []
    for name in truth.software_names:
        profile = Software.read(name)
        beside = output.with_name(f"{output.stem}-{profile.name}.toml")
        beside.write_text(dump(software_figures(profile, factors, beside.stem)), "utf-8")
        files.append(str(beside))
    return Calibration(
        runs=len(truth),
        refused=refused,
        mape_before_pct=_mape(truth, truth.estimate()[:, 0]),
        mape_left_out_pct=_mape(truth, calibrate.left_out(truth)),
        mape_after_pct=_mape(truth, after),
        factors=factors,
        hardware_file=str(output),
        software_files=files,
    )


def hardware_figures(hardware: Hardware, factors: Mapping[str, float], name: str, source: str) -> dict[str, Any]:
    """Return the figures of a hardware file in which `factors` are: those of `calibrate.CORRECTIONS` but the host's."""
    own = dict(hardware.fitted)
    found = fitted.load(hardware.fitted_from, own)
    for table, kernels in (("gemm", found.gemm), ("attention", found.attention)):
        own[table] = {
            **own.get(table, {}),
            **{
                dtype: {
                    **own.get(table, {}).get(dtype, {}),
                    "training_factor": each.training_factor * factors["compute"],
                }
                for dtype, each in kernels.items()
            },
        }
    memory = found.memory.training_factor * factors["memory"]
    own["memory"] = {**own.get("memory", {}), "training_factor": memory}
    figures = {key: value for key, value in asdict(hardware).items() if key != "fitted"}
    figures["scale_up"]["bandwidth"] /= factors["scale_up"]
    figures["scale_out"]["bandwidth"] /= factors["scale_out"]
    return {**figures, "name": name, "source": f"{hardware.name}, {source}; {hardware.source}", **own}


def software_figures(software: Software, factors: Mapping[str, float], name: str) -> dict[str, Any]:
    """Return the figures of a software file with the factor of the host in it."""
    figures = {**vars(software), "name": name}
    return {**figures, **{each: figures[each] * factors["host"] for each in calibrate.HOST_FIGURES}}


def _layout(runs: Path, hardware: str, software: str | None) -> Dataset:
    """Return what is known of the runs: as of the set whose columns the file has, else only what was asked for."""
    try:
        columns = set(pl.read_csv(runs, infer_schema=False, n_rows=0).columns)
    except (pl.exceptions.PolarsError, OSError):
        columns = set()  # reading the rows says what is wrong
    found = [each for each in map(Dataset.read, names()) if {*each.columns.values(), *each.needs} <= columns]
    plain = Dataset(
        name=runs.stem,
        file=runs.name,
        source="",
        needs=("model", "seq", "gbs", "mbs", "tp", "pp"),
        facts={"precision": "bf16", "software": "megatron"},
    )
    layout = replace(found[0], where={}, at_least={}) if found else plain
    told = {"gpu": hardware} if software is None else {"gpu": hardware, "software": software}
    return replace(layout, facts={**layout.facts, **told})


def _mape(truth: Truth, seconds: calibrate.Seconds) -> float:
    return 100.0 * float(np.mean(np.abs(seconds / truth.measured_s - 1.0)))
