"""A job as the rules see it: its rows, graph and replay, and a copy of the graph's times that a rule changes."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lumos_df.advice import host_silences, host_unprofiled, operator_delays
from lumos_df.advice.host_silences import StepSilences
from lumos_df.advice.host_unprofiled import RowCost
from lumos_df.advice.kernel_calls import KernelCalls, kernel_calls
from lumos_df.advice.operator_delays import OperatorDelays
from lumos_df.advice.program_words import ProgramWords
from lumos_df.base.errors import HardwareError
from lumos_df.corpus import profiler_overhead
from lumos_df.corpus.layout import trace_folder
from lumos_df.graph import host_spread
from lumos_df.graph.collective_waits import CollectiveWaits, waits
from lumos_df.graph.event_graph import EventGraph, Run, run
from lumos_df.graph.gpu_pace import GpuPace
from lumos_df.graph.host_work import HostWork, host_work
from lumos_df.graph.job import Job, Played
from lumos_df.graph.rows import FAR, Rows, about, coded, shape_codes
from lumos_df.graph.step_ends import StepEnds, step_ends
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.graph.unseen_waits import waits_unseen
from lumos_df.model.hardware import Hardware
from lumos_df.schema import PHASES
from lumos_df.schema.codes import NONE

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class ChangedGraph:
    """A job's event graph whose arrays a rule changes in place; as in `EventGraph`, times ns."""

    own: NDArray[np.int64]
    lag: NDArray[np.int64]
    floor: NDArray[np.int64]
    transfer: NDArray[np.int64]

    @staticmethod
    def of(graph: EventGraph) -> "ChangedGraph":
        """Return a copy of a graph's times."""
        return ChangedGraph(graph.own.copy(), graph.lag.copy(), graph.floor.copy(), graph.transfer.copy())

    def wait_no_more(self, edges: NDArray[Any]) -> None:
        """Take dependencies away: numbers of edges of the job, or a mask of them."""
        self.lag[edges] = -FAR


