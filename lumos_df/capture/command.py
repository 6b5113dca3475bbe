"""`lumos-df capture`: run a training command with a hook in every Python process that it starts."""

import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Final

from lumos_df.base.errors import CaptureError
from lumos_df.base.units import format_count
from lumos_df.capture.capture_settings import ENVIRONMENT, CaptureSettings
from lumos_df.capture.publish import read_metadata

HOOK: Final = Path(__file__).parent / "hook"
"""Folder that goes first on PYTHONPATH."""

_QUIET: Final = {"KINETO_LOG_LEVEL": "99"}
"""The profiler's own messages about starting and stopping."""


@dataclass(frozen=True)
class Captured:
    """What became of a command."""

    status: int
    """Its exit status; 128 and the signal's number where a signal ended it."""
    lines: tuple[str, ...]
    """One line for each file that was written."""


def capture(command: Sequence[str], settings: CaptureSettings, rank: int | None = None) -> Captured:
    """Run `command` and record its training steps.

    Args:
        command: the program and its arguments: python, torchrun, a shell script.
        settings: what to record, and where to.
        rank: which rank of `settings.fake_world` to run.

    Raises `CaptureError`: the folder cannot be written or has recordings already, the rank is none of the fake world,
    the program is not there or its Python has no torch, or it ended well and nothing was recorded.
    """
    _check_fake(settings.fake_world, rank)
    program = shutil.which(command[0])
    if program is None:
        raise CaptureError(f"{command[0]}: no such program; give the command that starts the training")
    folder = Path(settings.output)
    settings.make_folder()
    if recorded := sorted(path.name for path in folder.glob("rank*.json.gz")):
        raise CaptureError(f"{folder}: has {recorded[0]} already; give a new folder with --output")
    _require_torch(program)
    settings = replace(settings, run=secrets.token_hex(8), output=str(folder.absolute()))
    status = _run(command, _environment(settings, rank))
    for leftover in folder.glob(".rank*"):  # of ranks that were killed while they wrote
        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
    files = [path for path in sorted(folder.glob("rank*.json.gz")) if read_metadata(path).get("run") == settings.run]
    if not files and status == 0:
        raise CaptureError(
            f"{folder}: nothing was recorded: no rank came to step {settings.recorded_after + 1} of an optimizer of "
            "torch.optim (give fewer --warmup and --unprofiled, or use lumos_df.capture.profile() in the script), or "
            "one said above why its file could not be written"
        )
    return Captured(status, tuple(map(_line, files)))


def _check_fake(world: int, rank: int | None) -> None:
    if (rank is None) != (world == 0):
        raise CaptureError("--fake-world N and --rank r go together")
    if rank is not None and not 0 <= rank < world:
        raise CaptureError(f"--rank {rank}: a world of {world} has ranks 0 to {world - 1}")


def _require_torch(program: str) -> None:
    """Raise `CaptureError` where the command is a Python that has no torch; another program may find one."""
    if not Path(program).name.startswith("python"):
        return
    look = "import importlib.util, sys; sys.exit(0 if importlib.util.find_spec('torch') else 3)"
    if subprocess.run([program, "-c", look], check=False, capture_output=True).returncode == 3:  # noqa: S603 - the user's own
        raise CaptureError(f"{program}: has no torch; pip install 'lumos-df[capture]' there")


def _environment(settings: CaptureSettings, rank: int | None) -> dict[str, str]:
    path = os.environ.get("PYTHONPATH")
    environment = _QUIET | os.environ | {ENVIRONMENT: settings.to_environment()}
    environment["PYTHONPATH"] = f"{HOOK}{os.pathsep}{path}" if path else str(HOOK)
    if rank is not None:
        environment |= {"RANK": str(rank), "WORLD_SIZE": str(settings.fake_world)}
        environment |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}  # the one device is the first
        environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    return environment


def _run(command: Sequence[str], environment: dict[str, str]) -> int:
    with subprocess.Popen(command, env=environment) as process:  # noqa: S603 - the user's own
        former = signal.signal(signal.SIGTERM, lambda number, _: process.send_signal(number))
        try:
            while True:
                try:
                    status = process.wait()
                    break
                except KeyboardInterrupt:  # the terminal has told the command, too, which ends as it sees fit
                    continue
        finally:
            signal.signal(signal.SIGTERM, former)
    return 128 - status if status < 0 else status


def _line(file: Path) -> str:
    """Return what a file holds, in one line."""
    metadata = read_metadata(file)
    times = {name: metadata.get(name) for name in ("profiledNs", "unprofiledBeforeNs", "unprofiledAfterNs")}
    shown = {name: f"{median(ns) / 1e6:.3f} ms" if isinstance(ns, list) and ns else "-" for name, ns in times.items()}
    recorded = times["profiledNs"]
    steps = len(recorded) if isinstance(recorded, list) else 0
    return (
        f"{file}: {format_count(steps, 'step')} of {shown['profiledNs']}; unprofiled {shown['unprofiledBeforeNs']} "
        f"before, {shown['unprofiledAfterNs']} after; {file.stat().st_size / 1e6:.2f} MB"
    )


def tell(captured: Captured) -> None:
    """Print what was recorded to standard error: standard output is the command's."""
    for line in captured.lines:
        print(line, file=sys.stderr)  # noqa: T201 - the command's result
