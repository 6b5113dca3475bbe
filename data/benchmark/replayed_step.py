"""The recorded step of one rank, ready to run: its calls on threads and streams like the recorded ones."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from itertools import chain
from threading import Event

import torch
import torch.distributed as dist
from joined_calls import Joined, costs, joins, one_for_many, same_clock, typical_ns
from recorded_operators import Call, Maker
from recorded_results import Results
from recorded_state import State

ASLEEP_NS = 300_000  # the end of a longer gap is waited for awake, since sleep() comes late by about as much


class ReplayedStep:
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
        first, *others = self.threads
        running = [self.pool.submit(self.run_thread, thread, start, mark) for thread in others]
        self.run_thread(first, start, mark)
        for each in running:
            each.result()
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
