"""Which ranks hold stages of one pipeline: those that send to one another, and do not all do the same."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import CONVOLUTION, GEMM

SENT: Final = frozenset(("send", "recv", "send_recv"))
"""Kinds of exchange between two ranks."""


def pipelines(advised: AdvisedJob) -> NDArray[np.int64]:
    """Return the pipeline of each rank, as the place of its first one; a rank in none is one by itself [ranks].

    Ranks that all begin alike, and exchange as often, pass parts of a sequence around (ring attention), or the like.
    """
    joined = _joined(advised)
    leads = np.array([multiplies_first(rows) for rows in advised.ranks])
    exchanges = np.array([np.count_nonzero(rows.on_gpu & rows.of_collective(SENT)) for rows in advised.ranks])
    differs = np.zeros(len(joined), np.bool_)
    np.logical_or.at(differs, joined, (leads != leads[joined]) | (exchanges != exchanges[joined]))
    return np.where(differs[joined], joined, np.arange(len(joined)))


def multiplies_first(rows: Rows) -> bool:
    """Return whether a rank's GPU multiplies before its first exchange with another one.

    The first stage of a pipeline does and the last does not.
    """
    inside, never = rows.on_gpu & (rows.step >= 0), np.iinfo(np.int64).max
    multiplies = inside & np.isin(rows.family, (GEMM, CONVOLUTION))
    exchanges = inside & rows.of_collective(SENT)
    return bool(rows.ts[multiplies].min(initial=never) < rows.ts[exchanges].min(initial=never))


def _joined(advised: AdvisedJob) -> NDArray[np.int64]:
    """Return the first of the ranks that each sends to, or that these send to in turn [ranks]."""
    waits = advised.waits
    sends = np.concatenate(
        [
            rows.of_collective(SENT)[waits.row[low:high]]
            for rows, low, high in zip(
                advised.ranks, waits.bounds[:-1].tolist(), waits.bounds[1:].tolist(), strict=True
            )
        ]
    )
    instance, rank = waits.instance[sends], waits.trace[sends]
    first = np.full(int(waits.instance.max(initial=-1)) + 1, len(advised.ranks))
    pipeline = np.arange(len(advised.ranks))
    while True:
        np.minimum.at(first, instance, pipeline[rank])
        joined = pipeline.copy()
        np.minimum.at(joined, rank, first[instance])
        if (joined == pipeline).all():
            return pipeline
        pipeline = joined
