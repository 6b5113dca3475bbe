"""A changed job that has not run yet: what every step of a change takes, and returns changed."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.event_graph import event_graph
from lumos_df.graph.job import Job
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import NONE
from lumos_df.whatif.durations.operator_times import PlannedChange, Times
from lumos_df.whatif.job.recorded_job import RecordedJob


@dataclass(frozen=True, slots=True)
class DraftJob:
    """A changed job, the recorded one that it is made from, and the change."""

    anchor: RecordedJob
    change: PlannedChange
    base: Job
    """The recorded job, without what happened once where that is left out."""
    job: Job
    times: list[Times]
    """Durations, one a graph of `job`."""
    transfer_error: NDArray[np.float64]
    """Relative error of each collective of `job`."""
    sources: list[NDArray[np.int32]]
    """Which row of the original each row of each graph is from, NONE for what was inserted."""
    makers: list[tuple[int, ...]]
    """Which traces of the original each graph is from; `sources` counts their rows one behind the other."""
    again: list[NDArray[np.bool_]]
    """Which rows of each graph a setting makes the backward pass compute again."""
    warnings: list[str]
    repeats: bool = False
    """Whether the backward pass is to compute again what it did not, or more of it."""
    unscaled_transfers_ns: int = 0
    """What collectives last, waiting as well, that should move and of which too little is known, of all ranks."""
    stand_in: str | None = None
    """The GPU by whose links, not its own, transfers move that nothing measured tells of; None where none do."""
    slowed: list[NDArray[np.float64]] = field(default_factory=list)
    """By how much rows of each graph may take longer beside communication, relative; nothing where none runs so."""

    @property
    def ranks(self) -> list[int]:
        """Return the recorded rank that each graph is held against: the first that it is from."""
        return [ranks[0] for ranks in self.makers]

    @property
    def steps(self) -> int:
        """Return the steps of all ranks together, at least one a rank."""
        return sum(max(1, len(np.unique(graph.rows.step[graph.rows.step >= 0]))) for graph in self.job.graphs)

    def source_of(self, place: int) -> NDArray[np.int32]:
        """Return the row of its first recorded rank that each row of a graph is from, NONE for any other [n]."""
        source = self.sources[place]
        count = len(self.anchor.job.graphs[self.ranks[place]].rows)
        return np.where(source < count, source, NONE).astype(np.int32)

    def added(self, before: "DraftJob") -> int:
        """Return how many rows it has more than a draft of it."""
        return sum(map(len, self.sources)) - sum(map(len, before.sources))

    def extended(self, graphs: list[TraceGraph], errors: list[NDArray[np.float64]]) -> "DraftJob":
        """Return the job with graphs that have more rows behind their old ones, modelled within relative `errors`."""
        added = list(map(len, errors))
        return replace(
            self,
            job=replace(self.job, graphs=graphs, event_graph=event_graph(graphs, self.job.instances)),
            times=[
                time.with_modelled(graph.own, error)
                for time, graph, error in zip(self.times, graphs, errors, strict=True)
            ],
            sources=[
                np.append(source, np.full(count, NONE)).astype(np.int32)
                for source, count in zip(self.sources, added, strict=True)
            ],
            again=[np.append(again, np.zeros(count, np.bool_)) for again, count in zip(self.again, added, strict=True)],
            slowed=[np.append(slowed, np.zeros(count)) for slowed, count in zip(self.slowed, added, strict=False)],
        )

    def said(self, *warnings: str) -> "DraftJob":
        """Return the job with more to say of it."""
        return replace(self, warnings=[*self.warnings, *warnings])
