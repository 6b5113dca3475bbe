"""The columns of a whole file, joined of those of its blocks in the file's order."""

from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from lumos_df.schema.codes import NULL
from lumos_df.trace.json import keys, scanned, strings
from lumos_df.trace.json.block_scanner import BlockScanner, more_tracks, new_tracks
from lumos_df.trace.json.kernels import joining
from lumos_df.trace.json.kernels.simd import PADDING
from lumos_df.trace.recording import ArgsSink, AttributeValues

_FEW: Final = 1 << 15
"""Operators that there is room for at first: a small file would else touch a large page of memory for each column."""
_MANY: Final = 1 << 21
"""Operators that there is room for in a larger file; memory that is not touched costs nothing."""

Number = TypeVar("Number", np.int32, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedTrace:
    """A file as the scanner read it: columns in the file's order, texts as numbers into `strings`."""

    wide: NDArray[np.int64]
    """[WIDE_TS .. WIDE_STREAM, operator], see `scanned`."""
    narrow: NDArray[np.int32]
    """[NARROW_EVENT .. NARROW_OCCUPANCY, operator]."""
    marks: NDArray[np.int64]
    """[MARK_EVENT .. MARK_TS, mark], ordered by event."""
    stated: dict[str, AttributeValues]
    """Values that few events have, by key; one that is no number is left out."""
    counter_event: NDArray[np.int32]
    """Event of each value of a counter; ascends."""
    counter_series: NDArray[np.int32]
    """Its name, a number into `strings`."""
    counter_value: NDArray[np.float64]
    """The value."""
    tracks: NDArray[np.int64]
    """[track, (pid, tid)], see `scanned`."""
    strings: list[str]
    """Every distinct text once."""
    counts: NDArray[np.int64]
    """`ScanColumns.state` summed over the whole file."""
    metadata: dict[str, Any]
    """The file's top-level values other than the events."""
    truncated: bool
    """Whether the file ended in the middle."""
    warnings: tuple[str, ...]


class FileColumns:
    """Rows, texts and tracks so far. Their numbers are those of one scan of the whole file, whoever scanned what."""

    def __init__(self, sink: ArgsSink) -> None:
        self.counts = np.zeros(scanned.STATES, np.int64)
        """`ScanColumns.state` summed over the blocks."""
        self._sink = sink
        self._wide = np.empty((scanned.WIDES, _FEW), np.int64)
        self._narrow = np.empty((scanned.NARROWS, _FEW), np.int32)
        self._marks = [np.empty((scanned.MARK_COLUMNS, 0), np.int64)]
        self._sparse_event = [np.empty(0, np.int32)]
        self._sparse_key = [np.empty(0, np.int32)]
        self._sparse_value = [np.empty(0, np.int64)]
        self._texts = strings.new_strings()
        self._tracks, self._track_slots = new_tracks()
        self._track_size = np.zeros(1, np.int64)

    def take(self, scanner: BlockScanner) -> None:
        """Append the rows that a scanner holds, and empty it."""
        columns = scanner.columns
        self._make_room(scanner)
        joining.join(
            columns,
            self._texts,
            self._tracks,
            self._track_slots,
            self._track_size,
            scanner.numbers,
            scanner.track_numbers,
            scanner.known,
            int(self.counts[scanned.EVENTS]),
        )
        state = columns.state
        before, operators = int(self.counts[scanned.OPERATORS]), int(state[scanned.OPERATORS])
        rows = slice(before, before + operators)
        self._wide[:, rows] = columns.wide[:, :operators]
        self._narrow[:, rows] = columns.narrow[:, :operators]
        self._marks.append(columns.marks[:, : state[scanned.MARKS]].copy())
        stated = slice(0, int(state[scanned.SPARSE]))
        self._sparse_event.append(columns.stated.event[stated].copy())
        self._sparse_key.append(columns.stated.key[stated].copy())
        self._sparse_value.append(columns.stated.value[stated].copy())
        if args := int(state[scanned.ARGS_ROWS]):
            self._sink(
                columns.args_event[:args],
                columns.args_offset[: args + 1],
                columns.args_text[: state[scanned.ARGS_BYTES]],
            )
        self.counts += state
        scanner.empty()

    def _make_room(self, scanner: BlockScanner) -> None:
        """Make room for what the scanner holds: texts, tracks, operators.

        Of operators for `_MANY`, then for four times as many, once they are full. Untouched memory costs nothing, so
        this holds little more than the rows; a list of chunks would hold every row twice while it is joined.
        """
        columns = scanner.columns
        first, last = scanner.known[0], columns.strings.size[0]
        size, new_bytes = self._texts.size[0], int(np.diff(columns.strings.offsets[[first, last]])[0])
        while size + last - first + 1 >= len(self._texts.offsets) or (
            self._texts.offsets[size] + new_bytes > len(self._texts.pool) - PADDING
        ):
            self._texts = strings.grow(self._texts, new_bytes)
        while self._track_size[0] + columns.track_size[0] - scanner.known[1] > len(self._tracks):
            self._tracks, self._track_slots = more_tracks(self._tracks, int(self._track_size[0]))
        rows = int(self.counts[scanned.OPERATORS])
        wanted = rows + int(columns.state[scanned.OPERATORS])
        if wanted > self._wide.shape[1]:
            room = max(_MANY, 4 * wanted)
            wide = np.empty((scanned.WIDES, room), np.int64)
            wide[:, :rows] = self._wide[:, :rows]
            narrow = np.empty((scanned.NARROWS, room), np.int32)
            narrow[:, :rows] = self._narrow[:, :rows]
            self._wide, self._narrow = wide, narrow

    def finish(self, metadata: dict[str, Any], *, truncated: bool, warnings: tuple[str, ...]) -> ScannedTrace:
        """Return all that was taken in, once; the arguments are the trace's."""
        operators = int(self.counts[scanned.OPERATORS])
        event, key, value = _joined(self._sparse_event), _joined(self._sparse_key), _joined(self._sparse_value)
        # Codes of keys are few, and all of a counter's are below 0: 16 bits, which numpy sorts in linear time.
        order = np.argsort(np.maximum(key, -1).astype(np.int16), kind="stable")
        event, key, value = event[order], key[order], value[order]
        counted = slice(0, int(np.count_nonzero(key < 0)))
        return ScannedTrace(
            wide=self._wide[:, :operators],
            narrow=self._narrow[:, :operators],
            marks=np.concatenate(self._marks, axis=1),
            stated=_by_key(event, key, value),
            counter_event=event[counted],
            counter_series=-1 - key[counted],
            counter_value=value[counted].view(np.float64),
            tracks=self._tracks[: self._track_size[0]].copy(),
            strings=strings.decode(self._texts),
            counts=self.counts,
            metadata=metadata,
            truncated=truncated,
            warnings=warnings,
        )


def _by_key(event: NDArray[np.int32], key: NDArray[np.int32], value: NDArray[np.int64]) -> dict[str, AttributeValues]:
    """Return the values of each key that any event states, from rows ordered by the keys' codes; numbers only."""
    stated = {}
    for name, code in keys.CODE.items():
        rows = slice(*np.searchsorted(key, (code, code + 1)).tolist())
        known = value[rows] != NULL
        stated[name] = AttributeValues(event[rows][known], value[rows][known])
    return stated


def _joined(chunks: list[NDArray[Number]]) -> NDArray[Number]:
    """Join and forget the chunks."""
    whole = np.concatenate(chunks)
    chunks.clear()
    return whole
