"""Critical paths and gains as stored rows."""

from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lumos_df import schema
from lumos_df.corpus import table_files
from lumos_df.graph import critical_path as paths
from lumos_df.graph.event_graph import EventGraph
from lumos_df.graph.gains import Gains, gains
from lumos_df.graph.host_work import HostWork
from lumos_df.graph.job import Job, Played
from lumos_df.graph.packed_keys import dense, packed
from lumos_df.graph.piece_names import Pieces, named
from lumos_df.graph.replay import Replay
from lumos_df.graph.replayed_tables import numbers, words
from lumos_df.graph.simulate.forward import UNSET
from lumos_df.schema.codes import KERNEL_PIECE, NONE, TRANSFER_PIECE, UNKNOWN_PIECE, WAIT_PIECE
from lumos_df.schema.words import PIECES

_SILENCE: Final = "nothing recorded, before "
_END: Final = "the end of the step"
"""What a silence comes before that no operator ended."""


def write_paths(corpus: Path, job: Job, played: Played, works: list[HostWork], slack: NDArray[np.int64]) -> None:
    """Store the critical path of every step of a job.

    Args:
        corpus: the corpus folder.
        job: the job.
        played: its simulation.
        works: the host work of each trace.
        slack: ns of every node, as `critical_path.slack` returns it.
    """
    columns, bounds = _path_columns(job, played, works, slack)
    for graph, (low, high) in zip(job.graphs, pairwise(bounds.tolist()), strict=True):
        of_trace = {name: column[low:high] for name, column in columns.items()}
        table_files.write(corpus, graph.rows.trace_id, schema.CRITICAL_PATH, of_trace)


def write_gains(corpus: Path, job: Job, played: Played, works: list[HostWork]) -> None:
    """Store what every step of a job would gain; arguments as for `write_paths`."""
    for replay, gained in zip(played.replays, gains(job, played, works), strict=True):
        table_files.write(corpus, replay.graph.rows.trace_id, schema.GAINS, _gain_columns(replay, gained))


def _gain_columns(replay: Replay, gained: Gains) -> dict[str, Any]:
    """Return the rows of `gains` of one trace."""
    steps, selectors = len(replay.low), len(gained.selectors)
    selector = np.repeat(np.arange(selectors), steps)
    return {
        "rank": np.full(len(selector), replay.graph.rows.rank),
        "step": numbers(np.tile(replay.steps.number, selectors)),
        "what": words(selector, [selector.field for selector in gained.selectors]),
        "value": words(selector, [selector.value for selector in gained.selectors]),
        "time_ns": gained.time.ravel(),
        "gain_ns": gained.none.ravel(),
        "half_gain_ns": gained.half.ravel(),
    }


def _path_columns(
    job: Job, played: Played, works: list[HostWork], slack: NDArray[np.int64]
) -> tuple[dict[str, pa.Array], NDArray[np.int64]]:
    """Return the rows of `critical_path` of all traces, and where those of each trace begin, and the end."""
    step_paths = paths.critical_paths(played.event_graph, played.run, job.graphs, played.replays)
    whole = paths.joined([path for of_trace in step_paths for path in of_trace])
    step = np.repeat(
        np.arange(sum(map(len, step_paths))), [len(path.row) for of_trace in step_paths for path in of_trace]
    )
    trace_of_step = np.repeat(np.arange(len(step_paths)), [len(of_trace) for of_trace in step_paths])
    node = np.where(whole.row >= 0, job.event_graph.base[whole.trace] + whole.row, NONE)
    begin = whole.ts + job.event_graph.shift[trace_of_step[step]]
    piece, dur, operator = _operators(job, played, works, whole, node, begin)
    part, unseen, dur = _unseen(played.event_graph, node[piece], whole.kind[piece], dur)
    piece, operator = piece[part], operator.take(pa.array(part))
    step, node, trace, row = step[piece], node[piece], whole.trace[piece], whole.row[piece]
    own_trace = trace_of_step[step]
    waits = (trace != own_trace) & (row >= 0) & (whole.kind[piece] != UNKNOWN_PIECE)
    first = np.searchsorted(step, np.arange(len(trace_of_step) + 1))
    before = np.cumsum(dur) - dur
    first_part = np.flatnonzero(np.diff(piece, prepend=-1))
    part_of = np.repeat(first_part, np.diff(first_part, append=len(piece)))
    family = np.concatenate([*(graph.rows.family for graph in job.graphs), np.array([NONE], np.int8)])
    rank = np.array([graph.rows.rank for graph in job.graphs], np.int32)
    trace_id = pa.array([graph.rows.trace_id for graph in job.graphs], pa.string())
    number = np.concatenate([replay.steps.number for replay in played.replays])
    columns = {
        "rank": pa.array(rank[own_trace]),
        "step": numbers(number[step]),
        "piece": pa.array((np.arange(len(piece)) - first[step]).astype(np.int32)),
        "kind": words(np.where(waits | unseen, WAIT_PIECE, whole.kind[piece]), PIECES),
        "on_rank": pa.array(rank[trace], mask=unseen),
        "on_trace_id": trace_id.take(pa.array(trace)),
        "op_id": numbers(row),
        "operator": operator,
        "family": words(family[node], schema.FAMILIES),
        "ts": pa.array(whole.ts[piece] + before - before[part_of]),
        "dur": pa.array(dur),
        "slack_ns": numbers(np.append(slack, UNSET)[node], UNSET),
    }
    return columns, first[np.searchsorted(trace_of_step, np.arange(len(step_paths) + 1))]


