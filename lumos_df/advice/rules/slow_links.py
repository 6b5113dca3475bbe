"""Groups of ranks whose collectives transfer longer than like ones: what if they took as long as those of others."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.like_collectives import LikeCollectives
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.rules.late_rank import listed
from lumos_df.advice.steady_lateness import steady, sums_by_step
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph.packed_keys import dense, packed
from lumos_df.graph.same_rows import usual
from lumos_df.schema.codes import NONE


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that groups whose collectives transfer longer than like ones, step after step, be as quick as others.

    Like ones are of one kind and as many bytes, over links of one kind, in groups of as many ranks that lie as far
    apart.
    """
    graph, found = advised.event_graph, LikeCollectives.of(advised)
    found = found.some(_among_several(found.like, found.group))
    instance, ranks, like, step = found.instance, found.ranks, found.like, found.step
    if not len(instance):
        return
    transfer, group, together = graph.transfer[instance], dense(found.group), dense(packed(like, step))
    longer = transfer - (np.bincount(together, transfer) / np.bincount(together))[together]
    of_step = sums_by_step(int(group.max()) + 1, group, step, longer)
    slow = (steady(of_step) & (of_step.mean(axis=1) > 0))[group]
    expected = usual(like[~slow], transfer[~slow], like[slow])
    less = np.where(expected == NONE, 0, np.maximum(transfer[slow] - expected, 0))
    chosen, ranks, less = (each[less > 0] for each in (instance[slow], ranks[slow], less))
    if not len(chosen):
        return

    def apply(changed: ChangedGraph) -> None:
        changed.transfer[chosen] -= np.minimum(less, changed.transfer[chosen])

    waits = advised.waits
    of_kernel = graph.instance[graph.base[waits.trace] + waits.row]
    taken, others = int(graph.transfer[chosen].sum()), int((graph.transfer[chosen] - less).sum())
    numbers = np.unique(waits.rank[waits.trace[np.isin(of_kernel, chosen)]]).tolist()
    lasts = format_ns(round((ranks * less).sum() / len(advised.steps_ns)))
    yield Remedy(
        rule="slow_links",
        what=f"collectives of {listed(numbers)} transfer {taken / max(others, 1):.1f} times as long as like ones of "
        f"other ranks, {lasts} a step longer in the mean of all ranks: look at the links and network cards of these",
        known=Known.MEASURED,
        rests_on=f"transfers of {format_count(len(chosen), 'collective')}",
        apply=apply,
    )


def _among_several(like: NDArray[np.int64], group: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which collectives are like one of another group [c]."""
    _, first = np.unique(packed(like, group), return_index=True)
    kind, groups = np.unique(like[first], return_counts=True)
    several: NDArray[np.bool_] = np.isin(like, kind[groups > 1])
    return several
