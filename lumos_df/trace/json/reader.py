"""Reads the JSON of one file as a stream: a chunk at a time through the scanner, into whole columns.

Memory holds one chunk of text, the columns read so far and the distinct strings; raw args leave through the sink as
they come.
"""

from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import TraceError
from lumos_df.schema.codes import NULL
from lumos_df.trace.json import keys, scanned, strings
from lumos_df.trace.json.header import Header
from lumos_df.trace.json.kernels import interning, scan, tokens
from lumos_df.trace.json.kernels.simd import PADDING
from lumos_df.trace.json.read_ahead import ReadAhead
from lumos_df.trace.recording import ArgsSink, AttributeValues
from lumos_df.trace.stored_file import StoredFile

_CHUNK: Final = 2 << 20
"""Bytes read at a time: few enough that the scanner finds them in the processor's cache."""
_TEXT: Final = 16 << 20
"""Bytes of args kept before they go to the sink."""
_ROWS: Final = 1 << 16
"""Rows of scratch for what is taken out again and again: marks, flows, sparse values, args."""
_FEW: Final = 1 << 15
"""Operators that there is room for at first: a small file would else touch a large page of memory for each column."""
_MANY: Final = 1 << 21
"""Operators that there is room for in a larger file; memory that is not touched costs nothing."""
_LONGEST: Final = 64 << 20
"""Bytes of one event, or of one top-level value, that are held; what a file of few bytes unpacks to has no end."""

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


def read_trace(file: StoredFile, sink: ArgsSink, *, chunk_bytes: int = _CHUNK) -> ScannedTrace:
    """Read a whole file, `chunk_bytes` at a time.

    Raises:
        TraceError: not JSON, no event list, no event, or the file cannot be read.
    """
    return _Reader(file, sink, chunk_bytes).run()


def new_columns(rows: int = _ROWS, *, text_bytes: int) -> scanned.ScanColumns:
    """Return empty columns with room for `rows` rows of each kind and `text_bytes` of args."""
    texts = strings.new_strings()
    known = strings.new_strings(256, 4096)
    _intern("record_param_comms", texts)  # number scanned.COMM_NAME
    slots = np.full(interning.KEY_SLOTS, -1, np.int16)
    for key in keys.KEYS:
        number = _intern(key, known)
        slot = int(interning.key_slot(known.pool, int(known.offsets[number]), int(known.offsets[number + 1])))
        if slots[slot] >= 0:
            raise AssertionError(f"two keys in one slot, one of them {key!r}: take a larger interning.KEY_SLOTS")
        slots[slot] = number
    top_action, arg_action, arg_column = keys.actions()
    return scanned.ScanColumns(
        state=np.zeros(scanned.STATES, np.int64),
        wide=np.empty((scanned.WIDES, _FEW), np.int64),
        narrow=np.empty((scanned.NARROWS, _FEW), np.int32),
        marks=np.empty((scanned.MARK_COLUMNS, rows), np.int64),
        integers=np.empty(len(keys.INTEGERS), np.int64),
        texts=np.empty(len(keys.TEXTS) + len(keys.PERCENTS), np.int32),
        dirt=np.zeros(3, np.int64),
        sparse_next=np.zeros(1, np.int64),
        sparse_event=np.empty(2 * rows, np.int32),
        sparse_key=np.empty(2 * rows, np.int32),
        sparse_value=np.empty(2 * rows, np.int64),
        args_event=np.empty(rows, np.int32),
        args_offset=np.zeros(rows + 1, np.int32),
        args_text=np.empty(text_bytes + PADDING, np.uint8),
        tracks=np.zeros((256, 2), np.int64),
        track_slots=np.full(1024, -1, np.int32),
        track_size=np.zeros(1, np.int64),
        strings=texts,
        keys=known,
        gaps=_no_gaps(),
        key_slots=slots,
        key_code=keys.key_codes(),
        top_action=top_action,
        arg_action=arg_action,
        arg_column=arg_column,
    )


def _no_gaps() -> scanned.Gaps:
    begins = scanned.ARGS_PLACE + scanned.ARGS_PLACES
    return scanned.Gaps(
        text=np.zeros(scanned.PLACES * scanned.GAP_BYTES, np.uint8),
        length=np.zeros(scanned.PLACES, np.int64),
        code=np.zeros(scanned.PLACES, np.int64),
        origin=np.full(scanned.PLACES, -1, np.int64),
        after=np.full((scanned.PLACES, scanned.WAYS), -1, np.int64),
        size=np.array([begins]),
    )


def _intern(text: str, table: strings.Strings) -> int:
    raw = text.encode()
    return int(interning.intern(np.frombuffer(raw + bytes(PADDING), np.uint8), 0, len(raw), table))


