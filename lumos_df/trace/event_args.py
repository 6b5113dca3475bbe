"""Raw values of events as the JSON objects that `Recording` readers give to the sink."""

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lumos_df.trace.recording import ArgsSink

_ROWS: Final = 1 << 17
"""Rows that are written as JSON at a time."""
_PLAIN: Final = pl.CompatLevel.oldest()
"""Arrow's arrays of texts with offsets, not with views."""


def give(sink: ArgsSink, events: NDArray[np.int32], columns: pl.DataFrame) -> None:
    """Give the columns of events, one row each, as an object each; a null stays in it."""
    if not columns.width:
        return
    first = 0
    for block in columns.iter_slices(_ROWS):
        array = block.select(pl.struct(pl.all()).struct.json_encode()).to_series().to_arrow(compat_level=_PLAIN)
        _, offsets, data = array.buffers()
        places = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1].astype(np.int32)
        sink(events[first : first + len(array)], places, np.frombuffer(data or b"", np.uint8))
        first += len(array)
