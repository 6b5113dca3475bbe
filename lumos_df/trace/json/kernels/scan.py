"""The scanner: JSON bytes to columns, in one pass.

`scan_events` reads events from a buffer and fills the arrays of `ScanColumns`. It stops, having taken whole events
only, when the buffer ends, the columns are full, or a string table must grow; the caller (`reader`) mends that and
calls again.
The buffer ends with `PADDING` zero bytes, so that no inner loop needs a bounds check: a zero where JSON cannot have one
means "more data, please".
"""

from typing import Final

import numpy as np

from lumos_df.base.jit import inlined_kernel, lean_kernel
from lumos_df.schema.codes import EARLIEST, LATEST, NONE, NULL, NULL32
from lumos_df.trace.json.kernels.gaps import next_value, read_gap
from lumos_df.trace.json.kernels.interning import FULL, intern, track_slot
from lumos_df.trace.json.kernels.repair import copy_ahead, copy_repaired
from lumos_df.trace.json.kernels.simd import PADDING, byte_at
from lumos_df.trace.json.kernels.tokens import integer_of, read_float, skip_space, time_of, value_end
from lumos_df.trace.json.keys import (
    ARGS,
    BLOCK,
    CAT,
    CORRELATION,
    DEVICE,
    DUR,
    EXTERNAL_ID,
    GRID,
    INPUT_DIMS,
    INPUT_TYPES,
    INTEGER,
    NAME,
    OCCUPANCY,
    PERCENT,
    PH,
    PID,
    RANK,
    SPARSE_COMM_TEXT,
    SPARSE_INTEGER,
    SPARSE_TEXT,
    STREAM,
    TEXT,
    TID,
    TS,
)
from lumos_df.trace.json.scanned import (
    ARGS_BYTES,
    ARGS_PLACE,
    ARGS_PLACES,
    ARGS_ROWS,
    BROKEN,
    CLOSED,
    COMM_NAME,
    CONTROLS,
    CUT,
    DONE,
    DRAIN,
    EVENTS,
    GROW,
    LONGEST_NAME,
    LOWEST_ID,
    MARK_EVENT,
    MARK_NAME,
    MARK_PHASE,
    MARK_TRACK,
    MARK_TS,
    MARKS,
    MORE,
    NARROW_BLOCK,
    NARROW_CATEGORY,
    NARROW_DEVICE,
    NARROW_EVENT,
    NARROW_GRID,
    NARROW_INPUT_DIMS,
    NARROW_INPUT_TYPES,
    NARROW_NAME,
    NARROW_OCCUPANCY,
    NARROW_TRACK,
    NEGATIVE,
    NO_DURATION,
    NOT_OBJECTS,
    NUMBERS,
    OPERATORS,
    POSITION,
    SPARSE,
    TEXT_ID,
    TOP_PLACE,
    UTF8,
    WIDE_CORRELATION,
    WIDE_DUR,
    WIDE_EXTERNAL_ID,
    WIDE_STREAM,
    WIDE_TS,
)

MAX_SPARSE: Final = 64
"""Room for sparse values that an event is begun with; more are rare, and make room then."""

_QUOTE, _COMMA = 34, 44
_OPEN, _CLOSE_LIST = 123, 93
_PHASE_X, _PHASE_C = 88, 67


@lean_kernel
def _track(tracks, slots, track_size, pid, tid, last):
    """Return the number of the (pid, tid) pair, -1 when the table is full; `last` is tried first."""
    size = track_size[0]
    if last < size and tracks[last, 0] == pid and tracks[last, 1] == tid:
        return last
    slot = track_slot(tracks, slots, pid, tid)
    track = np.int64(slots[slot])
    if track >= 0:
        return track
    if size == len(tracks):
        return -1
    tracks[size, 0] = pid
    tracks[size, 1] = tid
    slots[slot] = size
    track_size[0] = size + 1
    return size


@lean_kernel
def _identity(buffer, i, stop, strings):
    """Return a pid or tid: the number at `i`, in quotes or not, else the string's number plus TEXT_ID, NULL, or FULL.

    In the 2021 dialect a GPU row's tid is `"stream 7"`; a string, so that it meets no thread of that number.
    """
    value = integer_of(buffer, i, stop)
    if value != NULL:
        return value if value >= LOWEST_ID else NULL
    if byte_at(buffer, i) != _QUOTE:
        return NULL
    k = intern(buffer, i + 1, stop - 1, strings)
    return k if k == FULL else k + TEXT_ID


@lean_kernel
def _put(stated, next_row, event, key, value):
    """Add a value of the event being read; return False when there is no more room."""
    row = next_row[0]
    if row == len(stated.key):
        return False
    stated.event[row] = event
    stated.key[row] = key
    stated.value[row] = value
    next_row[0] = row + 1
    return True


