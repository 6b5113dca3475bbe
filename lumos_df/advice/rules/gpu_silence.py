"""A GPU that had nothing to do, and nothing recorded says why: what if it had gone on."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph import typical_values
from lumos_df.graph.distinct_texts import distinct
from lumos_df.schema.codes import STREAM

_MOST: Final = 2
"""Kinds of silence that are proposed: those that take most time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _IdleTimes:
    """k times in which no stream of a rank's GPU ran anything, in their order; ns on the trace's clock."""

    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    """When the next row starts."""
    before: list[str]
    """Its name."""

    def until(self, at: NDArray[np.int64], chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return how long the chosen ones [k] lasted, all together, until some moments, which lie in none; ns."""
        ended = np.append(0, np.cumsum(np.where(chosen, self.end - self.begin, 0)))
        silent: NDArray[np.int64] = ended[np.searchsorted(self.end, at, side="right")]
        return silent


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that GPUs go on at once where no launch, event or other work explains that they waited."""
    of_ranks = [_silences(advised, rank) for rank in range(len(advised.graphs))]
    names, kind = distinct(name for silences in of_ranks for name in silences.before)
    ns = np.concatenate([silences.end - silences.begin for silences in of_ranks])
    total = np.bincount(kind, ns, len(names))
    for place in np.argsort(-total)[:_MOST].tolist():
        yield _remedy(advised, of_ranks, names[place], int(np.count_nonzero(kind == place)))


def _silences(advised: AdvisedJob, rank: int) -> _IdleTimes:
    """Return those of a rank that lie in a step, are long enough to be advice, and that nothing explains."""
    graph, steps = advised.graphs[rank], advised.played.replays[rank].steps
    rows = graph.rows
    row = graph.gpu.row[np.argsort(rows.ts[graph.gpu.row], kind="stable")]
    begin, end = np.maximum.accumulate(rows.end[row])[:-1], rows.ts[row][1:]
    least = typical_values.LEAST_PCT / 100 * float(advised.steps_ns.mean())
    step = np.maximum(np.searchsorted(steps.low, begin, side="right") - 1, 0)
    inside = (steps.low[step] <= begin) & (end <= steps.high[step])
    silent = np.flatnonzero((end - begin >= least) & (graph.unknown[row[1:]] >= least) & inside)
    names = [rows.names[name] for name in rows.name[row[1:][silent]].tolist()]
    return _IdleTimes(begin=begin[silent], end=end[silent], before=names)


def _remedy(advised: AdvisedJob, of_ranks: list[_IdleTimes], name: str, count: int) -> Remedy:
    edges, less, leads = [], [], []
    for graph, silences, base in zip(advised.graphs, of_ranks, advised.edge_base[:-1].tolist(), strict=True):
        rows, unknown = graph.rows, graph.unknown[graph.edges.dst]
        chosen = np.array([before == name for before in silences.before], np.bool_)
        # Every stream stood still, and what runs next on each goes on so much earlier.
        edge = np.flatnonzero((graph.edges.kind == STREAM) & (unknown > 0))
        from_end, to_start = rows.end[graph.edges.src[edge]], rows.ts[graph.edges.dst[edge]]
        silent = silences.until(to_start, chosen) - silences.until(from_end, chosen)
        edges.append(edge + base)
        less.append(np.minimum(silent, unknown[edge]))
        leads.append(rows.name[graph.edges.dst[edge]] == rows.names.index(name) if name in rows.names else edge < 0)
    edge, ns = np.concatenate(edges), np.concatenate(less)
    lasts = format_ns(round(ns[np.concatenate(leads)].sum() / len(advised.steps_ns)))

    def apply(changed: ChangedGraph) -> None:
        changed.lag[edge] -= np.minimum(ns, np.maximum(changed.lag[edge], 0))

    return Remedy(
        rule="gpu_silence",
        what=f"the GPU is idle for {lasts} a step before {name}, and nothing recorded says why: record the host, too, "
        "from before the step begins; look whether another program has the GPU",
        known=Known.REPLAYED,
        rests_on=format_count(count, "silence") + " of the GPU",
        apply=apply,
    )
