"""A sequence that several ranks share: each asks all of its keys, which those of the group give to one another.

Keys and values are gathered before attention's forward pass and before its backward pass, which scatters their
gradients. Attention waits. A ring, which exchanges them in parts behind attention's own work, takes at most as long.
"""

import numpy as np
from numpy.typing import NDArray

from lumos_df.schema.codes import ATTENTION, BACKWARD
from lumos_df.schema.collective_kinds import ALL_GATHER, REDUCE_SCATTER
from lumos_df.whatif.durations.added_collectives import with_collectives
from lumos_df.whatif.durations.added_kernels import CONTEXT
from lumos_df.whatif.durations.draft_job import DraftJob
from lumos_df.whatif.durations.pass_kernels import PassKernels
from lumos_df.whatif.job.nearest_setting import refusal, telling


def with_context(draft: DraftJob) -> DraftJob:
    """Return the job with its keys and values exchanged.

    Raises:
        QueryError: the trace does not tell their size, or attention is no kernel of its own.
    """
    anchor, change = draft.anchor, draft.change
    new = change.new
    keys = new.kv_heads or new.heads
    if not (new.seq and new.micro_batch and keys and new.head_dim):
        sizes = {"sequence": new.seq, "micro_batch": new.micro_batch, "kv_heads": keys, "head_dim": new.head_dim}
        raise refusal(
            anchor.about.job,
            ["cp"],
            "the trace does not tell how large keys and values are",
            shapes=anchor.records_shapes,
            known=telling(sizes),
        )
    of_token = 2 * max(keys // (new.tp or 1), 1) * new.head_dim * change.runs_on.element_bytes
    payload = round(new.seq * new.micro_batch * of_token)
    made, carry = with_collectives(
        draft,
        ((ALL_GATHER, _asking), (REDUCE_SCATTER, _answered)),
        CONTEXT,
        payload,
        "cp cannot change, because attention is no kernel of its own in rank {rank}, and only such a one is run over "
        "the ranks of a sequence; record it with fused attention; nearest is batch_scale=1/N, a rank's share of the "
        "work without its collectives",
    )
    return made.said(
        f"cp={new.cp} is modelled: {carry}, and attention waits for them; a ring hides them behind parts of its work"
    )


def _asking(along: PassKernels) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the row before each attention, forward or backward, and its first."""
    begins, _ = _runs(along)
    return along.before(begins), along.at(begins)


def _answered(along: PassKernels) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the last row of each attention's backward pass, and what follows it."""
    begins, ends = _runs(along)
    back = ends[along.phase[begins] == BACKWARD]
    return along.at(back), along.at(back + 1)


def _runs(along: PassKernels) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where the kernels of each attention begin, and where they end."""
    attends = np.flatnonzero(along.family == ATTENTION)
    key = np.stack((along.layer[attends], along.phase[attends]))
    changes = np.append(True, (np.diff(key, axis=1) != 0).any(axis=0))[: len(attends)]
    # Between the kernels of one there is at most a clear of what they add to.
    begins = np.flatnonzero(changes)
    ends = np.append(begins[1:], len(attends))[: len(begins)] - 1
    return attends[begins], attends[ends]
