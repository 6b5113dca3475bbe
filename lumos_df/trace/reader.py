"""Reads one trace as a stream: a chunk at a time through the scanner, into whole columns.

Memory holds one chunk of text, the columns read so far and the distinct strings; raw args leave through `ArgsSink`
as they come.
"""

import hashlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from lumos_df.errors import TraceError
from lumos_df.trace import keys, record, scan, strings, tokens
from lumos_df.trace.header import Header
from lumos_df.trace.lanes import PADDING
from lumos_df.trace.sources import Readable

_CHUNK: Final = 2 << 20
"""Bytes read at a time: few enough that the scanner finds them in the processor's cache."""
_TEXT: Final = 16 << 20
"""Bytes of args kept before they go to the sink."""
_ROWS: Final = 1 << 16
"""Rows of scratch for what is taken out again and again: marks, flows, sparse values, args."""
_OPERATORS: Final = 1 << 21
"""Operators that there is room for at first; memory that is not touched costs nothing."""
_PACKED: Final = 1 << 20
"""Bytes of a packed file read at a time."""
_GZIP: Final = b"\x1f\x8b"

Number = TypeVar("Number", np.int32, np.int64)

ArgsSink = Callable[[NDArray[np.int32], NDArray[np.int64], NDArray[np.uint8]], None]
"""Takes (events, offsets, text): the args of events[k] are text[offsets[k]:offsets[k + 1]]. The arrays are reused."""


@dataclass(slots=True)
class RawTrace:
    """A trace as read: columns in the file's order, texts as numbers into `strings`."""

    wide: NDArray[np.int64]
    """[OP_TS .. OP_STREAM, operator], see `record.Columns`."""
    narrow: NDArray[np.int32]
    """[OP_EVENT .. OP_OCCUPANCY, operator]."""
    marks: NDArray[np.int64]
    """[MARK_EVENT .. MARK_TS, mark]."""
    sparse_event: NDArray[np.int32]
    """Event of each value that few events have."""
    sparse_key: NDArray[np.int32]
    """Its key, see `record.Columns`."""
    sparse_value: NDArray[np.int64]
    """The value."""
    tracks: NDArray[np.int64]
    """[track, (pid, tid)], see `record.Columns`."""
    strings: list[str]
    """Every distinct text once."""
    counts: NDArray[np.int64]
    """`Columns.state` summed over the whole file."""
    metadata: dict[str, Any]
    """The file's top-level values other than the events."""
    sha256: str
    size_bytes: int
    json_bytes: int
    truncated: bool
    """Whether the file ended in the middle."""
    warnings: list[str] = field(default_factory=list)

    def where(self, wanted: Callable[[str], bool]) -> NDArray[np.bool_]:
        """Return for each text number whether `wanted` holds; one entry more, False, so that -1 (no text) finds it."""
        return np.array([*map(wanted, self.strings), False], np.bool_)

    def sparse(self, key: str) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return (events, values) of a sparse key, in the file's order, events without a number left out."""
        mask = (self.sparse_key == keys.CODE[key]) & (self.sparse_value != record.NULL)
        return self.sparse_event[mask], self.sparse_value[mask]


def read_trace(stream: Readable, path: str, sink: ArgsSink, *, chunk_bytes: int = _CHUNK) -> RawTrace:
    """Read the whole of `stream`, JSON or gzipped JSON, `chunk_bytes` at a time; `path` names it in errors.

    Raises:
        TraceError: not JSON, no event list, no event, or the stream cannot be read.
    """
    return _Reader(_Bytes(stream, path), path, sink, chunk_bytes).run()


