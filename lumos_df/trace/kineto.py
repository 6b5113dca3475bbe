"""Dialects: what a file's events are, on which thread or stream, and of which rank."""

import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.errors import TraceError
from lumos_df.schema import KINDS, STEP_MARK
from lumos_df.trace import classify, record
from lumos_df.trace.intervals import order_ties
from lumos_df.trace.reader import RawTrace

CPU_OP, RUNTIME, KERNEL, MEMCPY, MEMSET, SYNC, ANNOTATION, GPU_ANNOTATION, PYTHON, OTHER = range(len(KINDS))
NONE: Final = -1
"""Stands for null in id columns and text numbers."""

_RANK_IN_NAME: Final = re.compile(r"(?i)(?<![a-z])(?:rank|worker|device)[-_.]?([0-9]{1,7})(?![0-9])")
_HOST_AND_PROCESS: Final = re.compile(r".+_[0-9]+\.[0-9]+\.pt\.trace\.json")
"""The profiler's own file name, host_process.time: digits in it belong to the host."""
_MOST_RANKS: Final = 1 << 31


@dataclass(slots=True)
class Operators:
    """The operators of one rank, ordered by ts, then -dur; columns are views or copies of n rows."""

    raw: RawTrace
    """The file as read."""
    own: NDArray[np.bool_] | None
    """Which of the file's events are this rank's; None for all of them."""
    rank: int
    rank_source: str
    """Where the rank is known from, as `traces.rank_source` has it."""
    order: NDArray[np.int64]
    """Row of each operator in the raw columns."""
    ts: NDArray[np.int64]
    """Start, ns."""
    dur: NDArray[np.int64]
    """Duration, ns."""
    kind: NDArray[np.int8]
    """Place in `schema.KINDS`."""
    name: NDArray[np.int32]
    """Place in `raw.strings`."""
    track: NDArray[np.int32]
    """Place in `raw.tracks`: the thread or stream."""
    event: NDArray[np.int32]
    """Number of the event in the file."""
    marks: NDArray[np.int64]
    """This rank's instants, counters and metadata (see `record.Columns.marks`)."""
    flows: int
    """Flow events of this rank."""
    timeless: int
    """Events skipped because they have no start."""
    unknown: int
    """Events skipped because this version does not know their phase (`ph`)."""
    row_of_event: NDArray[np.int32]
    """Operator of each event of the file, -1 where the event is none of this rank's."""

    def __len__(self) -> int:
        return len(self.ts)

    def is_kind(self, *kinds: int) -> NDArray[np.bool_]:
        """Return which rows are of one of `kinds`."""
        table = np.zeros(len(KINDS), np.bool_)
        table[list(kinds)] = True
        return table[self.kind]

    def wide(self, column: int) -> NDArray[np.int64]:
        """Return an int64 column of the scanner in this order."""
        values: NDArray[np.int64] = self.raw.wide[column][self.order]
        return values

    def narrow(self, column: int) -> NDArray[np.int32]:
        """Return an int32 column of the scanner in this order."""
        values: NDArray[np.int32] = self.raw.narrow[column][self.order]
        return values

    def sparse(self, key: str) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return (rows, values) of a sparse key, for the events that are operators of this rank."""
        events, values = self.raw.sparse(key)
        rows = self.row_of_event[events]
        return rows[rows >= 0], values[rows >= 0]

    def texts(self, numbers: NDArray[Any]) -> list[str]:
        """Return the texts of a few numbers."""
        strings = self.raw.strings
        return [strings[number] if number >= 0 else "" for number in numbers.tolist()]


def operators(raw: RawTrace, path: str, rank: int | None) -> list[Operators]:
    """Return the operators of every rank in the file; one, unless ranks were merged into it.

    Args:
        raw: the file as read.
        path: names the file, in errors and for a rank in its name.
        rank: rank to take where the file's own says nothing or is wrong; None to go by the file.

    Raises:
        TraceError: the rank matters (the trace has collectives) and nothing tells it.
    """
    kinds = _kinds(raw)
    of_event = _rank_of_events(raw)
    ranks = np.unique(of_event[of_event >= 0])
    if len(ranks) > 1 and rank is None:
        of_event = _with_every_event(raw, of_event, int(ranks[0]))
        return [_build(raw, kinds, int(one), "args", of_event == one) for one in ranks]
    rank, source = _single_rank(raw, path, rank, [int(one) for one in ranks])
    return [_build(raw, kinds, rank, source, None)]


def _kinds(raw: RawTrace) -> NDArray[np.int8]:
    """Return the kind of each operator, from its category's text; a missing category (-1) is `other`."""
    categories = raw.narrow[record.OP_CAT]
    table = np.full(len(raw.strings) + 1, OTHER, np.int8)
    used = np.flatnonzero(np.bincount(categories[categories >= 0], minlength=1))
    table[used] = [classify.kind_code(raw.strings[number]) for number in used.tolist()]
    kinds: NDArray[np.int8] = table[categories]
    # The 2021 dialect has no category for annotations: the profiler's own are told by their names.
    if any(raw.strings[number] == "Operator" for number in used.tolist()):
        named = raw.where(lambda text: bool(STEP_MARK.match(text)) or text.startswith("Optimizer."))
        kinds[(kinds == CPU_OP) & named[raw.narrow[record.OP_NAME]]] = ANNOTATION
    return kinds


