"""Discrete-event simulation: processes are generators that yield a delay in ns, or a signal to wait for."""

import heapq
from collections.abc import Generator
from typing import TypeAlias


class Signal:
    """Something that happens once; who waits for it later does not wait at all."""

    def __init__(self) -> None:
        self.happened = False
        self.waiting: list[Process] = []


Process: TypeAlias = Generator[int | Signal, None, None]


class Engine:
    """The clock, and the processes in the order in which they go on."""

    def __init__(self) -> None:
        self.now = 0
        """True time, ns."""
        # Processes due at the same time go on in the order in which they were scheduled: a run never depends on chance.
        self._due: list[tuple[int, int, Process]] = []
        self._scheduled = 0

    def start(self, process: Process, delay: int = 0) -> None:
        """Let the process go on after `delay` ns."""
        heapq.heappush(self._due, (self.now + delay, self._scheduled, process))
        self._scheduled += 1

    def fire(self, signal: Signal) -> None:
        """Make the signal happen now."""
        signal.happened = True
        waiting, signal.waiting = signal.waiting, []
        for process in waiting:
            self.start(process)

    def run(self) -> None:
        """Run until no process is due."""
        # One loop: a job of a test advances processes a hundred thousand times.
        due = self._due
        while due:
            self.now, _, process = heapq.heappop(due)
            for wanted in process:
                if isinstance(wanted, int):
                    heapq.heappush(due, (self.now + wanted, self._scheduled, process))
                    self._scheduled += 1
                    break
                if not wanted.happened:
                    wanted.waiting.append(process)
                    break
