"""Collectives that transfer far longer in some steps than in most: what if they took what they take in most."""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.like_collectives import LikeCollectives
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph import typical_values
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.same_rows import ordinals, usual

_MOST: Final = 3
"""Kinds of collectives that are proposed: those that lose most time."""
_STEPS: Final = 3
"""It takes so many steps to tell most of them from some."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose for each of some kinds of collectives that they transfer in no step longer than in most.

    The same collective of each step, by kind, bytes, ranks and place, is slow where it takes more than twice what it
    takes in the middle one, and by as much as is worth an advice, in less than half of the steps.
    """
    found, graph = LikeCollectives.of(advised), advised.event_graph
    transfer = graph.transfer[found.instance]
    same = packed(found.like, found.group, ordinals(packed(found.like, found.group, found.step)))
    expected = usual(same, transfer, same, least=_STEPS)
    steps, least_ns = len(np.unique(advised.step_number)), typical_values.LEAST_PCT / 100 * advised.steps_ns.sum()
    less = np.where((expected >= 0) & (transfer > 2 * expected), transfer - expected, 0)
    # Small ones take twice as long now and then, in any step.
    less[less * found.ranks < least_ns / steps] = 0
    total = np.bincount(found.kind, less * found.ranks, len(found.kinds))
    for place in np.argsort(-total)[:_MOST].tolist():
        mine = (less > 0) & (found.kind == place)
        with_it = len(np.unique(found.step[mine]))
        lasts = format_ns(round(total[place] / len(advised.steps_ns)))
        if total[place] < least_ns or 2 * with_it >= steps:
            continue
        yield Remedy(
            rule="slow_transfer",
            what=f"{found.kinds[place]} transfers longer in {with_it} of {steps} steps than in most, with all ranks "
            f"there, {lasts} a step in the mean: look for links that fail and come back, and for who else uses them",
            known=Known.MEASURED,
            rests_on=format_count(int(np.count_nonzero(mine)), "collective"),
            apply=_shorter(found.instance[mine], less[mine]),
            once=True,
        )


def _shorter(instance: NDArray[np.int64], less: NDArray[np.int64]) -> Callable[[ChangedGraph], None]:
    def apply(changed: ChangedGraph) -> None:
        changed.transfer[instance] -= np.minimum(less, changed.transfer[instance])

    return apply
