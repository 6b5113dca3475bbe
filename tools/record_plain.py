"""Record nets as torch.profiler alone does, shapes and nothing else: `python -m tools.record_plain FOLDER`.

A GPT (examples/train_gpt.py), an encoder, an MLP mixer, a convolutional net, and the GPT on two ranks of gloo, each at
several layer counts, widths and batches, on this machine's CPU: one folder a run, as tools/validate.py names them. It
needs torch. Runs that are there already are kept; of the rounds the one with the fastest recorded step stays.
"""

import argparse
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn

from examples.train_gpt import GPT
from lumos_df.capture.publish import publish

_ROUNDS: Final = 2
_WARMUP, _UNPROFILED, _PROFILED = 3, 6, 6
"""Steps of a round that are thrown away, timed without a profiler, and recorded."""
_HEAD_WIDTH: Final = 16
_CLASSES: Final = 10

Size = tuple[int, int, int, int]
"""Layers, width, batch, and tokens, patches or pixels of a side."""


class Encoder(nn.Module):  # type: ignore[misc]  # torch is not installed where mypy runs
    """An encoder as torch has it, normalizations last, and a class of every sequence."""

    def __init__(self, layers: int, width: int, _: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(2000, width)
        layer = nn.TransformerEncoderLayer(width, width // _HEAD_WIDTH, 4 * width, 0.0, "gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, _CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map (batch, sequence) tokens to (batch, classes)."""
        out: Tensor = self.head(self.layers(self.embedding(tokens)).mean(1))
        return out


class Mixing(nn.Module):  # type: ignore[misc]  # as above
    """A layer of a mixer: over the patches, then over the width."""

    def __init__(self, width: int, patches: int) -> None:
        super().__init__()
        self.patch_norm, self.width_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.over_patches = nn.Sequential(nn.Linear(patches, 64), nn.GELU(), nn.Linear(64, patches))
        self.over_width = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (batch, patches, width) to the same shape."""
        hidden = hidden + self.over_patches(self.patch_norm(hidden).transpose(1, 2)).transpose(1, 2)
        out: Tensor = hidden + self.over_width(self.width_norm(hidden))
        return out


class Mixer(nn.Module):  # type: ignore[misc]  # as above
    """Linear layers over the patches and over the width in turn."""

    def __init__(self, layers: int, width: int, patches: int) -> None:
        super().__init__()
        self.into = nn.Linear(3 * 16, width)
        self.layers = nn.Sequential(*(Mixing(width, patches) for _ in range(layers)))
        self.head = nn.Linear(width, _CLASSES)

    def forward(self, patches: Tensor) -> Tensor:
        """Map (batch, patches, 48) to (batch, classes)."""
        out: Tensor = self.head(self.layers(self.into(patches)).mean(1))
        return out


class Residual(nn.Module):  # type: ignore[misc]  # as above
    """Two convolutions around which the input goes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.first_norm, self.second_norm = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (batch, width, side, side) to the same shape."""
        inner = torch.relu(self.first_norm(self.first(hidden)))
        return torch.relu(hidden + self.second_norm(self.second(inner)))


class Convolutional(nn.Module):  # type: ignore[misc]  # as above
    """One stage of a residual net."""

    def __init__(self, layers: int, width: int, _: int) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.layers = nn.Sequential(*(Residual(width) for _ in range(layers)))
        self.head = nn.Linear(width, _CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Map (batch, 3, side, side) to (batch, classes)."""
        hidden = self.layers(torch.relu(self.norm(self.stem(images))))
        out: Tensor = self.head(hidden.mean((2, 3)))
        return out


def _gpt(layers: int, width: int, sequence: int) -> nn.Module:
    options = argparse.Namespace(
        layers=layers, width=width, heads=width // _HEAD_WIDTH, sequence=sequence, vocabulary=2000, pp=1
    )
    return GPT(options, 0)


NETS: Final[dict[str, tuple[Callable[[int, int, int], nn.Module], Callable[[Size], Tensor], list[Size]]]] = {
    "gpt": (
        _gpt,
        lambda size: torch.randint(2000, (size[2], size[3])),
        [(3, 128, 3, 96), (6, 128, 3, 96), (2, 96, 3, 96), (2, 96, 6, 96)],
    ),
    "encoder": (
        Encoder,
        lambda size: torch.randint(2000, (size[2], size[3])),
        [(3, 128, 3, 96), (6, 128, 3, 96), (2, 96, 6, 96), (4, 96, 6, 96)],
    ),
    "mixer": (
        Mixer,
        lambda size: torch.randn(size[2], size[3], 48),
        [(3, 96, 10, 49), (6, 96, 10, 49), (2, 96, 49, 49), (2, 96, 96, 49)],
    ),
    "conv": (
        Convolutional,
        lambda size: torch.randn(size[2], 3, size[3], size[3]),
        [(3, 24, 10, 16), (6, 24, 10, 16), (2, 32, 32, 16), (2, 32, 16, 16)],
    ),
    "ddp": (_gpt, lambda size: torch.randint(2000, (size[2], size[3])), [(3, 128, 3, 96), (6, 128, 3, 96)]),
}
"""What makes a net of layers, width and tokens; its input; and its sizes beside those of `_GRID`. The last are such
that two of them are alike."""
_GRID: Final[dict[str, tuple[tuple[int, int], tuple[int, int], int]]] = {
    "gpt": ((128, 256), (3, 6), 96),
    "encoder": ((128, 256), (3, 6), 96),
    "mixer": ((96, 192), (10, 20), 49),
    "conv": ((24, 48), (10, 20), 16),
    "ddp": ((128, 256), (3, 6), 96),
}
"""Widths, batches, tokens; each with two and four layers."""


def sizes(kind: str) -> list[Size]:
    """Return what is recorded of a kind of net."""
    widths, batches, tokens = _GRID[kind]
    return [(*size, tokens) for size in product((2, 4), widths, batches)] + NETS[kind][2]


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
