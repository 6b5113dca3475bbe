"""Parameters that are gathered again for the backward pass although memory has room: what if they stayed gathered."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.gpu_memory import gpu_memory
from lumos_df.advice.half_transfers import may_have_waited
from lumos_df.advice.hooked_collectives import parameter_gathers
from lumos_df.advice.less_work import less_work
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.torch_names import NODE
from lumos_df.base.units import format_bytes, format_count, format_ns
from lumos_df.graph.packed_keys import dense, packed
from lumos_df.graph.rows import Rows
from lumos_df.graph.same_rows import ordinals


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose to keep gathered parameters where every rank is known to have room for all of them."""
    memory, gathers = gpu_memory(advised), parameter_gathers(advised)
    if not memory or not len(gathers):
        return
    base, again, kept = advised.event_graph.base, [], []
    for place, rows in enumerate(advised.ranks):
        row = gathers.member - base[place]
        row = _again(rows, row[(row >= 0) & (row < len(rows))])
        again.append(row)
        _, step = np.unique(rows.step[row], return_inverse=True)
        kept.append(int(np.bincount(step, (rows.in_bytes * rows.group_size)[row]).max(initial=0)))
    if not all(kept) or any(of.reserved + more > of.total for of, more in zip(memory, kept, strict=True)):
        return
    part = [np.ones(len(rows)) for rows in advised.ranks]
    for of_rank, rows, row in zip(part, advised.ranks, again, strict=True):
        called = rows.nearest(rows.named(lambda name: name.startswith("c10d::")), row.astype(np.int32))
        of_rank[row] = 0
        of_rank[called[called >= 0]] = 0
    most = int(np.argmax(kept))
    gathered = gathers.of_member[np.isin(gathers.member, np.concatenate([*map(np.add, again, base[:-1])]))]
    taken = format_ns(round(gathers.transfer[gathered].sum() / len(advised.steps_ns)))
    yield Remedy(
        rule="kept_parameters",
        what=f"parameters are gathered again for the backward pass, {taken} a step, although memory has room: keep "
        f"{format_bytes(kept[most])} of them beside {format_bytes(memory[most].reserved)}, of "
        f"{format_bytes(memory[most].total)}, by reshard_after_forward=False or SHARD_GRAD_OP",
        known=Known.REPLAYED,
        rests_on=format_count(len(np.unique(gathered)), "gather"),
        apply=less_work(advised, part).apply,
        at_most=may_have_waited(advised, gathers.of_kernels(advised)),
    )


def _again(rows: Rows, gather: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the later half of the gathers of a size in each step whose backward pass gathers something."""
    node = rows.named(lambda name: name.startswith(NODE))
    call = rows.parent[gather]
    gather = gather[np.argsort(rows.ts[gather], kind="stable")]
    goes_back = (call >= 0) & np.isin(rows.thread[call], np.unique(rows.thread[node]))
    gather = gather[np.isin(rows.step[gather], rows.step[call[goes_back]])]
    kind = dense(packed(rows.step[gather], rows.in_bytes[gather]))
    return gather[2 * ordinals(kind) >= np.bincount(kind)[kind]]
