"""What the scanner fills: the columns of a trace as they are read, and the counts of what was met."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lumos_df.trace.strings import Strings

# Why the scan stopped.
MORE, DONE, DRAIN, GROW, BROKEN = range(5)

# Places in `Columns.state`.
(
    POSITION,
    EVENTS,
    OPERATORS,
    MARKS,
    SPARSE,
    ARGS_ROWS,
    ARGS_BYTES,
    NUMBERS,
    CONTROLS,
    UTF8,
    NEGATIVE,
    NOT_OBJECTS,
    STATES,
) = range(13)

NULL: Final = np.iinfo(np.int64).min
"""Stands for "no value" in integer columns while scanning."""
NULL32: Final = np.iinfo(np.int32).min

# Columns of an operator (int64, then int32), and of a mark.
OP_TS, OP_DUR, OP_CORRELATION, OP_EXTERNAL, OP_STREAM = range(5)
(OP_EVENT, OP_NAME, OP_CAT, OP_TRACK, OP_DEVICE, OP_STREAM, OP_DIMS, OP_TYPES, OP_GRID, OP_BLOCK, OP_OCCUPANCY) = range(
    11
)
MARK_EVENT, MARK_PHASE, MARK_NAME, MARK_CAT, MARK_TRACK, MARK_TS = range(6)

COMM_NAME: Final = 0
"""Number of `record_param_comms` in `Columns.strings`: interned before the first event."""


class Columns(NamedTuple):
    """What the scanner fills; rows beyond the counts in `state` are scratch."""

    state: NDArray[np.int64]
    wide: NDArray[np.int64]
    """[OP_TS..OP_STREAM, operator]"""
    narrow: NDArray[np.int32]
    """[OP_EVENT..OP_OCCUPANCY, operator]; occupancy in hundredths of a percent"""
    marks: NDArray[np.int64]
    """[MARK_EVENT..MARK_TS, mark]: instants, counters, metadata, and what cannot become a row"""
    integers: NDArray[np.int64]
    """Dense values of the event being read; so are the next three: scratch, kept here because nothing here allocates"""
    texts: NDArray[np.int32]
    dirt: NDArray[np.int64]
    sparse_next: NDArray[np.int64]
    sparse_event: NDArray[np.int32]
    sparse_key: NDArray[np.int32]
    """Code of the key; for a counter's value `-1 - number` of an interned key, and `sparse_value` holds float64 bits"""
    sparse_value: NDArray[np.int64]
    args_event: NDArray[np.int32]
    args_offset: NDArray[np.int64]
    args_text: NDArray[np.uint8]
    tracks: NDArray[np.int64]
    """[track, (pid, tid)]: a number, or `TEXT_ID + number` of an interned string"""
    track_size: NDArray[np.int64]
    strings: Strings
    keys: Strings
    key_slots: NDArray[np.int16]
    key_code: NDArray[np.int16]
    top_action: NDArray[np.int16]
    arg_action: NDArray[np.int16]
    arg_column: NDArray[np.int16]


TEXT_ID: Final = -(1 << 62)
"""Added to the number of a string that stands where a process or thread number was expected."""
