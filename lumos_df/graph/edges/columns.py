"""Edges as columns."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumos_df.schema.codes import END_START


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """m edges between the rows of one trace."""

    src: NDArray[np.int32]
    """Row that is waited for."""
    dst: NDArray[np.int32]
    """Row that waits."""
    kind: NDArray[np.int8]
    """Place in `schema.words.EDGE_KINDS`."""
    binds: NDArray[np.int8]
    """Place in `schema.words.BINDS`: which ends of the two rows it ties."""
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
        return Edges(**{name: getattr(self, name)[keep] for name in Edges.__slots__})


def edges(
    src: NDArray[np.int32],
    dst: NDArray[np.int32],
    kind: int,
    lag: NDArray[np.int64] | int,
    recorded: NDArray[np.bool_] | bool,  # noqa: FBT001  # a column or its only value
    binds: NDArray[np.int8] | int = END_START,
) -> Edges:
    """Return edges of one kind; single values hold for all. Edges from or to NONE are left out."""
    count = len(src)
    candidates = Edges(
        src=np.asarray(src, np.int32),
        dst=np.asarray(dst, np.int32),
        kind=np.full(count, kind, np.int8),
        binds=np.broadcast_to(np.asarray(binds, np.int8), count),
        lag=np.broadcast_to(np.asarray(lag, np.int64), count),
        recorded=np.broadcast_to(np.asarray(recorded, np.bool_), count),
    )
    return candidates.where((candidates.src >= 0) & (candidates.dst >= 0))


def join(parts: list[Edges]) -> Edges:
    """Return all edges of several parts."""
    return Edges(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in Edges.__slots__})