class _Bytes:
    """The JSON bytes of a stream, unpacked where they are gzipped, with the digest of what was stored."""

    def __init__(self, stream: Readable, path: str) -> None:
        self._stream = stream
        self._path = path
        self._digest = hashlib.sha256()
        self._unpack: Any = None
        self._packed = memoryview(bytearray(_PACKED))
        self._left = b""
        """Unpacked bytes that did not fit the last target."""
        self.stored = 0
        self.unpacked = 0
        self.damage = ""

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def fill(self, target: memoryview) -> int:
        """Fill `target` from its start; return the bytes written, fewer than asked only at the end."""
        done = 0
        while done < len(target):
            size = self._plain(target[done:]) if self._unpack is None else self._unpacked(target[done:])
            if size == 0:
                break
            if self.stored == size and bytes(target[:2]) == _GZIP:  # the first bytes of the file
                self._unpack = zlib.decompressobj(zlib.MAX_WBITS | 16)
                self._left = self._inflated(bytes(target[:size]))
                size = 0
            done += size
        self.unpacked += done
        return done

    def _plain(self, target: memoryview) -> int:
        """Read stored bytes into `target`; return how many, 0 at the end."""
        try:
            size = self._stream.readinto(target) or 0
        except OSError as error:
            where = f"cannot be read at byte {self.stored} ({error.strerror or error})"
            raise TraceError(f"{self._path}: {where}; check the file and its disk") from None
        self._digest.update(target[:size])
        self.stored += size
        return size

    def _unpacked(self, target: memoryview) -> int:
        while not self._left and not self.damage:
            size = self._plain(self._packed)
            if size == 0:
                if not self._unpack.eof:
                    self.damage = "the gzip stream ends in the middle"
                self._left = self._unpack.flush()
                break
            self._left = self._inflated(bytes(self._packed[:size]))
        size = min(len(self._left), len(target))
        target[:size] = self._left[:size]
        self._left = self._left[size:]
        return size

    def _inflated(self, data: bytes) -> bytes:
        """Unpack what has come; gzip files may be joined, and zeros may pad them."""
        out = []
        while data:
            if self._unpack.eof:
                data = data.lstrip(b"\0")
                if not data:
                    break
                self._unpack = zlib.decompressobj(zlib.MAX_WBITS | 16)
            try:
                out.append(self._unpack.decompress(data))
            except zlib.error as error:
                self.damage = f"the gzip stream is broken near byte {self.stored} ({error})"
                break
            data = self._unpack.unused_data
        return b"".join(out)

    def drain(self) -> None:
        """Read what is left, so that the digest covers the whole file."""
        while self._plain(self._packed):
            pass


def new_columns(rows: int = _ROWS, *, text_bytes: int) -> record.Columns:
    """Return empty columns with room for `rows` rows of each kind and `text_bytes` of args."""
    texts = strings.new_strings()
    known = strings.new_strings(256, 4096)
    _intern("record_param_comms", texts)  # number record.COMM_NAME
    slots = np.full(strings.KEY_SLOTS, -1, np.int16)
    for key in keys.KEYS:
        number = _intern(key, known)
        slot = int(strings.key_slot(known.pool, int(known.offsets[number]), int(known.offsets[number + 1])))
        if slots[slot] >= 0:
            raise AssertionError(f"two keys in one slot, one of them {key!r}: take a larger strings.KEY_SLOTS")
        slots[slot] = number
    return record.Columns(
        np.zeros(record.STATES, np.int64),
        np.empty((record.OP_STREAM + 1, _OPERATORS), np.int64),
        np.empty((record.OP_OCCUPANCY + 1, _OPERATORS), np.int32),
        np.empty((record.MARK_TS + 1, rows), np.int64),
        np.empty(len(keys.INTEGERS), np.int64),
        np.empty(len(keys.TEXTS) + 1, np.int32),
        np.zeros(3, np.int64),
        np.zeros(1, np.int64),
        np.empty(2 * rows, np.int32),
        np.empty(2 * rows, np.int32),
        np.empty(2 * rows, np.int64),
        np.empty(rows, np.int32),
        np.zeros(rows + 1, np.int64),
        np.empty(text_bytes, np.uint8),
        np.zeros((256, 2), np.int64),
        np.zeros(1, np.int64),
        texts,
        known,
        slots,
        keys.key_codes(),
        *keys.actions(),
    )


