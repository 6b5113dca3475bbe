"""DualPipe's pairs: a forward and a backward pass at once, all-to-alls of experts of one behind compute of the other.

A trace tells how long either takes alone. Both are launched in turn, but what computes waits for no exchange of its
pair, and a pair ends when all of both is over: it takes as long as its compute, or as its exchanges if those are
longer. That is `model.pipeline.stages.paired_seconds` without a slowdown; how much slower compute is beside an
exchange, no trace tells, so the interval holds that nothing is gained.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.edges.columns import Edges, edges
from lumos_df.model.kernels.cost import FORWARD
from lumos_df.schema.codes import COMMUNICATION, EVENT, KERNEL, NONE
from lumos_df.whatif.pipeline.stage_graph import Ends, Stage
from lumos_df.whatif.rewrite.rewritten_graph import Rewritten


@dataclass(frozen=True, slots=True)
class Paired:
    """A rank whose pairs run at once."""

    made: Rewritten
    at: Ends
    """Where tasks begin and end: those of a pair end together."""
    waits: Edges
    """What makes the task behind a pair wait for its exchanges."""
    slowed: NDArray[np.float64]
    """By how much each row may take longer so that its pair gains nothing, relative [n]."""


def at_once(made: Rewritten, sequence: Stage, at: Ends, exchange_ns: NDArray[np.int64]) -> Paired:
    """Return a rank whose pairs run at once.

    Args:
        made: the rank.
        sequence: its tasks.
        at: where these begin and end.
        exchange_ns: what each all-to-all of experts takes without waiting, 0 of other rows [n].
    """
    graph, rows = made.graph, made.graph.rows
    # A pair is called by its forward pass.
    first = np.flatnonzero(sequence.paired[:-1] & (sequence.kind[1:] != FORWARD))
    pair_of_task = np.full(len(sequence.kind) + 1, NONE, np.int64)
    pair_of_task[first] = pair_of_task[first + 1] = first
    pair = pair_of_task[sequence.task[made.position]]
    computes = rows.on_gpu & (rows.kind == KERNEL) & (rows.family != COMMUNICATION)
    # One that shares a stream with compute runs in turn with it.
    exchanges = rows.on_gpu & (exchange_ns > 0) & (pair >= 0) & ~np.isin(rows.stream, rows.stream[computes])
    sent, computed = (
        np.bincount(pair[mine], weight[mine], len(pair_of_task))
        for mine, weight in ((exchanges, exchange_ns), (computes & (pair >= 0), graph.own))
    )
    old = graph.edges
    held = exchanges[old.src] & computes[old.dst] & (pair[old.src] == pair[old.dst])
    free = replace(graph, edges=old.where(~held), order_target=graph.order_target[~held])
    last = np.full(len(pair_of_task), NONE, np.int64)
    row = graph.gpu.row[exchanges[graph.gpu.row]]
    row = row[np.argsort(made.position[row], kind="stable")]
    last[pair[row]] = row
    hides = first[last[first] >= 0]
    last_kernel, last_exchange = at.last_kernel.copy(), at.last_exchange.copy()
    last_kernel[hides] = last_kernel[hides + 1]
    last_exchange[hides] = last_exchange[hides + 1] = last[hides]
    behind = hides[hides + 2 < len(sequence.kind)]
    over, begun = last[behind].astype(np.int32), at.first_kernel[behind + 2].astype(np.int32)
    waits = edges(over, begun, EVENT, 0, False)
    slowed = np.where(computes & (pair >= 0), (sent / np.maximum(computed, 1))[pair], 0.0)
    ends = replace(at, last_kernel=last_kernel, last_exchange=last_exchange)
    return Paired(replace(made, graph=free), ends, waits, slowed)
