"""The time of each family in a step, from the events of a profiler, of which torch has built a tree."""

import os
import subprocess
import sys

from tests.conftest import ROOT
from tests.generate.benchmarks import needs_torch

MARKS = """
from torch.autograd import DeviceType
from torch.autograd.profiler_util import EventList, FunctionEvent
from benchmark import families

def event(name, start, end, device=DeviceType.CPU, **more):
    number, used = more.pop("id", start), {"device_type": device, "use_device": "cuda"}
    return FunctionEvent(id=number, name=name, thread=1, start_us=start, end_us=end, **used, **more)

def step(at, gemm_us, attention_us):
    events = [event("family gemm", at, at + 20), event("aten::mm", at + 1, at + 12),
              event("aten::add", at + 13, at + 19), event("family attention", at + 30, at + 40),
              event("aten::attend", at + 31, at + 39), event("aten::forward", at + 32, at + 38)]
    gpu = [event("family gemm", at + 50, at + 90, DeviceType.CUDA, is_user_annotation=True),
           event("family attention", at + 90, at + 99, DeviceType.CUDA, is_user_annotation=True)]
    for place, kernel_us in ((1, gemm_us), (2, 5), (5, attention_us)):
        events[place].append_kernel("a kernel", 0, kernel_us)
        gpu.append(event("a kernel", at + 50, at + 50 + kernel_us, DeviceType.CUDA))
    # As torch has it: the range on the GPU is a kernel of its mark.
    events[0].append_kernel("family gemm", 0, 40)
    return events + gpu

events = EventList([*step(0, 10, 7), *step(1000, 12, 7), *step(2000, 900, 8)], use_device="cuda")
events._build_tree()
print(families(events, 3, True), families(events, 3, False))
"""


@needs_torch
def test_families_are_the_times_of_kernels_where_there_is_a_gpu() -> None:
    """Three steps of a product with a sum beside it and of attention in another operator; the last was disturbed."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "data" / "benchmark")}
    done = subprocess.run([sys.executable, "-c", MARKS], capture_output=True, text=True, check=False, env=environment)
    gpu, host = "{'attention': 0.007, 'gemm': 0.017}", "{'attention': 0.008, 'gemm': 0.017}"
    assert done.stdout.strip() == f"{gpu} {host}", done.stderr
