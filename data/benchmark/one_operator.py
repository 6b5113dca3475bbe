"""One recorded operator, called with torch alone: `python operators.py`; what a call takes is printed as JSON."""

import json
import sys
import time
from functools import partial
from math import inf, nan  # noqa: F401 - inputs
from statistics import median

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HALF = {torch.float16, torch.bfloat16}
torch.manual_seed(0)


def tensor(dims, strides, dtype, below=2, at=DEVICE):
    """Return random numbers; integers, which may point into another tensor, are smaller than `below`."""
    length = 1 + sum((size - 1) * stride for size, stride in zip(dims, strides)) if all(dims) else 0
    buffer = torch.rand(length) if dtype.is_floating_point or dtype.is_complex else torch.randint(below, (length,))
    buffer = buffer.to(dtype)
    return (buffer.pin_memory() if at == "pinned" else buffer.to(at)).as_strided(dims, strides)


RECORDED, RECORDED_US, NAME, INPUTS = "", 0.0, "", []


def call():
    """Return a call of the first overload that takes the inputs, under autocast if none does without."""
    packet = getattr(torch.ops.aten, NAME.removeprefix("aten::"))
    overloads = [getattr(packet, each) for each in packet.overloads()]
    half = [each.dtype for each in INPUTS if isinstance(each, torch.Tensor) and each.dtype in HALF][:1]
    failure = TypeError(f"no overload takes {len(INPUTS)} inputs")
    for under in (None, *half):
        for overload in sorted(overloads, key=lambda each: len(each._schema.arguments)):
            given = list(zip(overload._schema.arguments, INPUTS))
            named = {each.name: value for each, value in given if value is not None or not each.has_default_value()}
            run = partial(overload, **named)
            try:
                if len(given) < len(INPUTS):
                    continue
                run = torch.autocast(DEVICE, under)(run) if under else run
                run()
                return run
            except Exception as error:  # whatever an operator raises, the next overload may take its inputs
                failure = error
    raise failure


@torch.no_grad()
def main():
    run, taken = call(), []
    for _ in range(55):
        start = time.perf_counter_ns()
        run()
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        taken.append(time.perf_counter_ns() - start)
    us = median(taken[5:]) / 1e3
    print(json.dumps({"operator": RECORDED, "called": NAME, "median_us": us, "recorded_us": RECORDED_US}))


try:
    main()
except Exception as error:  # an operator that this torch does not know, or not on this device
    sys.exit(f"{NAME} does not run with torch {torch.__version__} on {DEVICE}: {str(error).splitlines()[0]}")
