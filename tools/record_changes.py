"""Record nets on one GPU, each changed in one thing: `python -m tools.record_changes FOLDER`.

Nets of tools/gpu_nets.py: each as it is, each with one setting of `lumos-df estimate --set`, llama and others with one
thing that is wrong, and in other forms. As torch.profiler alone records them, shapes and nothing else; with
`--capture` those as they are by `lumos_df.capture.profile`. The metadata of each file (`lumosCapture`) hold what was
changed, steps without the profiler, and the most memory that was allocated; `runs.csv` has them of all runs. Runs that
are there already are kept.
It needs torch, transformers and torchvision.
"""

import argparse
import csv
import gc
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from pathlib import Path
from statistics import median
from typing import Any, Final

import torch

from lumos_df.capture import profile
from lumos_df.capture.publish import publish, read_metadata
from tools import gpu_faults
from tools.gpu_nets import DEVICE, NETS, Net

_WARMUP, _UNPROFILED, _PROFILED = 5, 10, 3
"""Steps that are thrown away, timed without a profiler, and recorded."""
BASE: Final = "base"
_PARTS: Final = (BASE, "settings", "faults")
_LOOPS, _LOOP = 20, range(20_000)


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


def runs(part: str | None = None) -> list[Run]:
    """Return the runs as they are, those with one setting changed, those with faults and in other forms; or a part."""
    parts = (
        [Run(name, BASE) for name in NETS],
        # The first change of every net, then the second: what ends the recordings early leaves some of each.
        [
            Run(name, change)
            for changes in zip_longest(*(net.changes for net in NETS.values()))
            for name, change in zip(NETS, changes, strict=True)
            if change
        ],
        [Run(*pair) for pair in gpu_faults.names(gpu_faults.FAULTS | gpu_faults.FORMS)],
    )
    return parts[_PARTS.index(part)] if part else [run for each in parts for run in each]


class Training:
    """A net and a step of its training."""

    def __init__(self, run: Run) -> None:
        net: Net = NETS[run.net]
        self._fault = gpu_faults.of(run.change)
        settings = run.settings()
        self.sizes = net.sizes | {name: int(value) for name, value in settings.items() if value.isdigit()}
        self.dtype = settings.get("dtype", net.dtype)
        self.device, self.loss = DEVICE, net.loss
        self.kept: dict[str, Any] = {}
        torch.manual_seed(0)
        torch.backends.cuda.matmul.allow_tf32 = False
        with DEVICE:
            made = net.make(self.sizes, self._fault.attention)
        self.net = made.to(DEVICE, torch.bfloat16 if self.dtype == "bf16" else torch.float32).train()
        if settings.get("recompute") == "full":
            self.net.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        given = net.given(self.sizes)
        self.given = given.bfloat16() if self.dtype == "bf16" and given.is_floating_point() else given
        self._fault.made(self)
        if self._fault.compiled:
            self.net = torch.compile(self.net)
        update = torch.optim.SGD if self._fault.sparse else torch.optim.AdamW
        self.optimizer: Any = update(self.net.parameters(), lr=1e-5, **self._fault.optimizer)
        self._graph: Any = None

    def step(self) -> None:
        """Train one step."""
        if self._graph is not None:
            self._graph.replay()
            return
        if self._fault.instead:
            self._fault.instead(self)
            return
        self._fault.before(self)
        for _ in range(self.sizes.get("gradient_accumulation", 1) - 1):
            self._backward()
        self.kept["loss"] = self._backward()
        self._fault.differentiated(self)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=self._fault.dropped_gradients)
        self._fault.after(self)

    def _backward(self) -> torch.Tensor:
        with self._fault.around(self):
            with torch.autocast(DEVICE.type, torch.bfloat16, enabled=self.dtype == "autocast"):
                loss = self.loss(self.net, self.given)
            loss.backward()
        return loss.detach()

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


def probe() -> list[int]:
    """Return ns of a loop of Python that is run some times: how fast the host is."""
    times = [time.perf_counter_ns()]
    for _ in range(_LOOPS):
        sum(_LOOP)
        times.append(time.perf_counter_ns())
    return [after - before for before, after in pairwise(times)]


def record(run: Run, folder: Path) -> None:
    """Record a run by torch.profiler."""
    training = Training(run)
    if gpu_faults.of(run.change).graphed:
        training.graph()
    timed(training.step, _WARMUP)
    if DEVICE.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    loops, unprofiled = probe(), timed(training.step, _UNPROFILED)
    told: dict[str, object] = {"net": run.net, "change": run.change, "sizes": training.sizes, "dtype": training.dtype}
    told |= {"profiledNs": [], "unprofiledBeforeNs": unprofiled, "unprofiledAfterNs": [], "loopNs": loops + probe()}
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


def table(folder: Path) -> None:
    """Write `runs.csv`: what each run of a folder took without a profiler, ms, and held of memory at most."""
    with (folder / "runs.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("net", "change", "dtype", "median_ms", "fastest_ms", "slowest_ms", "peak_bytes", "loop_us"))
        for trace in sorted(folder.glob("*/rank0.json.gz")):
            told: dict[str, Any] = read_metadata(trace)
            steps = [1e-6 * taken for taken in told["unprofiledBeforeNs"]]
            times = (f"{taken:.3f}" for taken in (median(steps), min(steps), max(steps)))
            loop = f"{1e-3 * median(told['loopNs']):.1f}"
            rows.writerow((told["net"], told["change"], told["dtype"], *times, told.get("peakBytes"), loop))


def main() -> int:
    """Record what is not there yet; return 1 where a run failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="folder of the runs' folders")
    parser.add_argument("--capture", action="store_true", help="the nets as they are, by lumos_df.capture.profile")
    parser.add_argument("--only", choices=_PARTS, help="the nets as they are, other settings, or faults and forms")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no run after so many")
    options = parser.parse_args()
    folder: Path = options.output
    folder.mkdir(parents=True, exist_ok=True)
    start, failed = time.perf_counter(), 0
    way = captured if options.capture else record
    wanted = runs(BASE if options.capture else options.only)
    for run in wanted:
        late = time.perf_counter() - start > options.seconds
        if late or (folder / run.name / "rank0.json.gz").exists():
            continue
        begun = time.perf_counter()
        try:
            way(run, folder)
        except Exception:  # noqa: BLE001 - one that does not run here is told, and the others are recorded
            failed += 1
            print(f"{run.name} failed: {traceback.format_exc().strip().splitlines()[-1]}")
        _clear()
        print(f"{run.name}: {time.perf_counter() - begun:.1f} s", file=sys.stderr, flush=True)
    if not options.capture:
        table(folder)
    print(f"{folder}: {len(list(folder.glob('*/rank0.json.gz')))} of {len(wanted)} runs recorded, {failed} failed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
