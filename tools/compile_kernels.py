"""Compile the kernels that most tests use, before several processes of tests would each compile all of them.

`python -m tools.compile_kernels` runs ordinary commands in two lists at once and says nothing: what is wrong with a
command is for the tests to tell. Where kernels are compiled already, it does nothing.
"""

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from lumos_df.base.kernel_cache import compiled

ROOT: Final = Path(__file__).parent.parent

_INGEST: Final = ("ingest", str(ROOT / "data" / "traces"), "--workers", "1")
OF_TRACES: Final = (
    _INGEST,
    ("critical-path", "--gains"),
    ("estimate", "--set", "dp=8", "--job", "gpu_generated"),
)

_JOB: Final = ("--model", "llama-3-8b", "--hardware", "h100-sxm", "--plan")
OF_ESTIMATES: Final = (
    ("estimate", *_JOB, "tp=8,batch=8"),
    ("sweep", *_JOB, "tp=1|8,batch=8"),
    # By now the other list has long compiled what reads traces; with these both last about as long.
    _INGEST,
    ("describe",),
    ("export", "--what", "perfetto", "--output", "timeline.json"),
)


def run(commands: tuple[tuple[str, ...], ...]) -> None:
    """Run commands of lumos-df one after another, in a folder that is gone at the end."""
    with tempfile.TemporaryDirectory() as folder:
        for command in commands:
            subprocess.run(  # noqa: S603 - our own commands
                [sys.executable, "-m", "lumos_df", *command],
                cwd=folder,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                check=False,
                capture_output=True,
            )


def main() -> None:
    """Run both lists at once."""
    if not compiled():
        with ThreadPoolExecutor() as pool:
            list(pool.map(run, (OF_TRACES, OF_ESTIMATES)))


if __name__ == "__main__":
    main()
