"""Which ranks hold stages of one pipeline: those that send to one another."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob

SENT: Final = frozenset(("send", "recv", "send_recv"))
"""Kinds of exchange between two ranks."""


def pipelines(advised: AdvisedJob) -> NDArray[np.int64]:
    """Return the pipeline of each rank, as the place of its first one; a rank in none is one by itself [ranks]."""
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
