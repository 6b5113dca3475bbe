"""The scanner: JSON bytes to columns, in one pass.

`scan_events` reads events from a buffer and fills the arrays of `Columns`. It stops, having taken whole events only, when
the buffer ends, the columns are full, or a string table must grow; the caller (`reader`) mends that and calls again.
The buffer ends with `PADDING` zero bytes, so that no inner loop needs a bounds check: a zero where JSON cannot have one
means "more data, please".
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# Everything here is compiled: numba infers the types from the arrays of Columns.

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lumos_df.jit import lean_kernel
from lumos_df.trace.keys import (
    ARGS,
    CAT,
    CODE,
    DUR,
    ID,
    INTEGER,
    NAME,
    PERCENT,
    PH,
    PID,
    SPARSE_COMM_TEXT,
    SPARSE_INTEGER,
    SPARSE_TEXT,
    TEXT,
    TID,
    TS,
)
from lumos_df.trace.lanes import LANES, first_delimiter, first_special, first_structural, first_token
from lumos_df.trace.repair import copy, copy_repaired, utf8_length
from lumos_df.trace.strings import FULL, Strings, find, intern

# Why the scan stopped.
MORE, DONE, DRAIN, GROW, BROKEN = range(5)

# Places in `Columns.state`.
(
    POSITION,
    EVENTS,
    OPERATORS,
    MARKS,
    FLOWS,
    OTHER_FLOWS,
    SPARSE,
    ARGS_ROWS,
    ARGS_BYTES,
    NUMBERS,
    CONTROLS,
    UTF8,
    NO_START,
    UNKNOWN_PHASE,
    NEGATIVE,
    NOT_OBJECTS,
    STATES,
) = range(17)

NULL: Final = np.iinfo(np.int64).min
"""Stands for "no value" in integer columns while scanning."""
NULL32: Final = np.iinfo(np.int32).min

# Integer columns of one operator (int64), then of one operator (int32), then of a mark and of a flow.
OP_TS, OP_DUR, OP_CORRELATION, OP_EXTERNAL = range(4)
(OP_EVENT, OP_NAME, OP_CAT, OP_TRACK, OP_DEVICE, OP_STREAM, OP_DIMS, OP_TYPES, OP_GRID, OP_BLOCK, OP_OCCUPANCY) = range(11)
MARK_EVENT, MARK_PHASE, MARK_NAME, MARK_CAT, MARK_TRACK, MARK_TS = range(6)
FLOW_PHASE, FLOW_ID, FLOW_TS, FLOW_TRACK = range(4)

COMM_NAME: Final = 0
"""Number of `record_param_comms` in `Columns.strings`: interned before the first event."""
FORWARD_BACKWARD: Final = 1
"""Number of `fwdbwd` in `Columns.strings`."""


class Columns(NamedTuple):
    """What the scanner fills; rows beyond the counts in `state` are scratch."""

    state: NDArray[np.int64]
    wide: NDArray[np.int64]
    """[OP_TS..OP_EXTERNAL, operator]"""
    narrow: NDArray[np.int32]
    """[OP_EVENT..OP_OCCUPANCY, operator]; occupancy in hundredths of a percent"""
    marks: NDArray[np.int64]
    """[MARK_EVENT..MARK_TS, mark]: instants, counters and metadata"""
    flows: NDArray[np.int64]
    """[FLOW_PHASE..FLOW_TRACK, flow]: forward-backward arrows"""
    integers: NDArray[np.int64]
    """Dense values of the event being read; so are the next three: scratch, kept here because nothing here allocates"""
    texts: NDArray[np.int32]
    dirt: NDArray[np.int64]
    sparse_next: NDArray[np.int64]
    sparse_event: NDArray[np.int32]
    sparse_key: NDArray[np.int32]
    """Code of the key; `-1 - number` of an interned key for a counter's value, whose `sparse_value` holds float64 bits"""
    sparse_value: NDArray[np.int64]
    args_event: NDArray[np.int32]
    args_offset: NDArray[np.int64]
    args_text: NDArray[np.uint8]
    tracks: NDArray[np.int64]
    """[track, (pid, tid)]: a number, or `TEXT_ID + number` of an interned string"""
    track_size: NDArray[np.int64]
    strings: Strings
    keys: Strings
    key_code: NDArray[np.int16]
    top_action: NDArray[np.int16]
    arg_action: NDArray[np.int16]
    arg_column: NDArray[np.int16]


