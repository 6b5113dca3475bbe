"""By how much the profiler made a recorded step longer, where `lumos-df capture` timed others without it."""

import json
from pathlib import Path
from statistics import median

import pyarrow.parquet as pq

from lumos_df.base.units import format_ns
from lumos_df.corpus.layout import trace_folder


def told(corpus: Path, trace_ids: list[str]) -> list[str]:
    """Return what to say of it, of the rank whose steps grew most: nothing where no step was timed without it.

    Args:
        corpus: the corpus folder.
        trace_ids: the traces of the job.
    """
    steps = [_steps(corpus, trace_id) for trace_id in trace_ids]
    grown = [(profiled / unprofiled, profiled, unprofiled) for profiled, unprofiled in steps if unprofiled > 0]
    times, profiled, unprofiled = max(grown, default=(1.0, 0.0, 0.0))
    percent = round(100 * (times - 1))
    if percent <= 0:
        return []
    both = f"{format_ns(round(profiled))}, without {format_ns(round(unprofiled))}"
    return [f"a step under the profiler is {percent} % longer ({both}): all times here are those under the profiler"]


def _steps(corpus: Path, trace_id: str) -> tuple[float, float]:
    """Return the median step of a trace with the profiler and without it, ns, as the file says; 0 where it does not."""
    said = pq.ParquetFile(trace_folder(corpus, trace_id) / "traces.parquet").read(["metadata"])["metadata"][0].as_py()
    capture = json.loads(said or "{}").get("lumosCapture")
    lists = [_numbers(capture, name) for name in ("profiledNs", "unprofiledBeforeNs", "unprofiledAfterNs")]
    profiled, unprofiled = lists[0], lists[1] + lists[2]
    return (median(profiled), median(unprofiled)) if profiled and unprofiled else (0.0, 0.0)


def _numbers(capture: object, name: str) -> list[float]:
    found = capture.get(name) if isinstance(capture, dict) else None
    return [float(each) for each in found if isinstance(each, int)] if isinstance(found, list) else []
