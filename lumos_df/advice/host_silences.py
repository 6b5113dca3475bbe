"""Silences of the hosts that are long enough to be advice by themselves."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.loader_rows import loader_rows
from lumos_df.graph import host, typical_values
from lumos_df.schema.codes import PYTHON


@dataclass(frozen=True, slots=True, kw_only=True)
class Silences:
    """k stretches of time in which the host of a rank ran no operator and made no call."""

    edge: NDArray[np.int64]
    """Edge of the rank whose lag holds it."""
    ns: NDArray[np.int64]
    """How long it is."""
    row: NDArray[np.int32]
    """The row that ends it; of a Python function that ran, this one."""
    nothing: NDArray[np.bool_]
    """Whether nothing at all was recorded; otherwise a Python function ran."""


def long_silences(advised: AdvisedJob, rank: int) -> Silences:
    """Return the silences of a rank that last as long as what is worth an advice takes of a step.

    Shorter ones are Python between operators. Time in which a data loader is asked for a batch is none.
    """
    least = max(host.IDLE_NS, typical_values.LEAST_PCT / 100 * float(advised.steps_ns.mean()))
    graph, work = advised.graphs[rank], advised.host_works[rank]
    rows, lag = graph.rows, graph.edges.lag[work.edge]
    column = np.flatnonzero(lag >= least)
    of, dur, row, silent = work.parts(
        work.thread[:, column], work.at[:, column], lag[column], graph.edges.dst[work.edge[column]]
    )
    edge = work.edge[column][of]
    loading = work.share(loader_rows(rows))[edge] * graph.edges.lag[edge]
    ns = dur - np.round(np.where(silent, loading, 0)).astype(np.int64)
    kept = (ns >= least) & (row >= 0) & (silent | (rows.kind[row] == PYTHON) & (loading < dur / 2))
    return Silences(edge=edge[kept], ns=ns[kept], row=row[kept], nothing=silent[kept])