TEXT_ID: Final = -(1 << 62)
"""Added to the number of a string that stands where a process or thread number was expected."""

MAX_SPARSE: Final = 64
"""Room for sparse values that an event is begun with; there are fewer known keys."""

_QUOTE, _BACKSLASH, _COMMA, _COLON, _MINUS, _DOT = 34, 92, 44, 58, 45, 46
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = 123, 125, 91, 93
_N, _I = 78, 73
_PHASE_X, _PHASE_C = 88, 67


@lean_kernel
def skip_space(buffer, i):
    """Return the position of the next byte that is not white space."""
    while True:
        c = buffer[i]
        if c > 0x20 or c == 0:
            return i
        if buffer[i + 1] > 0x20:  # the one space that most separators have
            return i + 1
        k = first_token(buffer, i)
        i += k
        if k < LANES:
            return i


@lean_kernel
def string_end(buffer, i, end, dirt):
    """Return the position of the quote that ends the string whose text starts at `i`, or -1 when the buffer ends first.

    `dirt` counts raw control characters [0] and broken UTF-8 sequences [1] on the way.
    """
    while True:
        k = first_special(buffer, i)
        i += k
        if k == LANES:
            continue
        c = buffer[i]
        if c == _QUOTE:
            return i
        if i >= end:
            return np.int64(-1)
        if c == _BACKSLASH:
            i += 2
        elif c < 0x20:
            dirt[0] += 1
            i += 1
        else:
            length = utf8_length(buffer, i, end)
            if length == 0:
                dirt[1] += 1
                length = 1
            i += length


@lean_kernel
def value_end(buffer, i, end, dirt):
    """Return the position after the value that starts at `i`, -1 when the buffer ends first, -2 when it is no JSON."""
    c = buffer[i]
    if c == _QUOTE:
        j = string_end(buffer, i + 1, end, dirt)
        return j + 1 if j >= 0 else j
    if c != _OPEN and c != _OPEN_LIST:
        return _scalar_end(buffer, i, end, dirt)
    depth = 0
    while True:
        k = first_structural(buffer, i)
        i += k
        if k == LANES:
            continue
        c = buffer[i]
        if c == _QUOTE:
            i = string_end(buffer, i + 1, end, dirt)
            if i < 0:
                return i
        elif c == _OPEN or c == _OPEN_LIST:
            depth += 1
        elif c == _CLOSE or c == _CLOSE_LIST:
            depth -= 1
            if depth == 0:
                return i + 1
        elif c == 0:
            return np.int64(-1) if i >= end else np.int64(-2)
        else:
            i = _scalar_end(buffer, i, end, dirt) - 1
            if i < 0:
                return i + 1
        i += 1


@lean_kernel
def _scalar_end(buffer, i, end, dirt):
    """Return the position after a number or word; `NaN` and `Infinity` are counted in `dirt[2]`."""
    start = i
    c = buffer[i]
    if c == _MINUS:
        c = buffer[i + 1]
    if c == _N or c == _I:
        dirt[2] += 1
    while True:
        k = first_delimiter(buffer, i)
        i += k
        if k < LANES:
            break
    if i >= end:
        return np.int64(-1)
    return i if i > start else np.int64(-2)


@lean_kernel
def read_integer(buffer, i):
    """Return the integer at `i` (a quoted or fractional one is cut to its integer part), or NULL."""
    if buffer[i] == _QUOTE:
        i += 1
    negative = buffer[i] == _MINUS
    if negative:
        i += 1
    c = buffer[i]
    if c < 48 or c > 57 or (c == 48 and (buffer[i + 1] | 0x20) == 120):  # not a digit, or hexadecimal
        return NULL
    value = np.int64(0)
    digits = 0
    while c >= 48 and c <= 57:
        if digits < 18:
            value = value * 10 + np.int64(c - 48)
        digits += 1
        i += 1
        c = buffer[i]
    if digits > 18 or (c | 0x20) == 101:  # too long for the loop above, or an exponent
        return _float_to_integer(read_float(buffer, i - digits), negative)
    return -value if negative else value


