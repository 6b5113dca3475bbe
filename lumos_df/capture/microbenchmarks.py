"""Kernels timed one by one with torch, on this machine's GPU or CPU."""

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.spawn import spawn

from lumos_df.calibrate.measured_kernels import Measurement, Shape
from lumos_df.schema.dtypes import DTYPE_OF_WORD

_ROUNDS: Final = 5
"""Blocks of calls that are timed, of which the median counts."""
_BLOCK_S: Final = 0.02
"""What a block of calls lasts, s: long against the clock and the launch of a first call."""
_FIRST_SHARE: Final = 0.25
"""Of a block: calls that last as long tell how many fill a whole one."""
_MOST_CALLS: Final = 1000
"""Calls of a block, at most, however short they are."""
_LARGE_BYTES: Final = 16_777_216
"""Collectives of as many are called less often: between processes of one host they take long."""
_COLLECTIVE_CALLS: Final = 20
"""Calls of a block of a smaller collective: ranks must agree without a word, so none measures first."""
_LARGE_CALLS: Final = 4
"""Calls of a block of a large collective."""


def measured_device() -> torch.device:
    """Return what is measured: the first GPU where there is one, else the CPU."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


def device_name() -> str:
    """Return the GPU's name as the driver has it; `cpu` where there is none."""
    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else "cpu"


def seconds(run: Callable[[], object], device: torch.device) -> float:
    """Return how long one call takes once it is warm: the median block of calls that follow one another."""
    run()
    calls = 1
    while (taken := _block(run, calls, device)) < _FIRST_SHARE * _BLOCK_S and calls < _MOST_CALLS:
        calls *= 2
    calls = min(max(1, round(calls * _BLOCK_S / max(taken, 1e-9))), _MOST_CALLS)
    return median(_block(run, calls, device) / calls for _ in range(_ROUNDS))


def _block(run: Callable[[], object], calls: int, device: torch.device) -> float:
    if device.type == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(calls):
            run()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3
    begin = time.perf_counter()
    for _ in range(calls):
        run()
    return time.perf_counter() - begin


def measure(shapes: Sequence[Shape], precision: str) -> list[Measurement]:
    """Time kernels; collectives among all GPUs of this machine, or between two CPU processes."""
    device, dtype = measured_device(), getattr(torch, DTYPE_OF_WORD[precision])
    single = [shape for shape in shapes if shape.kind != "collectives"]
    measurements = [Measurement(shape, seconds(_kernel(shape, device, dtype), device)) for shape in single]
    several = [shape for shape in shapes if shape.kind == "collectives"]
    return measurements + (_collectives(several, dtype) if several else [])


def _kernel(shape: Shape, device: torch.device, dtype: torch.dtype) -> Callable[[], object]:
    """Return a call that runs one kernel."""
    if shape.kind == "gemm":
        m, n, k = shape.size
        # A linear layer's: the weight lies as (n, k).
        a, b = torch.randn(m, k, device=device, dtype=dtype), torch.randn(n, k, device=device, dtype=dtype)
        return lambda: nn.functional.linear(a, b)
    if shape.kind == "memory":
        # A copy reads half of the bytes and writes the other half.
        source = torch.empty(max(shape.size[0] // 2, 1), device=device, dtype=torch.uint8)
        target = torch.empty_like(source)
        return lambda: target.copy_(source)
    batch, length, heads, size = shape.size
    backward = shape.what == "backward"
    q, k, v = (
        torch.randn(batch, heads, length, size, device=device, dtype=dtype, requires_grad=backward) for _ in range(3)
    )
    attention: Any = nn.functional.scaled_dot_product_attention
    if not backward:
        return lambda: attention(q, k, v, is_causal=True)
    out = attention(q, k, v, is_causal=True)
    gradient = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)


def _collectives(shapes: Sequence[Shape], dtype: torch.dtype) -> list[Measurement]:
    ranks = torch.cuda.device_count() if torch.cuda.is_available() else 2
    if ranks < 2:
        return []
    with tempfile.TemporaryDirectory() as scratch:
        spawn(_rank, args=(ranks, scratch, list(shapes), dtype), nprocs=ranks)
        times = torch.load(os.path.join(scratch, "seconds"))  # noqa: PTH118 - torch takes the text
    return [
        Measurement(Shape(shape.kind, shape.what, (shape.size[0], ranks)), taken)
        for shape, taken in zip(shapes, times, strict=True)
        if taken > 0
    ]


def _rank(rank: int, ranks: int, scratch: str, shapes: Sequence[Shape], dtype: torch.dtype) -> None:
    """Time collectives as one rank of a group; the first writes the seconds."""
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", rank) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    dist.init_process_group(
        "nccl" if gpu else "gloo", init_method=f"file://{scratch}/rendezvous", rank=rank, world_size=ranks
    )
    times = [_collective_seconds(shape, ranks, device, dtype) for shape in shapes]
    if rank == 0:
        torch.save(times, os.path.join(scratch, "seconds"))  # noqa: PTH118 - as above
    dist.destroy_process_group()


def _collective_seconds(shape: Shape, ranks: int, device: torch.device, dtype: torch.dtype) -> float:
    """Return a collective's seconds, bytes as nccl-tests count them; every rank makes the same number of calls."""
    width = torch.empty(0, dtype=dtype).element_size()
    share = max(shape.size[0] // (width * ranks), 1)
    whole, part = torch.zeros(share * ranks, device=device, dtype=dtype), torch.zeros(share, device=device, dtype=dtype)
    received = torch.zeros_like(whole)
    runs: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_gather": lambda: _newest("all_gather_single", "all_gather_into_tensor")(whole, part),
        "reduce_scatter": lambda: _newest("reduce_scatter_single", "reduce_scatter_tensor")(part, whole),
        "all_to_all": lambda: dist.all_to_all_single(received, whole),
    }
    run = runs[shape.what]
    try:
        _block(run, 2, device)
    except RuntimeError:  # gloo has no such collective
        return 0.0
    calls = _COLLECTIVE_CALLS if shape.size[0] < _LARGE_BYTES else _LARGE_CALLS
    return median(_block(run, calls, device) / calls for _ in range(_ROUNDS))


def _newest(name: str, former: str) -> Callable[..., object]:
    """Return a function of torch.distributed that was renamed in torch 2.13."""
    function: Callable[..., object] = getattr(dist, name, None) or getattr(dist, former)
    return function
