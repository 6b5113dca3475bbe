"""Collectives of which every rank was recorded, and which of them are alike: of a kind, of as many bytes and ranks."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.links import LinkKind, links
from lumos_df.graph.packed_keys import dense, packed
from lumos_df.schema.codes import NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class LikeCollectives:
    """c collectives of the steps of a job."""

    instance: NDArray[np.int64]
    """[c] number of each in the event graph."""
    ranks: NDArray[np.int64]
    """[c] how many take part in each."""
    like: NDArray[np.int64]
    """[c] what like ones share: kind, bytes, kind of links, number of ranks, and how far apart these lie."""
    group: NDArray[np.int64]
    """[c] which ranks take part, numbered from 0."""
    step: NDArray[np.int64]
    """[c] number of its step."""
    kind: NDArray[np.int64]
    """[c] place of its kind in `kinds`."""
    kinds: list[str]
    """Kinds of the job."""

    @classmethod
    def of(cls, advised: AdvisedJob) -> Self:
        """Find those of a job."""
        waits, graph = advised.waits, advised.event_graph
        of_kernel = graph.instance[graph.base[waits.trace] + waits.row]
        kernel = np.flatnonzero(waits.whole & (of_kernel != NONE) & (waits.transfer != NONE))
        by_rank = kernel[np.lexsort((waits.rank[waits.trace[kernel]], of_kernel[kernel]))]
        instance, first, ranks = np.unique(of_kernel[by_rank], return_index=True, return_counts=True)
        low, high = (waits.rank[waits.trace[by_rank[at]]] for at in (first, first + ranks - 1))
        kinds = sorted({word for rows in advised.ranks for word in rows.collectives})
        step, kind, moved = (column[by_rank[first]] for column in _columns(advised, kinds))
        link = np.searchsorted(sorted(LinkKind), links(advised).astype(str))[by_rank[first]]
        inside = step >= 0
        like, group = packed(kind, moved, link, ranks, high - low)[inside], packed(low, high, ranks)[inside]
        return cls(
            instance=instance[inside],
            ranks=ranks[inside],
            like=dense(like),
            group=dense(group),
            step=step[inside],
            kind=kind[inside],
            kinds=kinds,
        )

    def some(self, chosen: NDArray[np.bool_]) -> "LikeCollectives":
        """Return those that are chosen [c]."""
        columns = {name: getattr(self, name)[chosen] for name in self.__slots__ if name != "kinds"}
        return LikeCollectives(**columns, kinds=self.kinds)


def _columns(advised: AdvisedJob, kinds: list[str]) -> tuple[NDArray[np.int64], ...]:
    """Return the step, the place of the kind among `kinds`, and the bytes of every communication kernel [k] each."""
    waits = advised.waits
    step, kind, moved = [], [], []
    for place, rows in enumerate(advised.ranks):
        row = waits.row[waits.of_trace(place)]
        step.append(rows.step[row])
        kind.append(np.array([*map(kinds.index, rows.collectives), NONE])[rows.collective[row]])
        moved.append(rows.in_bytes[row])
    nothing = [np.empty(0, np.int64)]
    return tuple(np.concatenate(nothing + column).astype(np.int64) for column in (step, kind, moved))