@lean_kernel
def _float_to_integer(value, negative):
    if value >= 9.2e18:
        return NULL
    return -np.int64(value) if negative else np.int64(value)


@lean_kernel
def read_float(buffer, i):
    """Return the number at `i` (quoted or not) as float64; not a number gives NaN."""
    if buffer[i] == _QUOTE:
        i += 1
    negative = buffer[i] == _MINUS
    if negative:
        i += 1
    value = 0.0
    digits = 0
    while buffer[i] >= 48 and buffer[i] <= 57:
        value = value * 10.0 + np.float64(buffer[i] - 48)
        digits += 1
        i += 1
    if buffer[i] == _DOT:
        i += 1
        scale = 1.0
        while buffer[i] >= 48 and buffer[i] <= 57:
            scale *= 0.1
            value += np.float64(buffer[i] - 48) * scale
            digits += 1
            i += 1
    if digits == 0:
        return np.nan
    if (buffer[i] | 0x20) == 101:
        value *= 10.0 ** np.float64(_exponent(buffer, i + 1))
    return -value if negative else value


@lean_kernel
def _exponent(buffer, i):
    negative = buffer[i] == _MINUS
    if negative or buffer[i] == 43:
        i += 1
    value = np.int64(0)
    while buffer[i] >= 48 and buffer[i] <= 57 and value < 400:
        value = value * 10 + np.int64(buffer[i] - 48)
        i += 1
    return -value if negative else value


@lean_kernel
def read_time(buffer, i):
    """Return the microseconds at `i` (a number, or one in quotes) as whole nanoseconds, exactly; half a ns rounds up.

    Decimal digits are read as they stand: through float64 a Unix time in microseconds would lose up to 250 ns.
    """
    if buffer[i] == _QUOTE:
        i += 1
    negative = buffer[i] == _MINUS
    if negative:
        i += 1
    start = i
    value = np.int64(0)
    while buffer[i] >= 48 and buffer[i] <= 57:
        value = value * 10 + np.int64(buffer[i] - 48)
        i += 1
    if i == start or i > start + 16:  # no digit, or beyond int64 nanoseconds
        return NULL
    value *= 1000
    if buffer[i] == _DOT:
        i += 1
        scale = 100
        while buffer[i] >= 48 and buffer[i] <= 57:
            digit = np.int64(buffer[i] - 48)
            if scale > 0:
                value += digit * scale
                scale = scale // 10 if scale > 1 else -1
            elif scale == -1:
                value += 1 if digit >= 5 else 0
                scale = 0
            i += 1
    if (buffer[i] | 0x20) == 101:
        value = np.int64(np.rint(read_float(buffer, start) * 1000.0))
    return -value if negative else value


@lean_kernel
def _track(columns, pid, tid, last):
    """Return the number of the (pid, tid) pair, -1 when the table is full; `last` is tried first."""
    tracks, size = columns.tracks, columns.track_size[0]
    if last < size and tracks[last, 0] == pid and tracks[last, 1] == tid:
        return last
    for track in range(size):
        if tracks[track, 0] == pid and tracks[track, 1] == tid:
            return track
    if size == len(tracks):
        return -1
    tracks[size, 0] = pid
    tracks[size, 1] = tid
    columns.track_size[0] = size + 1
    return size


@lean_kernel
def _identity(buffer, i, stop, strings):
    """Return a pid or tid: the number at `i`, in quotes or not, else the string's number plus TEXT_ID, or FULL.

    In the 2021 dialect a GPU row's tid is `"stream 7"`; a string, so that it meets no thread of that number.
    """
    value = read_integer(buffer, i)
    if value != NULL or buffer[i] != _QUOTE:
        return value
    k = intern(buffer, i + 1, stop - 1, strings)
    return k if k == FULL else k + TEXT_ID


@lean_kernel
def _put_sparse(columns, sparse, event, key, value):
    row = sparse[0]
    if row < len(columns.sparse_key):  # full only when one event repeats keys without end
        columns.sparse_event[row] = event
        columns.sparse_key[row] = key
        columns.sparse_value[row] = value
        sparse[0] = row + 1


