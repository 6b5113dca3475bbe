"""A training loop's steps: some pass, some are timed as they are, some are recorded; one file at the end."""

import os
import shutil
import signal
import sys
import tempfile
import threading
from multiprocessing import util
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import distributed
from torch.autograd import profiler as torch_profilers
from torch.profiler import ExecutionTraceObserver, profile, schedule

from lumos_df.capture import foreign_profilers
from lumos_df.capture.capture_settings import CaptureSettings
from lumos_df.capture.input_storages import input_storages
from lumos_df.capture.modules import ModuleMarks
from lumos_df.capture.publish import pack, publish
from lumos_df.capture.step_clock import StepClock

_WHERE_RANKS_ARE = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
"""Set by torchrun, Slurm, Open MPI, MPICH; what torch.distributed says goes before."""
_WHERE_WORLDS_ARE = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")

_ENDED = "ended"

foreign_profilers.watch(torch_profilers)


class Recorder:
    """Counts steps and does what is due at the end of each.

    With w steps of warm-up, u unprofiled and s recorded ones, in this order: w pass, u are timed, one passes while the
    profiler warms up, s are recorded, one passes while what the profiler left is settled, u are timed. Then the file is
    written; every later step costs a comparison.
    """

    def __init__(self, settings: CaptureSettings) -> None:
        self._settings = settings
        self._done = 0
        timed, start = settings.warmup, settings.recorded_after
        self._before = StepClock(timed, timed + settings.unprofiled)
        self._recorded = StepClock(start, start + settings.steps)
        self._after = StepClock(start + settings.steps + 1, start + settings.steps + 1 + settings.unprofiled)
        self._profiler: Any = None
        self._observer: Any = None
        self._execution_trace = ""
        self._marks = ModuleMarks()
        self._closed = False
        self._process = os.getpid()
        self._busy = False
        self._terminated_by = 0
        # Also runs in children of multiprocessing, which leave without atexit.
        self._finalizer = util.Finalize(None, self.close, exitpriority=100)
        self._mark()
        if self._recorded.first == 1:
            self._start()

    def step(self) -> None:
        """Say that a training step has ended."""
        if self._closed:
            return
        self._busy = True
        try:
            self._advance()
        finally:
            self._busy = False
        if self._terminated_by:
            self._end()

    def _advance(self) -> None:
        self._done += 1
        first = self._done == self._recorded.first
        if first:
            self._profiler.step()  # begins to record, which takes a while and belongs to no step
        self._mark()
        if self._profiler is not None and not first and self._done <= self._recorded.last:
            self._profiler.step()
        if self._done == self._recorded.first - 1:
            self._start()
        if self._done == self._recorded.last:
            self._stop()
        if self._done == self._after.last:
            self.close()

    def _mark(self) -> None:
        for clock in (self._before, self._recorded, self._after):
            clock.mark(self._done)

    def _start(self) -> None:
        if foreign_profilers.are_open():
            self.close("a profiler of the script's own runs")
            return
        if self._settings.execution_trace:
            descriptor, self._execution_trace = tempfile.mkstemp(prefix="lumos-df-", suffix=".et.json")
            os.close(descriptor)
            self._observer = ExecutionTraceObserver().register_callback(self._execution_trace)
        self._profiler = profile(
            schedule=schedule(wait=0, warmup=1, active=self._settings.steps, repeat=1),
            record_shapes=True,
            profile_memory=True,
            with_stack=self._settings.stacks,
            with_modules=True,
            execution_trace_observer=self._observer,
        )
        self._profiler.start()
        foreign_profilers.before_foreign(
            self._profiler.profiler, lambda: self.close("a profiler of the script's own begins")
        )
        if not self._settings.stacks:
            self._marks.start()  # a step early: what is compiled is compiled again for them, and not in a recorded step
        if _in_main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            # A launcher that lost one rank terminates the rest: what they have recorded is kept.
            signal.signal(signal.SIGTERM, self._terminate)

    def _stop(self) -> None:
        self._marks.stop()
        self._profiler.stop()
        if self._observer is not None:
            self._observer.unregister_callback()  # which ends the file

    def _terminate(self, number: int, _: FrameType | None) -> None:
        """Write the file, then end.

        Not while the profiler is at work or the file is being written: then the signal waits, and so does a second one
        (a launcher and whoever stopped it may both send theirs).
        """
        self._terminated_by = number
        if not self._busy or os.getpid() != self._process:
            self._end()

    def _end(self) -> None:
        self.close()
        signal.signal(self._terminated_by, signal.SIG_DFL)
        os.kill(os.getpid(), self._terminated_by)

    def close(self, reason: str = _ENDED) -> None:
        """Write what was recorded, once. A failure is told in one line and does not disturb the job."""
        if self._closed or os.getpid() != self._process:  # a fork has the handler, and nothing to write
            return
        self._closed = self._busy = True
        self._finalizer.cancel()
        rank = rank_of_this_process()
        try:
            if self._done >= self._recorded.first:
                self._write(rank, reason)
            else:
                if self._profiler is not None:
                    self._stop()
                needed, which = self._recorded.first + 1, "fewer" if reason == _ENDED else "another"
                came_to = f"{reason} after {self._done} steps; recording begins in step {needed}"
                _tell(rank, f"{came_to}: give {which} --warmup")
        except (OSError, RuntimeError) as error:
            _tell(rank, f"not recorded: {error}")
        finally:
            self._busy = False
            if _in_main_thread() and signal.getsignal(signal.SIGTERM) == self._terminate:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if self._execution_trace:
                Path(self._execution_trace).unlink(missing_ok=True)
            if self._terminated_by:
                self._end()

    def _write(self, rank: int, reason: str) -> None:
        if self._done < self._recorded.last:
            self._stop()
        folder = Path(self._settings.output)
        # The profiler's text is many times as large as the file that is kept, and is written but once.
        roomy = max((folder, Path(tempfile.gettempdir())), key=lambda place: shutil.disk_usage(place).free)
        with tempfile.TemporaryDirectory(prefix=f".rank{rank}-", dir=roomy) as scratch:
            raw = Path(scratch) / "trace.json"
            self._profiler.export_chrome_trace(str(raw))
            storages = input_storages(self._profiler)
            try:
                publish(raw, folder / f"rank{rank}.json.gz", self._metadata(rank), storages)
            except OSError as error:
                if roomy == folder:
                    raise
                kept = Path(tempfile.mkdtemp(prefix="lumos-df-")) / f"rank{rank}.json.gz"
                publish(raw, kept, self._metadata(rank), storages)
                _tell(rank, f"{folder}: cannot be written ({error.strerror or error}); the file is kept: {kept}")
            if self._execution_trace:
                pack(Path(self._execution_trace), folder / f"rank{rank}.et.json.gz")
        if self._done < self._recorded.last:
            complete = self._done - self._recorded.first
            _tell(
                rank, f"{reason} in recorded step {complete + 1} of {self._settings.steps}; what was recorded is kept"
            )

    def _metadata(self, rank: int) -> dict[str, object]:
        from lumos_df import __version__  # noqa: PLC0415 - a cycle at import otherwise

        fake = self._settings.fake_world
        return {
            "version": __version__,
            "run": self._settings.run,
            "rank": rank,
            "worldSize": fake or _stated(_WHERE_WORLDS_ARE, 1),
            "torch": torch.__version__,
            "recordedAfterSteps": self._recorded.first,
            "complete": self._done >= self._recorded.last,
            "unprofiledBeforeNs": self._before.durations_ns(),
            "profiledNs": self._recorded.durations_ns(),
            "unprofiledAfterNs": self._after.durations_ns(),
            "unmeasured": ["collectives"] if fake else [],
        }


def rank_of_this_process() -> int:
    """Return the rank: as torch.distributed has it, else as the launcher's variables do, else 0."""
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    return _stated(_WHERE_RANKS_ARE, 0)


def _stated(names: tuple[str, ...], default: int) -> int:
    texts = (os.environ.get(name, "") for name in names)
    return next((int(text) for text in texts if text.isdecimal()), default)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _tell(rank: int, message: str) -> None:
    print(f"lumos-df capture: rank {rank}: {message}", file=sys.stderr, flush=True)  # noqa: T201 - the job's terminal
