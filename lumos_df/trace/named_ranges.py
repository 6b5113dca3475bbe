"""Steps and ranks from the names of ranges, for traces that torch.profiler did not mark."""

import re
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import TraceError
from lumos_df.schema import STEP_MARK
from lumos_df.schema.codes import ANNOTATION, CPU_OP, GPU, RUNTIME
from lumos_df.trace import optimizer_steps
from lumos_df.trace.optimizer_steps import Windows
from lumos_df.trace.recording import EventType, RecordedOperators, Recording

_NUMBER: Final = re.compile(r"[0-9]+")
_STEPS_SHARE: Final = 0.5
"""Threshold, share of the work. Ranges that repeat are steps where they last for so much of it.
Evidence: what is not a step leaves out most of a trace."""


def as_named(recording: Recording, step_from: str | None, rank_from: str | None) -> Recording:
    """Return a recording with the ranks and the steps that the names of its ranges say, as of `ingest`.

    Raises:
        TraceError: a process has no range that says its rank, or ranges of two ranks.
    """
    return with_steps(recording if rank_from is None else with_ranks(recording, rank_from), step_from)


def with_steps(recording: Recording, pattern: str | None) -> Recording:
    """Return a recording with a mark `ProfilerStep#n` around every range that is a step, as an event more.

    n is the number in the range's name where no two have the same, else counted from 0. Steps are those of the thread
    in which they last longest, and none lies in another.

    Args:
        recording: a file as read.
        pattern: name of such ranges, `*` for any text: a warning where no range has it; None for ranges whose names
            differ in a number alone and that last for half of the work, if the recording does not state its steps;
            where it could and states none, the calls of its optimizer tell them.
    """
    if pattern is None and any(map(STEP_MARK.match, recording.strings)):
        return recording
    operators = recording.operators
    candidates = np.isin(operators.kind, (ANNOTATION, CPU_OP)) & (operators.track >= 0)
    marks = []
    for rank in recording.ranks:
        whose = np.ones(len(operators), np.bool_) if rank.events is None else rank.events[operators.event]
        if pattern is None and recording.states_steps:
            steps = optimizer_steps.windows(recording, np.flatnonzero(whose))
            marks.append((steps, np.arange(len(steps.ts))))
            continue
        own = np.flatnonzero(whose & candidates)
        rows = _repeating(recording, own, whose) if pattern is None else _named(recording, own, pattern)
        rows = _longest_thread(operators, rows)
        steps = Windows(operators.ts[rows], operators.dur[rows], operators.track[rows])
        marks.append((steps, _numbers(recording, rows)))
    if any(len(numbers) for _, numbers in marks):
        return _marked(recording, marks)
    if pattern is None or not len(operators):
        return recording
    unmarked = f"--step-from {pattern!r}: no range has that name, so it marks no step"
    return replace(recording, warnings=(*recording.warnings, unmarked))


def with_ranks(recording: Recording, pattern: str) -> Recording:
    """Return a recording whose processes have the rank that the name of a range of theirs says.

    Args:
        recording: a file as read.
        pattern: name of such a range; the number that stands for the first `*` is the rank.

    Raises:
        TraceError: a process has no such range, or ranges of two ranks.
    """
    operators, ranks = recording.operators, []
    for rank in recording.ranks:
        own = np.arange(len(operators)) if rank.events is None else np.flatnonzero(rank.events[operators.event])
        rows = _named(recording, own, pattern)
        texts = {recording.strings[name] for name in np.unique(operators.name[rows]).tolist()}
        numbers = {int(match[1]) for text in texts if (match := re.match(_expression(pattern, "([0-9]{1,9})"), text))}
        if len(numbers) != 1:
            found = (
                f"ranges of that name of ranks {', '.join(map(str, sorted(numbers)))}; give one that tells them apart"
                if numbers
                else "no range of that name with a number for its first '*'; give one that every process has"
            )
            raise TraceError(f"--rank-from {pattern!r}: a process has {found}")
        ranks.append(replace(rank, rank=numbers.pop(), source="option"))
    return replace(recording, ranks=tuple(sorted(ranks, key=lambda rank: rank.rank)))


