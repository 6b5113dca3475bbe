"""What the scanner fills: the columns of a file as they are read, and the counts of what was met."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lumos_df.trace.json.strings import Strings

# Why the scan stopped.
MORE, DONE, DRAIN, GROW, BROKEN = range(5)

# Places in `ScanColumns.state`.
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
    NO_DURATION,
    NOT_OBJECTS,
    CUT,
    STATES,
) = range(15)

# Rows of `ScanColumns.wide` and of `narrow`: the columns of an operator; and of `marks`.
WIDE_TS, WIDE_DUR, WIDE_CORRELATION, WIDE_EXTERNAL_ID, WIDE_STREAM, WIDES = range(6)
(
    NARROW_EVENT,
    NARROW_NAME,
    NARROW_CATEGORY,
    NARROW_TRACK,
    NARROW_DEVICE,
    NARROW_INPUT_DIMS,
    NARROW_INPUT_TYPES,
    NARROW_GRID,
    NARROW_BLOCK,
    NARROW_OCCUPANCY,
    NARROWS,
) = range(11)
MARK_EVENT, MARK_PHASE, MARK_NAME, MARK_TRACK, MARK_TS, MARK_COLUMNS = range(6)

COMM_NAME: Final = 0
"""Number of `record_param_comms` in `ScanColumns.strings`: interned before the first event."""

TEXT_ID: Final = -(1 << 62)
"""Added to the number of a string that stands where a process or thread number was expected."""
LONGEST_NAME: Final = 1 << 16
"""Bytes of a name that are kept: every pattern is tried on every name, and no profiler writes a longer one."""
LOWEST_ID: Final = TEXT_ID + (1 << 31)
"""A process or thread number below this is read as null: there the strings' numbers lie, of which each fits 31 bits."""


GAP_BYTES: Final = 64
"""Bytes between two values that are remembered at most, see `kernels.gaps`."""
CLOSED: Final = -1
"""Stands for the code of a key where an object ends."""
PLACES: Final = 512
"""Gaps that are remembered at most; a recorder writes fewer than a hundred."""
WAYS: Final = 4
"""Gaps that are tried at a place."""
TOP_PLACE: Final = 1
"""Where an event begins. Place 0 is where nothing is known of what was before."""
ARGS_PLACE: Final = 2
"""Where its args begin: this place of the first category, and so on."""
ARGS_PLACES: Final = 16


class Gaps(NamedTuple):
    """What stood between values, by its place: the gap after which the scan stands."""

    text: NDArray[np.uint8]
    """[place * GAP_BYTES + byte]"""
    length: NDArray[np.int64]
    code: NDArray[np.int64]
    """Of the key in the gap, or CLOSED."""
    origin: NDArray[np.int64]
    """The place before."""
    after: NDArray[np.int64]
    """[place, WAYS]: the places that came after, the last new one first, -1 for none."""
    size: NDArray[np.int64]
    """One element: how many places there are."""


class Words(NamedTuple):
    """The keys that mean something."""

    texts: Strings
    slots: NDArray[np.int16]
    """Number of the key in each of `interning.KEY_SLOTS`, -1 where free."""
    code: NDArray[np.int16]
    """By number, as `keys` has it."""


class Stated(NamedTuple):
    """Values that few events have, a row each."""

    event: NDArray[np.int32]
    key: NDArray[np.int32]
    """Code of the key; for a counter's value `-1 - number` of an interned key, and `value` holds float64 bits"""
    value: NDArray[np.int64]


class ScanColumns(NamedTuple):
    """What the scanner fills; rows beyond the counts in `state` are scratch.

    Kernels hand on what each needs of it: all of it, hundreds of values, made each of them take longer to compile.
    """

    state: NDArray[np.int64]
    wide: NDArray[np.int64]
    """[WIDE_TS..WIDE_STREAM, operator]"""
    narrow: NDArray[np.int32]
    """[NARROW_EVENT..NARROW_OCCUPANCY, operator]; occupancy in hundredths of a percent"""
    marks: NDArray[np.int64]
    """[MARK_EVENT..MARK_TS, mark]: instants, counters, metadata, and what cannot become a row"""
    integers: NDArray[np.int64]
    """[keys.CORRELATION..DEVICE] of the event being read; so are the next three: the scanner allocates nothing"""
    texts: NDArray[np.int32]
    """[keys.INPUT_DIMS..BLOCK], and the occupancy"""
    dirt: NDArray[np.int64]
    sparse_next: NDArray[np.int64]
    stated: Stated
    args_event: NDArray[np.int32]
    args_offset: NDArray[np.int32]
    args_text: NDArray[np.uint8]
    tracks: NDArray[np.int64]
    """[track, (pid, tid)]: a number from LOWEST_ID, NULL, or `TEXT_ID + number` of an interned string"""
    track_slots: NDArray[np.int32]
    """Number of the pair in each slot, -1 where free; a power of two of them, at least twice as many as pairs."""
    track_size: NDArray[np.int64]
    strings: Strings
    words: Words
    gaps: Gaps
    top_action: NDArray[np.int16]
    arg_action: NDArray[np.int16]
    arg_column: NDArray[np.int16]
