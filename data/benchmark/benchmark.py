"""One recorded step again, with torch alone: `torchrun --nproc-per-node N benchmark.py`, one process for one rank.

Operators run in their recorded order on threads and streams like the recorded ones, with inputs from a seed;
collectives run over NCCL, or gloo without a GPU. What a step takes is printed as JSON.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from statistics import median
from threading import Event

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler's own messages about starting and stopping

import torch
import torch.distributed as dist
from joined_calls import NAME, Joined, costs, joins, one_for_many, same_clock, typical_ns
from recorded_operators import Call, Maker
from recorded_results import Results
from recorded_state import State
from torch.profiler import ProfilerActivity, profile, record_function, schedule

HERE = Path(__file__).parent
ASLEEP_NS = 300_000  # the end of a longer gap is waited for awake, since sleep() comes late by about as much
FAMILY = "family "
TRACED = 10  # steps
UNDELAYED = 3  # steps
USUAL = 0.98  # share of times that no pause of the machine is in


class Step:
    """The step of one rank, ready to run."""

    def __init__(self, plan, place, options):
        self.plan = list(plan["ranks"].values())[place]
        self.memory = plan["memory"]
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.cuda = self.device == "cuda"
        self.maker = Maker(self.device, options.small, options.seed + place)
        self.maker.trained = any(operator["name"].endswith("_backward") for operator in self.plan["operators"])
        gaps = {"keep": 1.0, "cut": 0.0}
        self.gaps = gaps[options.host_gaps] if options.host_gaps in gaps else float(options.host_gaps)
        self.groups = {
            name: dist.new_group(members) if dist.is_initialized() and len(members) > 1 else None
            for name, members in plan["groups"].items()
        }
        self.place, self.members = place, plan["groups"]
        self.stood_in, self.instead = {}, {}
        self.streams = [torch.cuda.Stream() for _ in range(self.plan["streams"])] if self.cuda else []
        columns = self.plan["calls"]
        self.calls = [dict(zip(columns, row)) for row in zip(*columns.values())]
        self.results = Results(columns["releases"])
        self.maker.state = State(self.maker, self.plan["operators"], columns["operator"], columns["sources"])
        with torch.no_grad():
            operators = [self.ready(number) for number in range(len(self.plan["operators"]))]
            turns = Counter()
            for call in self.calls:
                operator, turn = operators[call["operator"]], turns[call["operator"]]
                call["family"] = self.plan["operators"][call["operator"]]["family"]
                call["run"] = self.again(operator, turn, call["sources"]) if isinstance(operator, Call) else operator
                turns[call["operator"]] += 1
            self.results.find([call["run"] for call in self.calls])
        self.awaited = {awaited for call in self.calls for awaited in call["waits"]}
        self.handed = {call["after"] for call in self.calls} - {None}
        self.threads = {}
        for number, call in enumerate(self.calls):
            reads, run = self.results.reads[number], call["run"]
            others = call["waits"] or call["after"] is not None or number in self.handed or number in self.awaited
            alone = isinstance(run, Call) and not others
            run = run.direct(reads) if isinstance(run, Call) else run
            done = partial(self.results.done, number) if number in self.results.touched else None
            self.threads.setdefault(call["thread"], []).append((number, run, call, alone, reads, done))
        self.pool = ThreadPoolExecutor(max(1, len(self.threads)))
        self.clocked = not self.cuda and same_clock()
        self.joining = {
            number
            for number, _, call, alone, *_ in chain.from_iterable(self.threads.values())
            if self.clocked and alone and joins(number, call["run"], self.results)
        }
        # What an operator takes in a graph is mostly itself.
        own_ns, self.beside_ns = costs() if self.clocked else (0, 0)
        self.in_graph_ns = None  # under a profiler
        self.times = self.timing(self.host_gaps(), self.dispatch_ns() - own_ns, 0)
        self.maker.state.reset()
        # ns that gaps of each thread took too long, and later ones make up for.
        self.late = dict.fromkeys(self.threads, 0.0)

    def ready(self, number):
        """Return a function that runs an operator of the plan; where torch cannot, one that copies its bytes."""
        operator = self.plan["operators"][number]
        if operator["name"] == "synchronize":
            return torch.cuda.synchronize if self.cuda else lambda: None
        if "collective" in operator:
            return self.collective(operator)
        try:
            call = self.maker.call(operator)
            if call.instead:
                self.instead[number] = call.instead
            return call
        except Exception as error:  # an operator that this torch does not know, or not on this device
            self.stood_in[number] = (str(error).splitlines() or ["unknown"])[0][:100]
            return self.maker.copy(operator)

    def again(self, operator, turn, sources):
        """Return an operator's call on the tensors of its turn, or on those that it was recorded with."""
        if sources:
            call = operator.again(turn, sources)
            try:
                call()
            except Exception:  # parts of one tensor, where it is not known where these begin
                pass
            else:
                return call
        return operator.again(turn) if turn else operator

    def collective(self, operator):
        """Return a function that starts a collective and returns what waits for it."""
        name, group = operator["collective"], self.groups[operator["group"]]
        dtype = getattr(torch, operator["dtype"])
        width = torch.empty((), dtype=dtype).element_size()
        ranks = self.members[operator["group"]]
        few, many = sorted(max(len(ranks), self.maker.size(bytes_ // width)) for bytes_ in operator["bytes"])
        if name in ("all_gather", "reduce_scatter", "gather", "scatter"):
            many = few * len(ranks)
        many -= many % len(ranks)
        small, large = (torch.ones(length, dtype=dtype, device=self.device) for length in (few, many))
        other = torch.empty_like(large)
        if group is None:
            return lambda: other.copy_(large)
        here = ranks.index(self.place)
        following, former = ranks[(here + 1) % len(ranks)], ranks[here - 1]
        ring = [dist.P2POp(dist.isend, large, following, group), dist.P2POp(dist.irecv, other, former, group)]
        start = {
            "all_gather": lambda: dist.all_gather_into_tensor(large, small, group=group, async_op=True),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(small, large, group=group, async_op=True),
            "all_to_all": lambda: dist.all_to_all_single(other, large, group=group, async_op=True),
            "broadcast": lambda: dist.broadcast(large, ranks[0], group=group, async_op=True),
            "reduce": lambda: dist.reduce(large, ranks[0], group=group, async_op=True),
            "barrier": lambda: dist.barrier(group=group, async_op=True),
            "send_recv": lambda: dist.batch_isend_irecv(ring)[-1],
        }
        return start.get(name, lambda: dist.all_reduce(large, group=group, async_op=True))

    def run(self, start, mark=nullcontext):
        """Run the step once, its first gap from `start` on; `mark` is put around every call."""
        self.ends = [0] * len(self.calls)
        self.works = {}
        self.events = {number: Event() for number in self.handed}
        if len(self.threads) == 1:
            self.run_thread(next(iter(self.threads)), start, mark)
        else:
            for done in [self.pool.submit(self.run_thread, thread, start, mark) for thread in self.threads]:
                done.result()
        for work in self.works.values():
            work.wait()
        self.until(max([start, *self.ends]) + self.times[0][-1])
        if self.cuda:
            torch.cuda.synchronize()

    def host_gaps(self, profiled=False):
        """Return the gap before each call and behind the last; without a profiler less what the recording's took."""
        calls, plan = self.plan["calls"], self.plan
        gap_ns = [*calls["gap_ns"], plan["last_gap_ns"]]
        profiler_ns = [*calls["profiler_ns"], plan["last_profiler_ns"]]
        return [self.gaps * (gap if profiled else gap - part) for gap, part in zip(gap_ns, profiler_ns)]

    def timing(self, gap_ns, single_ns, in_graph_ns, alone=False):
        """Return the gaps, how long to wait before each call, and the rows of each thread, calls joined unless `alone`.

        What a call takes beside its operator is part of the gap before it: from Python, and in a graph.
        """
        waits = [gap - single_ns for gap in gap_ns]
        if alone:
            return gap_ns, waits, self.threads
        in_graph = [gap - in_graph_ns for gap in gap_ns]
        return gap_ns, waits, {thread: self.join(rows, in_graph) for thread, rows in self.threads.items()}

    @torch.no_grad()
    def join(self, rows, wait_ns):
        """Return rows of a thread, with one in place of those that a graph runs; its call is None."""
        if not self.joining:
            return rows
        calls = [call["run"] for call in self.calls]
        return one_for_many(
            rows,
            lambda row: row[0] in self.joining and wait_ns[row[0]] < 2 * ASLEEP_NS,
            lambda numbers: Joined(numbers, calls, self.results, wait_ns, self.beside_ns),
        )

    @torch.no_grad()
    def run_thread(self, thread, start, mark):
        """Run the calls of one thread."""
        torch.set_flush_denormal(True)  # of this thread; what is multiplied in place again and again would become slow
        now, ends = time.perf_counter_ns, self.ends
        gap_ns, wait_ns, joined = self.times
        lend, take_back = self.results.lend, self.results.take_back
        plain = mark is nullcontext and not self.cuda  # what every call would cost is no part of the step
        previous = start
        # Many gaps are shorter than a call from here takes: the next longer one is cut by it, be it in the next step.
        late = min(self.late[thread], max(0, sum(gap_ns)))
        for number, run, call, alone, reads, done in (joined if plain else self.threads)[thread]:
            if call is None:
                previous, late = run(previous, late)
                ends[number] = previous
                continue
            if not alone:
                previous = self.before(call, previous)
            if reads:
                lend(reads)
            moment = previous + wait_ns[number] - late
            begun = now()
            if begun < moment:
                begun = self.until(moment)
            late = begun - moment
            if plain:
                result = run()
            else:
                with self.on_stream(call), mark(call):
                    result = run()
            previous = ends[number] = now()
            if reads:
                take_back(reads)
            if done:
                done(result)
            if not alone:
                self.behind(number, result)
            result = None
        self.late[thread] = late

    def before(self, call, previous):
        """Wait for what a call waits for, and return when its gap began."""
        if call["after"] is not None:
            self.events[call["after"]].wait()
            previous = max(previous, self.ends[call["after"]])
        for awaited in call["waits"]:
            if awaited in self.works:
                with self.on_stream(call):
                    self.works[awaited].wait()
        # The recorded gap begins where the collective ended, too.
        return max(previous, time.perf_counter_ns()) if call["waits"] and not self.cuda else previous

    def behind(self, number, result):
        """Keep what others wait for."""
        if isinstance(result, dist.Work):
            self.works[number] = result
        elif self.cuda and number in self.awaited:
            with self.on_stream(self.calls[number]):
                self.works[number] = torch.cuda.Event()
                self.works[number].record()
        if number in self.handed:
            self.events[number].set()

    def on_stream(self, call):
        """Return what puts work on a call's stream."""
        return torch.cuda.stream(self.streams[call["stream"]]) if self.cuda and call["stream"] else nullcontext()

    def until(self, moment):
        """Wait for a moment of the clock; return what it shows then."""
        now = time.perf_counter_ns
        if moment - now() > 2 * ASLEEP_NS:
            time.sleep((moment - now() - ASLEEP_NS) * 1e-9)
        reached = now()
        while reached < moment:
            reached = now()
        return reached

    def timed(self, count, mark=nullcontext, behind=lambda: None):
        """Run the step `count` times, each with a call of `behind` after it, and return what each took, ms.

        Ranks meet before the first one only: as in the job, it is their collectives that keep them together.
        """
        if dist.is_initialized():
            dist.barrier()
        times = []
        begun = time.perf_counter_ns()
        for _ in range(count):
            start = time.perf_counter_ns()
            self.run(begun, mark)
            times.append((time.perf_counter_ns() - start) * 1e-6)
            begun = time.perf_counter_ns()  # what a profiler does between steps is in the recorded gap, too
            behind()
        return times

    @torch.no_grad()
    def dispatch_ns(self, mark=nullcontext):
        """Return what a call takes from Python, its operator included."""
        few, run = torch.ones(1), torch.ops.aten.detach.default._op

        def marked():
            with mark({"family": "", "module": ""}):
                run(few)

        return typical_ns(partial(run, few) if mark is nullcontext else marked)

    def profiled(self, count, mark=nullcontext):
        """Run the step `count` times under a profiler; return it, and what each took, ms.

        It costs what that of the recording did: allocations are recorded where they were.
        """
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self.cuda else [])]
        options = {"activities": activities, "record_shapes": True, "profile_memory": self.memory}
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
        marked = defaultdict(list)
        for event in sorted(profiler.events(), key=lambda event: event.time_range.start):
            if event.name.startswith(FAMILY):  # without what the mark itself takes
                parts = [event.device_time_total] if self.cuda else [part.cpu_time_total for part in event.cpu_children]
                marked[event.name.removeprefix(FAMILY)].append(sum(parts) * 1e-3)
        return {family: median(of_steps(times, count)) for family, times in sorted(marked.items())}

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
