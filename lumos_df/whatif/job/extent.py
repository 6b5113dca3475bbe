"""How large a changed job is, before it is built: what does not fit is refused at once."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np

from lumos_df.base.errors import QueryError
from lumos_df.whatif.job.recorded_job import RecordedJob
from lumos_df.whatif.job.settings import Sizes

MOST_OPERATORS: Final = 16_777_216
"""Operators of a changed job, all ranks together, at most: these take about 6 GB of memory, and half a minute."""
_GROWS: Final = ("layers", "batch", "pp")
_SIZED: Final = ("seq", "micro_batch", "hidden", "ffn", "heads", "head_dim", "vocab", "tp")
MOST_GROWTH: Final = 1e9
"""How much more a kernel may have to do, at most: what is measured in nanoseconds still fits 64 bits."""


def operators(anchor: RecordedJob, new: Sizes) -> int:
    """Return about how many operators a changed job has: those of layers, of micro-batches and of steps grow apart."""
    old = anchor.sizes
    stages = (new.pp or 1) / (old.pp or 1)
    batches = (new.batch or 1) / (old.batch or 1)
    layers = (new.layers or 1) / (old.layers or 1)
    total = 0.0
    for rank in anchor.about.ranks:
        in_layer = int(np.count_nonzero(rank.structure.layer >= 0))
        in_batch = int(np.count_nonzero((rank.structure.micro_batch >= 0) & (rank.structure.layer < 0)))
        elsewhere = len(rank.trace) - in_layer - in_batch
        total += in_layer * layers * batches + (in_batch * batches + elsewhere) * stages
    return round(total)


def growth(old: Sizes, new: Sizes, batch_scale: float = 1.0) -> float:
    """Return how many times as much a kernel of the changed job has to do, at the most: products, scores, the head."""
    by = {name: (getattr(new, name) or 1) / (getattr(old, name) or 1) for name in _SIZED}
    tokens = by["seq"] * (by["micro_batch"] if old.micro_batch else batch_scale)
    width = max(by[name] for name in ("hidden", "ffn", "vocab")), by["heads"] * by["head_dim"]
    return float(tokens * max(by["hidden"] * max(width), by["seq"] * width[1]) / by["tp"])


def check(anchor: RecordedJob, new: Sizes, batch_scale: float = 1.0) -> None:
    """Raise `QueryError` where a changed job is too large to be answered, with the largest size that is not.

    Args:
        anchor: the job.
        new: its sizes after the change.
        batch_scale: factor of its batch, for a model whose batch is unknown.
    """
    old, job = anchor.sizes, anchor.about.job
    more = growth(old, new, batch_scale)
    if more > MOST_GROWTH:
        name = max(_SIZED, key=lambda size: (getattr(new, size) or 1) / (getattr(old, size) or 1))
        low = _largest(new, name, lambda sizes: growth(old, sizes, batch_scale) <= MOST_GROWTH)
        said = f"batch_scale={batch_scale:g}" if getattr(new, name) is None else f"{name}={getattr(new, name)}"
        raise QueryError(
            f"{job}: {said} makes kernels up to {more:.2g} times as large as measured, and at most {MOST_GROWTH:.0e} "
            f"times is answered; {_remedy(name, low)}, or start from a larger job"
        )
    operator_count = operators(anchor, new)
    grown = {name: (getattr(new, name) or 1) / (getattr(old, name) or 1) for name in _GROWS}
    if operator_count > MOST_OPERATORS and max(grown.values()) > 1:
        name = max(grown, key=lambda size: grown[size])
        low = _largest(new, name, lambda sizes: operators(anchor, sizes) <= MOST_OPERATORS)
        raise QueryError(
            f"{job}: {name}={getattr(new, name)} makes a graph of {operator_count:,} operators, and at most "
            f"{MOST_OPERATORS:,} fit; {_remedy(name, low)}, or start from a corpus of fewer ranks"
        )


def _largest(new: Sizes, name: str, fits: Callable[[Sizes], bool]) -> int:
    """Return the largest value of a size that fits; 0 where none does."""
    low, high = 0, int(getattr(new, name) or 1)
    while high - low > 1:
        middle = (low + high) // 2
        numbers: dict[str, Any] = {name: middle}
        low, high = (middle, high) if fits(replace(new, **numbers)) else (low, middle)
    return low


def _remedy(name: str, low: int) -> str:
    return f"the largest that fits is {name}={low}" if low else "change less at once"
