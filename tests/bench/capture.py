"""What `lumos-df capture` adds to a step outside its window: steps with the counting optimizer beside steps without.

Needs torch (extra: capture); `python -m tests.bench.capture` alone measures it.
"""

import os
import random
import tempfile
import time
from importlib import import_module
from importlib.util import find_spec
from statistics import median

from tests.bench.measure import claim

_STEPS = 1500
_CALLS = 100_000


def main() -> None:
    """Measure steps after the window, with and without, in random order."""
    if find_spec("torch") is None:
        print("capture: skipped, no torch (pip install 'lumos-df[capture]')")
        return
    import torch  # noqa: PLC0415

    from lumos_df.capture import inject  # noqa: PLC0415
    from lumos_df.capture.capture_settings import ENVIRONMENT, CaptureSettings  # noqa: PLC0415

    torch.set_num_threads(1)
    layers = [torch.nn.Linear(256, 256) for _ in range(4)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters())
    inputs = torch.randn(64, 256)

    def step() -> float:
        start = time.perf_counter()
        model(inputs).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - start

    with tempfile.TemporaryDirectory() as folder:
        settings = CaptureSettings(folder, warmup=0, steps=1, unprofiled=2)
        os.environ[ENVIRONMENT] = settings.to_environment()
        inject.count_steps(import_module("torch.optim.optimizer"))
        for _ in range(10):
            step()
        counting, plain = optimizer.step, type(optimizer).step.__get__(optimizer)
        times: dict[bool, list[float]] = {True: [], False: []}
        chance = random.Random(0)  # noqa: S311 - no secret
        for _ in range(_STEPS):
            counted = chance.random() < 0.5  # in turn would follow whatever else goes in turns
            optimizer.step = counting if counted else plain
            times[counted].append(step())
        recorder = counting.__func__.__closure__
        cells = [cell.cell_contents for cell in recorder or ()]
        mark = next(cell.step for cell in cells if hasattr(cell, "close"))
        start = time.perf_counter()
        for _ in range(_CALLS):
            mark()
        cost = (time.perf_counter() - start) / _CALLS
    slower = 100 * (median(times[True]) / median(times[False]) - 1)
    print(f"a step of {1e3 * median(times[False]):.3f} ms; counting it takes {1e9 * cost:.0f} ns")
    claim("capture: steps outside the window, longer by", slower, "%", 2)
    claim("capture: the count alone, of a step", 100 * cost / median(times[False]), "%", 2)


if __name__ == "__main__":
    main()
