"""The blocks of a file, each read, digested and unpacked in a thread while those before are scanned."""

import re
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from lumos_df.trace.json.kernels.simd import PADDING
from lumos_df.trace.stored_file import StoredFile

_BLOCKS: Final = 5
"""One that is read, three that wait or are scanned, and the one before them, of which the end is still wanted."""
_EVENT: Final = re.compile(rb"(?s:.*)\}\s*+,\s*+(?=\{)")
"""All before the last place where an event seems to begin: a brace after a comma after a brace."""
_SEARCHED: Final = 1 << 16
"""Bytes at the end of a block among which that is looked for; an event has a thousand."""


class Block(NamedTuple):
    """A part of a file's text."""

    array: NDArray[np.uint8]
    """With room before the part, and zeros behind it."""
    start: int
    """Where the part begins in the array."""
    end: int
    """Where it ends."""
    seems_event: bool
    """It begins where an event seems to: the block before was cut there."""
    is_last: bool
    damage: str
    """What was wrong with the file when this was read, as `StoredFile.damage`."""


class ReadAhead:
    """Blocks in the file's order, cut where an event seems to begin.

    The thread ends with the process, not before: where somebody stops a command that waits for a pipe, nobody waits.
    """

    def __init__(self, file: StoredFile, block_bytes: int) -> None:
        self._file = file
        self._block_bytes = block_bytes
        self._free: SimpleQueue[NDArray[np.uint8] | None] = SimpleQueue()
        self._read: SimpleQueue[Block | Exception] = SimpleQueue()
        self._thread = Thread(target=self._run, name="lumos-df-reader", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        for _ in range(_BLOCKS):
            self.give_back(np.zeros(2 * self._block_bytes + PADDING, np.uint8))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._free.put(None)
        if error is None or isinstance(error, Exception):
            self._thread.join()

    @property
    def waits(self) -> bool:
        """Return whether a block waits to be taken."""
        return not self._read.empty()

    def take(self) -> Block:
        """Return the next block; it stays as it is until its array is given back.

        Raises:
            TraceError: the file cannot be read.
        """
        block = self._read.get()
        if isinstance(block, Exception):
            raise block
        return block

    def give_back(self, array: NDArray[np.uint8]) -> None:
        """Let a block's array be filled again."""
        self._free.put(array)

    def _run(self) -> None:
        rest = np.zeros(0, np.uint8)
        seems_event = False
        while (array := self._free.get()) is not None:
            room = self._block_bytes
            try:
                size = self._file.fill(array.data[room : room + self._block_bytes])
            except Exception as error:  # noqa: BLE001  # the thread that takes the block raises it
                self._read.put(error)
                return
            start, end = room - len(rest), room + size
            array[start:room] = rest
            is_last = size < self._block_bytes
            searched = max(start, end - min(_SEARCHED, self._block_bytes // 2))
            found = None if is_last else _EVENT.match(array.data[searched:end])
            cut = searched + found.end() if found else end
            rest = array[cut:end].copy()
            array[cut : cut + PADDING] = 0
            self._read.put(Block(array, start, cut, seems_event, is_last, self._file.damage))
            if is_last:
                return
            seems_event = found is not None
