"""How large the graph of a changed job is, before it is built: what does not fit is refused at once."""

from dataclasses import replace
from typing import Final

import numpy as np

from lumos_df.errors import QueryError
from lumos_df.estimate.anchored.anchor import Anchor
from lumos_df.estimate.anchored.change import Sizes

MOST_OPERATORS: Final = 1 << 24
"""Operators of a changed job at the most, all ranks together: about 6 GB of memory, and half a minute."""
_GROWS: Final = ("layers", "batch", "pp")


def operators(anchor: Anchor, new: Sizes) -> int:
    """Return about how many operators a changed job has: those of layers, of micro-batches and of steps grow apart."""
    old = anchor.sizes
    stages = (new.pp or 1) / (old.pp or 1)
    batches = (new.batch or 1) / (old.batch or 1)
    layers = (new.layers or 1) / (old.layers or 1)
    found = 0.0
    for rank in anchor.about.ranks:
        in_layer = int(np.count_nonzero(rank.structure.layer >= 0))
        in_batch = int(np.count_nonzero((rank.structure.micro_batch >= 0) & (rank.structure.layer < 0)))
        rest = len(rank.trace) - in_layer - in_batch
        found += in_layer * layers * batches + (in_batch * batches + rest) * stages
    return round(found)


def check(anchor: Anchor, new: Sizes) -> None:
    """Raise `QueryError` where the changed job has more than `MOST_OPERATORS`, with the largest size that fits."""
    many = operators(anchor, new)
    old = anchor.sizes
    growth = {name: (getattr(new, name) or 1) / (getattr(old, name) or 1) for name in _GROWS}
    if many <= MOST_OPERATORS or max(growth.values()) <= 1:
        return
    name = max(growth, key=lambda one: growth[one])
    low, high = 0, int(getattr(new, name))
    while high - low > 1:
        middle = (low + high) // 2
        fits = operators(anchor, replace(new, **{name: middle})) <= MOST_OPERATORS
        low, high = (middle, high) if fits else (low, middle)
    remedy = f"the largest that fits is {name}={low}" if low else "change less at once"
    raise QueryError(
        f"{anchor.about.job}: {name}={getattr(new, name)} makes a graph of {many:,} operators, and at most "
        f"{MOST_OPERATORS:,} fit; {remedy}, or start from a corpus of fewer ranks"
    )