@inlined_kernel
def _read_args(buffer, i, end, columns, place, event, is_counter, is_comm, integers, texts, sparse, dirt):
    """Read the args object at `i`; return the position after it, -1 more, -2 broken, -3 grow.

    `place` is where the args begin; `integers` and `texts` get the dense values; `sparse[0]` is the row to write next.
    """
    i += 1
    key_start = key_end = np.int64(0)
    while True:
        if is_counter:
            start, code, key_start, key_end = read_gap(buffer, i, end, columns.words, dirt)
        else:
            start, code, place = next_value(buffer, i, end, columns.gaps, columns.words, place, dirt)
        if start < 0 or code == CLOSED:
            return start
        i = value_end(buffer, start, end, dirt)
        if i < 0:
            return i
        action = columns.arg_action[code]
        if is_counter and code != RANK:
            value = read_float(buffer, start)
            if not np.isnan(value):
                k = intern(buffer, key_start, key_end, columns.strings)
                if k == FULL or not _put(columns.stated, sparse, event, -1 - k, np.float64(value).view(np.int64)):
                    return np.int64(-3)
        elif action == INTEGER:
            integers[columns.arg_column[code]] = integer_of(buffer, start, i)
        elif action == PERCENT:
            value = read_float(buffer, start)
            texts[OCCUPANCY] = NULL32 if np.isnan(value) else np.int32(np.rint(min(max(value, -1e6), 1e6) * 100.0))
        elif action == SPARSE_INTEGER:
            if not _put(columns.stated, sparse, event, code, integer_of(buffer, start, i)):
                return np.int64(-3)
        elif action == TEXT or action == SPARSE_TEXT or (action == SPARSE_COMM_TEXT and is_comm):
            quoted = 1 if byte_at(buffer, start) == _QUOTE else 0
            k = intern(buffer, start + quoted, i - quoted, columns.strings)
            if k == FULL:
                return np.int64(-3)
            if action == TEXT:
                texts[columns.arg_column[code]] = k
            elif not _put(columns.stated, sparse, event, code, k):
                return np.int64(-3)


