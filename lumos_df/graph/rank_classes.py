"""Ranks of a job that do the same work in the same time: one of them can be replayed for all."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import CorpusError
from lumos_df.base.files import unreadable
from lumos_df.base.units import format_count
from lumos_df.corpus.layout import trace_folder

_KEY: Final = ("kind", "name", "grid", "block", "input_dims")
"""Calls that are alike in these columns do the same work: how their times differ is how this rank's own times do."""
_PARTS: Final = ("compute", "communication", "host")
"""Ranks have to agree in each: noise of the host would hide a slower GPU, and waits show who comes late."""
_COLLECTIVE: Final = ("collective", "group_size", "in_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProfile:
    """The work of a rank: k kinds of calls, in an order that ranks of one shape share; ns."""

    shape: bytes
    """What has to be the same: the kinds of calls, how often each comes, the steps, the collectives in their order."""
    part: NDArray[np.int8]
    """[k] place in `_PARTS`."""
    calls: NDArray[np.int64]
    """[k]"""
    mean: NDArray[np.float64]
    """[k]"""
    deviation: NDArray[np.float64]
    """[k] standard deviation."""
    step: NDArray[np.int64]
    """[steps] from the first to the last of its host rows, as recorded; all of them where no step is marked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankClasses:
    """Which of N ranks is replayed for each."""

    stands_for: NDArray[np.int64]
    """[N] place of the rank that is replayed for this one: its own, or an earlier one's."""
    notes: tuple[str, ...]
    """[N] of a rank that is replayed for others, how far they are from it; else empty."""


def each_by_itself(ranks: int) -> RankClasses:
    """Return the classes of so many ranks that are all replayed."""
    return RankClasses(stands_for=np.arange(ranks), notes=("",) * ranks)


def profile(corpus: Path, trace_id: str) -> RankProfile:
    """Return the work of a trace: its GPU and its operators, but not runtime calls, of which some only ask again.

    Raises `CorpusError` when it cannot be read.
    """
    import polars as pl  # noqa: PLC0415 - slow to import: few replays tell ranks apart

    file = trace_folder(corpus, trace_id) / "operators.parquet"
    columns = [*_KEY, *_COLLECTIVE, "family", "ts", "dur", "step"]
    try:
        rows = pl.read_parquet(file, columns=columns, hive_partitioning=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise CorpusError(unreadable(file, error, "ingest the trace again into a new folder")) from None
    communicates = (pl.col("kind") == "kernel") & (pl.col("family") == "communication")
    part = pl.when(pl.col("kind") == "cpu_op").then(2).when(communicates).then(1).otherwise(0)
    calls = (
        rows.filter(pl.col("kind").is_in(["kernel", "memcpy", "memset", "cpu_op"]))
        .group_by(*_KEY, part.cast(pl.Int8).alias("part"))
        .agg(pl.len().alias("calls"), pl.col("dur").mean().alias("mean"), pl.col("dur").std(ddof=0).alias("deviation"))
        .sort(*_KEY, "part")
    )
    end = pl.col("ts") + pl.col("dur")
    on_host = rows.filter(pl.col("kind").is_in(["cpu_op", "annotation"]))
    steps = on_host.group_by("step").agg((end.max() - pl.col("ts").min()).alias("ns")).sort("step")
    marked = steps.drop_nulls("step")
    steps = marked if len(marked) else steps
    same = (
        calls.select(*_KEY, "calls").rows(),
        rows.filter(communicates).select(*_COLLECTIVE).rows(),
        steps["step"].to_list(),
    )
    return RankProfile(
        shape=hashlib.sha256(repr(same).encode()).digest(),
        part=calls["part"].to_numpy(),
        calls=calls["calls"].to_numpy().astype(np.int64),
        mean=calls["mean"].to_numpy(),
        deviation=calls["deviation"].to_numpy(),
        step=steps["ns"].to_numpy(),
    )


def classes(ranks: Sequence[RankProfile]) -> RankClasses:
    """Return which ranks are alike: those of one shape whose calls differ no more than those of one rank do.

    In each part of the work, the times of all calls together, each apart from the like call of the other rank by the
    difference of the means, are not further apart than the calls of the rank that is replayed are from their own means.
    """
    stands_for = np.arange(len(ranks))
    notes = [""] * len(ranks)
    shapes: dict[bytes, list[int]] = {}
    for place, rank in enumerate(ranks):
        shapes.setdefault(rank.shape, []).append(place)
    for members in shapes.values():
        left = np.array(members)
        mean, step = (np.stack([getattr(ranks[place], name) for place in members]) for name in ("mean", "step"))
        while len(left):
            first = ranks[left[0]]
            in_part = first.part == np.arange(len(_PARTS))[:, None]
            apart = (np.abs(mean - mean[0]) * first.calls) @ in_part.T
            alike = (apart <= (first.deviation * first.calls) @ in_part.T).all(axis=1)
            alike[0] = True
            stands_for[left[alike]] = left[0]
            if np.count_nonzero(alike) > 1:
                compute = apart[alike, 0].max() / max((first.mean * first.calls) @ in_part[0], 1)
                notes[left[0]] = _note(
                    int(np.count_nonzero(alike)) - 1, float(np.abs(step[alike] / step[0] - 1).max()), float(compute)
                )
            left, mean, step = left[~alike], mean[~alike], step[~alike]
    return RankClasses(stands_for=stands_for, notes=tuple(notes))


def _note(others: int, steps: float, compute: float) -> str:
    return (
        f"replayed for {format_count(others, 'rank')} alike too: their steps as recorded differ from this one's by up "
        f"to {100 * steps:.1f}%, their compute kernels by {100 * compute:.1f}%"
    )
