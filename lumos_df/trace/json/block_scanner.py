"""Scans a block of text into columns that hold no more than it: in this thread, or in another beside others."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.schema.codes import NONE
from lumos_df.trace.json import keys, scanned, strings
from lumos_df.trace.json.kernels import interning, scan
from lumos_df.trace.json.kernels.simd import PADDING

_ROWS: Final = 60_000
"""Rows of each kind that there is room for. No power of two: columns that lie so far apart share a cache's lines."""
_MORE_TEXT: Final = 1 << 16
"""Bytes of args beside a block's own: an event is copied only where six times its bytes are free."""


class BlockScanner:
    """Columns that are filled with a block of events, and emptied, again and again; its texts and tracks stay."""

    def __init__(self, block_bytes: int) -> None:
        self.columns = _new_columns(block_bytes + _MORE_TEXT)
        self.numbers = np.full(len(self.columns.strings.hashes) + 1, NONE, np.int32)
        """What number each text has in the whole file, if it has one; NONE behind them."""
        self.track_numbers = np.zeros(len(self.columns.tracks), np.int32)
        """What number each track has there."""
        self.known = np.zeros(2, np.int64)
        """How many texts and tracks have such a number by now."""

    @property
    def position(self) -> int:
        """Return where the scan stopped."""
        return int(self.columns.state[scanned.POSITION])

    def scan(self, buffer: NDArray[np.uint8], position: int, end: int) -> int:
        """Take events from `buffer[position:end]`, which stands inside the event list; return why it stopped.

        That is as `scan.scan_events` says, but for GROW; after DRAIN the columns have to be emptied first.
        """
        self.columns.state[scanned.POSITION] = position
        while (answer := int(scan.scan_events(buffer, end, self.columns))) == scanned.GROW:
            self._grow(end - self.position)
        return answer

    def _grow(self, ahead: int) -> None:
        """Make room where it lacks: an event may bring up to the rest of the buffer in new strings or args."""
        columns = self.columns
        texts = columns.strings
        if texts.size[0] + 64 > len(texts.hashes) or texts.offsets[texts.size[0]] + ahead + PADDING > len(texts.pool):
            columns = columns._replace(strings=strings.grow(texts, ahead))
            self.numbers = longer(self.numbers, len(columns.strings.hashes) + 1, NONE)
        if columns.track_size[0] == len(columns.tracks):
            tracks, slots = more_tracks(columns.tracks, len(columns.tracks))
            columns = columns._replace(tracks=tracks, track_slots=slots)
            self.track_numbers = longer(self.track_numbers, len(tracks), 0)
        if columns.sparse_next[0] == len(columns.stated.key):
            stated = scanned.Stated(*(longer(column, 2 * len(column), 0) for column in columns.stated))
            columns = columns._replace(stated=stated)
        if 6 * ahead + PADDING > len(columns.args_text) and columns.state[scanned.ARGS_ROWS] == 0:
            columns = columns._replace(args_text=np.empty(6 * ahead + PADDING, np.uint8))
        self.columns = columns

    def empty(self) -> None:
        """Forget the rows. The arrays of the args are others from now on: who has taken those keeps them.

        New arrays cost less than a copy: they lie where those were that were written before.
        """
        columns, position = self.columns, self.position
        if columns.state[scanned.ARGS_ROWS]:
            self.columns = columns._replace(
                args_event=np.empty_like(columns.args_event),
                args_offset=np.empty_like(columns.args_offset),
                args_text=np.empty_like(columns.args_text),
            )
            self.columns.args_offset[0] = 0
        columns.state[:] = 0
        columns.state[scanned.POSITION] = position


def longer(array: NDArray[Any], size: int, rest: int) -> NDArray[Any]:
    """Return an array of `size` elements that begins as the array, and goes on with `rest`."""
    return np.concatenate((array, np.full(size - len(array), rest, array.dtype)))


def new_tracks() -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return room for tracks, and slots, all free."""
    return np.zeros((256, 2), np.int64), np.full(1024, -1, np.int32)


def more_tracks(tracks: NDArray[np.int64], count: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return room for twice as many tracks, of which there are `count`, and slots where these are found."""
    slots = np.full(4 * len(tracks), -1, np.int32)
    interning.place_tracks(tracks, count, slots)
    return np.concatenate((tracks, np.zeros_like(tracks))), slots


def _new_columns(text_bytes: int) -> scanned.ScanColumns:
    """Return empty columns with room for `text_bytes` of args."""
    texts = strings.new_strings()
    tracks, track_slots = new_tracks()
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
        wide=np.empty((scanned.WIDES, _ROWS), np.int64),
        narrow=np.empty((scanned.NARROWS, _ROWS), np.int32),
        marks=np.empty((scanned.MARK_COLUMNS, _ROWS), np.int64),
        integers=np.empty(len(keys.INTEGERS), np.int64),
        texts=np.empty(len(keys.TEXTS) + len(keys.PERCENTS), np.int32),
        dirt=np.zeros(3, np.int64),
        sparse_next=np.zeros(1, np.int64),
        stated=scanned.Stated(
            event=np.empty(2 * _ROWS, np.int32), key=np.empty(2 * _ROWS, np.int32), value=np.empty(2 * _ROWS, np.int64)
        ),
        args_event=np.empty(_ROWS, np.int32),
        args_offset=np.zeros(_ROWS + 1, np.int32),
        args_text=np.empty(text_bytes + PADDING, np.uint8),
        tracks=tracks,
        track_slots=track_slots,
        track_size=np.zeros(1, np.int64),
        strings=texts,
        words=scanned.Words(texts=known, slots=slots, code=keys.key_codes()),
        gaps=_no_gaps(),
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
    # Of a kind with the buffers of a file, which may be written to: the kernel is compiled once.
    padded = np.frombuffer(bytearray(raw) + bytes(PADDING), np.uint8)
    return int(interning.intern(padded, 0, len(raw), table))
