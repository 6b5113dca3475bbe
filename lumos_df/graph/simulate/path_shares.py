"""The loop that says of what the path to the end of a step is made: host time, and what inferred edges hand on."""

import numpy as np

from lumos_df.base.jit import kernel
from lumos_df.graph.simulate.forward import CAME_LAST
from lumos_df.schema.codes import END_START, HANDOFF, NONE, SYNC_EDGE, THREAD


@kernel
def shares(last, low, high, src, binds, edge_kind, recorded, on_host, numbered, start, end, start_cause, end_cause):
    """Return how much of each step's path is host time, and how much of it inferred edges hand on.

    An inferred edge hands on its lag and, where it waits for the end of a node, what that node took.

    Args:
        last: int [steps] the last node of each step, NONE for a step of which nothing is known.
        low, high: int64 [steps] ns: the simulated step.
        src, binds, edge_kind, recorded: [m] the edges; whether the trace says so.
        on_host: bool [N] whether a node is the host's.
        numbered: bool [N] whether a member's collective is known by its recorded number.
        start, end, start_cause, end_cause: [N] as `simulate` returns them.

    Returns:
        host, inferred: int64 [steps] ns; what is both counts for both.
    """
    host, inferred = np.zeros(len(last), np.int64), np.zeros(len(last), np.int64)
    for k in range(len(last)):
        if last[k] >= 0:
            host[k], inferred[k] = _shares(
                last[k],
                low[k],
                high[k],
                src,
                binds,
                edge_kind,
                recorded,
                on_host,
                numbered,
                start,
                end,
                start_cause,
                end_cause,
            )
    return host, inferred


@kernel
def _shares(at, low, high, src, binds, edge_kind, recorded, on_host, numbered, start, end, start_cause, end_cause):
    inferred = np.int64(0)
    v = at
    at_end = True
    # Whether the trace says that what comes next in the path waited for v.
    known = True
    reached = max(min(end[v], high), low)
    host = high - reached  # what follows the last node
    for _ in range(2 * len(start) + 2):
        if reached <= low:
            break
        cause = end_cause[v] if at_end else start_cause[v]
        if cause >= 0:
            # Edges that bind an end wait for one.
            known = recorded[cause]
            kind = edge_kind[cause]
            of_host = kind == THREAD or kind == HANDOFF or (kind == SYNC_EDGE and not at_end)
            v = src[cause]
            at_end = at_end or binds[cause] == END_START
            moment = end[v] if at_end else start[v]
        elif at_end:
            if cause != NONE:
                known = known and numbered[v]
                v = CAME_LAST - cause
            of_host = on_host[v]
            moment = start[v]
            at_end = False
        else:
            break
        moment = max(moment, low)
        if moment < reached:
            if of_host:
                host += reached - moment
            if not known:
                inferred += reached - moment
            reached = moment
    return host, inferred