class _Reader:
    """Moves chunks through the scanner and collects what it gives."""

    def __init__(self, file: StoredFile, sink: ArgsSink, chunk_bytes: int) -> None:
        self._file = file
        self._sink = sink
        self._columns = new_columns(text_bytes=_TEXT)
        self._ahead = ReadAhead(file, chunk_bytes)
        self._buffer = np.zeros(0, np.uint8)
        self._end = 0
        self._before = 0
        """Bytes of JSON before the buffer; what is before its first event in it may be below 0."""
        self._marks: list[NDArray[np.int64]] = []
        self._sparse_event: list[NDArray[np.int32]] = []
        self._sparse_key: list[NDArray[np.int32]] = []
        self._sparse_value: list[NDArray[np.int64]] = []
        self._warnings: list[str] = []

    def run(self) -> ScannedTrace:
        with self._ahead:
            header, truncated = self._scan()
        return self._finish(header, truncated=truncated)

    def _scan(self) -> tuple[Header, bool]:
        """Scan the whole file; return what is beside its events, and whether it ended in the middle."""
        header = Header(self._file.name)
        truncated = inside = False
        position = self._refill(0)
        while not header.closed:
            if inside:
                answer, position = self._events(position)
                inside = answer != scanned.DONE
                if not inside:
                    header.end_list()
                    continue
            else:
                answer, position = header.advance(self._buffer, position, self._end)
                inside = answer == scanned.DONE
                if inside or header.closed:
                    continue
            too_long = answer == scanned.MORE and self._end - position > _LONGEST
            if answer == scanned.MORE and not self._ahead.ended and not too_long:
                position = self._refill(position)
                continue
            if too_long:
                where = self._before + position
                self._warnings.append(
                    f"an event or value from byte {where} of its JSON on is longer than 64 MiB, a profiler's never; "
                    "every complete event before that was read"
                )
            elif answer == scanned.BROKEN or not self._file.damage:
                what = "is not JSON" if answer == scanned.BROKEN else "ends"
                where = self._before + position
                self._warnings.append(
                    f"the file {what} at byte {where} of its JSON; every complete event before that was read"
                )
            truncated = True
            break
        else:
            self._look_behind(position)
        if self._file.damage:
            self._warnings.append(f"{self._file.damage}; every complete event before that was read")
            truncated = True
        header.require_events(self._file.taken_bytes)
        if truncated and self._columns.state[scanned.EVENTS] == 0:
            raise TraceError(f"{self._file.name}: ends before its first event is complete; record it again")
        return header, truncated

    def _look_behind(self, position: int) -> None:
        """Warn where something follows the end of the document: a second one, joined to the first, is not read."""
        while True:
            start = int(tokens.skip_space(self._buffer, position))
            if start < self._end:
                where = self._before + start
                self._warnings.append(f"what follows the end of the JSON document, at byte {where}, was not read")
                return
            if self._ahead.ended:
                return
            position = self._refill(self._end)

    def _refill(self, position: int) -> int:
        """Keep `buffer[position:end]`, take more behind it, and return its new position."""
        kept = self._buffer[position : self._end]
        self._before += position
        array, size = self._ahead.take()
        room = self._ahead.room
        if len(kept) <= room:
            start, self._end = room - len(kept), room + size
            array[start:room] = kept
            self._buffer = array
        else:  # one event or value fills the buffer: take as much again, so that few bytes are looked at often
            start, self._end = 0, len(kept) + size
            parts = [kept.copy(), array[room : room + size].copy()]
            while self._end < 2 * len(kept) and not self._ahead.ended:
                array, size = self._ahead.take()
                parts.append(array[room : room + size].copy())
                self._end += size
            self._buffer = np.concatenate([*parts, np.zeros(PADDING, np.uint8)])
        self._before -= start
        return start

    def _events(self, position: int) -> tuple[int, int]:
        columns = self._columns
        columns.state[scanned.POSITION] = position
        while True:
            answer = int(scan.scan_events(self._buffer, self._end, columns))
            if answer == scanned.GROW:
                columns = self._columns = self._grown(columns)
            elif answer == scanned.DRAIN:
                columns = self._columns = _with_room(self._drained(columns))
            else:
                return answer, int(columns.state[scanned.POSITION])

    def _grown(self, columns: scanned.ScanColumns) -> scanned.ScanColumns:
        """Make room where it lacks: an event may bring up to the rest of the buffer in new strings or args."""
        ahead = self._end - int(columns.state[scanned.POSITION])
        texts = columns.strings
        if texts.size[0] + 64 > len(texts.hashes) or texts.offsets[texts.size[0]] + ahead + PADDING > len(texts.pool):
            columns = columns._replace(strings=strings.grow(texts, ahead))
        if columns.track_size[0] == len(columns.tracks):
            slots = np.full(2 * len(columns.track_slots), -1, np.int32)
            interning.place_tracks(columns.tracks, len(columns.tracks), slots)
            tracks = np.concatenate((columns.tracks, np.zeros_like(columns.tracks)))
            columns = columns._replace(tracks=tracks, track_slots=slots)
        if columns.sparse_next[0] == len(columns.sparse_key):
            if columns.state[scanned.SPARSE]:
                columns = self._drained(columns)
            else:
                columns = columns._replace(
                    sparse_event=np.empty(2 * len(columns.sparse_event), np.int32),
                    sparse_key=np.empty(2 * len(columns.sparse_key), np.int32),
                    sparse_value=np.empty(2 * len(columns.sparse_value), np.int64),
                )
        if 6 * ahead + PADDING > len(columns.args_text) and columns.state[scanned.ARGS_ROWS] == 0:
            columns = columns._replace(args_text=np.empty(6 * ahead + PADDING, np.uint8))
        return columns

    def _drained(self, columns: scanned.ScanColumns) -> scanned.ScanColumns:
        """Take what the scratch arrays hold and return them empty; those of the args are others, as the sink keeps its.

        New arrays cost less than a copy: they lie where those were that were written before.
        """
        state = columns.state
        self._marks.append(columns.marks[:, : state[scanned.MARKS]].copy())
        stated = slice(0, int(state[scanned.SPARSE]))
        self._sparse_event.append(columns.sparse_event[stated].copy())
        self._sparse_key.append(columns.sparse_key[stated].copy())
        self._sparse_value.append(columns.sparse_value[stated].copy())
        rows = int(state[scanned.ARGS_ROWS])
        if rows:
            self._sink(
                columns.args_event[:rows],
                columns.args_offset[: rows + 1],
                columns.args_text[: state[scanned.ARGS_BYTES]],
            )
            columns = columns._replace(
                args_event=np.empty_like(columns.args_event),
                args_offset=np.zeros_like(columns.args_offset),
                args_text=np.empty_like(columns.args_text),
            )
        state[[scanned.MARKS, scanned.SPARSE, scanned.ARGS_ROWS, scanned.ARGS_BYTES]] = 0
        return columns

    def _finish(self, header: Header, *, truncated: bool) -> ScannedTrace:
        columns = self._drained(self._columns)
        self._buffer = np.zeros(0, np.uint8)
        operators = int(columns.state[scanned.OPERATORS])
        event, key, value = _joined(self._sparse_event), _joined(self._sparse_key), _joined(self._sparse_value)
        # Codes of keys are few, and all of a counter's are below 0: 16 bits, which numpy sorts in linear time.
        order = np.argsort(np.maximum(key, -1).astype(np.int16), kind="stable")
        event, key, value = event[order], key[order], value[order]
        counted = slice(0, int(np.count_nonzero(key < 0)))
        return ScannedTrace(
            wide=columns.wide[:, :operators],
            narrow=columns.narrow[:, :operators],
            marks=np.concatenate(self._marks, axis=1),
            stated=_by_key(event, key, value),
            counter_event=event[counted],
            counter_series=-1 - key[counted],
            counter_value=value[counted].view(np.float64),
            tracks=columns.tracks[: columns.track_size[0]].copy(),
            strings=strings.decode(columns.strings),
            counts=columns.state.copy(),
            metadata=header.metadata,
            truncated=truncated,
            warnings=(*header.warnings, *self._warnings),
        )


