"""Launches that return when their kernel is over: what if the host had gone on."""

from collections.abc import Iterator

import numpy as np

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph.gpu_streams import launches_block
from lumos_df.schema.codes import KERNEL, LAUNCH, MEMSET, NONE, SYNC_EDGE


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose not to set what makes every launch wait."""
    edges, calls, takes, waited = [], [], [], 0
    for place, graph in enumerate(advised.graphs):
        if not launches_block(graph.rows, graph.gpu):
            continue
        rows, own_call = graph.rows, np.full(len(graph.rows), NONE, np.int64)
        launched = graph.gpu.row[graph.gpu.launched]
        own_call[launched] = rows.parent[launched]
        launches = np.isin(rows.kind[graph.edges.src], (KERNEL, MEMSET)) & (graph.edges.kind == SYNC_EDGE)
        mine = np.flatnonzero(launches & (own_call[graph.edges.src] == graph.edges.dst))
        call = graph.edges.dst[mine]
        waited += int((rows.dur[call] - graph.own[call]).sum())
        edges.append(mine + advised.edge_base[place])
        # By itself a launch takes at least what it takes behind its kernel, and at most what passed before that, too.
        leads = np.flatnonzero((graph.edges.kind == LAUNCH) & np.isin(graph.edges.dst, graph.edges.src[mine]))
        calls.append(graph.edges.src[leads] + advised.event_graph.base[place])
        takes.append(graph.edges.lag[leads])
    if not edges:
        return
    edge, node, most = (np.concatenate(each) for each in (edges, calls, takes))
    half = np.maximum(most - advised.event_graph.own[node], 0) // 2

    def apply(changed: ChangedGraph) -> None:
        changed.wait_no_more(edge)
        changed.own[node] += half

    words, lasts = advised.words, format_ns(waited // len(advised.steps_ns))
    variable = "HIP_LAUNCH_BLOCKING or AMD_SERIALIZE_KERNEL" if words.hip else "CUDA_LAUNCH_BLOCKING"
    yield Remedy(
        rule="blocking_launches",
        what=f"every launch returns when its kernel is over, which takes {lasts} a step: run without {variable}",
        known=Known.REPLAYED,
        rests_on=f"{format_count(len(edge), 'blocking call')} on {format_count(len(edges), 'rank')}",
        apply=apply,
        uncertainty=float(half.sum() / max(waited, 1)),
    )