@lean_kernel
def _read_args(buffer, i, end, columns, event, is_counter, is_comm, integers, texts, sparse, dirt):
    """Read the args object at `i`; return the position after it, -1 more, -2 broken, -3 grow.

    `integers` and `texts` get the dense values, `texts[-1]` the occupancy; `sparse[0]` is the row to write next.
    """
    i += 1
    while True:
        i = skip_space(buffer, i)
        c = buffer[i]
        if c == _COMMA:
            i += 1
            continue
        if c == _CLOSE:
            return i + 1
        if c != _QUOTE:
            return np.int64(-1) if i >= end else np.int64(-2)
        key_start = i + 1
        key_end = string_end(buffer, key_start, end, dirt)
        if key_end < 0:
            return key_end
        i = skip_space(buffer, key_end + 1)
        if buffer[i] != _COLON:
            return np.int64(-1) if i >= end else np.int64(-2)
        start = skip_space(buffer, i + 1)
        i = value_end(buffer, start, end, dirt)
        if i < 0:
            return i

        k = find(buffer, key_start, key_end, columns.keys)
        code = columns.key_code[k] if k >= 0 else 0
        action = columns.arg_action[code]
        if is_counter:
            value = read_float(buffer, start)
            if not np.isnan(value):
                k = intern(buffer, key_start, key_end, columns.strings)
                if k == FULL:
                    return np.int64(-3)
                _put_sparse(columns, sparse, event, -1 - k, np.float64(value).view(np.int64))
        elif action == INTEGER:
            integers[columns.arg_column[code]] = read_integer(buffer, start)
        elif action == PERCENT:
            value = read_float(buffer, start)
            texts[4] = NULL32 if np.isnan(value) else np.int32(np.rint(min(value, 1e6) * 100.0))
        elif action == SPARSE_INTEGER:
            _put_sparse(columns, sparse, event, code, read_integer(buffer, start))
        elif action == TEXT or action == SPARSE_TEXT or (action == SPARSE_COMM_TEXT and is_comm):
            quoted = 1 if buffer[start] == _QUOTE else 0
            k = intern(buffer, start + quoted, i - quoted, columns.strings)
            if k == FULL:
                return np.int64(-3)
            if action == TEXT:
                texts[columns.arg_column[code]] = k
            else:
                _put_sparse(columns, sparse, event, code, k)


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
        c = buffer[i]
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
            or state[FLOWS] == columns.flows.shape[1]
            or state[SPARSE] + MAX_SPARSE > len(columns.sparse_key)
            or state[ARGS_ROWS] + 1 >= len(columns.args_event)
        ):
            return DRAIN

        event = state[EVENTS]
        phase = 0
        category = name = np.int64(-1)
        pid = tid = ts = dur = identity = NULL
        args_start = args_end = np.int64(0)
        args_read = False
        for k in range(4):
            integers[k] = NULL
        for k in range(5):
            texts[k] = NULL32
        dirt[0] = dirt[1] = dirt[2] = 0
        sparse[0] = state[SPARSE]
        i += 1
        while True:
            i = skip_space(buffer, i)
            c = buffer[i]
            if c == _COMMA:
                i += 1
                continue
            if c == _CLOSE:
                i += 1
                break
            if c != _QUOTE:
                return MORE if i >= end else BROKEN
            key_start = i + 1
            key_end = string_end(buffer, key_start, end, dirt)
            if key_end < 0:
                return MORE
            i = skip_space(buffer, key_end + 1)
            if buffer[i] != _COLON:
                return MORE if i >= end else BROKEN
            start = skip_space(buffer, i + 1)
            k = find(buffer, key_start, key_end, columns.keys)
            action = columns.top_action[columns.key_code[k]] if k >= 0 else 0
            if action == ARGS and buffer[start] == _OPEN:
                args_start = start
                if phase != 0 and name >= 0:
                    is_comm = name == COMM_NAME
                    i = _read_args(
                        buffer, start, end, columns, event, phase == _PHASE_C, is_comm, integers, texts, sparse, dirt
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
                ts = read_time(buffer, start)
            elif action == DUR:
                dur = read_time(buffer, start)
            elif action == PH:
                phase = np.int64(buffer[start + 1]) if buffer[start] == _QUOTE and i == start + 3 else 0
            elif action == ID:
                identity = read_integer(buffer, start)
            elif action == NAME or action == CAT:
                quoted = 1 if buffer[start] == _QUOTE else 0
                k = intern(buffer, start + quoted, i - quoted, strings)
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
                buffer, args_start, end, columns, event, phase == _PHASE_C, name == COMM_NAME, integers, texts, sparse, dirt
            )
            if i_args == -3:
                return GROW
            dirt[0], dirt[1], dirt[2] = controls, utf8, numbers

        last_track = _track(columns, pid, tid, last_track)
        if last_track < 0:
            return GROW
        dirty = dirt[0] + dirt[1] + dirt[2] > 0
        if args_end > 0:
            used = state[ARGS_BYTES]
            if used + 6 * (args_end - args_start) > len(columns.args_text):
                return DRAIN if state[ARGS_ROWS] > 0 else GROW
            if dirty:
                used = copy_repaired(buffer, args_start, args_end, columns.args_text, used)
            else:
                used = copy(buffer, args_start, args_end, columns.args_text, used)
            columns.args_event[state[ARGS_ROWS]] = event
            columns.args_offset[state[ARGS_ROWS] + 1] = used
            state[ARGS_ROWS] += 1
            state[ARGS_BYTES] = used
        if dirty:
            state[CONTROLS] += dirt[0]
            state[UTF8] += dirt[1]
            state[NUMBERS] += dirt[2]

        if phase == _PHASE_X:
            if ts == NULL:
                state[NO_START] += 1
            else:
                if dur == NULL:
                    dur = 0
                elif dur < 0:
                    dur = 0
                    state[NEGATIVE] += 1
                row = state[OPERATORS]
                columns.wide[OP_TS, row] = ts
                columns.wide[OP_DUR, row] = dur
                columns.wide[OP_CORRELATION, row] = integers[0]
                columns.wide[OP_EXTERNAL, row] = integers[1]
                columns.narrow[OP_EVENT, row] = event
                columns.narrow[OP_NAME, row] = name
                columns.narrow[OP_CAT, row] = category
                columns.narrow[OP_TRACK, row] = last_track
                columns.narrow[OP_DEVICE, row] = NULL32 if integers[2] == NULL else integers[2]
                columns.narrow[OP_STREAM, row] = NULL32 if integers[3] == NULL else integers[3]
                columns.narrow[OP_DIMS, row] = texts[0]
                columns.narrow[OP_TYPES, row] = texts[1]
                columns.narrow[OP_GRID, row] = texts[2]
                columns.narrow[OP_BLOCK, row] = texts[3]
                columns.narrow[OP_OCCUPANCY, row] = texts[4]
                state[OPERATORS] = row + 1
        elif phase == 115 or phase == 102 or phase == 116:  # s, f, t: arrows
            if category == FORWARD_BACKWARD and identity != NULL and ts != NULL:
                row = state[FLOWS]
                columns.flows[FLOW_PHASE, row] = phase
                columns.flows[FLOW_ID, row] = identity
                columns.flows[FLOW_TS, row] = ts
                columns.flows[FLOW_TRACK, row] = last_track
                state[FLOWS] = row + 1
            else:
                state[OTHER_FLOWS] += 1
        elif phase == 105 or phase == 73 or phase == 77 or phase == 67 or phase == 82:  # i, I, M, C, R
            row = state[MARKS]
            columns.marks[MARK_EVENT, row] = event
            columns.marks[MARK_PHASE, row] = phase
            columns.marks[MARK_NAME, row] = name
            columns.marks[MARK_CAT, row] = category
            columns.marks[MARK_TRACK, row] = last_track
            columns.marks[MARK_TS, row] = ts
            state[MARKS] = row + 1
        else:
            state[UNKNOWN_PHASE] += 1
        state[SPARSE] = sparse[0]
        state[EVENTS] = event + 1
        state[POSITION] = i