def _by_key(event: NDArray[np.int32], key: NDArray[np.int32], value: NDArray[np.int64]) -> dict[str, AttributeValues]:
    """Return the values of each key that any event states, from rows ordered by the keys' codes; numbers only."""
    stated = {}
    for name, code in keys.CODE.items():
        rows = slice(*np.searchsorted(key, (code, code + 1)).tolist())
        known = value[rows] != NULL
        stated[name] = AttributeValues(event[rows][known], value[rows][known])
    return stated


def _with_room(columns: scanned.ScanColumns) -> scanned.ScanColumns:
    """Return the columns with room for more operators: `_MANY`, then four times as many, once they are full.

    Untouched memory costs nothing, so this holds little more than the rows; a list of chunks would hold every row twice
    while it is joined.
    """
    rows = int(columns.state[scanned.OPERATORS])
    if rows < columns.wide.shape[1]:
        return columns
    room = max(_MANY, 4 * rows)
    wide = np.empty((len(columns.wide), room), np.int64)
    wide[:, :rows] = columns.wide
    narrow = np.empty((len(columns.narrow), room), np.int32)
    narrow[:, :rows] = columns.narrow
    return columns._replace(wide=wide, narrow=narrow)


def _joined(chunks: list[NDArray[Number]]) -> NDArray[Number]:
    """Join and forget the chunks."""
    whole = np.concatenate(chunks)
    chunks.clear()
    return whole
