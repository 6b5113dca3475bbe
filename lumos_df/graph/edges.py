"""Edges as columns, and how their kinds bind: which end of one operator holds which end of another."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

KINDS: Final = ("thread", "handoff", "launch", "stream", "event", "sync", "collective")
THREAD, HANDOFF, LAUNCH, STREAM, EVENT, SYNC, COLLECTIVE = range(len(KINDS))

END_START, START_START, END_END = 0, 1, 2
BINDS: Final = ("end-start", "start-start", "end-end")
"""An edge says: the second point of `dst` comes no earlier than the first point of `src` plus the lag."""


@dataclass(frozen=True, slots=True)
class Edges:
    """m edges between the rows of one trace."""

    src: NDArray[np.int32]
    """Row that is waited for."""
    dst: NDArray[np.int32]
    """Row that waits."""
    kind: NDArray[np.int8]
    """Place in `KINDS`."""
    binds: NDArray[np.int8]
    """Place in `BINDS`: which ends of the two rows it ties."""
    lag: NDArray[np.int64]
    """ns."""
    recorded: NDArray[np.bool_]
    """Whether the trace says so; otherwise the edge is inferred."""

    def __len__(self) -> int:
        """Return m."""
        return len(self.src)

    def where(self, keep: NDArray[np.bool_]) -> "Edges":
        """Return the edges that `keep` marks."""
        if keep.all():
            return self
        return Edges(
            self.src[keep], self.dst[keep], self.kind[keep], self.binds[keep], self.lag[keep], self.recorded[keep]
        )


def edges(
    src: NDArray[np.int32],
    dst: NDArray[np.int32],
    kind: int,
    lag: NDArray[np.int64] | int,
    recorded: NDArray[np.bool_] | bool,  # noqa: FBT001  # a column or its only value
    binds: NDArray[np.int8] | int = END_START,
) -> Edges:
    """Return edges of one kind; single values hold for all. Edges from or to NONE are left out."""
    many = len(src)
    whole = Edges(
        np.asarray(src, np.int32),
        np.asarray(dst, np.int32),
        np.full(many, kind, np.int8),
        np.broadcast_to(np.asarray(binds, np.int8), many),
        np.broadcast_to(np.asarray(lag, np.int64), many),
        np.broadcast_to(np.asarray(recorded, np.bool_), many),
    )
    return whole.where((whole.src >= 0) & (whole.dst >= 0))


def join(parts: list[Edges]) -> Edges:
    """Return all edges of several parts."""
    return Edges(*(np.concatenate([getattr(part, name) for part in parts]) for name in Edges.__slots__))