@lean_kernel
def scan_events(buffer, end, columns):
    """Take events from `buffer[state[POSITION]:end]`, which stands inside the event list; return why it stopped."""
    state = columns.state
    strings = columns.strings
    integers, texts, dirt, sparse = columns.integers, columns.texts, columns.dirt, columns.sparse_next
    last_track = 0
    room = columns.narrow.shape[1]
    i = state[POSITION]
    while True:
        i = skip_space(buffer, i)
        state[POSITION] = i
        c = byte_at(buffer, i)
        if c == _COMMA:
            i += 1
            continue
        if c == _CLOSE_LIST:
            state[POSITION] = i + 1
            return DONE
        if c != _OPEN:
            if i >= end:
                return MORE
            dirt[0] = dirt[1] = dirt[2] = 0
            i = value_end(buffer, i, end, dirt)
            if i < 0 or i >= end:
                return BROKEN if i == -2 else MORE
            state[NOT_OBJECTS] += 1
            continue
        if (
            state[OPERATORS] == room
            or state[MARKS] == columns.marks.shape[1]
            or state[SPARSE] + MAX_SPARSE > len(columns.stated.key)
            or state[ARGS_ROWS] + 1 >= len(columns.args_event)
        ):
            return DRAIN

        event = state[EVENTS]
        phase = np.int64(0)
        category = name = np.int64(-1)
        pid = tid = ts = dur = NULL
        args_start = args_end = np.int64(0)
        args_read = False
        is_cut = 0
        for k in range(len(integers)):
            integers[k] = NULL
        for k in range(OCCUPANCY):
            texts[k] = NONE
        texts[OCCUPANCY] = NULL32
        dirt[0] = dirt[1] = dirt[2] = 0
        sparse[0] = state[SPARSE]
        place = np.int64(TOP_PLACE)
        i += 1
        while True:
            start, code, place = next_value(buffer, i, end, columns.gaps, columns.words, place, dirt)
            if start < 0:
                return MORE if start == -1 else BROKEN
            if code == CLOSED:
                i = start
                break
            action = columns.top_action[code]
            if action == ARGS and byte_at(buffer, start) == _OPEN:
                args_start = start
                if phase != 0 and name >= 0:
                    is_comm = name == COMM_NAME
                    args_place = ARGS_PLACE + (category & (ARGS_PLACES - 1))
                    i = _read_args(
                        buffer,
                        start,
                        end,
                        columns,
                        args_place,
                        event,
                        phase == _PHASE_C,
                        is_comm,
                        integers,
                        texts,
                        sparse,
                        dirt,
                    )
                    args_read = True
                else:
                    i = value_end(buffer, start, end, dirt)
                args_end = i
            else:
                i = value_end(buffer, start, end, dirt)
            if i < 0:
                return MORE if i == -1 else (BROKEN if i == -2 else GROW)
            if action == TS:
                ts = time_of(buffer, start, i)
            elif action == DUR:
                dur = time_of(buffer, start, i)
            elif action == PH:
                phase = (
                    np.int64(byte_at(buffer, start + 1))
                    if byte_at(buffer, start) == _QUOTE and i == start + 3
                    else np.int64(0)
                )
            elif action == NAME or action == CAT:
                quoted = 1 if byte_at(buffer, start) == _QUOTE else 0
                stop = min(i - quoted, start + quoted + LONGEST_NAME)
                is_cut += stop < i - quoted
                k = intern(buffer, start + quoted, stop, strings)
                if k == FULL:
                    return GROW
                if action == NAME:
                    name = k
                else:
                    category = k
            elif action == PID or action == TID:
                k = _identity(buffer, start, i, strings)
                if k == FULL:
                    return GROW
                if action == PID:
                    pid = k
                else:
                    tid = k
        if args_end > 0 and not args_read:  # args came before ph or name: a second look, now that those are known
            controls, utf8, numbers = dirt[0], dirt[1], dirt[2]
            i_args = _read_args(
                buffer,
                args_start,
                end,
                columns,
                np.int64(ARGS_PLACE),
                event,
                phase == _PHASE_C,
                name == COMM_NAME,
                integers,
                texts,
                sparse,
                dirt,
            )
            if i_args == -3:
                return GROW
            dirt[0], dirt[1], dirt[2] = controls, utf8, numbers

        if ts < EARLIEST or ts > LATEST or ts + max(dur, 0) > LATEST:
            ts = NULL
        last_track = _track(columns.tracks, columns.track_slots, columns.track_size, pid, tid, last_track)
        if last_track < 0:
            return GROW
        dirty = dirt[0] + dirt[1] + dirt[2] > 0
        if args_end > 0:
            used = state[ARGS_BYTES]
            if used + 6 * (args_end - args_start) > len(columns.args_text) - PADDING:
                return DRAIN if state[ARGS_ROWS] > 0 else GROW
            if dirty:
                used = copy_repaired(buffer, args_start, args_end, columns.args_text, used)
            else:
                used = copy_ahead(buffer, args_start, args_end, columns.args_text, used)
            columns.args_event[state[ARGS_ROWS]] = event
            columns.args_offset[state[ARGS_ROWS] + 1] = used
            state[ARGS_ROWS] += 1
            state[ARGS_BYTES] = used
        state[CUT] += is_cut
        if dirty:
            state[CONTROLS] += dirt[0]
            state[UTF8] += dirt[1]
            state[NUMBERS] += dirt[2]

        if phase == _PHASE_X and ts != NULL:
            if dur == NULL:
                dur = 0
                state[NO_DURATION] += 1
            elif dur < 0:
                dur = 0
                state[NEGATIVE] += 1
            row = state[OPERATORS]
            columns.wide[WIDE_TS, row] = ts
            columns.wide[WIDE_DUR, row] = dur
            columns.wide[WIDE_CORRELATION, row] = integers[CORRELATION]
            columns.wide[WIDE_EXTERNAL_ID, row] = integers[EXTERNAL_ID]
            columns.wide[WIDE_STREAM, row] = integers[STREAM]
            columns.narrow[NARROW_EVENT, row] = event
            columns.narrow[NARROW_NAME, row] = name
            columns.narrow[NARROW_CATEGORY, row] = category
            columns.narrow[NARROW_TRACK, row] = last_track
            device = integers[DEVICE]
            columns.narrow[NARROW_DEVICE, row] = device if NULL32 <= device < -NULL32 else NULL32
            columns.narrow[NARROW_INPUT_DIMS, row] = texts[INPUT_DIMS]
            columns.narrow[NARROW_INPUT_TYPES, row] = texts[INPUT_TYPES]
            columns.narrow[NARROW_GRID, row] = texts[GRID]
            columns.narrow[NARROW_BLOCK, row] = texts[BLOCK]
            columns.narrow[NARROW_OCCUPANCY, row] = texts[OCCUPANCY]
            state[OPERATORS] = row + 1
        elif phase != 115 and phase != 102 and phase != 116:  # s, f, t are flows, which say nothing that ids do not
            row = state[MARKS]
            columns.marks[MARK_EVENT, row] = event
            columns.marks[MARK_PHASE, row] = phase
            columns.marks[MARK_NAME, row] = name
            columns.marks[MARK_TRACK, row] = last_track
            columns.marks[MARK_TS, row] = ts
            state[MARKS] = row + 1
        state[SPARSE] = sparse[0]
        state[EVENTS] = event + 1
        state[POSITION] = i
