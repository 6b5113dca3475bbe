"""Record a grid of real single-GPU runs of examples/train_gpt.py: `python -m tools.record_grid FOLDER`.

Layers x width x batch x sequence, eager and then compiled: one folder a run, unprofiled steps timed in each file; all
in one process. Where there is no GPU it says so and does nothing. Runs that are there already are kept.
"""

import argparse
import gc
import sys
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final

import torch

from examples import train_gpt

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

    def arguments(self, folder: Path) -> list[str]:
        """Return what the example is called with: bfloat16, recorded into a folder."""
        figures = {"layers": self.layers, "width": self.width, "heads": self.width // 64, "batch": self.batch}
        figures |= {"sequence": self.sequence, "steps": 25}
        options = [word for name, value in figures.items() for word in (f"--{name}", str(value))]
        compiled = ["--compile"] if self.compiled else []
        return ["--dtype", "bfloat16", *options, *compiled, "--profile", str(folder)]


GRID: Final = tuple(
    Run(layers, width, batch, sequence, compiled)
    for compiled, (layers, width), (batch, sequence) in product(
        (False, True), ((2, 1024), (4, 2048), (2, 4096)), ((4, 1024), (16, 1024), (2, 4096))
    )
)
"""Eighteen runs: each more than a launch, none more than a small GPU holds."""


def main() -> int:
    """Record what is not there yet; return 1 where a run failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="folder of the runs' folders")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no run after so many")
    options = parser.parse_args()
    output: Path = options.output
    if not torch.cuda.is_available():
        print(f"no GPU here: {len(GRID)} runs are ready to be recorded where there is one")
        return 0
    begun, failed = time.perf_counter(), 0
    for run in GRID:
        folder = output / run.name
        if time.perf_counter() - begun > options.seconds or list(folder.glob("rank*.json.gz")):
            continue
        start = time.perf_counter()
        try:
            train_gpt.main(run.arguments(folder))
        except RuntimeError as error:  # too little memory, a compiler that is not there: the others are recorded
            failed += 1
            print(f"{run.name} failed: {error}")
        if run.compiled:
            torch.compiler.reset()
        gc.collect()
        torch.cuda.empty_cache()
        for file in folder.glob("rank*.json.gz"):
            if file.stat().st_size > MOST_BYTES:
                print(f"{file}: {file.stat().st_size} bytes, left out")
                file.unlink()
        print(f"{run.name}: {time.perf_counter() - start:.1f} s", flush=True)
    print(f"{output}: {len(list(output.glob('*/rank0.json.gz')))} of {len(GRID)} runs recorded, {failed} failed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
