"""Record nets as torch.profiler alone does, shapes and nothing else: `python -m tools.record_plain FOLDER`.

A GPT (examples/train_gpt.py), an encoder, an MLP mixer, a convolutional net, and the GPT on two ranks of gloo, each at
several layer counts, widths and batches, on this machine's CPU: one folder a run, as tools/validate.py names them. It
needs torch. Runs that are there already are kept; of the rounds the one with the fastest recorded step stays.
"""

import argparse
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lumos_df.capture.publish import publish
from tools.plain_nets import NETS, Size, sizes

_ROUNDS: Final = 2
_WARMUP, _UNPROFILED, _PROFILED = 3, 6, 6
"""Steps of a round that are thrown away, timed without a profiler, and recorded."""


def record(kind: str, folder: Path, rank: int) -> None:
    """Record one rank of all sizes of a kind that are not there yet."""
    make, given, _ = NETS[kind]
    wanted = [size for size in sizes(kind) if not list(_folder(folder, kind, size).glob(f"rank{rank}.json.gz"))]
    fastest: dict[Size, int] = {}
    for turn, size in product(range(_ROUNDS), wanted):
        if rank == 0:
            print(f"{kind}: round {turn + 1} of {_ROUNDS}, {size}     ", end="\r", file=sys.stderr)
        torch.manual_seed(rank)
        net = make(size[0], size[1], size[3])
        if dist.is_initialized():
            net = nn.parallel.DistributedDataParallel(net)
        trace, recorded, unprofiled = _run(net, given(size), folder / f".{kind}{rank}.json")
        quickest = torch.tensor(min(recorded))
        if dist.is_initialized():
            dist.all_reduce(quickest, dist.ReduceOp.MAX)
        if int(quickest) < fastest.get(size, sys.maxsize):
            fastest[size] = int(quickest)
            target = _folder(folder, kind, size) / f"rank{rank}.json.gz"
            target.parent.mkdir(parents=True, exist_ok=True)
            publish(trace, target, {"profiledNs": recorded, "unprofiledBeforeNs": unprofiled, "unprofiledAfterNs": []})
        trace.unlink()


def _folder(folder: Path, kind: str, size: Size) -> Path:
    return folder / "l{}_w{}_b{}_s{}_{}".format(*size, kind)


def _run(net: nn.Module, given: Tensor, trace: Path) -> tuple[Path, list[int], list[int]]:
    """Train a few steps; return the profiler's file, and ns of the recorded and of the unprofiled steps."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    targets = torch.zeros(net(given).shape[:-1], dtype=torch.int64)
    times: list[int] = []

    def steps(count: int, profiler: Any = None) -> list[int]:
        times.clear()
        for _ in range(count):
            start = time.perf_counter_ns()
            logits = net(given)
            nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
            if profiler:
                profiler.step()
            times.append(time.perf_counter_ns() - start)
        return list(times)

    steps(_WARMUP)
    unprofiled = steps(_UNPROFILED)
    schedule = torch.profiler.schedule(wait=0, warmup=2, active=_PROFILED)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(
        activities=activities,
        schedule=schedule,
        record_shapes=True,
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(trace)),
    ) as profiler:
        # The profiler writes its file in the last one.
        recorded = steps(2 + _PROFILED, profiler)[2:-1]
    return trace, recorded, unprofiled


def _rank(rank: int, folder: Path) -> None:
    """Record one of two ranks."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / ".store"), 2), rank=rank, world_size=2)
    record("ddp", folder, rank)
    dist.destroy_process_group()


def main() -> None:
    """Record what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="folder of the runs' folders")
    parser.add_argument("--nets", nargs="+", choices=NETS, default=list(NETS))
    options = parser.parse_args()
    folder: Path = options.output
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for kind in options.nets:
        if kind != "ddp":
            record(kind, folder, 0)
            continue
        (folder / ".store").unlink(missing_ok=True)
        torch.multiprocessing.spawn(_rank, (folder,), nprocs=2)


if __name__ == "__main__":
    main()
