"""One recorded step again, with torch alone: `torchrun --nproc-per-node N benchmark.py`, one process for one rank.

Operators run in their recorded order on threads and streams like the recorded ones, with inputs from a seed;
collectives run over NCCL, or gloo without a GPU. What a step takes is printed as JSON.
"""

import argparse
import json
import os
import sys
from collections import defaultdict
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from statistics import median

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler's own messages about starting and stopping

import torch
import torch.distributed as dist
from joined_calls import NAME
from replayed_step import ReplayedStep
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function, schedule

HERE = Path(__file__).parent
FAMILY = "family "
TRACED = 10  # steps
UNDELAYED = 3  # steps
USUAL = 0.98  # share of times that no pause of the machine is in


class Step(ReplayedStep):
    """The step of one rank, with what it takes under a profiler."""

    def profiled(self, count, mark=nullcontext):
        """Run the step `count` times under a profiler; return it, and what each took, ms.

        It costs what that of the recording did: allocations are recorded where they were.
        """
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self.cuda else [])]
        options = {"activities": activities, "record_shapes": True, "profile_memory": self.memory}
        if len(self.threads) > 1:
            options |= of_all_threads()
        plain = self.times
        with profile(**options) as profiler:
            single_ns = self.dispatch_ns(mark)
        single_ns -= median(event.cpu_time_total * 1e3 for event in profiler.events() if "detach" in event.name)
        alone = mark is not nullcontext  # marks are put around calls from Python
        if not alone and self.in_graph_ns is None:
            self.in_graph_ns = self.undelayed_ns(options) if self.joining else 0
        self.times = self.timing(self.host_gaps(profiled=True), single_ns, self.in_graph_ns, alone)
        with profile(**options, schedule=schedule(wait=0, warmup=1, active=count, repeat=1)) as profiler:
            times = self.timed(1 + count, mark, profiler.step)
        self.times = plain
        return profiler, times[1:]

    def undelayed_ns(self, options):
        """Return what is between two calls in a graph where nothing waits, under a profiler: mostly what that takes."""
        self.times = self.timing([0] * (1 + len(self.calls)), 0, 0)
        with profile(**options) as profiler:
            self.timed(UNDELAYED)
        between = []
        for event in profiler.events():
            if event.name == NAME:
                parts = sorted((part.time_range for part in event.cpu_children), key=lambda part: part.start)
                between += [1e3 * (later.start - earlier.end) for earlier, later in pairwise(parts)]
        usual = sorted(between)[: round(USUAL * len(between))]
        return sum(usual) / max(1, len(usual))

    def by_family(self, count):
        """Return each family's time in a step with the profiler on, ms: the GPU's, if there is one.

        It is the median of the steps: a pause of the machine lengthens one of them.
        """
        profiler, _ = self.profiled(count, lambda call: record_function(FAMILY + call["family"]))
        return families(profiler.events(), count, self.cuda)

    def named(self, found, what):
        """Return operators by name: percent of the recorded time, and what `found` says of them."""
        named = {}
        for number, said in found.items():
            operator = self.plan["operators"][number]
            each = named.setdefault(operator["name"], {"share_pct": 0.0, what: said})
            each["share_pct"] = round(each["share_pct"] + operator["share_pct"], 4)
        return named

    def write_trace(self, folder, modules):
        """Record steps as lumos-df ingest reads them."""
        folder.mkdir(parents=True, exist_ok=True)
        marked = (lambda call: record_function(call["module"] or "no module")) if modules else nullcontext
        profiler, _ = self.profiled(TRACED, marked)
        profiler.export_chrome_trace(str(folder / f"rank{self.place}.json"))


def of_all_threads():
    """Return the option of a profiler that follows threads which it is not started on; nothing where torch has none."""
    try:
        return {"experimental_config": torch._C._profiler._ExperimentalConfig(profile_all_threads=True)}
    except (AttributeError, TypeError):
        return {}


def families(events, count, cuda):
    """Return each family's time in one of `count` steps, ms, by the marks around its calls, less what these take."""
    marked = defaultdict(list)
    for event in sorted(events, key=lambda event: event.time_range.start):
        # On the GPU a profiler draws the same mark again, around the kernels and what is between them.
        if event.name.startswith(FAMILY) and event.device_type == DeviceType.CPU:
            parts = [part.device_time_total if cuda else part.cpu_time_total for part in event.cpu_children]
            marked[event.name.removeprefix(FAMILY)].append(sum(parts) * 1e-3)
    return {family: median(of_steps(times, count)) for family, times in sorted(marked.items())}


def of_steps(times, count):
    """Return the sum of each of `count` steps, one after another, that are alike."""
    each = len(times) // count
    return [sum(times[step * each : (step + 1) * each]) for step in range(count)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=20, metavar="N", help="timed steps; the median counts")
    parser.add_argument("--warmup", type=int, default=5, metavar="N", help="steps before them")
    parser.add_argument("--host-gaps", default="keep", metavar="keep|cut|FACTOR", help="host time between operators")
    parser.add_argument("--small", type=int, default=1, metavar="K", help="divide all sizes by K")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the inputs")
    parser.add_argument("--trace", type=Path, metavar="DIR", help="also record ten steps, one file a rank")
    options = parser.parse_args()
    plan = json.loads((HERE / "plan.json").read_text())
    place, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if world != len(plan["ranks"]):
        sys.exit(
            f"this step has {len(plan['ranks'])} ranks: torchrun --nproc-per-node {len(plan['ranks'])} {sys.argv[0]}"
        )
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if world > 1:
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    step = Step(plan, place, options)
    times = step.timed(options.warmup + options.iterations)[options.warmup :]
    if options.trace:  # first: what a profiler lets go is found mapped under the next one
        step.write_trace(options.trace, plan["modules"])
    _, profiled = step.profiled(TRACED)
    families = step.by_family(TRACED)  # marks of families take time of the step, too
    copied, unprofiled = step.named(step.stood_in, "reason"), step.plan["unprofiled_step_ns"]
    result = {
        "step_ms": round(median(times), 3),
        "fastest_ms": round(min(times), 3),
        "slowest_ms": round(max(times), 3),
        "recorded_without_profiler_step_ms": None if unprofiled is None else unprofiled / 1e6,
        "profiled_step_ms": round(median(profiled), 3),
        "recorded_step_ms": step.plan["step_ns"] / 1e6,
        "families_ms": {name: round(taken, 3) for name, taken in families.items()},
        "recorded_families_ms": {name: ns / 1e6 for name, ns in step.plan["families_ns"].items()},
        "replaced_instead": step.named(step.instead, "by"),
        "copied_instead": copied,
        "copied_instead_pct": round(sum(each["share_pct"] for each in copied.values()), 2),
    }
    if place == 0:
        print(json.dumps(result, indent=1))
    step.pool.shutdown()
    if world > 1:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
