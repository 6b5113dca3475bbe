"""Blocks of a file, scanned in two threads before they are wanted: as if each began with an event of the list.

Most do, and whoever takes the blocks in order knows of each. What was scanned of one that does not is thrown away.
"""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final, NamedTuple

from lumos_df.base.runner import available_cpus
from lumos_df.trace.json.block_scanner import BlockScanner
from lumos_df.trace.json.read_ahead import Block, ReadAhead

_THREADS: Final = 2
"""To read a file, to digest it and to store its args takes as long as a half of the scan: a third one would wait."""
_AHEAD: Final = 2
"""Blocks that are scanned, or wait for it, beside the one that is wanted: both threads go on while that is joined."""


class Begun(NamedTuple):
    """A scan of a block from its start."""

    scanner: BlockScanner
    answer: Future[int]
    """Why it stopped."""


class ScanAhead:
    """Blocks in the file's order, some of them with a scan of theirs."""

    def __init__(self, blocks: ReadAhead, block_bytes: int) -> None:
        self._blocks = blocks
        self._block_bytes = block_bytes
        self._ended = False
        self._ahead: deque[tuple[Block, Begun | None]] = deque()
        self._scanners: list[BlockScanner] = []
        """Those that are empty."""
        self._guesses = available_cpus() > 1
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="lumos-df-scanner")

    def take(self, *, goes_on: bool) -> tuple[Block, Begun | None]:
        """Return the next block and what was begun of it, if the event list `goes_on` where it begins.

        Nothing is scanned ahead any more after a block of which a scan was begun though it does not.
        """
        if goes_on and self._guesses:
            while not self._ended and len(self._ahead) <= _AHEAD and (not self._ahead or self._blocks.waits):
                block = self._read()
                self._ahead.append((block, self._begin(block) if block.seems_event else None))
        if not self._ahead:
            return self._read(), None
        if self._ahead[0][1] and not goes_on:
            self._guesses = False
            wait([begun.answer for _, begun in self._ahead if begun])  # they still read the blocks
            self._ahead = deque((block, None) for block, _ in self._ahead)
        return self._ahead.popleft()

    def scanner(self) -> BlockScanner:
        """Return an empty scanner."""
        return self._scanners.pop() if self._scanners else BlockScanner(self._block_bytes)

    def give_back(self, scanner: BlockScanner) -> None:
        """Let a scanner, which is empty, be used again."""
        self._scanners.append(scanner)

    def _read(self) -> Block:
        block = self._blocks.take()
        self._ended = block.is_last
        return block

    def _begin(self, block: Block) -> Begun:
        scanner = self.scanner()
        return Begun(scanner, self._threads.submit(scanner.scan, block.array, block.start, block.end))
