"""Changes to a job that need no new plan: some work faster, slower or gone, and the graph run again."""

import re
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from lumos_df.errors import QueryError, nearest
from lumos_df.graph import simulate as loops
from lumos_df.graph.dependencies import STEP, Graph
from lumos_df.graph.edges import HANDOFF, THREAD
from lumos_df.graph.host import silences
from lumos_df.graph.job import Job, Played
from lumos_df.graph.replay import Network, Replay, of_trace, run, windows
from lumos_df.graph.rows import CPU_OP, Rows
from lumos_df.schema import FAMILIES, GPU_KINDS, KINDS

Field = Literal["family", "name", "kind", "rank"]
_KINDS: Final = ("host", "gpu", *GPU_KINDS)
_SELECTOR: Final = re.compile(r"(family|kind|name|rank)([=~])(.+)")
_SLEEP_NS: Final = 100_000
"""Shorter gaps of a thread are never taken for sleep."""


@dataclass(frozen=True, slots=True)
class Selector:
    """Some operators of a job: `family=gemm`, `name~flash.*` (a regular expression), `kind=host`, `rank=2`."""

    field: Field
    value: str
    pattern: bool

    def rows(self, graph: Graph) -> NDArray[np.bool_]:
        """Return which rows of a trace are meant."""
        chosen: NDArray[np.bool_] = self._rows(graph.rows)
        return chosen

    def _rows(self, rows: Rows) -> Any:  # numpy's comparisons
        if self.field == "rank":
            return np.full(len(rows), rows.rank == int(self.value))
        if self.field == "family":
            return rows.on_gpu & (rows.family == FAMILIES.index(self.value))
        if self.field == "kind":
            if self.value in ("host", "gpu"):
                return rows.on_gpu if self.value == "gpu" else rows.thread >= 0
            return rows.on_gpu & (rows.kind == KINDS.index(self.value))
        if self.pattern:
            expression = re.compile(self.value)
            named = [expression.search(name) is not None for name in rows.names]
        else:
            named = [name == self.value for name in rows.names]
        return np.array([*named, False])[rows.name]


def selector(text: str) -> Selector:
    """Read a selector. Raise `QueryError` for one that cannot mean anything."""
    found = _SELECTOR.fullmatch(text)
    if not found:
        raise QueryError(f"'{text}': write family=NAME, kind=NAME, name=NAME, name~PATTERN or rank=N")
    field, sign, value = found.groups()
    if sign == "~" and field != "name":
        raise QueryError(f"'{text}': only names take a pattern; write {field}={value}")
    choices = {"family": list(FAMILIES), "kind": list(_KINDS)}.get(field, [])
    if choices and value not in choices:
        raise QueryError(f"'{text}': no {field} '{value}'{nearest(value, choices) or '; one of ' + ', '.join(choices)}")
    if field == "rank" and not value.isdigit():
        raise QueryError(f"'{text}': a rank is a number")
    if sign == "~":
        try:
            re.compile(value)
        except re.error as error:
            raise QueryError(f"'{text}': not a regular expression ({error})") from None
    return Selector(field, value, sign == "~")  # type: ignore[arg-type]  # the expression allows only the four


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of some operators."""

    of: Selector
    factor: float
    """Their time is multiplied by this."""
    sleep_only: bool = False
    """Only long gaps of their threads in which nothing ran are taken away."""
    launched: bool = False
    """Whether the same becomes of what they launched."""


def scale(text: str) -> Change:
    """Read `SELECTOR:FACTOR`, as in `family=gemm:0.5`. Raise `QueryError` for anything else."""
    what, colon, factor = text.rpartition(":")
    try:
        value = float(factor)
    except ValueError:
        value = -1.0
    if not colon or not 0 <= value < 1e6:
        raise QueryError(f"'{text}': write SELECTOR:FACTOR with a factor of at least 0, as in family=gemm:0.5")
    return Change(selector(what), value)


def drop(text: str) -> Change:
    """Read a selector of what goes away, with all that it launched."""
    return Change(selector(text), 0.0, launched=True)


def no_wait(text: str) -> Change:
    """Read `rank=N`, the rank whose sleeping goes away."""
    of = selector(text)
    if of.field != "rank":
        raise QueryError(f"'{text}': write rank=N")
    return Change(of, 0.0, sleep_only=True)


def changed(net: Network, graphs: list[Graph], changes: list[Change]) -> Network:
    """Return a network with the changes made; the order of execution stays."""
    own, lag, transfer = net.own.copy(), net.lag.copy(), net.transfer.copy()
    touched = np.zeros((len(changes), len(transfer)), np.bool_)
    low = 0
    for k, graph in enumerate(graphs):
        high = low + len(graph.edges)
        rows = slice(int(net.base[k]), int(net.base[k + 1]))
        for which, change in enumerate(changes):
            if change.sleep_only:
                lag[low:high] = _awake(graph, lag[low:high], change.of.rows(graph), graphs)
                continue
            chosen = change.of.rows(graph)
            work = loops.inherited(chosen & ~graph.rows.on_gpu, graph.rows.parent)
            whole = work if change.launched else work & ~graph.rows.on_gpu
            mine = chosen | whole
            own[rows] = np.where(mine, _times(own[rows], change.factor), own[rows])
            is_work = np.isin(graph.edges.kind, (THREAD, HANDOFF)) & _belongs(
                graph, work, everything=change.of.field in ("kind", "rank")
            )
            lag[low:high] = np.where(is_work & (lag[low:high] > 0), _times(lag[low:high], change.factor), lag[low:high])
            member = net.instance[rows]
            touched[which, member[mine & (member >= 0)]] = True
        low = high
    # A collective has one transfer, however many of its members a change is about.
    for change, its in zip(changes, touched, strict=True):
        transfer = np.where(its, _times(transfer, change.factor), transfer)
    return replace(net, own=own, lag=lag, transfer=transfer)


def _times(values: NDArray[np.int64], factor: float) -> NDArray[np.int64]:
    return np.round(values * factor).astype(np.int64)


def _belongs(graph: Graph, work: NDArray[np.bool_], *, everything: bool) -> NDArray[np.bool_]:
    """Which edges carry host work of the marked rows: that before an atom belongs to the operator around the atom."""
    inside = graph.rows.parent[graph.edges.dst]
    marked = (inside >= 0) & work[np.maximum(inside, 0)]
    return marked | work[graph.edges.dst] if everything else marked


def _awake(graph: Graph, lag: NDArray[np.int64], of_rank: NDArray[np.bool_], graphs: list[Graph]) -> NDArray[np.int64]:
    """Cut the gaps of a thread to the longest that is usual: on the job's other ranks, else on this one."""
    if not len(of_rank) or not of_rank[0]:
        return lag
    silent = {id(other): silences(other.rows, other.handoffs, _SLEEP_NS) for other in graphs}
    usual = np.concatenate(
        [lasted for other, (_, lasted) in silent.items() if other != id(graph)] or [silent[id(graph)][1]]
    )
    limit = max(int(np.percentile(usual, 99)) if len(usual) else 0, _SLEEP_NS)
    ended, lasted = silent[id(graph)]
    ended, over = ended[lasted > limit], (lasted - limit)[lasted > limit]
    # The silence is part of the work before the next atom of its thread.
    atoms, rows = graph.atoms, graph.rows
    less = np.zeros(len(rows), np.int64)
    for thread in np.unique(rows.thread[ended]).tolist():
        own = rows.thread[ended] == thread
        of_thread = np.flatnonzero(atoms.thread == thread)
        place = np.searchsorted(atoms.ts[of_thread], rows.ts[ended[own]])
        inside = place < len(of_thread)
        np.add.at(less, atoms.row[of_thread[place[inside]]], over[own][inside])
    thread_edge = graph.edges.kind == THREAD
    return np.where(thread_edge, np.maximum(lag - less[graph.edges.dst], np.minimum(lag, 0)), lag)