def _intern(text: str, table: strings.Strings) -> int:
    raw = text.encode()
    return int(strings.intern(np.frombuffer(raw + bytes(PADDING), np.uint8), 0, len(raw), table))


class _Reader:
    """Moves chunks through the scanner and collects what it gives."""

    def __init__(self, source: _Bytes, path: str, sink: ArgsSink, chunk_bytes: int) -> None:
        self._source = source
        self._path = path
        self._sink = sink
        self._columns = new_columns(text_bytes=_TEXT)
        self._buffer = np.zeros(chunk_bytes + PADDING, np.uint8)
        self._end = 0
        self._before = 0
        """Bytes of JSON before the buffer."""
        self._ended = False
        self._marks: list[NDArray[np.int64]] = []
        self._sparse_event: list[NDArray[np.int32]] = []
        self._sparse_key: list[NDArray[np.int32]] = []
        self._sparse_value: list[NDArray[np.int64]] = []
        self._warnings: list[str] = []

    def run(self) -> RawTrace:
        header = Header(self._path)
        truncated = inside = False
        position = self._refill(0)
        while not header.closed:
            if inside:
                answer, position = self._events(position)
                inside = answer != record.DONE
                if not inside:
                    header.end_list()
                    continue
            else:
                answer, position = header.advance(self._buffer, position, self._end)
                inside = answer == record.DONE
                if inside or header.closed:
                    continue
            if answer == record.MORE and not self._ended:
                position = self._refill(position)
                continue
            if answer == record.BROKEN or not self._source.damage:
                what = "is not JSON" if answer == record.BROKEN else "ends"
                where = self._before + position
                self._warnings.append(
                    f"the file {what} at byte {where} of its JSON; every complete event before that was read"
                )
            truncated = True
            break
        else:
            self._look_behind(position)
        if self._source.damage:
            self._warnings.append(f"{self._source.damage}; every complete event before that was read")
            truncated = True
        self._source.drain()
        header.require_events(self._source.unpacked)
        if truncated and self._columns.state[record.EVENTS] == 0:
            raise TraceError(f"{self._path}: ends before its first event is complete; record it again")
        return self._finish(header, truncated=truncated)

    def _look_behind(self, position: int) -> None:
        """Warn where something follows the end of the document: a second one, joined to the first, is not read."""
        while True:
            start = int(tokens.skip_space(self._buffer, position))
            if start < self._end:
                where = self._before + start
                self._warnings.append(f"what follows the end of the JSON document, at byte {where}, was not read")
                return
            if self._ended:
                return
            position = self._refill(self._end)

    def _refill(self, position: int) -> int:
        """Keep `buffer[position:end]`, read more behind it, and return its new position."""
        kept = self._end - position
        if kept > len(self._buffer) // 2:  # one event or value fills the buffer
            larger = np.zeros(2 * len(self._buffer), np.uint8)
            larger[:kept] = self._buffer[position : self._end]
            self._buffer = larger
        else:
            self._buffer[:kept] = self._buffer[position : self._end].copy()
        self._before += position
        room = len(self._buffer) - PADDING - kept
        size = self._source.fill(self._buffer.data[kept : kept + room])
        self._end = kept + size
        self._ended = size < room
        self._buffer[self._end : self._end + PADDING] = 0
        return 0

    def _events(self, position: int) -> tuple[int, int]:
        columns = self._columns
        columns.state[record.POSITION] = position
        while True:
            answer = int(scan.scan_events(self._buffer, self._end, columns))
            if answer == record.GROW:
                columns = self._columns = self._grown(columns)
            elif answer == record.DRAIN:
                self._drain()
                columns = self._columns = _with_room(columns)
            else:
                return answer, int(columns.state[record.POSITION])

    def _grown(self, columns: record.Columns) -> record.Columns:
        """Make room where it lacks: an event may bring up to the rest of the buffer in new strings or args."""
        ahead = self._end - int(columns.state[record.POSITION])
        texts = columns.strings
        if texts.size[0] + 64 > len(texts.hashes) or texts.offsets[texts.size[0]] + ahead + PADDING > len(texts.pool):
            columns = columns._replace(strings=strings.grow(texts, ahead))
        if columns.track_size[0] == len(columns.tracks):
            columns = columns._replace(tracks=np.concatenate((columns.tracks, np.zeros_like(columns.tracks))))
        if columns.sparse_next[0] == len(columns.sparse_key):
            if columns.state[record.SPARSE]:
                self._drain()
            else:
                columns = columns._replace(
                    sparse_event=np.empty(2 * len(columns.sparse_event), np.int32),
                    sparse_key=np.empty(2 * len(columns.sparse_key), np.int32),
                    sparse_value=np.empty(2 * len(columns.sparse_value), np.int64),
                )
        if 6 * ahead > len(columns.args_text) and columns.state[record.ARGS_ROWS] == 0:
            columns = columns._replace(args_text=np.empty(6 * ahead, np.uint8))
        return columns

    def _drain(self) -> None:
        """Empty the scratch arrays, which the scanner then fills again."""
        columns, state = self._columns, self._columns.state
        self._marks.append(columns.marks[:, : state[record.MARKS]].copy())
        found = slice(0, int(state[record.SPARSE]))
        self._sparse_event.append(columns.sparse_event[found].copy())
        self._sparse_key.append(columns.sparse_key[found].copy())
        self._sparse_value.append(columns.sparse_value[found].copy())
        rows = int(state[record.ARGS_ROWS])
        if rows:
            self._sink(
                columns.args_event[:rows],
                columns.args_offset[: rows + 1],
                columns.args_text[: state[record.ARGS_BYTES]],
            )
        state[[record.MARKS, record.SPARSE, record.ARGS_ROWS, record.ARGS_BYTES]] = 0

    def _finish(self, header: Header, *, truncated: bool) -> RawTrace:
        self._drain()
        columns = self._columns
        self._buffer = np.zeros(0, np.uint8)
        return RawTrace(
            wide=columns.wide[:, : columns.state[record.OPERATORS]],
            narrow=columns.narrow[:, : columns.state[record.OPERATORS]],
            marks=np.concatenate(self._marks, axis=1),
            sparse_event=_joined(self._sparse_event),
            sparse_key=_joined(self._sparse_key),
            sparse_value=_joined(self._sparse_value),
            tracks=columns.tracks[: columns.track_size[0]].copy(),
            strings=strings.decode(columns.strings),
            counts=columns.state.copy(),
            metadata=header.metadata,
            sha256=self._source.sha256,
            size_bytes=self._source.stored,
            json_bytes=self._source.unpacked,
            truncated=truncated,
            warnings=[*header.warnings, *self._warnings],
        )


def _with_room(columns: record.Columns) -> record.Columns:
    """Return the columns with room for more operators: four times as many, once they are full.

    Untouched memory costs nothing, so this holds little more than the rows; a list of chunks would hold every row twice
    while it is joined.
    """
    rows = int(columns.state[record.OPERATORS])
    if rows < columns.wide.shape[1]:
        return columns
    wide = np.empty((len(columns.wide), 4 * rows), np.int64)
    wide[:, :rows] = columns.wide
    narrow = np.empty((len(columns.narrow), 4 * rows), np.int32)
    narrow[:, :rows] = columns.narrow
    return columns._replace(wide=wide, narrow=narrow)


def _joined(chunks: list[NDArray[Number]]) -> NDArray[Number]:
    """Join and forget the chunks."""
    whole = np.concatenate(chunks)
    chunks.clear()
    return whole
