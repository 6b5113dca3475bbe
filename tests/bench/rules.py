"""How much the replay owes to its thresholds: `python -m tests.bench.rules`, one line for each of them halved, doubled.

The traces are those of LUMOS_TRACES, or of the sample where there are none. A rule that was fitted to them shows here:
its scores hang on one value.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from lumos_df.graph import dependencies, events, gpu, held, host
from lumos_df.graph.job import build, groups
from lumos_df.graph.rows import Rows, read
from lumos_df.graph.tables import step_columns
from lumos_df.trace.ingest import ingest

_ROOT = Path(__file__).parents[2]
_TRACES = Path(os.environ.get("LUMOS_TRACES", _ROOT.parent / "shared" / "traces"))
_SAMPLE = _ROOT / "data" / "traces" / "gpu_generated"
_PARTS = ("exposed_compute", "overlapped", "exposed_communication", "other")
_RULES: tuple[tuple[str, tuple[ModuleType, ...]], ...] = (
    ("IDLE_NS", (host,)),
    ("_PROMPT_NS", (events,)),
    ("_HELD_NS", (events,)),
    ("PROMPT_NS", (held,)),
    ("_HELD_NS", (held,)),
    ("_TAIL", (held,)),
    ("_ACCIDENT", (held,)),
    ("_AGAINST", (held,)),
    ("FEW", (gpu, held)),
    ("_QUEUE", (dependencies,)),
)


@contextmanager
def changed(name: str, modules: tuple[ModuleType, ...], factor: float) -> Iterator[None]:
    """Multiply a threshold for a while."""
    before = getattr(modules[0], name)
    after = type(before)(before * factor)
    for module in modules:
        setattr(module, name, after)
    yield
    for module in modules:
        setattr(module, name, before)


def scores(jobs: list[list[Rows]]) -> str:
    """Replay and return the means and the worst over all steps, percent of the step."""
    steps: list[dict[str, Any]] = [
        step_columns(replay, []) for ranks in jobs for replay in build(ranks).replay().replays
    ]
    column = {name: np.concatenate([step[name] for step in steps]) for name in steps[0] if name.endswith("_ns")}
    column |= {
        part: np.concatenate([np.abs(step[f"{part}_ns_replayed"] - step[f"{part}_ns_recorded"]) for step in steps])
        for part in _PARTS
    }
    whole = column["recorded_ns"]
    share = {name: 100 * values[whole > 0] / whole[whole > 0] for name, values in column.items()}
    error = np.abs(share["replayed_ns"] - 100)
    worst = max(share[part].max() for part in _PARTS)
    return (
        f"error {error.mean():.2f} % (worst {error.max():.2f} %), unexplained {share['unexplained_ns'].mean():.2f} %, "
        f"late start {share['start_error_p99_ns'].mean():.2f} %, worst part {worst:.2f} %"
    )


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus"
        ingest([_TRACES if _TRACES.is_dir() else _SAMPLE], corpus)
        jobs = [[read(corpus, one) for one in ids] for ids in groups(corpus)]
    jobs = [ranks for ranks in jobs if any(rows.on_gpu.any() for rows in ranks)]
    print(f"as it is: {scores(jobs)}")
    for name, modules in _RULES:
        for factor in (0.5, 2.0):
            with changed(name, modules, factor):
                print(f"{modules[-1].__name__.rpartition('.')[2]}.{name} x{factor}: {scores(jobs)}")


if __name__ == "__main__":
    main()
