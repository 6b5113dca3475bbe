"""Calls of a thread as one graph, which torch runs without Python, with the recorded time between them.

A call from Python takes longer than many gaps: autograd's engine, for one, calls operators without it. A TorchScript
graph that is not optimized has every operator as it is called, in the same order; a loop in it waits for a moment.
"""

import time
from functools import partial
from statistics import median

import torch

# Else a graph would be changed for shapes that come again and again, and its operators with it.
torch._C._set_graph_executor_optimize(False)

NAME = "calls"  # of the row that a profiler writes around them
LONG_NS = 5000  # several times what a wait takes beside what it waits for
MOST = 1 << 62  # rounds of a loop
SAME_CLOCK_NS = 10**9
REPEATED = 200  # calls of which the median is what one takes
FEW, MANY = 2, 10  # operators of two graphs whose difference is what each takes
TENSOR, INT = torch._C.TensorType.get(), torch._C.IntType.get()
ELEMENTS = {
    "Optional[Tensor]": torch._C.OptionalType(TENSOR),
    "Tensor": TENSOR,
    "int": INT,
    "float": torch._C.FloatType.get(),
    "bool": torch._C.BoolType.get(),
}
EXACT = {"float": float, "int": int, "bool": bool}


class Graph:
    """A graph of operators, with inputs that are tensors of the benchmark or results of calls before it."""

    def __init__(self, results):
        self.results, self.graph = results, torch._C.Graph()
        self.given, self.place = [], {}
        self.taken = []  # place among the inputs, the call whose result it is, which one, and what stands for it

    def node(self, name, values, kinds=(), within=None):
        """Add an operator; return its results, of as many kinds."""
        node = self.graph.create(name, values, len(kinds))
        for result, kind in zip(node.outputs(), kinds):
            result.setType(kind)
        if within is None:
            self.graph.insertNode(node)
        return node

    def one(self, name, values, kind=INT):
        """Add an operator of one result; return that."""
        return self.node(name, values, (kind,)).output()

    def add(self, number, call, made):
        """Add a call; return its results in the graph. `made` are those of calls before it. Raises where it cannot."""
        schema = call.operator._schema
        reads = {(id(listed), place): rest for listed, place, *rest in self.results.reads[number]}
        given = [(call.positional, place) for place in range(len(call.positional))]
        given += [(call.named, argument.name) for argument in schema.arguments if argument.kwarg_only]
        values = [
            self.value(str(argument.type), arguments, place, reads, made)
            for argument, (arguments, place) in zip(schema.arguments, given)
        ]
        asked = call.run is not call.operator  # whether a gradient can be asked for
        if asked:
            self.node("aten::set_grad_enabled", [self.graph.insertConstant(True)])
        node = self.node(f"aten::{schema.name.removeprefix('aten::')}", values, [each.type for each in schema.returns])
        if node.schema() != str(schema):
            raise ValueError("torch takes another overload")
        if asked:
            self.node("aten::set_grad_enabled", [self.graph.insertConstant(False)])
        if [str(each.type) for each in schema.returns] == ["List[Tensor]"]:
            node = self.node("prim::ListUnpack", [node.output()], [TENSOR] * self.results.counts[number])
        return [*node.outputs()]

    def value(self, kind, arguments, place, reads, made):
        """Return an argument in the graph."""
        value = arguments[place]
        if isinstance(value, torch.Tensor):
            own, maker, which = reads.get((id(arguments), place), (value, None, None))
            return made[maker][which] if maker in made else self.input(own, maker, which)
        if not isinstance(value, list) or (value and "Tensor" not in kind):
            return self.graph.insertConstant(value if value is None else EXACT.get(kind, lambda same: same)(value))
        elements = [self.value("Tensor", value, each, reads, made) for each in range(len(value))]
        of = next(each for word, each in ELEMENTS.items() if word in kind)
        return self.one("prim::ListConstruct", elements, torch._C.ListType(of))

    def input(self, own, maker, which):
        """Return an input of the graph: a tensor of the benchmark, or what another call made before."""
        key = (id(own), maker, which)
        if key not in self.place:
            self.place[key] = self.graph.addInput()
            self.place[key].setType(TENSOR)
            if maker is not None:
                self.taken.append((len(self.given), maker, which, own))
            self.given.append(own)
        return self.place[key]

    def number(self):
        """Return an input that is an integer."""
        value = self.graph.addInput()
        value.setType(INT)
        return value

    def wait(self, since, ns, late):
        """Wait until `ns` after a moment, or now, less what the wait before was `late`; return what this one is."""
        now = self.one("prim::TimePoint", [])
        awaited = self.one("aten::add", [now if since is None else since, self.graph.insertConstant(round(ns))])
        moment = self.one("aten::sub", [awaited, late])
        early = self.one("aten::lt", [now, moment], ELEMENTS["bool"])
        loop = self.node("prim::Loop", [self.graph.insertConstant(MOST), early, now], (INT,))
        body = loop.addBlock()
        body.addInputToBlock().setType(INT)  # the round
        body.addInputToBlock().setType(INT)
        reached = body.addNode("prim::TimePoint", [])
        reached.output().setType(INT)
        again = body.addNode("aten::lt", [reached.output(), moment])
        again.output().setType(ELEMENTS["bool"])
        body.registerOutput(again.output())
        body.registerOutput(reached.output())
        return self.one("aten::sub", [loop.output(), moment])

    def keep(self, values, never):
        """Use values without doing anything, so that they live until here."""
        if values:
            choice = self.node("prim::If", [never])
            choice.addBlock().addNode("prim::Print", values)
            choice.addBlock()

    def function(self, results):
        """Return what runs it and returns a tuple of results."""
        kind = torch._C.TupleType([each.type() for each in results])
        self.graph.registerOutput(self.one("prim::TupleConstruct", results, kind))
        return torch._C._create_function_from_graph(NAME, self.graph)


