"""What ran in the segments of critical paths: their pieces, cut and named, trace by trace."""

from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.critical_path import SegmentPieces
from lumos_df.graph.event_graph import EventGraph
from lumos_df.graph.host_work import HostWork
from lumos_df.graph.packed_keys import dense, packed
from lumos_df.graph.path_ways import WalkedGraph
from lumos_df.graph.piece_names import Pieces, named
from lumos_df.graph.simulate.forward import UNSET
from lumos_df.schema.codes import KERNEL_PIECE, NONE, TRANSFER_PIECE

_SILENCE: Final = "nothing recorded, before "
_END: Final = "the end of the step"
"""What a silence comes before that no operator ended."""
_OF_PARTS: Final = ("row", "kind", "family", "begin", "dur", "slack", "unseen")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Segments of critical paths, s of several traces, with p parts that each go by one operator; ns, job time."""

    trace_id: list[str]
    """The traces."""
    rank: NDArray[np.int32]
    """[traces] their ranks."""
    trace: NDArray[np.int32]
    """[s] which of them a segment lies on."""
    bounds: NDArray[np.int64]
    """[s + 1] where the parts of each segment begin, and the end."""
    row: NDArray[np.int32]
    """[p] as in `SegmentPieces`."""
    kind: NDArray[np.int8]
    """[p] as there."""
    family: NDArray[np.int8]
    """[p] of the row, or NONE."""
    begin: NDArray[np.int64]
    """[p]"""
    dur: NDArray[np.int64]
    """[p]"""
    slack: NDArray[np.int64]
    """[p] ns by which the row may begin later, or UNSET."""
    unseen: NDArray[np.bool_]
    """[p] whether it is a wait for ranks of which no kernel was found."""
    text: NDArray[np.int32]
    """[p] place in `texts` of what it goes by, or NONE."""
    texts: list[str]

    @classmethod
    def empty(cls) -> Self:
        """Return no segments."""
        numbers, words, times = np.zeros(0, np.int32), np.zeros(0, np.int8), np.zeros(0, np.int64)
        return cls(
            trace_id=[],
            rank=numbers,
            trace=numbers,
            bounds=np.zeros(1, np.int64),
            row=numbers,
            kind=words,
            family=words,
            begin=times,
            dur=times,
            slack=times,
            unseen=np.zeros(0, np.bool_),
            text=numbers,
            texts=[],
        )

    @classmethod
    def joined(cls, parts: "list[Parts]") -> Self:
        """Return the segments of at least one list, one list after another."""
        traces, texts = ([0, *accumulate(len(getattr(one, of)) for one in parts)] for of in ("trace_id", "texts"))
        lengths = [np.diff(one.bounds) for one in parts]
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(one, name) for one in parts]) for name in ("rank", *_OF_PARTS)
        }
        return cls(
            trace_id=[trace_id for one in parts for trace_id in one.trace_id],
            trace=np.concatenate([one.trace + np.int32(traces[k]) for k, one in enumerate(parts)]),
            bounds=np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths])),
            text=np.concatenate(
                [np.where(one.text >= 0, one.text + np.int32(texts[k]), np.int32(NONE)) for k, one in enumerate(parts)]
            ),
            texts=[text for one in parts for text in one.texts],
            **columns,
        )

    def of(self, segment: NDArray[np.int64]) -> Self:
        """Return some of the segments, in their order, with no other traces and texts than theirs."""
        first, count = self.bounds[segment], np.diff(self.bounds)[segment]
        bounds = np.cumsum([0, *count])
        part = np.repeat(first - bounds[:-1], count) + np.arange(bounds[-1])
        traces, trace = np.unique(self.trace[segment], return_inverse=True)
        used, text = np.unique(self.text[part], return_inverse=True)
        # NONE comes first, where there is one.
        without = int(len(used) > 0 and used[0] == NONE)
        columns: dict[str, Any] = {name: getattr(self, name)[part] for name in _OF_PARTS}
        return type(self)(
            trace_id=[self.trace_id[place] for place in traces.tolist()],
            rank=self.rank[traces],
            trace=trace.reshape(-1).astype(np.int32),
            bounds=bounds,
            text=(text.reshape(-1) - without).astype(np.int32),
            texts=[self.texts[place] for place in used[without:].tolist()],
            **columns,
        )


def parts_of(walked: WalkedGraph, k: int, work: HostWork, slack: NDArray[np.int64], pieces: SegmentPieces) -> Parts:
    """Cut the pieces of segments by what ran in them.

    Args:
        walked: the job, or a rank alone, simulated.
        k: number of the trace in it.
        work: the host work of that trace.
        slack: ns of its rows, as `critical_path.slack` returns it.
        pieces: those of segments that lie on it.
    """
    rows = work.graph.rows
    piece, dur, name, silent = _named(walked, k, work, pieces)
    part, unseen, dur = _unseen(walked.event_graph, k, pieces.row[piece], pieces.kind[piece], dur)
    text, texts = _texts([*rows.names, _END], name, silent)
    piece = piece[part]
    before = np.cumsum(dur) - dur
    first_part = np.flatnonzero(np.diff(piece, prepend=-1))
    part_of = np.repeat(first_part, np.diff(first_part, append=len(piece)))
    row = pieces.row[piece]
    return Parts(
        trace_id=[rows.trace_id],
        rank=np.array([rows.rank], np.int32),
        trace=np.zeros(len(pieces.bounds) - 1, np.int32),
        bounds=np.searchsorted(piece, pieces.bounds),
        row=row,
        kind=pieces.kind[piece],
        family=np.append(rows.family, np.int8(NONE))[row],
        begin=pieces.begin[piece] + before - before[part_of],
        dur=dur,
        slack=np.append(slack, UNSET)[row],
        unseen=unseen,
        text=text[part],
        texts=texts,
    )


def _named(
    walked: WalkedGraph, k: int, work: HostWork, pieces: SegmentPieces
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Return (piece, dur, name, silent) of the parts of pieces; a name is a place among those of the rows, then `_END`.

    Of a piece without a row there is one part, without a name.
    """
    rows, result = work.graph.rows, walked.run
    here, unknown = np.flatnonzero(pieces.row >= 0), np.flatnonzero(pieces.row < 0)
    node = walked.event_graph.base[k] + pieces.row[here]
    parts = named(
        work,
        Pieces(
            row=pieces.row[here],
            kind=pieces.kind[here],
            begin=pieces.begin[here],
            dur=pieces.dur[here],
            start=result.start[node],
            end=result.end[node],
            cause=result.start_cause[node] - walked.first_edge[k],
        ),
    )
    name = np.where(parts.row < 0, len(rows.names), np.append(rows.name, NONE)[parts.row])
    piece = np.concatenate((unknown, here[parts.piece]))
    order = np.argsort(piece, kind="stable")
    return (
        piece[order],
        np.concatenate((pieces.dur[unknown], parts.dur))[order],
        np.concatenate((np.full(len(unknown), NONE), name))[order],
        np.concatenate((np.zeros(len(unknown), np.bool_), parts.silent))[order],
    )


