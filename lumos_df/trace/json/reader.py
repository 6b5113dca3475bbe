"""Reads the JSON of one file as a stream: a block at a time through the scanner, into whole columns.

Memory holds a few blocks of text, the columns read so far and the distinct strings; raw args leave through the sink as
they come.
"""

from typing import Final

import numpy as np

from lumos_df.base.errors import TraceError
from lumos_df.trace.json import scanned
from lumos_df.trace.json.file_columns import FileColumns, ScannedTrace
from lumos_df.trace.json.header import Header
from lumos_df.trace.json.kernels import tokens
from lumos_df.trace.json.kernels.simd import PADDING
from lumos_df.trace.json.read_ahead import Block, ReadAhead
from lumos_df.trace.json.scan_ahead import Begun, ScanAhead
from lumos_df.trace.recording import ArgsSink
from lumos_df.trace.stored_file import StoredFile

_CHUNK: Final = 4 << 20
"""Bytes read at a time: few enough that the scanner finds them in the processor's cache."""
_LONGEST: Final = 64 << 20
"""Bytes of one event, or of one top-level value, that are held; what a file of few bytes unpacks to has no end."""


def read_trace(file: StoredFile, sink: ArgsSink, *, chunk_bytes: int = _CHUNK) -> ScannedTrace:
    """Read a whole file, `chunk_bytes` at a time.

    Raises:
        TraceError: not JSON, no event list, no event, or the file cannot be read.
    """
    return _Reader(file, sink, chunk_bytes).run()


class _Reader:
    """Moves blocks through scanners, in the file's order, and collects what they give."""

    def __init__(self, file: StoredFile, sink: ArgsSink, chunk_bytes: int) -> None:
        self._file = file
        self._columns = FileColumns(sink)
        self._ahead = ReadAhead(file, chunk_bytes)
        self._blocks = ScanAhead(self._ahead, chunk_bytes)
        self._buffer = np.zeros(0, np.uint8)
        self._end = 0
        self._held: Block | None = None
        """The block that is in the buffer."""
        self._ended = False
        """The last block was taken."""
        self._damage = ""
        """What is wrong with the file up to the end of the last block that was taken."""
        self._begun: Begun | None = None
        """A scan of the buffer from its start, where the next event begins."""
        self._before = 0
        """Bytes of JSON before the buffer; what is before its first event in it may be below 0."""
        self._warnings: list[str] = []

    def run(self) -> ScannedTrace:
        with self._ahead:
            header, truncated = self._scan()
        # How far the file was read ahead of where the scan stopped depends on the threads.
        self._file.taken_bytes = self._before + self._end
        return self._columns.finish(header.metadata, truncated=truncated, warnings=(*header.warnings, *self._warnings))

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
            if answer == scanned.MORE and not self._ended and not too_long:
                position = self._refill(position, inside=inside)
                continue
            if too_long:
                where = self._before + position
                self._warnings.append(
                    f"an event or value from byte {where} of its JSON on is longer than 64 MiB, a profiler's never; "
                    "every complete event before that was read"
                )
            elif answer == scanned.BROKEN or not self._damage:
                what = "is not JSON" if answer == scanned.BROKEN else "ends"
                where = self._before + position
                self._warnings.append(
                    f"the file {what} at byte {where} of its JSON; every complete event before that was read"
                )
            truncated = True
            break
        else:
            self._look_behind(position)
        if self._damage:
            self._warnings.append(f"{self._damage}; every complete event before that was read")
            truncated = True
        header.require_events(self._file.taken_bytes)
        if truncated and self._columns.counts[scanned.EVENTS] == 0:
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
            if self._ended:
                return
            position = self._refill(self._end)

    def _refill(self, position: int, *, inside: bool = False) -> int:
        """Keep `buffer[position:end]`, take more behind it, and return its new position; `inside` the event list."""
        kept = self._buffer[position : self._end]
        self._before += position
        block = self._take(goes_on=inside and not len(kept))
        if len(kept) <= block.start:
            start, self._end = block.start - len(kept), block.end
            block.array[start : block.start] = kept
            self._release()
            self._buffer, self._held = block.array, block
        else:  # one event or value fills the buffer: take as much again, so that few bytes are looked at often
            parts = [kept.copy()]
            self._release()
            start, self._end = 0, len(kept)
            while True:
                parts.append(block.array[block.start : block.end].copy())
                self._end += len(parts[-1])
                self._ahead.give_back(block.array)
                if self._end >= 2 * len(kept) or self._ended:
                    break
                block = self._take(goes_on=False)
            self._buffer = np.concatenate([*parts, np.zeros(PADDING, np.uint8)])
        self._before -= start
        return start

    def _take(self, *, goes_on: bool) -> Block:
        """Return the next block; the event list goes on where it begins, or not, as somebody may have guessed."""
        block, self._begun = self._blocks.take(goes_on=goes_on)
        self._ended, self._damage = block.is_last, block.damage
        return block

    def _release(self) -> None:
        """Give the block in the buffer back."""
        if self._held is not None:
            self._ahead.give_back(self._held.array)
            self._held = None

    def _events(self, position: int) -> tuple[int, int]:
        """Take the events in the buffer from `position` on; return (why that stopped, where)."""
        begun, self._begun = self._begun, None
        scanner = begun.scanner if begun else self._blocks.scanner()
        answer = begun.answer.result() if begun else scanner.scan(self._buffer, position, self._end)
        self._columns.take(scanner)
        while answer == scanned.DRAIN:
            answer = scanner.scan(self._buffer, scanner.position, self._end)
            self._columns.take(scanner)
        self._blocks.give_back(scanner)
        return answer, scanner.position