class Joined:
    """Consecutive calls of one thread, run as one."""

    def __init__(self, numbers, calls, results, wait_ns, beside_ns):
        """Make the graph and run it once. Raises where torch cannot.

        Before each call it waits `wait_ns`, and a wait takes `beside_ns` more: one that is not twice that is waited for
        with the next.
        """
        graph = Graph(results)
        self.held, self.taken, self.given = results.held, graph.taken, graph.given
        previous, late = graph.number(), graph.number()
        never = graph.graph.addInput()
        never.setType(ELEMENTS["bool"])
        made, left = {}, 0.0
        self.released = {each for number in numbers for each in results.releases[number]}
        alive = set()
        for number in numbers:
            left += wait_ns[number]
            if number == numbers[0] or left >= 2 * beside_ns:
                late = graph.wait(previous if number == numbers[0] else None, left - beside_ns, late)
                left = 0.0
            made[number] = graph.add(number, calls[number], made)
            alive.add(number)
            gone = alive.intersection(results.releases[number])
            graph.keep(
                [each for released in sorted(gone) for each in made[released] if each.type().kind() == "TensorType"],
                never,
            )
            alive -= gone
        late = graph.one("aten::sub", [late, graph.graph.insertConstant(round(left))])
        returned = [graph.one("prim::TimePoint", []), late]
        self.kept = []
        for number in numbers:
            first = len(returned)
            if number in alive & results.kept:
                returned += made[number]
                self.kept.append((number, first, len(returned)))
            else:
                returned += [each for each in made[number] if not each.uses()]  # else torch leaves the operator out
        self.run = graph.function(returned)
        self(time.perf_counter_ns(), 0)

    def __call__(self, previous, late):
        """Run the calls after the moment `previous`; return when they ended, and what they were late by, ns."""
        given, held = self.given, self.held
        for place, maker, which, _ in self.taken:
            results = held.get(maker)
            if results:
                given[place] = results[which]
        made = self.run(previous, int(late), False, *given)
        for place, _, _, own in self.taken:
            given[place] = own
        for released in self.released:
            held.pop(released, None)
        for number, first, end in self.kept:
            held[number] = made[first:end]
        return made[:2]


def joins(number, call, results):
    """Return whether a graph takes a call."""
    try:
        Graph(results).add(number, call, {})
    except Exception:  # whatever torch raises of what it does not take
        return False
    return True


def same_clock():
    """Return whether a graph's clock is the one of `time.perf_counter_ns`."""
    try:
        graph = Graph(None)
        read = graph.function([graph.one("prim::TimePoint", [])])
        return abs(read()[0] - time.perf_counter_ns()) < SAME_CLOCK_NS
    except Exception:  # a torch without it
        return False


def one_for_many(rows, goes_on, joined):
    """Return rows with one in place of those that follow one another and `goes_on` holds for; its call is None.

    A row has the number of its call first, and what runs it; `joined` makes of numbers what runs them together.
    """
    runs = [[]]
    for row in rows:
        if runs[-1] and not (goes_on(runs[-1][-1]) and goes_on(row)):
            runs.append([])
        runs[-1].append(row)
    found = []
    for run in runs:
        try:
            numbers = [number for number, *_ in run]
            found += [(numbers[-1], joined(numbers), None, True, (), None)] if len(run) > 1 else run
        except Exception:  # what torch takes one by one it may refuse together
            found += run
    return found


@torch.no_grad()
def costs():
    """Return what an operator in a graph takes, with what is between it and the one before, and a wait beside it."""
    alone, after = (max(0, detached_ns(MANY, ns) - detached_ns(FEW, ns)) / (MANY - FEW) for ns in (0, LONG_NS))
    return alone, max(0, after - alone - LONG_NS)


def detached_ns(many, wait_ns):
    """Return what a graph of so many operators takes, each after a wait."""
    graph, tensor = Graph(None), torch.ones(1)
    late, value = graph.number(), graph.input(tensor, None, None)
    for _ in range(many):
        late = graph.wait(None, wait_ns, late) if wait_ns else late
        value = graph.one("aten::detach", [value], TENSOR)
    return typical_ns(partial(graph.function([late, value]), 0, tensor))


def typical_ns(run):
    """Return the median time of a function."""
    times = []
    for _ in range(REPEATED):
        start = time.perf_counter_ns()
        run()
        times.append(time.perf_counter_ns() - start)
    return median(times)
