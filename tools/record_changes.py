"""Record nets on one GPU, each changed in one thing: `python -m tools.record_changes FOLDER`.

Nets of tools/gpu_nets.py: each as it is, each with one setting of `lumos-df estimate --set`, llama and others with one
thing that is wrong, and in other forms. As torch.profiler alone records them, shapes and nothing else; with
`--capture` those as they are by `lumos_df.capture.profile`. The metadata of each file (`lumosCapture`) hold what was
changed, steps without the profiler, and the most memory that was allocated. Runs that are there already are kept.
It needs torch, transformers and torchvision.
"""

import argparse
import gc
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from lumos_df.capture import profile
from lumos_df.capture.publish import publish
from tools.gpu_nets import DEVICE, NETS, Net

_WARMUP, _UNPROFILED, _PROFILED = 5, 10, 3
"""Steps that are thrown away, timed without a profiler, and recorded."""
_SLEEP_S: Final = 0.02
_PAGEABLE_BYTES: Final = 64 << 20
BASE: Final = "base"

FAULTS: Final = {
    "item_every_step": ("llama", "gpt2", "resnet50"),
    "item_every_layer": ("llama", "bert"),
    "sleeping_loader": ("llama", "gpt2"),
    "pageable_copy": ("llama", "resnet50"),
    "optimizer_by_tensor": ("llama", "gpt2"),
    "eager_attention": ("llama", "bert"),
    "emptied_cache": ("llama", "gpt2"),
    "channels_first": ("resnet50",),
}
"""What is wrong in a run, and with which nets."""
FORMS: Final = {
    "with_stack": ("llama", "resnet50"),
    "with_memory": ("llama", "moe"),
    "fused_optimizer": ("llama",),
    "graphed": ("gpt2",),
    "compiled": ("llama",),
}
"""Other forms of a run that are as right as it."""


@dataclass(frozen=True)
class Run:
    """One run."""

    net: str
    change: str
    """`base`, settings as `--set` has them, a fault or a form."""

    @property
    def name(self) -> str:
        """Return its folder."""
        return f"{self.net}--{self.change.replace(' ', '+')}"

    def settings(self) -> dict[str, str]:
        """Return what is changed, by name; nothing for a fault or a form."""
        return dict(word.split("=") for word in self.change.split()) if "=" in self.change else {}


def runs() -> list[Run]:
    """Return all runs: those as they are, then settings, faults and forms."""
    changed = [Run(name, change) for name, net in NETS.items() for change in net.changes]
    other = [Run(net, what) for what, nets in (FAULTS | FORMS).items() for net in nets]
    return [*(Run(name, BASE) for name in NETS), *changed, *other]


