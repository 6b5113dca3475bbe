"""Record a grid of real single-GPU runs of examples/train_gpt.py: `python -m tools.record_grid FOLDER`.

Layers x width x batch x sequence, eager and compiled: one folder a run, unprofiled steps timed in each file.
Where there is no GPU it says so and does nothing. Runs that are there already are kept.
"""

import argparse
import subprocess
import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final

from lumos_df.capture.capture_settings import CaptureSettings
from lumos_df.capture.command import capture, tell

ROOT: Final = Path(__file__).parent.parent
MOST_BYTES: Final = 1_000_000
"""A larger file is left out: the grid is for a repository."""


@dataclass(frozen=True)
class Run:
    """One run of the example."""

    layers: int
    """Transformer layers."""
    width: int
    """Hidden size; heads of 64."""
    batch: int
    """Sequences."""
    sequence: int
    """Tokens of each."""
    compiled: bool
    """With torch.compile."""

    @property
    def name(self) -> str:
        """Return the name of its folder."""
        way = "compiled" if self.compiled else "eager"
        return f"l{self.layers}_w{self.width}_b{self.batch}_s{self.sequence}_{way}"

    def command(self) -> list[str]:
        """Return what runs it: bfloat16, steps enough for a recording."""
        figures = {"layers": self.layers, "width": self.width, "heads": self.width // 64, "batch": self.batch}
        figures |= {"sequence": self.sequence, "steps": 50}
        options = [word for name, value in figures.items() for word in (f"--{name}", str(value))]
        compiled = ["--compile"] if self.compiled else []
        return [sys.executable, str(ROOT / "examples" / "train_gpt.py"), "--dtype", "bfloat16", *options, *compiled]


GRID: Final = tuple(
    Run(layers, width, batch, sequence, compiled)
    for (layers, width), (batch, sequence), compiled in product(
        ((2, 1024), (4, 2048), (2, 4096)), ((4, 1024), (16, 1024), (2, 4096)), (False, True)
    )
)
"""Eighteen runs: each more than a launch, none more than a small GPU holds."""


def has_gpu() -> bool:
    """Return whether this Python has a torch that sees a GPU."""
    look = "import sys, torch; sys.exit(0 if torch.cuda.is_available() else 1)"
    return subprocess.run([sys.executable, "-c", look], check=False, capture_output=True).returncode == 0  # noqa: S603


def main() -> int:
    """Record what is not there yet; return 1 where a run failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="folder of the runs' folders")
    output: Path = parser.parse_args().output
    if not has_gpu():
        print(f"no GPU here (or no torch): {len(GRID)} runs are ready to be recorded where there is one")
        return 0
    failed = 0
    for run in GRID:
        folder = output / run.name
        if list(folder.glob("rank*.json.gz")):
            continue
        captured = capture(run.command(), CaptureSettings(str(folder), warmup=15, steps=1, unprofiled=10))
        tell(captured)
        failed += captured.status != 0
        for file in folder.glob("rank*.json.gz"):
            if file.stat().st_size > MOST_BYTES:
                print(f"{file}: {file.stat().st_size} bytes, left out")
                file.unlink()
    print(f"{output}: {len(list(output.glob('*/rank0.json.gz')))} of {len(GRID)} runs recorded, {failed} failed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
