"""Who waits for whom: the tables `collectives` and `clocks` of a corpus, for whoever reads them first.

Nothing is simulated for that. What a replay adds to `collectives` is null until there is one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lumos_df import schema
from lumos_df.corpus import table_files
from lumos_df.corpus.folder import traces_without
from lumos_df.graph.collective_instances import ClockSkew, match
from lumos_df.graph.collective_waits import CollectiveWaits, waits
from lumos_df.graph.job import groups, in_threads
from lumos_df.graph.rank_outline import communication_of, in_trace
from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import NONE


@dataclass(frozen=True, slots=True)
class MatchedJob:
    """Of how many collectives of a job kernels of several ranks were found."""

    job: str
    ranks: tuple[int, ...]
    """Those that were recorded together."""
    collectives: int
    """Each matched one once, and every communication kernel that was not matched."""
    matched: int

    @staticmethod
    def of(ranks: Sequence[Rows], of_job: CollectiveWaits) -> "MatchedJob":
        """Count the collectives of the ranks of a job."""
        collectives = len(np.unique(of_job.instance))
        alone = int(np.count_nonzero(of_job.members == 1))
        return MatchedJob(ranks[0].job, tuple(rows.rank for rows in ranks), collectives, collectives - alone)


def match_collectives(corpus: Path) -> list[MatchedJob]:
    """Match the collectives of each job that has a trace without the table `collectives`, and store what comes out.

    Returns:
        Those of the jobs that communicate on a GPU.

    Raises:
        CorpusError: `corpus` is no corpus, or cannot be read or written.
    """
    missing = traces_without(corpus, schema.COLLECTIVE_MEMBERS)
    jobs = groups(corpus, needed=False) if missing else []
    matched = [_match_job(corpus, trace_ids) for trace_ids in jobs if missing & set(trace_ids)]
    return [job for job in matched if job.collectives]


def _match_job(corpus: Path, trace_ids: list[str]) -> MatchedJob:
    ranks, rows = zip(*in_threads(partial(communication_of, corpus), trace_ids), strict=True)
    instances = match(list(ranks)) if len(ranks) > 1 else None
    of_job = waits(list(ranks), instances)
    of_job = replace(of_job, row=in_trace(list(rows), of_job.trace, of_job.row))
    for k, rows_of_rank in enumerate(ranks):
        write_matched(corpus, rows_of_rank, of_job, k, None if instances is None else instances.clocks[k])
    return MatchedJob.of(ranks, of_job)


def write_matched(corpus: Path, rows: Rows, of_job: CollectiveWaits, k: int, clock: ClockSkew | None) -> None:
    """Store the collectives and the clock of the k-th trace of a job, which is not replayed: what was, goes.

    Raises `CorpusError` when they cannot be written.
    """
    table_files.remove_replay(corpus, rows.trace_id)
    table_files.write(corpus, rows.trace_id, schema.COLLECTIVE_MEMBERS, collective_columns(of_job, k))
    write_clock(corpus, rows.trace_id, rows.rank, clock)


def collective_columns(of_job: CollectiveWaits, k: int) -> dict[str, Any]:
    """Return the rows of `collectives` of the k-th trace, without a replay."""
    here = of_job.of_trace(k)
    last, unseen, transfer = of_job.last[here], of_job.unseen[here], of_job.transfer[here]
    kernels = len(last)
    return {
        "rank": np.full(kernels, of_job.rank[k]),
        "instance_id": of_job.instance[here],
        "op_id": of_job.row[here],
        "members": of_job.members[here],
        "last_rank": pa.array(of_job.rank[of_job.trace[last]], mask=last == NONE) if kernels else [],
        "arrival_ns": of_job.arrival[here],
        "waiting_ns": of_job.waiting[here],
        "waiting_unseen_ns": pa.array(unseen, mask=unseen == NONE),
        "transfer_ns": pa.array(transfer, mask=transfer == NONE),
        "waiting_replayed_ns": pa.nulls(kernels, pa.int64()),
        "replayed_end": pa.nulls(kernels, pa.int64()),
    }


def write_clock(corpus: Path, trace_id: str, rank: int, clock: ClockSkew | None) -> bool:
    """Store the row of `clocks` of a trace, none of a rank by itself; return whether that differs from before.

    Raises `CorpusError` when it cannot be written.
    """
    if clock is None:
        return table_files.remove(corpus, trace_id, schema.CLOCKS)
    return table_files.write(
        corpus,
        trace_id,
        schema.CLOCKS,
        {
            "rank": [rank],
            "offset_ns": [clock.offset_ns],
            "drift_ppm": [clock.drift_ppm],
            "residual_ns": [clock.residual_ns],
            "collectives": [clock.collectives],
        },
    )
