"""Recording real training jobs; where there is no torch the tests skip, saying so."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import ROOT

EXAMPLE = ROOT / "examples" / "train_gpt.py"
SMALL = ("--layers", "2", "--width", "64", "--heads", "4", "--batch", "4", "--sequence", "32", "--steps", "12")
SHORT = ("--warmup", "1", "--unprofiled", "2", "--steps", "2")
"""Steps enough for this: 1 that finds the optimizer, 1 + 2 + 1 + 2 + 1 + 2."""

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed (extra: capture)")

Shell = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def shell() -> Shell:
    """Run a command with one thread a process and this repository on its path."""

    def run(*command: object, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(word) for word in command],
            capture_output=True,
            text=True,
            cwd=cwd,
            env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | environment,
            check=False,
            timeout=300,
        )

    return run


def torchrun(ranks: int, *arguments: object) -> list[object]:
    """Return a command that runs the example in several processes."""
    launch = ("-m", "torch.distributed.run", "--nproc-per-node", ranks, "--master-port", _free_port())
    return [sys.executable, *launch, EXAMPLE, *SMALL, *arguments]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
