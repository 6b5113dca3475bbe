"""Jobs of a corpus: which traces belong together, their graphs, and their simulation."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from lumos_df.errors import CorpusError, QueryError, nearest
from lumos_df.graph import collectives, dependencies, rows, stored
from lumos_df.graph.collectives import Instances
from lumos_df.graph.dependencies import Graph
from lumos_df.graph.replay import Network, Replay, Run, network, of_trace, replay, run
from lumos_df.layout import EMPTY_PARTITION, ESTIMATE, check

_Of = TypeVar("_Of")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Job:
    """Ranks that ran together, or one rank by itself."""

    graphs: list[Graph]
    """By rank."""
    instances: Instances | None
    """Their collectives; None for one rank."""
    network: Network
    doubled: tuple[int, ...] = ()
    """Ranks of which the corpus has several traces, so that this one is simulated without the other ranks."""

    def replay(self, net: Network | None = None) -> "Played":
        """Simulate the job, or a changed network of it."""
        net = net or self.network
        result = run(net)
        return Played(
            net,
            result,
            _each(lambda k: replay(self.graphs[k], of_trace(net, result, k)), range(len(self.graphs))),
        )


@dataclass(frozen=True, slots=True)
class Played:
    """A job's simulation."""

    network: Network
    run: Run
    replays: list[Replay]
    """One a graph."""


def groups(corpus: Path, trace: str | None = None) -> list[list[str]]:
    """Return the trace ids of each job of a corpus, or of the job of one trace (a prefix of its id will do).

    Traces of one job whose ranks differ ran together; several traces of one rank are runs of their own.

    Raises:
        CorpusError: `corpus` is no corpus, or holds no trace.
        QueryError: no trace, or more than one, goes by that id.
    """
    found: list[list[str]] = []
    for members in _members(corpus).values():
        found.extend([[one] for _, one in members] if _twice(members) else [[one for _, one in members]])
    if not found:
        raise CorpusError(f"{corpus}: holds no trace; add some with: lumos-df ingest TRACE... --corpus {corpus}")
    ids = sorted(one for members in found for one in members)
    if trace is None:
        return found
    chosen = [one for one in ids if one == trace] or [one for one in ids if one.startswith(trace)]
    if len(chosen) != 1:
        why = "no trace has" if not chosen else f"{len(chosen)} traces have"
        see = f"lumos-df sql 'SELECT trace_id, path FROM traces' --corpus {corpus}"
        raise QueryError(f"{corpus}: {why} the id '{trace}'{nearest(trace, ids)}; see: {see}")
    return [members for members in found if chosen[0] in members]


def doubled(corpus: Path) -> dict[str, tuple[int, ...]]:
    """Return, for every trace of a corpus, the ranks of which its job has several traces. Raises as `groups` does."""
    return {one: _twice(members) for members in _members(corpus).values() for _, one in members}


def _members(corpus: Path) -> dict[str, list[tuple[int, str]]]:
    """Return (rank, trace id) of the traces of each job, both in order."""
    check(corpus)
    jobs: dict[str, list[tuple[int, str]]] = {}
    for folder in corpus.iterdir():
        trace_id = folder.name.removeprefix("trace_id=")
        if trace_id != folder.name != EMPTY_PARTITION and not trace_id.startswith(ESTIMATE):
            about = rows.about(corpus, trace_id, "job", "rank")
            jobs.setdefault(str(about["job"]), []).append((int(about["rank"]), trace_id))
    return {job: sorted(members) for job, members in sorted(jobs.items())}


def _twice(members: list[tuple[int, str]]) -> tuple[int, ...]:
    many = Counter(rank for rank, _ in members)
    return tuple(rank for rank in sorted(many) if many[rank] > 1)


def load(corpus: Path, trace_ids: Sequence[str], twice: tuple[int, ...] = ()) -> Job:
    """Read the traces of one job and rebuild their graphs; `twice`: as `doubled` says of them."""
    ranks = _each(lambda trace_id: rows.read(corpus, trace_id), trace_ids)
    graphs = _each(lambda rank: stored.as_stored(corpus, dependencies.build(rank)), ranks)
    return _joined(graphs, twice, stored.instances(corpus, graphs) if len(graphs) > 1 else None)


def build(ranks: list[rows.Rows], twice: tuple[int, ...] = ()) -> Job:
    """Rebuild the graphs of a job's ranks, at once where there are processors for it."""
    return _joined(_each(dependencies.build, ranks), twice)


def _joined(graphs: list[Graph], twice: tuple[int, ...], instances: Instances | None = None) -> Job:
    if instances is None and len(graphs) > 1:
        instances = collectives.match([graph.rows for graph in graphs])
    return Job(graphs, instances, network(graphs, instances), twice)


def _each(do: Callable[[_Of], _Result], of: Sequence[_Of]) -> list[_Result]:
    """Do the same for every rank, at once where there are processors for it.

    The loops and numpy's large operations hold no interpreter lock.
    """
    if len(of) == 1:
        return [do(of[0])]
    with ThreadPoolExecutor(min(len(of), os.cpu_count() or 1)) as pool:
        return list(pool.map(do, of))
