"""Tokens that tensor-parallel ranks share, gathered where a product needs all of them: Megatron's sequence parallelism.

Forward and backward before what takes them into attention, the MLP or the head, which waits; and, since a rank keeps
its part of them alone, once more for the gradient of those products' weights, while that of their input is computed.
"""

import numpy as np
from numpy.typing import NDArray

from lumos_df.schema.codes import BACKWARD, EMBEDDING
from lumos_df.schema.collective_kinds import ALL_GATHER
from lumos_df.whatif.durations.added_collectives import with_collectives
from lumos_df.whatif.durations.added_kernels import ACTIVATIONS
from lumos_df.whatif.durations.draft_job import DraftJob
from lumos_df.whatif.durations.pass_kernels import PassKernels
from lumos_df.whatif.durations.payloads import activation_bytes
from lumos_df.whatif.durations.token_shares import enters


def with_tokens(draft: DraftJob) -> DraftJob:
    """Return the job with its tokens gathered.

    Raises:
        QueryError: the trace does not tell the size of an activation, or the products of a layer.
    """
    made, carry = with_collectives(
        draft,
        ((ALL_GATHER, _entering), (ALL_GATHER, _again)),
        ACTIVATIONS,
        round(activation_bytes(draft.change)),
        "sp=on cannot be, because the products of a layer are not told apart in rank {rank}; record it with "
        "record_shapes=True and with_modules=True",
    )
    return made.said(
        f"sp=on is modelled: {carry}, and no rank waits for another there; record it so to have them measured"
    )


def _entering(along: PassKernels) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the rows behind which, and before which, tokens are gathered for products or the embedding's gradient."""
    place, entering, _ = enters(along)
    first = place[entering & ~np.append(False, entering[:-1])]
    looked_up = (along.family == EMBEDDING) & (along.phase == BACKWARD)
    waits = np.union1d(first, np.flatnonzero(looked_up & ~np.append(False, looked_up[:-1])))
    return along.before(waits), along.at(waits)


def _again(along: PassKernels) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the same of gradients of weights; of the two products of a backward pass theirs is the second."""
    place, _, leaving = enters(along)
    back = place[leaving & (along.phase[place] == BACKWARD)]
    key = np.stack((along.kind[back], along.layer[back]))
    begins = np.flatnonzero(np.append(True, (np.diff(key, axis=1) != 0).any(axis=0)))[: len(back)]
    turn = np.arange(len(back)) - np.repeat(begins, np.diff(np.append(begins, len(back))))
    second = np.flatnonzero(turn % 2 == 1)
    return along.before(back[second - 1]), along.at(back[second])
