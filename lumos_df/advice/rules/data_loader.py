"""Hosts that wait for their data loader: what if every batch had been ready."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.host_stretches import outermost
from lumos_df.advice.loader_rows import loader_rows
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.torch_names import NODE, PRODUCT, READS
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph import typical_values
from lumos_df.graph.host_collectives import meanwhile
from lumos_df.graph.rows import Rows
from lumos_df.graph.simulate.forward import inherited

_SEED: Final = "aten::random_"
"""What draws the seed of workers, and that of what shuffles the samples."""
_SHUFFLES: Final = "aten::randperm"
"""What shuffles the samples."""
_MOST: Final = 64
"""Workers whose number is named: beyond that a step has next to nothing else, and cores end first."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that batches be ready when the hosts ask for them."""
    asks = [loader_rows(rows) for rows in advised.ranks]
    if not any(each.any() for each in asks):
        return
    graph, ranks = advised.event_graph, list(zip(asks, advised.ranks, strict=True))
    shares = np.concatenate([host.share(each) for host, each in zip(advised.host_works, asks, strict=True)])
    begun = [_starts(rows, np.flatnonzero(each)) for each, rows in ranks]
    starting = [meanwhile(host, *of_rank) for host, of_rank in zip(advised.host_works, begun, strict=True)]
    lag = np.round(np.maximum(graph.lag, 0) * shares).astype(np.int64)
    lag = np.maximum(lag, np.minimum(np.concatenate(starting), np.maximum(graph.lag, 0)))
    inside = [inherited(each, rows.parent) & ~rows.on_gpu for each, rows in ranks]
    nodes = np.flatnonzero(np.concatenate(inside) & advised.simulated)
    taken = int(lag.sum() + graph.own[nodes].sum())
    if taken < typical_values.LEAST_PCT / 100 * advised.steps_ns.sum():
        return

    def apply(changed: ChangedGraph) -> None:
        changed.lag[:] -= np.minimum(lag, np.maximum(changed.lag, 0))
        changed.own[nodes] = 0

    # One process: the loader has no workers that would load the next batch meanwhile.
    alone = any("SingleProcess" in rows.names[name] for each, rows in ranks for name in np.unique(rows.name[each]))
    # One worker takes as long for a batch as the host did, and has the rest of the step for it.
    rest = max(int(advised.steps_ns.sum()) - taken, 1)
    workers = -(-taken // rest)
    enough = f"num_workers={workers} or more, on as many cores" if workers <= _MOST else "as many workers as cores"
    more = enough if alone else "more workers, a larger prefetch_factor"
    starts = sum(len(row) for row, _ in begun)
    if starts:
        more = f"it starts its workers {format_count(starts, 'time')}, persistent_workers=True keeps them"
    elif any(rows.on_gpu.any() for rows in advised.ranks):
        more += ", pin_memory"
    lasts = format_ns(taken // len(advised.steps_ns))
    outer = [each & ~np.append(within, False)[rows.parent] for (each, rows), within in zip(ranks, inside, strict=True)]
    batches = sum(int(np.count_nonzero(each)) for each in outer)
    yield Remedy(
        rule="data_loader",
        what=f"the host waits {lasts} a step for the data loader: {more}",
        known=Known.REPLAYED,
        rests_on=format_count(batches, "call") + " of the loader",
        apply=apply,
    )


def _starts(rows: Rows, ask: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows that found no further batch before workers began anew, and how long until the next one, ns.

    A loader with workers draws a seed when it makes them; the step has nothing else in between.

    Args:
        rows: the rows of a rank.
        ask: those that ask for a batch [k].
    """
    ask = ask[rows.named(lambda text: "MultiProcessing" in text)[ask]]
    ask = ask[np.argsort(rows.ts[ask], kind="stable")]
    row = outermost(rows)
    row = row[~rows.named(lambda text: text == READS)[row]]
    row = row[np.argsort(rows.ts[row], kind="stable")]
    shuffles = np.append(rows.named(lambda text: text == _SHUFFLES)[row[1:]], False)
    seed = rows.named(lambda text: text == _SEED)[row] & ~shuffles
    works = rows.named(lambda text: bool(PRODUCT.match(text)) or text.startswith(NODE))

    def between(begin: NDArray[np.int64]) -> NDArray[np.bool_]:
        first, last = (np.searchsorted(begin, at) for at in (rows.end[ask[:-1]], rows.ts[ask[1:]]))
        return last > first

    anew = np.flatnonzero(between(rows.ts[row[seed]]) & ~between(np.sort(rows.ts[works])))
    return ask[anew], rows.ts[ask[anew + 1]] - rows.ts[ask[anew]]