_WORTH: Final = 1000
"""A name whose operators take less than one part in this of all steps together cannot gain more, and is left out."""


@dataclass(frozen=True, slots=True)
class Gain:
    """What the steps of a trace would gain if some operators took less; [steps] ns."""

    of: Selector
    time: NDArray[np.int64]
    none: NDArray[np.int64]
    """When they take no time."""
    half: NDArray[np.int64]
    """When they take half."""


def gains(job: Job, played: Played) -> list[list[Gain]]:
    """Simulate the job again without each kernel family and operator name, and with half of it; one list a trace."""
    found: list[list[Gain]] = [[] for _ in job.graphs]
    before = [replay.high - replay.low for replay in played.replays]
    for of in _worthwhile(job, played):
        faster = [
            step_lengths(job, played, changed(job.network, job.graphs, [Change(of, factor)])) for factor in (0.0, 0.5)
        ]
        for k, graph in enumerate(job.graphs):
            chosen = of.rows(graph)
            if chosen.any():
                found[k].append(
                    Gain(
                        of, _time(graph, played.replays[k], chosen), before[k] - faster[0][k], before[k] - faster[1][k]
                    )
                )
    return found


def _worthwhile(job: Job, played: Played) -> list[Selector]:
    families: set[int] = set()
    names: dict[str, int] = {}
    for graph in job.graphs:
        rows = graph.rows
        families |= set(np.unique(rows.family[rows.on_gpu & (rows.family >= 0)]).tolist())
        counted = rows.on_gpu | (rows.kind == CPU_OP)
        total = np.bincount(rows.name[counted], rows.dur[counted], len(rows.names))
        for place in np.flatnonzero(total).tolist():
            names[rows.names[place]] = names.get(rows.names[place], 0) + int(total[place])
    every = sum(int((replay.steps.high - replay.steps.low).sum()) for replay in played.replays)
    worth = sorted(name for name, total in names.items() if total * _WORTH >= every and not name.startswith(STEP))
    return [
        *(Selector("family", FAMILIES[family], pattern=False) for family in sorted(families)),
        *(Selector("name", name, pattern=False) for name in worth),
    ]


def _time(graph: Graph, replay: Replay, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the time of some operators in each step, ns; of nested ones the outer only."""
    rows = graph.rows
    outer = chosen & ~((rows.parent >= 0) & loops.inherited(chosen, rows.parent)[np.maximum(rows.parent, 0)])
    if replay.steps.number[0] < 0:
        return np.array([int(rows.dur[outer].sum())])
    outer &= rows.step >= 0
    total = np.bincount(rows.step[outer], rows.dur[outer], int(replay.steps.number.max()) + 1)
    return total[replay.steps.number].astype(np.int64)


def step_lengths(job: Job, played: Played, net: Network) -> list[NDArray[np.int64]]:
    """Return how long each step of each trace is in a changed network, ns."""
    result = run(net)
    lengths = []
    for k, (graph, replay) in enumerate(zip(job.graphs, played.replays, strict=True)):
        low, high = windows(graph, of_trace(net, result, k), replay.steps)
        lengths.append(high - low)
    return lengths
