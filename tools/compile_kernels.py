"""Compile the kernels that most tests use, before several processes of tests would each compile all of them.

`python -m tools.compile_kernels` runs ordinary commands in two processes at once and says nothing: what is wrong with a
command is for the tests to tell. Where kernels are compiled already, it does nothing.
"""

import os
from concurrent.futures import ProcessPoolExecutor, wait
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from lumos_df.base import freed_memory
from lumos_df.base.kernel_cache import compiled
from lumos_df.cli.app import app
from lumos_df.estimate.block_operators import block_operators
from lumos_df.model.hardware import Hardware
from lumos_df.model.kernels.legality import legal
from lumos_df.model.pipeline import schedule
from lumos_df.model.plan import Plan
from lumos_df.model.software import Software
from lumos_df.model.transformer import Model

ROOT: Final = Path(__file__).parent.parent

_INGEST: Final = ("ingest", str(ROOT / "data" / "traces"), "--workers", "1")
_OF_TRACES: Final = (
    _INGEST,
    ("critical-path", "--gains"),
    ("report",),
    ("describe",),
    ("export", "--what", "perfetto", "--output", "timeline.json"),
)

_JOB: Final = ("--model", "llama-3-8b", "--hardware", "h100-sxm", "--plan")
_OF_ESTIMATES: Final = (
    ("estimate", *_JOB, "tp=8,batch=8"),
    ("sweep", *_JOB, "tp=1|8,batch=8"),
)
_OF_CHANGES: Final = (
    # By now the other process has long compiled what reads traces; with these both last about as long.
    _INGEST,
    ("estimate", "--set", "dp=8", "--job", "gpu_generated"),
)


def run(*commands: tuple[str, ...]) -> None:
    """Run commands of lumos-df one after another in this process, in a folder that is gone at the end."""
    with (
        TemporaryDirectory() as folder,
        chdir(folder),
        Path(os.devnull).open("w", encoding="utf-8") as nowhere,
        redirect_stdout(nowhere),
        redirect_stderr(nowhere),
    ):
        for command in commands:
            with suppress(Exception, SystemExit):
                app(command)


def of_traces() -> None:
    """Compile what reads, replays and shows traces."""
    run(*_OF_TRACES)


def of_estimates() -> None:
    """Compile what estimates, whole and by itself, and what changes recorded jobs."""
    run(*_OF_ESTIMATES)
    alone()
    run(*_OF_CHANGES)


def alone() -> None:
    """Compile by itself what is part of an estimate: a test would do so in a process that has none of its parts.

    Here they are at hand, and it takes a fourth of the time.
    """
    model, hardware, plan = Model.read("llama-3-8b"), Hardware.read("h100-sxm"), Plan(tp=8, batch=8)
    block_operators(model, hardware, Software.read("megatron"), plan)
    legal(np.array([plan.row()]), model.row(), hardware.row())
    times = schedule.PipelineTimes(*np.zeros((len(schedule.PipelineTimes._fields), 1)))
    work = np.zeros(schedule.work_size(1, 1))
    schedule.simulate(0, 1, 1, 1, times, work, np.zeros((1, schedule.COLUMNS)), np.zeros(1))


def main() -> None:
    """Run both at once."""
    if not compiled():
        # Not forked: a fork copies locks, and what is imported here may have threads.
        with ProcessPoolExecutor(2, mp_context=get_context("spawn"), initializer=freed_memory.collect_rarely) as pool:
            wait([pool.submit(of_traces), pool.submit(of_estimates)])


if __name__ == "__main__":
    main()