class Training:
    """A net and a step of its training."""

    def __init__(self, run: Run) -> None:
        self._net: Net = NETS[run.net]
        settings = run.settings()
        self.sizes = self._net.sizes | {name: int(value) for name, value in settings.items() if value.isdigit()}
        self.dtype = settings.get("dtype", self._net.dtype)
        self._run = run
        torch.manual_seed(0)
        with DEVICE:
            net = self._net.make(self.sizes, "eager" if run.change == "eager_attention" else "sdpa")
        self.net = net.to(DEVICE, torch.bfloat16 if self.dtype == "bf16" else torch.float32).train()
        if run.change == "channels_first":
            self.net.to(memory_format=torch.contiguous_format)
        if settings.get("recompute") == "full":
            self.net.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if run.change == "item_every_layer":
            for each in self.net.modules():
                if isinstance(each, nn.LayerNorm) or "RMSNorm" in type(each).__name__:
                    each.register_forward_hook(_look)
        if run.change == "compiled":
            self.net = torch.compile(self.net)
        options: dict[str, bool] = {}
        if run.change == "optimizer_by_tensor":
            options = {"foreach": False}
        elif run.change == "fused_optimizer":
            options = {"fused": True}
        elif run.change == "graphed":
            options = {"capturable": True}
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-5, **options)
        given = self._net.given(self.sizes)
        self._given = given.bfloat16() if self.dtype == "bf16" and given.is_floating_point() else given
        self._pageable = torch.empty(_PAGEABLE_BYTES, dtype=torch.uint8)
        self._graph: Any = None

    def step(self) -> None:
        """Train one step."""
        if self._graph is not None:
            self._graph.replay()
            return
        if self._run.change == "sleeping_loader":
            time.sleep(_SLEEP_S)
        if self._run.change == "pageable_copy":
            self._pageable.to(DEVICE)
        for _ in range(self.sizes.get("gradient_accumulation", 1) - 1):
            self._backward()
        loss = self._backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=self._run.change != "graphed")
        if self._run.change == "item_every_step":
            loss.item()
        if self._run.change == "emptied_cache":
            del loss
            torch.cuda.empty_cache()

    def _backward(self) -> torch.Tensor:
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=self.dtype == "autocast"):
            loss = self._net.loss(self.net, self._given)
        loss.backward()
        return loss

    def graph(self) -> None:
        """Capture a step in a CUDA graph, which is replayed from then on."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        self._graph = graph


def _look(_: nn.Module, __: object, out: torch.Tensor) -> None:
    if bool(torch.isnan(out).any()):
        raise RuntimeError("not a number")


def timed(step: Callable[[], None], count: int) -> list[int]:
    """Return ns of steps that follow one another, between events in the stream."""
    if DEVICE.type == "cpu":
        times = [time.perf_counter_ns()]
        for _ in range(count):
            step()
            times.append(time.perf_counter_ns())
        return [after - before for before, after in pairwise(times)]
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    for event in events[:-1]:
        event.record()
        step()
    events[-1].record()
    torch.cuda.synchronize()
    return [round(1e6 * before.elapsed_time(after)) for before, after in pairwise(events)]


def record(run: Run, folder: Path) -> None:
    """Record a run by torch.profiler."""
    training = Training(run)
    if run.change == "graphed":
        training.graph()
    timed(training.step, _WARMUP)
    if DEVICE.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    unprofiled = timed(training.step, _UNPROFILED)
    told: dict[str, object] = {"net": run.net, "change": run.change, "sizes": training.sizes, "dtype": training.dtype}
    told |= {"profiledNs": [], "unprofiledBeforeNs": unprofiled, "unprofiledAfterNs": []}
    if DEVICE.type == "cuda":
        told |= {"peakBytes": torch.cuda.max_memory_allocated(), "reservedBytes": torch.cuda.max_memory_reserved()}
    raw = folder / f".{run.name}.json"
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(
        activities=activities[: 1 + (DEVICE.type == "cuda")],
        schedule=torch.profiler.schedule(wait=0, warmup=2, active=_PROFILED),
        record_shapes=True,
        with_stack=run.change == "with_stack",
        profile_memory=run.change == "with_memory",
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(raw)),
    ) as profiler:
        for _ in range(2 + _PROFILED):
            training.step()
            profiler.step()
    target = folder / run.name / "rank0.json.gz"
    target.parent.mkdir(parents=True, exist_ok=True)
    publish(raw, target, told)
    raw.unlink()


def captured(run: Run, folder: Path) -> None:
    """Record a run by `lumos_df.capture.profile`."""
    training = Training(run)
    with profile(str(folder / run.name), warmup=_WARMUP, steps=_PROFILED, unprofiled=_UNPROFILED // 2) as recorder:
        for _ in range(_WARMUP + _UNPROFILED + _PROFILED + 2):
            training.step()
            recorder.step()


def _clear() -> None:
    gc.collect()
    if DEVICE.type == "cuda":
        torch.cuda.empty_cache()


def main() -> int:
    """Record what is not there yet; return 1 where a run failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="folder of the runs' folders")
    parser.add_argument("--capture", action="store_true", help="the nets as they are, by lumos_df.capture.profile")
    parser.add_argument("--only", choices=(BASE,), help="the nets as they are")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no run after so many")
    options = parser.parse_args()
    folder: Path = options.output
    folder.mkdir(parents=True, exist_ok=True)
    start, failed = time.perf_counter(), 0
    way = captured if options.capture else record
    for run in runs():
        late = time.perf_counter() - start > options.seconds
        if late or (folder / run.name / "rank0.json.gz").exists():
            continue
        if run.change != BASE and (options.only or options.capture):
            continue
        begun = time.perf_counter()
        try:
            way(run, folder)
        except Exception:  # noqa: BLE001 - one that does not run here is told, and the others are recorded
            failed += 1
            print(f"{run.name} failed: {traceback.format_exc().strip().splitlines()[-1]}")
        _clear()
        print(f"{run.name}: {time.perf_counter() - begun:.1f} s", file=sys.stderr, flush=True)
    print(f"{folder}: {len(list(folder.glob('*/rank0.json.gz')))} of {len(runs())} runs recorded, {failed} failed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
