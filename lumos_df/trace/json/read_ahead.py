"""The blocks of a file, each read, digested and unpacked in a thread while the one before is scanned."""

from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from lumos_df.trace.json.kernels.simd import PADDING
from lumos_df.trace.stored_file import StoredFile

_BLOCKS: Final = 3
"""One that is read, one that is scanned, and the one before it, of which the end is still wanted."""


class ReadAhead:
    """Blocks in the file's order, each in an array with room before it and zeros behind it.

    The thread ends with the process, not before: where somebody stops a command that waits for a pipe, nobody waits.
    """

    def __init__(self, file: StoredFile, block_bytes: int) -> None:
        self.room = block_bytes // 2
        """Bytes before each block, for what was left of the one before."""
        self.ended = False
        """Whether the last block of the file was given."""
        self._file = file
        self._free: SimpleQueue[NDArray[np.uint8] | None] = SimpleQueue()
        self._read: SimpleQueue[int | Exception] = SimpleQueue()
        self._block_bytes = block_bytes
        self._arrays = [np.zeros(self.room + block_bytes + PADDING, np.uint8) for _ in range(_BLOCKS)]
        self._next = 0
        self._thread = Thread(target=self._run, name="lumos-df-reader", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._free.put(self._arrays[0])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._free.put(None)
        if error is None or isinstance(error, Exception):
            self._thread.join()

    def take(self) -> tuple[NDArray[np.uint8], int]:
        """Return the array of the next block, and its size; it stays as it is until the next block but one is taken.

        Raises:
            TraceError: the file cannot be read.
        """
        size = self._read.get()
        if isinstance(size, Exception):
            raise size
        array = self._arrays[self._next]
        self._next = (self._next + 1) % _BLOCKS
        self.ended = size < self._block_bytes
        if not self.ended:
            self._free.put(self._arrays[self._next])
        return array, size

    def _run(self) -> None:
        while (array := self._free.get()) is not None:
            try:
                size = self._file.fill(array.data[self.room : self.room + self._block_bytes])
            except Exception as error:  # noqa: BLE001  # the thread that takes the block raises it
                self._read.put(error)
            else:
                array[self.room + size :] = 0
                self._read.put(size)
