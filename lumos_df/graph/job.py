"""Jobs of a corpus: which traces belong together, their graphs, and their simulation."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from lumos_df.errors import QueryError, nearest
from lumos_df.graph import collectives, dependencies, rows
from lumos_df.graph.collectives import Instances
from lumos_df.graph.dependencies import Graph
from lumos_df.graph.replay import Network, Replay, Run, network, of_trace, replay, run
from lumos_df.layout import EMPTY_PARTITION, check, trace_folder


@dataclass(frozen=True, slots=True)
class Job:
    """Ranks that ran together, or one rank by itself."""

    graphs: list[Graph]
    """By rank."""
    instances: Instances | None
    """Their collectives; None for one rank."""
    network: Network

    def replay(self, net: Network | None = None) -> "Played":
        """Simulate the job, or a changed network of it."""
        net = net or self.network
        result = run(net)
        return Played(net, result, [replay(graph, of_trace(net, result, k)) for k, graph in enumerate(self.graphs)])


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
        CorpusError: `corpus` is no corpus.
        QueryError: no trace, or more than one, goes by that id.
    """
    check(corpus)
    ids = sorted(
        file.parent.name.removeprefix("trace_id=")
        for file in corpus.glob("trace_id=*/traces.parquet")  # an estimate's folder has none
        if file.parent.name != EMPTY_PARTITION
    )
    about = {one: _about(corpus, one) for one in ids}
    jobs: dict[str, list[str]] = {}
    for one in ids:
        jobs.setdefault(about[one][0], []).append(one)
    found: list[list[str]] = []
    for _, members in sorted(jobs.items()):
        ranks = [about[one][1] for one in members]
        if len(set(ranks)) == len(ranks):
            found.append(sorted(members, key=lambda one: about[one][1]))
        else:
            found.extend([one] for one in members)
    if trace is None:
        return found
    chosen = [one for one in ids if one == trace] or [one for one in ids if one.startswith(trace)]
    if len(chosen) != 1:
        why = "no trace has" if not chosen else f"{len(chosen)} traces have"
        see = f"lumos-df sql 'SELECT trace_id, path FROM traces' --corpus {corpus}"
        raise QueryError(f"{corpus}: {why} the id '{trace}'{nearest(trace, ids)}; see: {see}")
    return [members for members in found if chosen[0] in members]


def _about(corpus: Path, trace_id: str) -> tuple[str, int]:
    table = pq.read_table(trace_folder(corpus, trace_id) / "traces.parquet", columns=["job", "rank"], partitioning=None)
    return str(table["job"][0].as_py()), int(table["rank"][0].as_py())


def load(corpus: Path, trace_ids: Sequence[str]) -> Job:
    """Read the traces of one job and rebuild their graphs."""
    with ThreadPoolExecutor(min(len(trace_ids), os.cpu_count() or 1)) as pool:
        return build(list(pool.map(lambda trace_id: rows.read(corpus, trace_id), trace_ids)))


def build(ranks: list[rows.Rows]) -> Job:
    """Rebuild the graphs of a job's ranks, at once where there are processors for it."""
    # The loops and numpy's large operations hold no interpreter lock.
    with ThreadPoolExecutor(min(len(ranks), os.cpu_count() or 1)) as pool:
        graphs = list(pool.map(dependencies.build, ranks))
    instances = collectives.match(ranks) if len(ranks) > 1 else None
    return Job(graphs, instances, network(graphs, instances))
