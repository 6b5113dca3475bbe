"""Communication that takes half its time to transfer: over links twice as fast, or with half the bytes."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.schema.codes import NONE


def may_have_waited(advised: AdvisedJob, chosen: NDArray[np.bool_]) -> bool:
    """Return whether most of the transfers of some communication kernels [k] may be waits for ranks that are not here.

    Of a collective without all its ranks is known what it takes at most: as long as the fastest like it.
    """
    waits = advised.waits
    known = chosen & (waits.transfer != NONE)
    return bool(2 * waits.transfer[known & ~waits.whole].sum() > waits.transfer[known].sum())


def half_transfers(advised: AdvisedJob, chosen: NDArray[np.bool_]) -> Callable[[ChangedGraph], None]:
    """Return the change that halves the transfers of some communication kernels of `advised.waits` [k]."""
    graph, waits = advised.event_graph, advised.waits
    kernel = (graph.base[waits.trace] + waits.row)[chosen]
    instance, transfer = graph.instance[kernel], waits.transfer[chosen]
    collective = np.unique(instance[instance != NONE])
    unmatched = (instance == NONE) & (transfer > 0)

    def apply(changed: ChangedGraph) -> None:
        # What members waited for ranks that nobody recorded is no transfer.
        changed.transfer[collective] -= np.maximum(changed.transfer[collective] - graph.unseen[collective], 0) // 2
        changed.own[kernel[unmatched]] -= np.minimum(transfer[unmatched] // 2, changed.own[kernel[unmatched]])

    return apply
