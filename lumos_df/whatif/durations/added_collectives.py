"""Collectives that a job gains at places of its compute stream, all of one kind, group and size."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import QueryError
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.collective_kinds import COLLECTIVES
from lumos_df.whatif.durations.added_kernels import AddedKernels, degree_of, with_modelled
from lumos_df.whatif.durations.draft_job import DraftJob
from lumos_df.whatif.durations.own_links import OwnLinks
from lumos_df.whatif.durations.pass_kernels import PassKernels, kinds_of, pass_kernels

Places = Callable[[PassKernels], tuple[NDArray[np.int32], NDArray[np.int32]]]
"""Says the rows behind which collectives start, and those that wait for them [k]."""


def with_collectives(
    draft: DraftJob, parts: tuple[tuple[int, Places], ...], what: str, payload: int, lacking: str
) -> tuple[DraftJob, str]:
    """Return the job with collectives, and how many a step they are and what they take, in words.

    Args:
        draft: the job.
        parts: their kinds, places in `schema.COLLECTIVES`, and where they are.
        what: what they carry, one of `added_kernels`'s.
        payload: bytes, as nccl-tests count them.
        lacking: what to say of a rank, `{rank}`, that has no such places.

    Raises:
        QueryError: a rank has none.
    """
    anchor, change, degree = draft.anchor, draft.change, degree_of(what)
    links, size = OwnLinks.of(anchor, change), change.groups[1].size[degree]
    kinds = {rank: kinds_of(anchor.about.ranks[rank]) for rank in set(draft.ranks)}
    made = draft

    def part(kind: int, places: Places) -> DraftJob:
        def added(graph: TraceGraph, source: NDArray[np.int32], rank: int) -> AddedKernels:
            where = places(pass_kernels(anchor.about.ranks[rank], kinds[rank], graph, source))
            if not len(where[0]) and (kind, places) == parts[0]:
                raise QueryError(f"{anchor.about.job}: {lacking.format(rank=graph.rows.rank)}")
            carried = np.full(len(where[0]), payload)
            lasting = links.lasting(kind, degree, carried)
            return AddedKernels.alike(graph, (COLLECTIVES[kind], what), size, (carried, lasting), where)

        return with_modelled(made, added)

    for kind, places in parts:
        made = part(kind, places)
    each = links.lasting(parts[0][0], degree, np.array([payload]))
    a_step = round(made.added(draft) / max(draft.steps, 1))
    words = {COLLECTIVES[kind].replace("_", "-") + "s": None for kind, _ in parts}
    carry = f"{a_step} {' and '.join(words)} of {what} a step take what {each.source}, within {each.error[0]:.0%}"
    return made, carry