def _expression(pattern: str, star: str = ".*") -> str:
    """Return a glob as a regular expression of whole names; `star` stands for its first `*`."""
    return re.escape(pattern).replace(r"\*", star, 1).replace(r"\*", ".*") + r"\Z"


def _named(recording: Recording, rows: NDArray[np.int64], pattern: str) -> NDArray[np.int64]:
    wanted = re.compile(_expression(pattern))
    return rows[recording.where(lambda text: bool(wanted.match(text)))[recording.operators.name[rows]]]


def _repeating(recording: Recording, rows: NDArray[np.int64], whose: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return of some rows those of the names that differ in a number alone and last longest, if half of the work does.

    `whose`: which of the operators are of the same process.
    """
    operators, strings = recording.operators, recording.strings
    alike: dict[str, list[int]] = {}
    for name in np.unique(operators.name[rows]).tolist():
        if name >= 0 and _NUMBER.search(strings[name]):
            alike.setdefault(_NUMBER.sub("#", strings[name]), []).append(name)
    groups = [
        _longest_thread(operators, rows[np.isin(operators.name[rows], names)])
        for names in alike.values()
        if len(names) > 1
    ]
    work = np.flatnonzero(whose & np.isin(operators.kind, (*GPU, RUNTIME, CPU_OP)))
    if not groups or not len(work):
        return rows[:0]
    longest = max(groups, key=lambda group: int(operators.dur[group].sum()))
    span = (operators.ts + operators.dur)[work].max() - operators.ts[work].min()
    return longest if operators.dur[longest].sum() >= _STEPS_SHARE * span else rows[:0]


def _longest_thread(operators: RecordedOperators, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return of some rows those of the track where they last longest, without those inside another, in order."""
    if not len(rows):
        return rows
    rows = rows[operators.track[rows] == np.argmax(np.bincount(operators.track[rows], operators.dur[rows]))]
    rows = rows[np.lexsort((-operators.dur[rows], operators.ts[rows]))]
    end = np.maximum.accumulate((operators.ts + operators.dur)[rows])
    return rows[operators.ts[rows] >= np.append(np.iinfo(np.int64).min, end[:-1])]


def _marked(recording: Recording, marks: list[tuple[Windows, NDArray[np.int64]]]) -> Recording:
    """Return a recording with a mark more for each step of each rank; `marks`: where they are, and their numbers."""
    operators, strings = recording.operators, list(recording.strings)
    numbers = np.concatenate([of_rank for _, of_rank in marks])
    ts, dur, track = (np.concatenate(column) for column in zip(*(steps for steps, _ in marks), strict=True))
    names = []
    for number in numbers.tolist():
        names.append(len(strings))
        strings.append(f"ProfilerStep#{number}")
    first = len(recording.event_types)
    more = operators.after(
        event=np.arange(first, first + len(numbers), dtype=np.int32),
        ts=ts,
        dur=dur,
        kind=np.full(len(numbers), ANNOTATION, np.int8),
        name=np.array(names, np.int32),
        track=track,
    )
    owner = np.repeat(np.arange(len(marks)), [len(of_rank) for _, of_rank in marks])
    return replace(
        recording,
        strings=strings,
        event_types=np.append(recording.event_types, np.full(len(numbers), EventType.OPERATOR, np.int8)),
        operators=more,
        ranks=tuple(
            rank if rank.events is None else replace(rank, events=np.append(rank.events, owner == place))
            for place, rank in enumerate(recording.ranks)
        ),
    )


def _numbers(recording: Recording, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of each step: that in its name where all have one of their own, else counted."""
    texts = recording.texts(recording.operators.name[rows])
    stated = [int(numbers[-1]) for text in texts if (numbers := _NUMBER.findall(text))]
    if len(set(stated)) == len(rows) and all(STEP_MARK.fullmatch(f"ProfilerStep#{number}") for number in stated):
        return np.array(stated, np.int64)
    return np.arange(len(rows))
