"""From operators and edges to the nodes of an execution trace, which have durations but no lags.

An execution trace knows one rule: a node starts when all it depends on has ended. Two things of the graph need care
then. The host's work between two calls is the lag of a `thread` edge: the operators that begin in between take it, each
until the next one begins, and what passes before the first of them is a node of its own. And a call that waits for the
GPU lasts only as long as it goes on after what it waited for, because that is among its dependencies.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumos_df.schema.codes import NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedOperators:
    """Columns of the n operators of a trace, in the order of op_id; times are ns."""

    parent: NDArray[np.int64]
    """op_id, or -1."""
    ts: NDArray[np.int64]
    dur: NDArray[np.int64]
    lane: NDArray[np.int64]
    """Number of the thread or stream; -1 where an operator has neither."""
    host: NDArray[np.bool_]
    call: NDArray[np.bool_]
    """Calls of the GPU's runtime: the only rows of the host that the graph lets last where there is a GPU."""
    node: NDArray[np.bool_]
    """Whether it becomes a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedEdges:
    """The m edges within a trace, as `edges` has them."""

    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    lag: NDArray[np.int64]
    thread: NDArray[np.bool_]
    launch: NDArray[np.bool_]
    sync: NDArray[np.bool_]
    to_end: NDArray[np.bool_]
    """Whether it is the end of `dst` that waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """The k nodes of a trace by their rows. An operator's id is its op_id + 1; host work has higher ones."""

    id: NDArray[np.int64]
    row: NDArray[np.int64]
    """op_id; for host work that of the operator that follows it."""
    work: NDArray[np.bool_]
    """Whether it is host work."""
    ts: NDArray[np.int64]
    dur: NDArray[np.int64]
    """ns, both."""
    micros: NDArray[np.int64]
    """The duration in whole us."""
    caller: NDArray[np.int64]
    """id of the innermost node around it, or that launched it; 0 without one."""
    bounds: NDArray[np.int64]
    """[k + 1] where the dependencies of each begin in `needs`."""
    needs: NDArray[np.int64]
    """ids, in order, none twice."""


def nodes(operators: ExportedOperators, edges: ExportedEdges) -> Nodes:
    """Return the nodes of a trace."""
    dur, follows, work = _host(operators, edges)
    has_work = operators.node & (work > 0)
    row = np.concatenate((np.flatnonzero(has_work), np.flatnonzero(operators.node)))
    is_work = np.arange(len(row)) < has_work.sum()
    order = np.lexsort((~is_work, row))
    row, is_work = row[order], is_work[order]
    number = np.where(is_work, len(operators.ts) + np.cumsum(is_work), row + 1)
    place = np.zeros(len(operators.ts) + int(has_work.sum()) + 1, np.int64)
    place[number] = np.arange(len(row))

    ahead = np.arange(1, len(operators.ts) + 1)
    ahead[row[is_work]] = number[is_work]
    chained = np.flatnonzero(follows >= 0)
    kept = ~edges.thread | (follows[edges.dst] < 0)
    waits = np.concatenate((edges.dst[kept] + 1, ahead[chained], row[is_work] + 1))
    needs = np.concatenate((edges.src[kept], follows[chained], number[is_work] - 1)) + 1
    pair = np.sort(place[waits] * len(place) + needs, kind="stable")  # which is fast on what nearly is in order
    waits, needs = np.divmod(pair[np.diff(pair, prepend=-1) > 0], len(place))
    lasts = np.where(is_work, work[row], dur[row])
    return Nodes(
        id=number,
        row=row,
        work=is_work,
        ts=operators.ts[row] - np.where(is_work, lasts, 0),
        dur=lasts,
        micros=_micros(lasts, operators.lane[row]),
        caller=_callers(operators)[row] + 1,
        bounds=np.searchsorted(waits, np.arange(len(row) + 1)),
        needs=needs,
    )


def _callers(operators: ExportedOperators) -> NDArray[np.int64]:
    """Return the nearest operator up the parents that is a node, or -1; the loop is over the depth of calls."""
    node = np.append(operators.node, True)  # the last stands for no parent
    up = np.append(operators.parent, NONE)
    caller = up
    while not node[caller].all():
        caller = np.where(node[caller], caller, up[caller])
    return caller[:-1]


