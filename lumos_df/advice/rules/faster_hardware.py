"""A better machine: links twice as fast as advice, GPUs and hosts only to say that they would not help."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.half_transfers import half_transfers, may_have_waited
from lumos_df.advice.links import LinkKind, links
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count
from lumos_df.schema.codes import NONE, THREAD


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose a network twice as fast, and probe GPUs and hosts twice as fast."""
    graph = advised.event_graph
    gpu = np.concatenate([rows.on_gpu for rows in advised.ranks])
    kernel = graph.base[advised.waits.trace] + advised.waits.row
    of_kernel = np.where(advised.waits.transfer != NONE, links(advised), "")
    kinds = [which for which in LinkKind if (of_kernel == which).any()]
    for which in kinds:
        yield _faster_links(advised, which, of_kernel == which, alone=len(kinds) == 1)
    computes = gpu.copy()
    computes[kernel] = False
    if computes.any():

        def faster_gpus(changed: ChangedGraph) -> None:
            changed.own[computes] //= 2

        yield Remedy(
            rule="faster_hardware",
            what="GPUs twice as fast",
            known=Known.REPLAYED,
            rests_on=format_count(int(np.count_nonzero(computes)), "kernel, copy and clear"),
            switches="--scale kind=gpu:0.5",
            apply=faster_gpus,
            bought=True,
            probe=True,
        )
    on_thread = np.concatenate([each.edges.kind == THREAD for each in advised.graphs]) & (graph.lag > 0)

    def faster_hosts(changed: ChangedGraph) -> None:
        changed.own[~gpu] //= 2
        changed.lag[on_thread] = np.where(
            changed.lag[on_thread] > 0, changed.lag[on_thread] // 2, changed.lag[on_thread]
        )

    yield Remedy(
        rule="faster_hardware",
        what="hosts twice as fast",
        known=Known.REPLAYED,
        rests_on=format_count(int(np.count_nonzero(~gpu)), "row") + " of the host",
        switches="--scale kind=host:0.5",
        apply=faster_hosts,
        bought=True,
        probe=True,
    )


def _faster_links(advised: AdvisedJob, which: LinkKind, chosen: NDArray[np.bool_], *, alone: bool) -> Remedy:
    """Return links twice as fast for some communication kernels [k]; `alone`: there are no others."""
    return Remedy(
        rule="faster_hardware",
        what=f"{which} twice as fast",
        known=Known.REPLAYED,
        rests_on=f"transfers of {format_count(int(np.count_nonzero(chosen)), 'communication kernel')}",
        # A switch of `replay` does not tell links apart.
        switches="--scale family=communication:0.5" if alone else "",
        apply=half_transfers(advised, chosen),
        at_most=may_have_waited(advised, chosen),
        bought=True,
    )
