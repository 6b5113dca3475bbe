"""The multiprocessors of a GPU: kernels get on more slowly while communication has some of them."""

from dataclasses import dataclass, field

from tests.emulator.engine import Engine, Process, Signal


@dataclass(slots=True)
class _Task:
    left: float
    """ns, had it all processors."""
    since: int
    version: int = 0
    over: Signal = field(default_factory=Signal)


class Processors:
    """Those of one GPU."""

    def __init__(self, engine: Engine, many: int) -> None:
        self._engine = engine
        self._many = many
        self._taken = 0
        self._tasks: list[_Task] = []

    def work(self, ns: int) -> Signal:
        """Begin what takes `ns` on all processors; return what happens at its end."""
        task = _Task(ns, self._engine.now)
        self._tasks.append(task)
        self._expect(task)
        return task.over

    def take(self, many: int) -> None:
        """Take that many more processors away from the work; less than 0: give them back."""
        for task in self._tasks:
            task.left -= (self._engine.now - task.since) * self._rate
            task.since = self._engine.now
        self._taken += many
        for task in self._tasks:
            self._expect(task)

    @property
    def _rate(self) -> float:
        return max(1 - self._taken / self._many, 0.25)

    def _expect(self, task: _Task) -> None:
        task.version += 1
        self._engine.start(self._finish(task, task.version), max(0, round(task.left / self._rate)))

    def _finish(self, task: _Task, version: int) -> Process:
        if version == task.version and not task.over.happened:
            self._tasks.remove(task)
            self._engine.fire(task.over)
        yield from ()
