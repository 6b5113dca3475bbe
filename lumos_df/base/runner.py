"""Run one function over many items, here or in worker processes, and say how far it is.

A worker is a plain `python` that reads items from its standard input and writes outcomes to its standard output. So a
worker inherits no threads and no locks (a fork would, from polars or DuckDB), never runs the caller's script again (as
multiprocessing's spawn would), and a worker that dies takes one item with it, not the others.
"""

import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from queue import SimpleQueue
from threading import Lock
from typing import IO, Any, Final, TextIO, TypeVar

from lumos_df.base import freed_memory, unused_modules
from lumos_df.base.errors import LumosError
from lumos_df.base.outcome import Outcome, WorkerError
from lumos_df.base.printable import printable

Item = TypeVar("Item")
Result = TypeVar("Result")

_LENGTH_BYTES: Final = 8
"""Every message between the processes follows its own length."""


CPUS: Final = "LUMOS_DF_CPUS"
"""Variable of a worker's environment that says how many CPUs are its part."""

TRIES: Final = 3
"""Times that an item is tried whose worker ends before it answers."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is: `done` items of `total`, and the item that has just finished (empty at the start)."""

    done: int
    total: int
    item: str


Report = Callable[[Progress], None]


class Engine(StrEnum):
    """Where items run."""

    SERIAL = "serial"
    """In this process, one after another."""
    PROCESSES = "processes"
    """In worker processes of this machine."""
    RAY = "ray"
    """On a Ray cluster, which is started here unless an address joins one."""


def map_items(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    workers: int | None = None,
    engine: Engine = Engine.PROCESSES,
    address: str | None = None,
    report: Report | None = None,
) -> Iterator[Outcome[Result]]:
    """Yield the outcome of `function(item)` for every item, as they finish.

    An exception is the outcome of its own item; the other items still run. An item whose worker dies goes to another
    one, and when it has lost `TRIES` of them, that is its outcome. In this process everything runs with the engine
    `serial`, one worker, or one item. Otherwise `function`, the items and the results
    travel by pickle, so `function` must be importable, and what it prints goes to standard error. `workers` defaults to
    the CPUs this process may use, and never exceeds the items; on a cluster that is there already, at an `address`, it
    is the cluster's business. `report` is called at the start and after each item, and gets the item's `str`. Closing
    the iterator early ends the workers.
    """
    if workers is not None and workers < 1:
        raise LumosError(f"workers is {workers}: it must be at least 1")
    count = min(len(items), workers or available_cpus())
    if works_here(items, workers, engine):
        outcomes = _map_here(function, items)
    elif engine is Engine.RAY:
        from lumos_df.base.ray_cluster import map_on_ray  # noqa: PLC0415 - an extra

        outcomes = map_on_ray(partial(_on_one_cpu, function), items, count, address, TRIES)
    else:
        outcomes = _map_in_workers(function, items, count)
    if report is None:
        yield from outcomes
        return
    report(Progress(0, len(items), ""))
    for done, outcome in enumerate(outcomes, start=1):
        report(Progress(done, len(items), str(items[outcome.index])))
        yield outcome


def works_here(items: Sequence[Item], workers: int | None, engine: Engine) -> bool:
    """Return whether `map_items` runs the items in this process."""
    return engine is Engine.SERIAL or (engine is not Engine.RAY and min(len(items), workers or available_cpus()) <= 1)


def results(outcomes: Iterator[Outcome[Result]]) -> list[Result]:
    """Return the results in the order of the items. Raise what was raised of one of them."""
    values: dict[int, Result] = {}
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
        values[outcome.index] = outcome.value  # type: ignore[assignment]  # no error, so there is one
    return [values[index] for index in range(len(values))]


def available_cpus() -> int:
    """Return how many CPUs this process may use: those of its affinity mask, where the system has one.

    Of a worker it is its part of them: two that use all CPUs each would only wait for one another.
    """
    if (own := os.environ.get(CPUS, "")).isdecimal():
        return max(int(own), 1)
    if sys.version_info >= (3, 13):
        return os.process_cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def shard(items: Sequence[Item], index: int, count: int) -> list[Item]:
    """Return part `index` (from 0) of `count`, dealt round-robin: together the parts hold every item once."""
    return list(items[index::count])


def parse_shard(text: str) -> tuple[int, int]:
    """Read `i/n`, the i-th of n parts counted from 1, as `(i - 1, n)`; raise `LumosError` for anything else."""
    first, _, second = text.partition("/")
    if not (first.isdecimal() and second.isdecimal() and 1 <= int(first) <= int(second)):
        raise LumosError(f"shard '{text}': write i/n, part i of n counted from 1, such as 2/8")
    return int(first) - 1, int(second)


def _map_here(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Outcome[Result]]:
    for index, item in enumerate(items):
        try:
            value = function(item)
        except Exception as error:  # noqa: BLE001 - the outcome of the item, whatever it is
            yield Outcome(index, None, error)
        else:
            yield Outcome(index, value, None)


def _on_one_cpu(function: Callable[[Item], Result], item: Item) -> Result:
    """Return `function(item)` in a worker of Ray, which counts one CPU for a call."""
    os.environ[CPUS] = "1"
    return function(item)


