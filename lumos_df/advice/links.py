"""Over which links the communication of a job goes: between the GPUs of a node, or between nodes."""

from enum import StrEnum

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.corpus.layout import trace_folder
from lumos_df.graph.rows import about


class LinkKind(StrEnum):
    """Links, as advice calls them."""

    INSIDE = "links between the GPUs of a node"
    BETWEEN = "a network between nodes"
    UNKNOWN = "a network"


def links(advised: AdvisedJob) -> NDArray[np.object_]:
    """Return the links of every communication kernel, in the order of `advised.waits` [k].

    A group that has ranks on several nodes needs the network between them. Nodes have as many ranks as the traces say
    that they have GPUs, in the order of the ranks; of a process that sees one GPU only nothing is known.
    """
    waits = advised.waits
    parts = [np.empty(0, np.object_)]
    parts += [_of_rank(advised, k, waits.row[waits.of_trace(k)]) for k in range(len(advised.ranks))]
    return np.concatenate(parts)


def _of_rank(advised: AdvisedJob, place: int, row: NDArray[np.int64]) -> NDArray[np.object_]:
    rows = advised.ranks[place]
    gpus = about(advised.corpus, rows.trace_id, "device_count")["device_count"] or 0
    if gpus and 0 < rows.world_size <= gpus:
        return np.full(len(row), LinkKind.INSIDE, np.object_)
    if gpus <= 1:
        return np.full(len(row), LinkKind.UNKNOWN, np.object_)
    listed = _listed(advised, place)
    of_group = [_of_members(listed.get(group), gpus) for group in rows.groups]
    found = np.array([*of_group, LinkKind.UNKNOWN], np.object_)[rows.group[row]]
    return np.where((found == LinkKind.UNKNOWN) & (rows.group_size[row] > gpus), LinkKind.BETWEEN, found)


def _of_members(ranks: list[int] | None, gpus: int) -> LinkKind:
    if not ranks:
        return LinkKind.UNKNOWN
    return LinkKind.INSIDE if min(ranks) // gpus == max(ranks) // gpus else LinkKind.BETWEEN


def _listed(advised: AdvisedJob, place: int) -> dict[str, list[int]]:
    """Return the ranks of the process groups that a trace lists."""
    file = trace_folder(advised.corpus, advised.ranks[place].trace_id) / "process_groups.parquet"
    table = pq.ParquetFile(file).read(["group", "ranks"]).to_pylist() if file.is_file() else []
    return {group["group"]: group["ranks"] for group in table if group["ranks"]}
