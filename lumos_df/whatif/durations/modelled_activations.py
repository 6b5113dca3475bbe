"""Layers of a job that ran whole, cut over several ranks: all-reduces of activations, as Megatron has them.

Forward one behind the product out of the heads and one behind that out of the MLP, for which the next kernel waits.
Backward one for the gradient of what goes into either, while its weights' gradient is computed. One more behind the
embedding, and one for the gradient of what goes into the head.
"""

import numpy as np
from numpy.typing import NDArray

from lumos_df.schema.codes import BACKWARD, FORWARD, NONE, RECOMPUTE
from lumos_df.schema.collective_kinds import ALL_REDUCE, REDUCE_SCATTER
from lumos_df.whatif.durations.added_collectives import with_collectives
from lumos_df.whatif.durations.added_kernels import ACTIVATIONS
from lumos_df.whatif.durations.draft_job import DraftJob
from lumos_df.whatif.durations.pass_kernels import PassKernels
from lumos_df.whatif.durations.payloads import activation_bytes
from lumos_df.whatif.durations.widths import INTO_HEADS, INTO_MLP, OUT_OF_HEADS, OUT_OF_MLP
from lumos_df.whatif.job.nearest_setting import refusal, telling


def with_activations(draft: DraftJob) -> DraftJob:
    """Return the job with all-reduces of its activations.

    Raises:
        QueryError: the trace does not tell the size of an activation, or the products of a layer.
    """
    anchor, change = draft.anchor, draft.change
    new = change.new
    if not activation_bytes(change):
        sizes = {"sequence": new.seq, "micro_batch": new.micro_batch, "hidden": new.hidden}
        raise refusal(
            anchor.about.job,
            ["tp"],
            "the trace does not tell how large an activation is",
            shapes=anchor.records_shapes,
            known=telling(sizes),
        )
    payload = round(activation_bytes(change))
    made, carry = with_collectives(
        draft,
        ((REDUCE_SCATTER if new.sp else ALL_REDUCE, _places),),
        ACTIVATIONS,
        payload,
        "tp cannot change from 1, because the products of a layer are not told apart in rank {rank}; record it with "
        "record_shapes=True and with_modules=True, or with tp=2",
    )
    return made.said(
        f"tp={new.tp} is modelled, as the job ran with whole layers: {carry}, and no rank waits for another; record it "
        "with tp=2 to have them measured"
    )


def _places(along: PassKernels) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the kernels behind which activations are reduced, and those that wait for it, in their order [k].

    There are none where the products of one layer are not told apart: half of the layers reduced would be half told.
    """
    kind, phase, layer = along.kind, along.phase, along.layer
    ahead = np.isin(phase, (FORWARD, RECOMPUTE))
    product = np.flatnonzero(np.isin(kind, (INTO_HEADS, OUT_OF_HEADS, INTO_MLP, OUT_OF_MLP)))
    key = np.stack((kind[product], ahead[product], layer[product]))
    differs = (np.diff(key, axis=1) != 0).any(axis=0)
    last = np.flatnonzero(np.append(differs, True)) if len(product) else product
    reduced = last[np.isin(kind[product[last]], (OUT_OF_HEADS, OUT_OF_MLP))]
    end = product[reduced]
    if len(np.setdiff1d(layer[layer >= 0], layer[end])):
        return along.row[:0], along.row[:0]
    # Of the two products of a backward pass the first is the gradient that is passed on.
    begin = np.where(ahead[end], end, product[np.maximum(reduced - 1, 0)])
    around = _around_layers(phase, layer)
    begin, wait = np.append(begin, around - 1), np.append(end + 1, around)
    inside = (wait < len(along.row)) & (begin >= 0)
    begin, wait = begin[inside], wait[inside]
    order = np.argsort(begin, kind="stable")
    return along.row[begin[order]], along.row[wait[order]]


def _around_layers(phase: NDArray[np.int8], layer: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return where the first layer of a forward pass begins, and the last one of a backward pass [k]."""
    top = int(layer.max(initial=NONE))
    first = (phase == FORWARD) & (layer == 0)
    last = (phase == BACKWARD) & (layer == top)
    # A layer begins anew where work outside of all layers lies before it.
    outside = np.append(True, layer[:-1] < 0)
    return np.flatnonzero((first | last) & outside)