def dialect(raw: RawTrace) -> str:
    """Return which dialect a file is written in."""
    if any(text in raw.strings for text in ("Operator", "Kernel", "Runtime")) and "cpu_op" not in raw.strings:
        return "kineto-2021"
    return "kineto" if "schemaVersion" in raw.metadata else "chrome"


def _rank_of_events(raw: RawTrace) -> NDArray[np.int32]:
    """Return the rank that each event's args state, -1 where they do not."""
    ranks = np.full(int(raw.counts[record.EVENTS]), NONE, np.int32)
    events, values = raw.sparse("rank")
    ranks[events] = np.where((values >= 0) & (values < _MOST_RANKS), values, NONE)
    return ranks


def _with_every_event(raw: RawTrace, of_event: NDArray[np.int32], first: int) -> NDArray[np.int32]:
    """Give the events that state no rank that of their process, else the file's first rank."""
    events = np.concatenate((raw.narrow[record.OP_EVENT], raw.marks[record.MARK_EVENT].astype(np.int32)))
    tracks = np.concatenate((raw.narrow[record.OP_TRACK], raw.marks[record.MARK_TRACK].astype(np.int32)))
    processes, process = np.unique(raw.tracks[:, 0], return_inverse=True)
    of_process = np.full(len(processes), NONE, np.int32)
    stated = of_event[events]
    of_process[process[tracks[stated >= 0]]] = stated[stated >= 0]
    filled = of_event.copy()
    silent = events[stated < 0]
    filled[silent] = of_process[process[tracks[stated < 0]]]
    filled[filled < 0] = first
    return filled


def _single_rank(raw: RawTrace, path: str, rank: int | None, stated: list[int]) -> tuple[int, str]:
    info = raw.metadata.get("distributedInfo")
    in_file = info.get("rank") if isinstance(info, dict) else None
    if rank is not None:
        return rank, "option"
    if isinstance(in_file, int) and 0 <= in_file < _MOST_RANKS:
        return in_file, "distributedInfo"
    if stated:
        return stated[0], "args"
    name = path.rsplit("/", 1)[-1]
    if not _HOST_AND_PROCESS.match(name) and (named := _RANK_IN_NAME.findall(name)):
        return int(named[-1]), "file name"
    if any(classify.is_communication(text) for text in raw.strings):
        raise TraceError(
            f"{path}: rank unknown: neither distributedInfo nor the file name says it, and the trace has collectives; "
            "give it with --rank N, or name the file rankN.json"
        )
    raw.warnings.append("rank taken as 0: neither distributedInfo nor the file name says it; --rank N sets it")
    return 0, "assumed"


def _build(
    raw: RawTrace, kinds: NDArray[np.int8], rank: int, source: str, wanted: NDArray[np.bool_] | None
) -> Operators:
    """Order the operators of the events `wanted` (all, for None)."""
    events = raw.narrow[record.OP_EVENT]
    ts, dur = raw.wide[record.OP_TS], raw.wide[record.OP_DUR]
    marks = raw.marks
    if wanted is None:
        order = np.argsort(ts, kind="stable")  # a merge of the file's few sorted runs: linear in practice
        count = int(raw.counts[record.EVENTS])
    else:
        rows = np.flatnonzero(wanted[events])
        order = rows[np.argsort(ts[rows], kind="stable")]
        marks = marks[:, wanted[marks[record.MARK_EVENT]]]
        count = int(wanted.sum())
    order_ties(order, ts, dur)
    row_of_event = np.full(int(raw.counts[record.EVENTS]), NONE, np.int32)
    row_of_event[events[order]] = np.arange(len(order), dtype=np.int32)
    phase = marks[record.MARK_PHASE]
    timeless = (marks[record.MARK_TS] == record.NULL) & (phase != ord("M"))
    unknown = ~np.isin(phase, [ord(letter) for letter in "XiIRCM"])
    return Operators(
        raw=raw,
        own=wanted,
        rank=rank,
        rank_source=source,
        order=order,
        ts=ts[order],
        dur=dur[order],
        kind=kinds[order],
        name=raw.narrow[record.OP_NAME][order],
        track=raw.narrow[record.OP_TRACK][order],
        event=events[order],
        marks=marks[:, ~timeless & ~unknown],
        flows=count - len(order) - marks.shape[1],
        timeless=int((timeless & ~unknown).sum()),
        unknown=int(unknown.sum()),
        row_of_event=row_of_event,
    )


def thread_numbers(raw: RawTrace) -> NDArray[np.int64]:
    """Return the thread id of each track, `record.NULL` where it is a name; a `stream 7` gives 7."""
    threads = raw.tracks[:, 1].copy()
    for track in np.flatnonzero((threads < 0) & (threads >= record.TEXT_ID) & (threads < record.TEXT_ID // 2)).tolist():
        digits = re.search(r"\d+$", raw.strings[int(threads[track]) - record.TEXT_ID])
        threads[track] = int(digits.group()) if digits and len(digits.group()) < 19 else record.NULL
    return threads


def step_numbers(ops: Operators) -> NDArray[np.int32]:
    """Return n for each row named ProfilerStep#n on the host, -1 for every other row."""
    numbers = np.full(len(ops.raw.strings) + 1, NONE, np.int32)
    for text_number, text in enumerate(ops.raw.strings):
        if match := STEP_MARK.match(text):
            numbers[text_number] = int(match.group(1))
    steps = numbers[ops.name]
    steps[ops.kind != ANNOTATION] = NONE
    return steps