def _map_in_workers(function: Callable[[Item], Result], items: Sequence[Item], count: int) -> Iterator[Outcome[Result]]:
    cpus = max(available_cpus() // count, 1)
    crew = [_Worker(function, cpus) for _ in range(count)]
    idle = SimpleQueue[_Worker]()
    for worker in crew:
        idle.put(worker)

    def run(index: int) -> Outcome[Result]:
        worker = idle.get()
        try:
            for _ in range(TRIES - 1):
                with suppress(WorkerError):
                    return Outcome(index, worker.call(items[index]), None)
            return Outcome(index, worker.call(items[index]), None)
        except Exception as error:  # noqa: BLE001 - the outcome of the item, whatever it is
            return Outcome(index, None, error)
        finally:
            idle.put(worker)

    # A thread a worker, which only waits for it: a blocking read needs no event loop and always sees a death.
    threads = ThreadPoolExecutor(count, thread_name_prefix="lumos-df-worker")
    try:
        for future in as_completed([threads.submit(run, index) for index in range(len(items))]):
            yield future.result()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        for worker in crew:
            worker.kill()
        threads.shutdown()
        for worker in crew:
            worker.close()


class _Worker:
    """One worker process: started when first needed, and again after it died."""

    def __init__(self, function: Callable[[Any], Any], cpus: int) -> None:
        self._function = function
        self._cpus = cpus
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False
        self._lock = Lock()

    def call(self, item: object) -> Any:
        """Return `function(item)`, computed in the process; raise what it raised, or `WorkerError`."""
        message = pickle.dumps((self._function, item))
        process = self._running()
        try:
            _send(_pipe(process.stdin), message)
            answer = _receive(_pipe(process.stdout))
        except (OSError, EOFError):
            raise WorkerError(_cause_of_death(self.close())) from None
        succeeded, result = pickle.loads(answer)  # noqa: S301 - written by our own worker
        if succeeded:
            return result
        raise result

    def kill(self) -> None:
        """End the process, for good: a call that waits for it raises."""
        with self._lock:
            self._ended = True
            if self._process is not None:
                self._process.kill()

    def close(self) -> int:
        """End the process where it still runs, and return its exit status; the next call starts another."""
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return 0
        process.kill()
        with suppress(BrokenPipeError), process:
            pass
        return process.wait()

    def _running(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._ended:
                raise WorkerError("the run was ended")
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", "from lumos_df.base.runner import serve; serve()"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env={
                        **os.environ,
                        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                        CPUS: str(self._cpus),
                    },
                )
            return self._process


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None, "a worker is started with pipes"  # noqa: S101 - tells the type checker
    return stream


def _send(stream: IO[bytes], message: bytes) -> None:
    stream.write(len(message).to_bytes(_LENGTH_BYTES, "little"))
    stream.write(message)
    stream.flush()


def _receive(stream: IO[bytes]) -> bytes:
    """Return the next message; raise `EOFError` where the stream ends before it does."""
    length = stream.read(_LENGTH_BYTES)
    message = stream.read(int.from_bytes(length, "little"))
    if len(length) < _LENGTH_BYTES or len(message) < int.from_bytes(length, "little"):
        raise EOFError
    return message


def _cause_of_death(status: int) -> str:
    if status == -signal.SIGKILL:
        return "its worker process was killed (out of memory?); use fewer workers"
    cause = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    return f"its worker process ended with {cause}; run with one worker to see why"


def serve() -> None:
    """Be a worker: answer every (function, item) on standard input with (succeeded, result) on standard output."""
    freed_memory.collect_rarely()
    freed_memory.keep()
    unused_modules.leave_out_pandas()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends its workers itself
    with os.fdopen(os.dup(0), "rb") as inbox, os.fdopen(os.dup(1), "wb") as outbox:
        # What the function reads must not be our items, nor what it prints our answers.
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        while True:
            try:
                message = _receive(inbox)
                _send(outbox, _answer(message))
            except (EOFError, BrokenPipeError):  # no more items, or the parent is gone
                os._exit(0)


def _answer(message: bytes) -> bytes:
    try:
        function, item = pickle.loads(message)  # noqa: S301 - written by our own parent
        return pickle.dumps((True, function(item)))
    except Exception as error:  # noqa: BLE001 - the outcome of the item, whatever it is
        error.add_note("".join(traceback.format_exception(error)))
        try:
            answer = pickle.dumps((False, error))
            pickle.loads(answer)  # noqa: S301 - an exception may pickle and yet not come back
        except Exception:  # noqa: BLE001 - whatever an exception's own methods raise
            answer = pickle.dumps((False, LumosError(f"{type(error).__name__}: {error}")))
        return answer


@contextmanager
def progress(stream: TextIO) -> Iterator[Report]:
    """Give a function that shows `Progress` on `stream`: a bar on a terminal, else a line an item."""
    if not stream.isatty():
        yield partial(_print_line, stream)
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs rich
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415 - as above
    from rich.progress import Progress as Bar  # noqa: PLC0415 - as above

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}", markup=False))
    with Bar(*columns, console=Console(file=stream), transient=True, redirect_stdout=False) as bar:
        task = bar.add_task("", total=None)
        yield lambda state: bar.update(task, completed=state.done, total=state.total, description=state.item)


def _print_line(stream: TextIO, state: Progress) -> None:
    if state.item:
        print(f"[{state.done}/{state.total}] {printable(str(state.item))}", file=stream, flush=True)