def _unseen(
    event_graph: EventGraph, node: NDArray[np.int64], kind: NDArray[np.int8], dur: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64]]:
    """Cut off what pieces of collectives wait for ranks of which no kernel was found; that comes before the transfer.

    Args:
        event_graph: the job.
        node: node of each piece, or NONE [k].
        kind: [k]
        dur: ns [k].

    Returns:
        part: which of the pieces each is a part of, ascending.
        unseen: whether it is such a wait.
        dur: ns.
    """
    alone, transferred = np.zeros((2, len(node)), np.int64)
    apart, together = kind == KERNEL_PIECE, kind == TRANSFER_PIECE
    alone[apart] = event_graph.waited[node[apart]]
    transferred[apart] = event_graph.own[node[apart]] - alone[apart]
    instance = event_graph.instance[node[together]]
    alone[together] = event_graph.unseen[instance]
    transferred[together] = event_graph.transfer[instance] - alone[together]
    waiting = np.clip(dur - transferred, 0, alone)
    part = np.repeat(np.arange(len(dur)), 1 + (waiting > 0))
    unseen = np.diff(part, append=len(dur)) == 0
    return part, unseen, np.where(unseen, waiting[part], (dur - waiting)[part])


def _operators(
    job: Job,
    played: Played,
    works: list[HostWork],
    path: paths.Path,
    node: NDArray[np.int64],
    begin: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], pa.Array]:
    """Cut the pieces of all paths by what ran in them.

    Args:
        job, played, works: the job, its simulation, the host work of each trace.
        path: all pieces of the job.
        node: node of each, or NONE.
        begin: ns of job time.

    Returns:
        piece: which of them each is a part of, ascending.
        dur: ns.
        operator: what it goes by.
    """
    names = [*(name for graph in job.graphs for name in graph.rows.names), _END]
    first_name = np.cumsum([0, *(len(graph.rows.names) for graph in job.graphs)])
    first_edge = np.cumsum([0, *(len(graph.edges) for graph in job.graphs)])
    unknown = np.flatnonzero(path.row < 0)
    piece, dur = [unknown], [path.dur[unknown]]
    name, silent = [np.full(len(unknown), NONE, np.int64)], [np.zeros(len(unknown), np.bool_)]
    by_trace = np.argsort(path.trace, kind="stable")
    by_trace = by_trace[path.row[by_trace] >= 0]
    bounds = np.searchsorted(path.trace[by_trace], np.arange(len(works) + 1))
    for k, work in enumerate(works):
        here = by_trace[bounds[k] : bounds[k + 1]]
        pieces = Pieces(
            row=path.row[here],
            kind=path.kind[here],
            begin=begin[here],
            dur=path.dur[here],
            start=played.run.start[node[here]],
            end=played.run.end[node[here]],
            cause=played.run.start_cause[node[here]] - first_edge[k],
        )
        parts = named(work, pieces)
        of_row = np.append(work.graph.rows.name, NONE)[parts.row]
        piece.append(here[parts.piece])
        dur.append(parts.dur)
        name.append(np.where(parts.row < 0, len(names) - 1, np.where(of_row < 0, NONE, first_name[k] + of_row)))
        silent.append(parts.silent)
    order = np.argsort(np.concatenate(piece), kind="stable")
    of_piece, lasts, text = (np.concatenate(column)[order] for column in (piece, dur, name))
    is_silent = np.concatenate(silent)[order]
    code = dense(packed(is_silent, text))
    any_piece = np.empty(int(code.max(initial=NONE)) + 1, np.int64)
    any_piece[code] = np.arange(len(code))
    texts = [
        f"{_SILENCE}{names[place]}" if quiet else names[place]
        for place, quiet in zip(text[any_piece].tolist(), is_silent[any_piece].tolist(), strict=True)
    ]
    return of_piece, lasts, words(np.where(text == NONE, NONE, code), texts)
