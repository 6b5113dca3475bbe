"""Joins what was scanned by itself: its texts and tracks get the numbers that they have in the whole file."""

from lumos_df.base.jit import lean_kernel
from lumos_df.trace.json.kernels.interning import intern, track_slot
from lumos_df.trace.json.keys import SPARSE_COMM_TEXT, SPARSE_TEXT
from lumos_df.trace.json.scanned import (
    ARGS_ROWS,
    LOWEST_ID,
    MARK_EVENT,
    MARK_NAME,
    MARK_TRACK,
    MARKS,
    NARROW_BLOCK,
    NARROW_CATEGORY,
    NARROW_EVENT,
    NARROW_GRID,
    NARROW_INPUT_DIMS,
    NARROW_INPUT_TYPES,
    NARROW_NAME,
    NARROW_TRACK,
    OPERATORS,
    SPARSE,
    TEXT_ID,
)

_TEXTS = (NARROW_NAME, NARROW_CATEGORY, NARROW_INPUT_DIMS, NARROW_INPUT_TYPES, NARROW_GRID, NARROW_BLOCK)


@lean_kernel
def join(columns, texts, tracks, track_slots, track_size, numbers, track_numbers, known, event):
    """Give the rows of `columns` the file's numbers of texts and tracks; `event` events were before.

    `texts` and `tracks` are the file's and have room for all that are new. `numbers` and `track_numbers` say which
    number each of `columns` has there, of the first `known` texts and tracks; they learn those of the others. Behind
    all texts `numbers` has NONE, so that no text stays none.
    """
    strings = columns.strings
    for k in range(known[0], strings.size[0]):
        count = texts.size[0]
        number = intern(strings.pool, strings.offsets[k], strings.offsets[k + 1], texts)
        if number == count:
            texts.quoted[number] = strings.quoted[k]
        numbers[k] = number
    for k in range(known[1], columns.track_size[0]):
        pid = _identity(columns.tracks[k, 0], numbers)
        tid = _identity(columns.tracks[k, 1], numbers)
        slot = track_slot(tracks, track_slots, pid, tid)
        if track_slots[slot] < 0:
            tracks[track_size[0], 0] = pid
            tracks[track_size[0], 1] = tid
            track_slots[slot] = track_size[0]
            track_size[0] += 1
        track_numbers[k] = track_slots[slot]
    known[0] = strings.size[0]
    known[1] = columns.track_size[0]
    _renumber(columns, numbers, track_numbers, event)


@lean_kernel
def _identity(identity, numbers):
    return TEXT_ID + numbers[identity - TEXT_ID] if TEXT_ID <= identity < LOWEST_ID else identity


@lean_kernel
def _renumber(columns, numbers, track_numbers, event):
    state, narrow, marks = columns.state, columns.narrow, columns.marks
    for row in range(state[OPERATORS]):
        narrow[NARROW_EVENT, row] += event
        narrow[NARROW_TRACK, row] = track_numbers[narrow[NARROW_TRACK, row]]
    for column in _TEXTS:
        for row in range(state[OPERATORS]):
            narrow[column, row] = numbers[narrow[column, row]]
    for row in range(state[MARKS]):
        marks[MARK_EVENT, row] += event
        marks[MARK_NAME, row] = numbers[marks[MARK_NAME, row]]
        marks[MARK_TRACK, row] = track_numbers[marks[MARK_TRACK, row]]
    for row in range(state[ARGS_ROWS]):
        columns.args_event[row] += event
    for row in range(state[SPARSE]):
        columns.stated.event[row] += event
        key = columns.stated.key[row]
        if key < 0:
            columns.stated.key[row] = -1 - numbers[-1 - key]
        elif columns.arg_action[key] == SPARSE_TEXT or columns.arg_action[key] == SPARSE_COMM_TEXT:
            columns.stated.value[row] = numbers[columns.stated.value[row]]