def _unseen(
    event_graph: EventGraph, k: int, row: NDArray[np.int32], kind: NDArray[np.int8], dur: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64]]:
    """Cut off what pieces of collectives wait for ranks of which no kernel was found; that comes before the transfer.

    Args:
        event_graph: the job, or the rank alone.
        k: number of the trace in it.
        row: of each piece, or NONE [p].
        kind: [p]
        dur: ns [p].

    Returns:
        part: which of the pieces each is a part of, ascending.
        unseen: whether it is such a wait.
        dur: ns.
    """
    alone, transferred = np.zeros((2, len(row)), np.int64)
    apart, together = kind == KERNEL_PIECE, kind == TRANSFER_PIECE
    node = event_graph.base[k] + row
    alone[apart] = event_graph.waited[node[apart]]
    transferred[apart] = event_graph.own[node[apart]] - alone[apart]
    instance = event_graph.instance[node[together]]
    alone[together] = event_graph.unseen[instance]
    transferred[together] = event_graph.transfer[instance] - alone[together]
    waiting = np.clip(dur - transferred, 0, alone)
    part = np.repeat(np.arange(len(dur)), 1 + (waiting > 0))
    unseen = np.diff(part, append=len(dur)) == 0
    return part, unseen, np.where(unseen, waiting[part], (dur - waiting)[part])


def _texts(names: list[str], name: NDArray[np.int64], silent: NDArray[np.bool_]) -> tuple[NDArray[np.int32], list[str]]:
    """Return what each part goes by: its place among some texts, NONE without a name; and these."""
    code = dense(packed(silent, name))
    any_part = np.empty(int(code.max(initial=NONE)) + 1, np.int64)
    any_part[code] = np.arange(len(code))
    texts = [
        f"{_SILENCE}{names[place]}" if quiet else names[place]
        for place, quiet in zip(name[any_part].tolist(), silent[any_part].tolist(), strict=True)
    ]
    return np.where(name == NONE, NONE, code).astype(np.int32), texts