def _remaining(operators: ExportedOperators, edges: ExportedEdges) -> NDArray[np.int64]:
    """Return how long each operator goes on after the last one that it waited for, at most its duration, ns.

    A copying call waits for the copy that it issues; in `edges` the call after it does, so that there is no circle.
    """
    issuer = np.full(len(operators.ts), NONE, np.int64)
    issuer[edges.dst[edges.launch]] = edges.src[edges.launch]
    src = edges.src[edges.sync]
    call = np.where(edges.to_end[edges.sync], edges.dst[edges.sync], issuer[src])
    end = operators.ts + operators.dur
    waited_until = operators.ts.copy()
    np.maximum.at(waited_until, call[call >= 0], end[src[call >= 0]])
    remaining: NDArray[np.int64] = np.maximum(end - waited_until, 0)
    return remaining


def _host(
    operators: ExportedOperators, edges: ExportedEdges
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return (duration of every operator, the node before it on its thread or -1, host work between the two); ns."""
    count = len(operators.ts)
    dur, follows, work = _remaining(operators, edges), np.full(count, NONE, np.int64), np.zeros(count, np.int64)
    row = np.flatnonzero(operators.node & operators.host)
    row = row[np.argsort(operators.lane[row], kind="stable")]
    if not len(row):
        return dur, follows, work
    into, lag, tied = np.full(count, NONE, np.int64), np.zeros(count, np.int64), np.zeros(count, np.bool_)
    into[edges.dst[edges.thread]], lag[edges.dst[edges.thread]] = edges.src[edges.thread], edges.lag[edges.thread]
    tied[edges.src] = tied[edges.dst] = True
    ts, tied, place = operators.ts[row], tied[row], np.arange(len(row))
    first = np.flatnonzero(np.diff(operators.lane[row], prepend=NONE - 1))
    thread = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(row))))
    begin, last = first[thread], np.append(first[1:], len(row))[thread] - 1

    # The tied node before each place, and the next one from it on: between the two lies a lag.
    passed = np.append(NONE, np.maximum.accumulate(np.where(tied, place, NONE))[:-1])
    passed = np.where(passed >= begin, passed, NONE)
    coming = np.minimum.accumulate(np.where(tied, place, len(row))[::-1])[::-1]
    coming = np.where(coming <= last, coming, NONE)
    lagged = (coming >= 0) & (passed >= 0) & (into[row[coming]] == row[passed])
    follows[row[1:]] = np.where(begin[1:] == place[1:], NONE, row[:-1])
    follows[row[tied & (passed >= 0) & ~lagged]] = NONE

    # What is left of the lag when each begins, and what of it passes before any does.
    whole = lag[row[coming]]
    left = np.where(tied, 0, np.minimum(ts[coming] - ts, whole))
    work[row] = np.where(lagged & (passed == place - 1), whole - left, 0)
    # Without a lag a row lasts until the next one begins, if a row is open so long.
    base = ts.min() - thread * (int((operators.ts + operators.dur).max() - ts.min()) + 1)
    covered = np.maximum.accumulate(ts + operators.dur[row] - base) + base
    until = np.where(place == last, covered, np.minimum(np.append(ts[1:], 0), covered)) - ts
    # A moment: the lag to the next one is all there is between. Without a GPU the operators that do the work last,
    # and the lag begins where they end.
    ahead = np.append(coming[1:], 0)
    between = ts[ahead] - ts - lag[row[ahead]]
    on_gpu = operators.call | (~operators.host & (operators.lane >= 0))
    lasts = (between >= operators.dur[row]) & ~on_gpu.any()
    moment = np.where(np.append(lagged[1:], False) & (place != last), np.where(lasts, operators.dur[row], 0), until)
    share = np.where(lagged, left - np.append(left[1:], 0), until)
    dur[row] = np.where(tied, np.where(operators.call[row], dur[row], moment), share)
    return dur, follows, work


def _micros(dur: NDArray[np.int64], lane: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return whole microseconds that add up on every lane: what rounding takes from one node, a later one gets."""
    order = np.argsort(lane, kind="stable")
    end = np.cumsum(dur[order])
    micros = np.empty(len(dur), np.int64)
    micros[order] = end // 1000 - (end - dur[order]) // 1000
    return micros
