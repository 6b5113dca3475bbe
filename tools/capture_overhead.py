"""What `lumos-df capture` adds to a step outside its window: `python -m tools.capture_overhead`, where torch is.

An optimizer's step of one parameter is called over and over, in turn with the hook and without, in one process; what
differs is what the hook adds to any step, whatever the model. Processor time, so that other processes do not matter.
"""

import os
import statistics
import sys
import tempfile
import time
from importlib import import_module
from typing import Any, Final

import torch

from lumos_df.capture import inject
from lumos_df.capture.capture_settings import ENVIRONMENT, CaptureSettings

optimizers: Final = import_module("torch.optim.optimizer")
_BLOCKS: Final = 200
_STEPS: Final = 500
_SHORTEST_MS: Final = 10.0
"""A training step that is called short."""


def _optimizer() -> Any:
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    return torch.optim.SGD([parameter], lr=0.0)


def _block(optimizer: Any) -> float:
    begin = time.process_time_ns()
    for _ in range(_STEPS):
        optimizer.step()
    return (time.process_time_ns() - begin) / _STEPS


def _added(settings: CaptureSettings, first: int) -> float:
    """Return ns that the hook adds to a step, after `first` steps with it."""
    os.environ[ENVIRONMENT] = settings.to_environment()
    hooks = optimizers._global_optimizer_post_hooks  # noqa: SLF001 - taken away for every other block
    hooks.clear()
    plain, hooked = _optimizer(), _optimizer()
    inject.count_steps(optimizers)
    for _ in range(first):
        hooked.step()
    kept = dict(hooks)
    differences = []
    for _ in range(_BLOCKS):
        hooks.clear()
        without = _block(plain)
        hooks.update(kept)
        differences.append(_block(hooked) - without)
    return statistics.median(differences)


def main() -> int:
    """Print what is added before the window and after it."""
    with tempfile.TemporaryDirectory() as folder:
        waiting = _added(CaptureSettings(folder, warmup=10**9), 1)
        written = CaptureSettings(folder, warmup=0, steps=1, unprofiled=1)
        done = _added(written, 10)
    for what, ns in (("before the recorded steps", waiting), ("after the file is written", done)):
        share = 100 * ns / (_SHORTEST_MS * 1e6)
        print(f"{what}: {ns / 1e3:.2f} us a step, {share:.4f} % of a step of {_SHORTEST_MS:g} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
