"""Times between the boundaries of steps."""

import time
from typing import Any

import torch


class StepClock:
    """Takes the time at the boundaries after `first` to `last` steps.

    On a GPU an event is put into the stream, which costs nothing and waits for nothing: what is timed is when the GPU
    passes the boundary, while the host runs ahead. On a CPU it is the host's own clock.
    """

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last
        self._marks: list[Any] = []

    def mark(self, steps: int) -> None:
        """Take the time if the boundary after `steps` steps is one of this clock's."""
        if self.first <= steps <= self.last:
            self._marks.append(_event() if torch.cuda.is_initialized() else time.perf_counter_ns())

    def durations_ns(self) -> list[int]:
        """Return the time of each step between the boundaries taken so far, in ns."""
        pairs = zip(self._marks, self._marks[1:], strict=False)
        return [_between(start, end) for start, end in pairs if isinstance(start, int) == isinstance(end, int)]


def _event() -> Any:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _between(start: Any, end: Any) -> int:
    if isinstance(start, int):
        return int(end - start)
    end.synchronize()
    return round(float(start.elapsed_time(end)) * 1e6)
