"""What ran in the pieces of a critical path: the operator that each goes by, or the silence that it is."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.host_work import HostWork
from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import (
    CPU_OP,
    GAP_PIECE,
    HOST_PIECE,
    LAUNCH_PIECE,
    NONE,
    SYNC_EDGE,
    SYNC_PIECE,
    UNKNOWN_PIECE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """k pieces that run on one trace; times ns on one clock."""

    row: NDArray[np.int32]
    """As in `Path`, but never NONE."""
    kind: NDArray[np.int8]
    """Place in `schema.words.PIECES`."""
    begin: NDArray[np.int64]
    dur: NDArray[np.int64]
    start: NDArray[np.int64]
    """Start of the row in the simulation."""
    end: NDArray[np.int64]
    """Its end."""
    cause: NDArray[np.int64]
    """Edge of the trace that bound its start; below 0 for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPieces:
    """What ran in the pieces of a trace: p pieces, some of them parts of those that were asked about."""

    piece: NDArray[np.int64]
    """Which of them each is or is a part of, ascending."""
    dur: NDArray[np.int64]
    """ns."""
    row: NDArray[np.int32]
    """The operator that ran; of a silence the one that ended it, NONE where the step was over."""
    silent: NDArray[np.bool_]
    """Whether none ran."""


def named(host: HostWork, pieces: Pieces) -> NamedPieces:
    """Find what ran in the pieces of a trace; `host`: its host work.

    Host work goes by the shortest operator, call or Python function that ran in half of it and took at least as long;
    where there is none, it is cut where these begin and end, as `simulate.recorded_work.parts` says. The time in which
    none ran is a silence, and so is the time before work of the GPU begins.
    """
    rows = host.graph.rows
    on_host = pieces.kind == HOST_PIECE
    before = on_host & (pieces.begin < pieces.start)
    after = on_host & ~before & (pieces.begin >= pieces.end)
    row = pieces.row.copy()
    itself = np.flatnonzero(on_host & ~before & ~after & (rows.kind[row] != CPU_OP))
    row[itself] = _around(rows, row[itself], pieces.dur[itself], rows.kind == CPU_OP)
    late = np.flatnonzero((pieces.kind == SYNC_PIECE) & (rows.dur[row] < pieces.dur))
    row[late] = _around(rows, row[late], pieces.dur[late], np.ones(len(rows), np.bool_))
    whole = np.flatnonzero(~before & ~after)
    silent = np.isin(pieces.kind[whole], (LAUNCH_PIECE, GAP_PIECE, UNKNOWN_PIECE))
    between = np.flatnonzero(before | after)
    thread, at = _times(host, pieces, between, before[between])
    last = np.where(before, row, np.int32(NONE))[between]
    part_of, dur, part_row, part_silent = host.parts(thread, at, pieces.dur[between], last)
    piece = np.concatenate((whole, between[part_of]))
    order = np.argsort(piece, kind="stable")
    return NamedPieces(
        piece=piece[order],
        dur=np.concatenate((pieces.dur[whole], dur))[order],
        row=np.concatenate((row[whole], part_row))[order],
        silent=np.concatenate((silent, part_silent))[order],
    )


def _times(
    host: HostWork, pieces: Pieces, between: NDArray[np.int64], before: NDArray[np.bool_]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return threads and recorded times of host work between atoms or after the last, as `HostWork` has them."""
    rows = host.graph.rows
    row, dur = pieces.row[between], pieces.dur[between]
    thread, at = np.empty((4, len(row)), np.int32), np.empty((4, len(row)), np.int64)
    cause = pieces.cause[between]
    waited = before.copy()
    waited[before] = host.graph.edges.kind[cause[before]] == SYNC_EDGE
    edge = np.searchsorted(host.edge, cause[before & ~waited])
    thread[:, before & ~waited], at[:, before & ~waited] = host.thread[:, edge], host.at[:, edge]
    # After a wait for the GPU that no call shows, the thread works from the end of what it waited for.
    thread[:, waited], at[3, waited] = rows.thread[row[waited]], rows.ts[row[waited]]
    at[:3, waited] = np.minimum(rows.end[host.graph.edges.src[cause[waited]]], at[3, waited])
    # After the last GPU row of a trace without marks runs the thread that ends last.
    on_host = np.flatnonzero(rows.thread >= 0)
    last_thread = rows.thread[on_host[np.argmax(rows.end[on_host])]] if len(on_host) else NONE
    own_thread = rows.thread[row[~before]]
    thread[:, ~before] = np.where(own_thread >= 0, own_thread, last_thread)
    at[:, ~before] = host.graph.ended[row[~before]]
    at[1:, ~before] += dur[~before]
    # The step may have begun in it.
    at[2] = np.maximum(at[2], at[3] - dur)
    at[0] = np.maximum(at[0], at[1] - (dur - (at[3] - at[2])))
    return thread, at


def _around(rows: Rows, row: NDArray[np.int32], dur: NDArray[np.int64], may: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Return the nearest row around each, of those that `may` [n], that took at least so long, or the row itself."""
    at = rows.parent[row]
    while True:
        further = np.flatnonzero(at >= 0)
        further = further[~may[at[further]] | (rows.dur[at[further]] < dur[further])]
        if not len(further):
            return np.where(at >= 0, at, row).astype(np.int32)
        at[further] = rows.parent[at[further]]
