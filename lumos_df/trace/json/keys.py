"""The keys of Kineto events that become columns, and where each goes."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

# What to do with the value of a key. Top-level keys of an event:
SKIP, PH, CAT, NAME, PID, TID, TS, DUR, ARGS = range(9)
# Keys inside args: a number of its own column, a text of its own column, or a row of the sparse table.
INTEGER, TEXT, PERCENT, SPARSE_INTEGER, SPARSE_TEXT, SPARSE_COMM_TEXT = range(9, 15)

TOP: Final = {"ph": PH, "cat": CAT, "name": NAME, "pid": PID, "tid": TID, "ts": TS, "dur": DUR, "args": ARGS}

# What most events state has a place in `ScanColumns.integers` or `texts`.
CORRELATION, EXTERNAL_ID, STREAM, DEVICE = range(4)
INPUT_DIMS, INPUT_TYPES, GRID, BLOCK, OCCUPANCY = range(5)

INTEGERS: Final = {"correlation": CORRELATION, "external id": EXTERNAL_ID, "stream": STREAM, "device": DEVICE}
TEXTS: Final = {"Input Dims": INPUT_DIMS, "Input type": INPUT_TYPES, "grid": GRID, "block": BLOCK}
PERCENTS: Final = {"est. achieved occupancy %": OCCUPANCY}

SPARSE_INTEGERS: Final = (
    "Sequence number",
    "Fwd thread id",
    "bytes",
    "Bytes",
    "Addr",
    "Total Allocated",
    "Total Reserved",
    "Device Type",
    "Device Id",
    "wait_on_stream",
    "wait_on_cuda_event_record_corr_id",
    "Group size",
    "In msg nelems",
    "Out msg nelems",
    "Seq",
    "rank",
    "Rank",
)
SPARSE_TEXTS: Final = (
    "Collective name",
    "dtype",
    "Process Group Name",
    "Process Group Description",
    "Process Group Ranks",
    "Module Hierarchy",
)
# Of every CPU operator's inputs only the collectives' are read (their sequence number is among them).
SPARSE_COMM_TEXTS: Final = ("Concrete Inputs",)

ALIASES: Final = {"External id": "external id", "Process Group ID": "Process Group Name", "size": "bytes"}

_CODES: Final = (
    *TOP,
    *INTEGERS,
    *TEXTS,
    *PERCENTS,
    *SPARSE_INTEGERS,
    *SPARSE_TEXTS,
    *SPARSE_COMM_TEXTS,
)
CODE: Final = {key: code for code, key in enumerate(dict.fromkeys(_CODES), 1)}
"""Number of every known key; 0 is any other."""

RANK: Final = CODE["rank"]

KEYS: Final = (*CODE, *ALIASES)
"""Every spelling the scanner knows."""


def key_codes() -> NDArray[np.int16]:
    """Return the code of each spelling in `KEYS`."""
    return np.array([CODE[ALIASES.get(key, key)] for key in KEYS], np.int16)


def actions() -> tuple[NDArray[np.int16], NDArray[np.int16], NDArray[np.int16]]:
    """Return, by code: what to do at the top of an event, what to do inside args, and which column."""
    top, arg, column = (np.zeros(len(CODE) + 1, np.int16) for _ in range(3))
    for key, action in TOP.items():
        top[CODE[key]] = action
    for action, places in ((INTEGER, INTEGERS), (TEXT, TEXTS), (PERCENT, PERCENTS)):
        for key, place in places.items():
            arg[CODE[key]] = action
            column[CODE[key]] = place
    for action, keys in (
        (SPARSE_INTEGER, SPARSE_INTEGERS),
        (SPARSE_TEXT, SPARSE_TEXTS),
        (SPARSE_COMM_TEXT, SPARSE_COMM_TEXTS),
    ):
        for key in keys:
            arg[CODE[key]] = action
    return top, arg, column