@dataclass(frozen=True)
class AdvisedJob:
    """A job whose replay was run; ranks are numbered by their place in it."""

    corpus: Path
    job: Job
    played: Played

    @property
    def name(self) -> str:
        """The job's name."""
        return self.job.graphs[0].rows.job

    @property
    def graphs(self) -> list[TraceGraph]:
        """The graph of each rank."""
        return self.job.graphs

    @property
    def ranks(self) -> list[Rows]:
        """The rows of each rank."""
        return [graph.rows for graph in self.job.graphs]

    @property
    def event_graph(self) -> EventGraph:
        """The ranks' graphs as one."""
        return self.job.event_graph

    @cached_property
    def simulated(self) -> NDArray[np.bool_]:
        """Which rows are nodes of the simulation [N]."""
        placed = np.zeros(len(self.event_graph.own), np.bool_)
        placed[self.event_graph.order] = True
        return placed

    @cached_property
    def edge_base(self) -> NDArray[np.int64]:
        """[ranks + 1] number of the first edge of each rank in the event graph."""
        return np.cumsum([0, *(len(graph.edges) for graph in self.graphs)])

    @cached_property
    def hardware(self) -> Hardware | None:
        """The figures of the GPU that the first trace names; None of one that is not known."""
        device = about(self.corpus, self.ranks[0].trace_id, "device_name")["device_name"]
        try:
            return Hardware.read(device) if device else None
        except HardwareError:
            return None

    @cached_property
    def words(self) -> ProgramWords:
        """In whose words changes are proposed."""
        return ProgramWords.of(self.ranks)

    @cached_property
    def host_works(self) -> list[HostWork]:
        """Which operators the host works on, rank by rank."""
        return [host_work(graph) for graph in self.graphs]

    @cached_property
    def silences(self) -> StepSilences:
        """The long silences of the hosts."""
        return host_silences.of_job(self.host_works, self.played.replays)

    @cached_property
    def operator_delays(self) -> OperatorDelays:
        """What operators of hosts without a GPU lose to other programs."""
        return operator_delays.of_job(self.played.replays, self.shapes)

    @cached_property
    def kernel_calls(self) -> list[KernelCalls]:
        """What the kernels were called with, rank by rank."""
        return [kernel_calls(self.corpus, graph) for graph in self.graphs]

    @cached_property
    def waits(self) -> CollectiveWaits:
        """How long every communication kernel waits and transfers."""
        return waits(self.ranks, self.job.instances)

    @cached_property
    def steps_ns(self) -> NDArray[np.int64]:
        """How long each step of each rank is in the replay, without a profiler where that was timed, ns [steps]."""
        if self.unprofiled is None:
            return self.replayed_ns
        return self.changed_steps_ns(ChangedGraph.of(self.event_graph))

    @cached_property
    def replayed_ns(self) -> NDArray[np.int64]:
        """How long it is under the profiler, ns [steps]; rank by rank."""
        return np.concatenate(
            [
                _lengths(pace, replay.start, replay.end, replay.low, replay.high)
                for pace, replay in zip(self._paces, self.played.replays, strict=True)
            ]
        )

    @cached_property
    def unprofiled(self) -> NDArray[np.int64] | None:
        """Steps that were timed without the profiler, of any rank, ns; None where no GPU or no such step is there."""
        timed = [profiler_overhead.unprofiled(self.corpus, rows.trace_id) for rows in self.ranks]
        on_gpu = any(bool(rows.on_gpu.any()) for rows in self.ranks)
        return np.concatenate(timed).astype(np.int64) if on_gpu and any(timed) else None

    @cached_property
    def row_cost(self) -> RowCost:
        """What a row of the host costs that the profiler writes down; nothing where steps without it were not timed."""
        if self.unprofiled is None:
            return RowCost(likely=0, least=0, most=0)
        graph = ChangedGraph.of(self.event_graph)
        return host_unprofiled.row_cost(
            self.unprofiled, lambda cost: float(self.changed_steps_ns(graph, cost)[self.counted].mean())
        )

    @cached_property
    def _rows_begun(self) -> NDArray[np.int64]:
        return np.concatenate([host_unprofiled.rows_begun(work) for work in self.host_works])

    @property
    def idle_ns(self) -> NDArray[np.int64]:
        """How long no kernel runs in each step of each rank in the replay, ns [steps]; rank by rank."""
        return np.concatenate([replay.replayed.other for replay in self.played.replays])

    @cached_property
    def counted(self) -> NDArray[np.bool_]:
        """Which steps a gain is the mean of: those that waited for nothing unseen; all where none is so [steps]."""
        seen = ~np.concatenate([waits_unseen(replay) for replay in self.played.replays])
        return seen if seen.any() else ~seen

    @cached_property
    def recorded_ns(self) -> NDArray[np.int64]:
        """How long it was, ns [steps]."""
        return np.concatenate(
            [
                _lengths(pace, rows.ts, rows.end, replay.steps.low, replay.steps.high)
                for pace, rows, replay in zip(self._paces, self.ranks, self.played.replays, strict=True)
            ]
        )

    @cached_property
    def _paces(self) -> list[GpuPace | None]:
        return [GpuPace.of(replay.graph, replay.steps) for replay in self.played.replays]

    @cached_property
    def step_number(self) -> NDArray[np.int32]:
        """Number of each of these steps, NONE where nothing marks it [steps]."""
        return np.concatenate([replay.steps.number for replay in self.played.replays])

    @cached_property
    def shapes(self) -> list[NDArray[np.int32]]:
        """Number of the shapes of each row's inputs, NONE where none were recorded [n]; rank by rank."""
        return [shape_codes(self.corpus, rows.trace_id) for rows in self.ranks]

    def spread(self, steps_ns: NDArray[np.int64]) -> float:
        """Return by how much steps like these, ns [steps], differ from one run to the next, as a logarithm.

        Of a rank with one step that is what its stretches differ by.
        """
        bounds = np.cumsum([len(replay.low) for replay in self.played.replays])[:-1]
        alone = [
            host_spread.of_steps(lengths) if len(lengths) > 1 else of_stretches
            for lengths, of_stretches in zip(np.split(steps_ns, bounds), self._spread_of_stretches, strict=True)
        ]
        return host_spread.of_two_runs(float(np.mean(alone)))

    @cached_property
    def _spread_of_stretches(self) -> list[float]:
        """Of each rank with one step; 0 of others."""
        return [
            host_spread.of_stretches(graph, shape) if len(replay.low) == 1 else 0.0
            for graph, shape, replay in zip(self.graphs, self.shapes, self.played.replays, strict=True)
        ]

    def once(self, find: Callable[["AdvisedJob"], Found]) -> Found:
        """Return what is found of the job, which is looked for once, by whichever rule asks first."""
        if find not in self._found:
            self._found[find] = find(self)
        return self._found[find]  # type: ignore[no-any-return]

    @cached_property
    def _found(self) -> dict[Callable[["AdvisedJob"], Any], Any]:
        return {}

    @cached_property
    def _ends(self) -> StepEnds:
        return step_ends(self.event_graph, self.played.replays)

    def without_profiler(self, changed: ChangedGraph, cost: float | None = None) -> ChangedGraph:
        """Return the times of a changed graph as they are without the profiler; `cost` as above.

        Where a change takes a part of some work away, that part of the rows goes, too.
        """
        cost = self.row_cost.likely if cost is None else cost
        if not cost:
            return changed
        before = np.maximum(self.event_graph.lag, 1)
        left = np.where(self._rows_begun > 0, np.maximum(before - cost * self._rows_begun, 0) / before, 1.0)
        return replace(
            changed, lag=np.where(changed.lag > 0, np.round(changed.lag * left), changed.lag).astype(np.int64)
        )

    def simulate(self, changed: ChangedGraph) -> Run:
        """Simulate the changed job."""
        own, lag, floor, transfer = changed.own, changed.lag, changed.floor, changed.transfer
        return run(replace(self.event_graph, own=own, lag=lag, floor=floor, transfer=transfer))

    def changed_steps_ns(self, changed: ChangedGraph, cost: float | None = None) -> NDArray[np.int64]:
        """Simulate the changed job without the profiler and return how long its steps are, ns [steps].

        `cost`: what a row of the host cost under it, ns; by default what is likely.
        """
        changed = self.without_profiler(changed, cost)
        graph, ends, result = self.event_graph, self._ends, self.simulate(changed)
        first = np.full((len(ends.extent_step), 1), np.iinfo(np.int64).max)
        last = np.full((len(ends.extent_step), 1), np.iinfo(np.int64).min)
        np.minimum.at(first[:, 0], ends.gpu_extent, result.start[ends.gpu_node])
        np.maximum.at(last[:, 0], ends.gpu_extent, result.end[ends.gpu_node])
        start, end = result.start[ends.start_node], result.end[ends.end_node]
        low, high = ends.windows(start[:, None], end[:, None], first, last)
        steps = np.cumsum([0, *(len(replay.low) for replay in self.played.replays)])
        lasted = []
        for place, pace in enumerate(self._paces):
            nodes, mine = (slice(bounds[place], bounds[place + 1]) for bounds in (graph.base, steps))
            lasted.append(_lengths(pace, result.start[nodes], result.end[nodes], low[mine, 0], high[mine, 0]))
        return np.concatenate(lasted)

    def texts(self, rank: int, name: str, row: NDArray[np.int64] | None = None) -> tuple[NDArray[np.int32], list[str]]:
        """Return (codes, words) of a further column of texts of the operators of a rank, NONE where there is none.

        Of all rows [n], or of some [k] with their words alone.
        """
        file = trace_folder(self.corpus, self.ranks[rank].trace_id) / "operators.parquet"
        column = pq.ParquetFile(file, read_dictionary=[name]).read([name])[name]
        if row is not None:
            column = column.unify_dictionaries().take(pa.array(row)).cast(pa.string()).dictionary_encode()
        return coded(column)

    def elements(self, rank: int) -> NDArray[np.int64]:
        """Return how many elements the inputs of the rows of a rank have, NONE where no shapes were recorded [n]."""
        code, words = self.texts(rank, "input_dims")
        return np.array([*map(_elements, map(json.loads, words)), NONE], np.int64)[code]

    def input_types(self, rank: int) -> tuple[NDArray[np.int32], list[str]]:
        """Return (codes [n], words) of the JSON lists of the types of the inputs of a rank's rows, NONE of none."""
        return self.texts(rank, "input_types")

    def phase(self, rank: int) -> NDArray[np.int8]:
        """Return the phase of the rows of a rank, as a place in `schema.PHASES`, NONE where there is none [n]."""
        return self._phases[rank]

    @cached_property
    def _phases(self) -> list[NDArray[np.int8]]:
        phases = []
        for rank in range(len(self.graphs)):
            code, words = self.texts(rank, "phase")
            phases.append(np.array([*map(PHASES.index, words), NONE], np.int8)[code])
        return phases


def _elements(dims: Any) -> int:
    """Return how many elements the tensors of some shapes have, lists of them among these; a number has none."""
    if not isinstance(dims, list):
        return 0
    if dims and all(isinstance(size, int) for size in dims):
        return prod(dims)
    return sum(map(_elements, dims))


def _lengths(
    pace: GpuPace | None,
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return how long the steps of a rank are, on the host or on a GPU that falls behind it, ns [steps]."""
    if pace is not None:
        low, high = pace.windows(start, end, low, high)
    lasted: NDArray[np.int64] = np.maximum(high - low, 0)
    return lasted
