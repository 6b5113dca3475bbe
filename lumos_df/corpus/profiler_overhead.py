"""By how much the profiler made a recorded step longer: as `lumos-df capture` timed it, else in words."""

import json
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lumos_df.base.units import format_ns
from lumos_df.corpus.layout import trace_folder
from lumos_df.schema import DIALECTS, GPU_KINDS
from lumos_df.schema.words import STEP_MARK

_IDLE: Final = 0.1
"""Threshold, share of the recorded time. A GPU that stands still for longer waits for the host, which a profiler slows.
Evidence: of 138 recordings of an H200 those that stood still for 2 to 5 % were 1.3 % longer under the profiler in the
middle, up to a tenth 4.7, up to a fifth 8.9, longer 49 %: `python -m tests.bench.profiler_cost FOLDER`."""
_MEASURED: Final = "of 103 such recordings of an H200 8 in 10 were 12 to 78% longer under it, 48 in the middle, and "


def told(corpus: Path, trace_ids: list[str], *, taken_off: bool = False) -> list[str]:
    """Return what to say of it, of the rank whose steps grew most.

    Where no step was timed without it, it is said in words of GPUs that wait for their host, and of nothing else.

    Args:
        corpus: the corpus folder.
        trace_ids: the traces of the job.
        taken_off: whether the figures beside it are of steps without the profiler.
    """
    timed = told_where_timed(corpus, trace_ids, taken_off=taken_off)
    if timed is not None:
        return timed
    # One rank tells it: to read thousands for a note would take longer than what it is a note to.
    still = idle(corpus, trace_ids[0])
    if still <= _IDLE:
        return []
    device, measured = _device(corpus, trace_ids[0])
    of_rank = " of the first rank" if len(trace_ids) > 1 else ""
    said = f"the {device}{of_rank} stands still {100 * still:.0f}% of the time, and the profiler slows the host"
    return [f"{said}: {measured}no step here was timed without it"]


def told_where_timed(corpus: Path, trace_ids: list[str], *, taken_off: bool = False) -> list[str] | None:
    """Return the same where steps of a trace were timed without the profiler; None where none was."""
    steps = [_steps(corpus, trace_id) for trace_id in trace_ids]
    grown = [
        (profiled / alone, alone, profiled, trace_id)
        for (profiled, alone), trace_id in zip(steps, trace_ids, strict=True)
        if alone > 0
    ]
    if not grown:
        return None
    _, alone, profiled, trace_id = max(grown)
    profiled = max(profiled, _marked(corpus, trace_id))
    percent = round(100 * (profiled / alone - 1))
    if percent <= 0:
        return []
    both = f"{format_ns(round(profiled))}, without {format_ns(round(alone))}"
    here = "gains here are of steps without it" if taken_off else "all times here are those under the profiler"
    return [f"a step under the profiler is {percent}% longer ({both}): {here}"]


def _device(corpus: Path, trace_id: str) -> tuple[str, str]:
    """Return what to call the device of a trace, and what is known of recordings of such a profiler."""
    table = pq.ParquetFile(trace_folder(corpus, trace_id) / "traces.parquet").read(["device_name", "dialect"])
    (row,) = table.to_pylist()
    device = "TPU" if str(row["device_name"] or "").startswith("TPU") else "GPU"
    by_torch = DIALECTS[row["dialect"]].name == "Kineto"
    return device, _MEASURED if by_torch else ""


def unprofiled(corpus: Path, trace_id: str) -> list[float]:
    """Return the steps of a trace that the file says were timed without the profiler, ns."""
    capture = _capture(corpus, trace_id)
    return _numbers(capture, "unprofiledBeforeNs") + _numbers(capture, "unprofiledAfterNs")


def _steps(corpus: Path, trace_id: str) -> tuple[float, float]:
    """Return the median step of a trace with the profiler and without it, ns, as the file says; 0 where it does not."""
    profiled, alone = _numbers(_capture(corpus, trace_id), "profiledNs"), unprofiled(corpus, trace_id)
    return median(profiled) if profiled else 0.0, median(alone) if alone else 0.0


def _capture(corpus: Path, trace_id: str) -> object:
    said = pq.ParquetFile(trace_folder(corpus, trace_id) / "traces.parquet").read(["metadata"])["metadata"][0].as_py()
    return json.loads(said or "{}").get("lumosCapture")


def _marked(corpus: Path, trace_id: str) -> float:
    """Return the mean of the steps that the host marks, ns; 0 without any.

    While a GPU works off what was queued before the recording, its steps are shorter than those of a slowed host.
    """
    file = trace_folder(corpus, trace_id) / "operators.parquet"
    marks = pq.read_table(file, columns=["name", "dur"], filters=[("kind", "==", "annotation")])
    names = [name for name in pc.unique(marks["name"]).to_pylist() if name and STEP_MARK.match(name)]
    steps = marks.filter(pc.is_in(marks["name"], value_set=pa.array(names, pa.string())))
    return float(pc.mean(steps["dur"]).as_py() or 0.0)


def idle(corpus: Path, trace_id: str) -> float:
    """Return the share of the time from the first row of the GPU to its last in which none ran; 0 without any."""
    file = trace_folder(corpus, trace_id) / "operators.parquet"
    rows = pq.ParquetFile(file, read_dictionary=["kind"]).read(["kind", "ts", "dur"])
    rows = rows.filter(pc.is_in(rows["kind"], value_set=pa.array(GPU_KINDS)))
    ts, dur = rows["ts"].to_numpy(), rows["dur"].to_numpy()
    order = np.argsort(ts, kind="stable")
    ended = np.maximum.accumulate((ts + dur)[order])
    silent = np.maximum(ts[order][1:] - ended[:-1], 0).sum()
    whole = ended[-1] - ts[order[0]] if len(ts) else 0
    return float(silent / whole) if whole else 0.0


def _numbers(capture: object, name: str) -> list[float]:
    found = capture.get(name) if isinstance(capture, dict) else None
    return [float(each) for each in found if isinstance(each, int) and each > 0] if isinstance(found, list) else []
