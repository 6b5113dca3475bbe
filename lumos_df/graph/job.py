"""Jobs of a corpus: which traces belong together, their graphs, and their simulation."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

from lumos_df import schema
from lumos_df.base.errors import CorpusError, QueryError, nearest
from lumos_df.base.runner import available_cpus
from lumos_df.base.units import format_count
from lumos_df.corpus.folder import trace_ids
from lumos_df.corpus.layout import ESTIMATE, check
from lumos_df.corpus.table_files import check_columns
from lumos_df.corpus.trace_rows import summarised
from lumos_df.graph import collective_instances, rows, stored_graph, trace_graph
from lumos_df.graph.collective_instances import Instances
from lumos_df.graph.event_graph import EventGraph, Run, event_graph, of_trace, run
from lumos_df.graph.replay import Replay, in_the_long_run, replay
from lumos_df.graph.trace_graph import TraceGraph

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_Member = tuple[int, str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Job:
    """Ranks that ran together, or one rank by itself."""

    graphs: list[TraceGraph]
    """By rank."""
    instances: Instances | None
    """Their collectives; None for one rank."""
    event_graph: EventGraph
    """What simulates."""
    doubled: tuple[int, ...] = ()
    """Ranks of which the corpus has several traces, so that only ranks of one file are simulated together."""

    def replay(self, changed: EventGraph | None = None) -> "Played":
        """Simulate the job, or a changed event graph of it."""
        graph = changed or self.event_graph
        result = run(graph)
        replays = in_threads(lambda k: replay(self.graphs[k], of_trace(graph, result, k)), range(len(self.graphs)))
        return Played(graph, result, replays)


@dataclass(frozen=True, slots=True)
class Played:
    """A job's simulation."""

    event_graph: EventGraph
    run: Run
    replays: list[Replay]
    """One a graph."""

    def in_the_long_run(self) -> "Played":
        """Return it with the steps that a job takes in the long run, as `replay.in_the_long_run` has them."""
        return replace(self, replays=[in_the_long_run(each) for each in self.replays])


@dataclass(frozen=True, slots=True)
class JobTraces:
    """The traces of a job in a corpus, by rank, or those of one file of several runs."""

    name: str
    """The job's; several runs of one rank have the same."""
    trace_ids: list[str]
    operators: int
    """How many they have together."""
    ran: bool
    """Whether any of these is of the job: not of the operating system, nor of the profiler."""
    doubled: tuple[int, ...]
    """As in `Job`."""


def jobs(corpus: Path, trace: str | None = None, name: str | None = None, *, needed: bool = True) -> list[JobTraces]:
    """Return the jobs of a corpus, or the job of one trace (a prefix of its id will do), or those of one name.

    Traces of one job whose ranks differ ran together. Where a rank has several traces each file is a run of its own.
    Traces of formats that hold records alone, such as memory snapshots, have nothing that runs, and are of no job.

    Raises:
        CorpusError: `corpus` is no corpus; or one job is `needed` and there is none, or nothing ran in it.
        QueryError: no trace, or more than one, goes by that id; no job has that name.
    """
    found: list[JobTraces] = []
    for job_name, members in _members(corpus).items():
        twice = _twice(members)
        found.extend(
            JobTraces(
                job_name,
                [trace_id for _, trace_id, _ in traces],
                sum(about["operators"] for *_, about in traces),
                any(about["operators"] > about["others"] for *_, about in traces),
                twice,
            )
            for traces in (_by_file(members) if twice else [members])
        )
    if not found and needed and next(_about(corpus), None):
        raise CorpusError(
            f"{corpus}: no trace here has operators; what it holds says: lumos-df report --corpus {corpus}"
        )
    if not found and needed:
        raise CorpusError(f"{corpus}: holds no trace; add some with: lumos-df ingest TRACE... --corpus {corpus}")
    chosen = found if trace is None else _of_trace(corpus, found, trace)
    chosen = chosen if name is None else _named(corpus, chosen, name)
    if needed and not any(job.ran for job in chosen):
        rows = sum(job.operators for job in chosen)
        whose = "" if trace is None and name is None else "of the job "
        what = f", only {format_count(rows, 'row')} of the operating system and the profiler" if rows else ""
        raise CorpusError(
            f"{corpus}: nothing to replay: no operator, call or GPU row {whose}was "
            f"recorded{what}; record it again with calls and kernels, as docs/formats.md says"
        )
    return chosen


