"""A better machine: links twice as fast as advice, GPUs and hosts only to say that they would not help."""

from collections.abc import Iterator

import numpy as np

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count
from lumos_df.schema.codes import NONE, THREAD


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose a network twice as fast, and probe GPUs and hosts twice as fast."""
    graph = advised.event_graph
    gpu = np.concatenate([rows.on_gpu for rows in advised.ranks])
    waits = advised.waits
    kernel = graph.base[waits.trace] + waits.row
    alone = (graph.instance[kernel] == NONE) & (waits.transfer > 0)
    if len(kernel):

        def faster_links(changed: ChangedGraph) -> None:
            changed.transfer[:] //= 2
            changed.own[kernel[alone]] -= np.minimum(waits.transfer[alone] // 2, changed.own[kernel[alone]])

        yield Remedy(
            rule="faster_hardware",
            what="a network twice as fast",
            known=Known.REPLAYED,
            rests_on=f"transfers of {format_count(len(kernel), 'communication kernel')}",
            command="replay --scale family=communication:0.5",
            apply=faster_links,
        )
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
            command="replay --scale kind=gpu:0.5",
            apply=faster_gpus,
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
        command="replay --scale kind=host:0.5",
        apply=faster_hosts,
        probe=True,
    )
