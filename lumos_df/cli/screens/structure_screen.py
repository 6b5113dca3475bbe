"""What model ran, on one screen: one line a job in the words of its size, what is not known, and with `full` why."""

from math import prod
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from rich.console import Console

from lumos_df.base.units import format_count
from lumos_df.cli.screens.terminal import called, console, of_job, say, say_next, where
from lumos_df.corpus import profiler_overhead
from lumos_df.graph.job import groups

_DEGREES: Final = ("tp", "pp", "cp", "dp")
"""Those whose product is the world; experts are spread over ranks that these have."""


def draw(rows: pa.Table, corpus: Path, *, full: bool) -> None:
    """Print the dimensions and degrees of jobs; rows as `structure.describe.describe` returns them."""
    screen = console()
    jobs: dict[str, list[dict[str, Any]]] = {}
    for row in rows.to_pylist():
        jobs.setdefault(row["trace_id"], []).append(row)
    names = called(corpus, jobs)
    together = {member: ids for ids in groups(corpus, needed=False) for member in ids}
    for trace_id, dimensions in jobs.items():
        _draw_job(screen, names[trace_id], dimensions, full=full)
        for note in profiler_overhead.told(corpus, together[trace_id]):
            say(screen, note, before="  note: ")
    if not full:
        say_next(screen, f"describe --full{of_job(corpus, jobs)}{where(corpus)}")


def _draw_job(screen: Console, job: str, dimensions: list[dict[str, Any]], *, full: bool) -> None:
    known: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    for row in dimensions:
        value = row["value"] if row["value"] is not None else row["word"]
        if value is None:
            unknown[row["name"]] = "; ".join(filter(None, (row["readings"], row["reason"])))
        else:
            known[row["name"]] = row["readings"] or value
    ranks = int(dimensions[0]["ranks"])
    parts = [str(known.get("model", "model unknown"))]
    if "layers" in known:
        of_width = f" x {known['hidden']}" if "hidden" in known else ""
        parts.append(_counted(known["layers"], "layer") + of_width)
    elif "hidden" in known:
        parts.append(f"hidden {known['hidden']}")
    parts += [_counted(known["heads"], "head")] if "heads" in known else []
    parts += [f"{name} {known[name]}" for name in ("ffn", "experts", "vocabulary", "sequence") if name in known]
    if "tables" in known:
        of_width = f" x {known['embedding_dim']}" if "embedding_dim" in known else ""
        parts.append(_counted(known["tables"], "table") + of_width)
    parts += [f"{known['dense_params'] / 1e6:.3g} M dense parameters"] if "dense_params" in known else []
    if "micro_batch" in known:
        times = known.get("micro_batches", 1)
        parts.append(f"micro-batch {known['micro_batch']}" + (f" x {times}" if times != 1 else ""))
    parts += [str(known["dtype"])] if "dtype" in known else []
    say(screen, f"{', '.join(parts)}   {_world(known, ranks)}", before=f"{job}   ")
    reasons: dict[str, list[str]] = {}
    for name, reason in unknown.items():
        reasons.setdefault(reason, []).append(name)
    for place, (reason, names) in enumerate(reasons.items()):
        say(screen, f"{', '.join(names)} ({reason})", before="         " if place else "unknown: ")
    for row in dimensions if full else ():
        value = row["value"] if row["value"] is not None else row["word"]
        said = row["readings"] or ("unknown" if value is None else str(value))
        say(screen, f"{said:<12} [{row['evidence']}] {row['reason']}", before=f"  {row['name']:<14}")


def _world(known: dict[str, Any], ranks: int) -> str:
    """Return how many ranks there are, or are here, and how they are spread."""
    world = f"world {known['world']}" if "world" in known else f"{format_count(ranks, 'rank')} here"
    spread = [name for name in _DEGREES if known.get(name, 1) != 1]
    if spread:
        whole = known.get("world") == prod(known[name] for name in spread if isinstance(known[name], int))
        world += (" = " if whole else ", ") + " x ".join(f"{name}{known[name]}" for name in spread)
    return world + (f", ep{known['ep']}" if known.get("ep", 1) != 1 else "")


def _counted(value: object, what: str) -> str:
    """Return how many there are: one number, or the readings of several."""
    return f"{value} {what}" if value == 1 else f"{value} {what}s"