def _named(corpus: Path, found: list[JobTraces], name: str) -> list[JobTraces]:
    """Return the jobs of one name. Raises `QueryError` as `jobs` does."""
    chosen = [job for job in found if job.name == name]
    if not chosen:
        choices = sorted({job.name for job in found})
        raise QueryError(f"{corpus}: no job '{name}'{nearest(name, choices) or '; it has ' + ', '.join(choices)}")
    return chosen


def _of_trace(corpus: Path, found: list[JobTraces], trace: str) -> list[JobTraces]:
    """Return the job of one trace. Raises `QueryError` as `jobs` does."""
    ids = sorted(trace_id for job in found for trace_id in job.trace_ids)
    chosen = [known for known in ids if known == trace] or [known for known in ids if known.startswith(trace)]
    if len(chosen) != 1:
        why = "no trace has" if not chosen else f"{len(chosen)} traces have"
        see = f"lumos-df sql 'SELECT trace_id, path FROM traces' --corpus {corpus}"
        raise QueryError(f"{corpus}: {why} the id '{trace}'{nearest(trace, ids)}; see: {see}")
    return [job for job in found if chosen[0] in job.trace_ids]


def groups(corpus: Path, trace: str | None = None, name: str | None = None, *, needed: bool = True) -> list[list[str]]:
    """Return the trace ids of `jobs`; raises as that does."""
    return [job.trace_ids for job in jobs(corpus, trace, name, needed=needed)]


def doubled(corpus: Path) -> dict[str, tuple[int, ...]]:
    """Return, for every trace of a corpus, the ranks of which its job has several traces. Raises as `jobs` does."""
    return {trace_id: job.doubled for job in jobs(corpus, needed=False) for trace_id in job.trace_ids}


def _members(corpus: Path) -> dict[str, list[_Member]]:
    """Return (rank, trace id, its row of `traces`) of the traces of each job, all in order."""
    jobs: dict[str, list[_Member]] = {}
    for trace_id, about in _about(corpus):
        if about["dialect"] not in schema.RECORD_DIALECTS:
            jobs.setdefault(str(about["job"]), []).append((int(about["rank"]), trace_id, about))
    return {job: sorted(members, key=itemgetter(0, 1)) for job, members in sorted(jobs.items())}


def _about(corpus: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    check(corpus)
    check_columns(corpus)
    columns = ("job", "rank", "operators", "others", "dialect")
    known = summarised(corpus, *columns)
    for trace_id in trace_ids(corpus):
        if not trace_id.startswith(ESTIMATE):
            yield trace_id, known.get(trace_id) or rows.about(corpus, trace_id, *columns)


def _twice(members: list[_Member]) -> tuple[int, ...]:
    traces = Counter(rank for rank, *_ in members)
    return tuple(rank for rank in sorted(traces) if traces[rank] > 1)


def _by_file(members: list[_Member]) -> list[list[_Member]]:
    """Return the traces of each file: their ids begin alike, and end with `-r` and a rank where it has several."""
    files: dict[str, list[_Member]] = {}
    for member in members:
        files.setdefault(member[1].partition("-r")[0], []).append(member)
    return list(files.values())


def load(corpus: Path, trace_ids: Sequence[str], twice: tuple[int, ...] = ()) -> Job:
    """Read the traces of one job and rebuild their graphs; `twice`: as `doubled` says of them."""
    ranks = in_threads(lambda trace_id: rows.read(corpus, trace_id), trace_ids)
    graphs = in_threads(lambda rank: stored_graph.as_stored(corpus, trace_graph.build(rank)), ranks)
    return _joined(graphs, twice, stored_graph.instances(corpus, graphs) if len(graphs) > 1 else None)


def build(ranks: list[rows.Rows], twice: tuple[int, ...] = ()) -> Job:
    """Rebuild the graphs of a job's ranks, at once where there are processors for it."""
    return _joined(in_threads(trace_graph.build, ranks), twice)


def _joined(graphs: list[TraceGraph], twice: tuple[int, ...], instances: Instances | None = None) -> Job:
    if instances is None and len(graphs) > 1:
        instances = collective_instances.match([graph.rows for graph in graphs])
    return Job(graphs, instances, event_graph(graphs, instances), twice)


def in_threads(do: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """Do the same for every rank, at once where there are processors for it.

    The loops and numpy's large operations hold no interpreter lock.
    """
    if len(items) == 1:
        return [do(items[0])]
    with ThreadPoolExecutor(min(len(items), available_cpus())) as pool:
        return list(pool.map(do, items))
