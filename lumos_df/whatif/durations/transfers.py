"""What the collectives of a recorded job take after a change: what they transfer moves along the law of their links.

What a law says is absolute: other links replace its bandwidth and latency, another group its steps. How a transfer did
against its own law stays in proportion; where it may hold a wait for ranks that nobody recorded, what lies above the
law stays as it is, so that no wait is multiplied.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import collective_waits
from lumos_df.graph.collective_waits import CollectiveWaits
from lumos_df.graph.job import Job
from lumos_df.graph.name_mask import name_mask
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.stalls import longest_usual
from lumos_df.schema.codes import NONE
from lumos_df.schema.collective_kinds import ALL_REDUCE, GROWS, MODELLED_AS, SEND
from lumos_df.schema.plan_words import DP
from lumos_df.whatif.durations import kernel_times, moved_law
from lumos_df.whatif.durations.collective_times import Links
from lumos_df.whatif.durations.link_laws import GroupLinks, LinkLaw, fit
from lumos_df.whatif.durations.moved_law import MovedLaw
from lumos_df.whatif.durations.operator_times import PlannedChange, collectives
from lumos_df.whatif.durations.payloads import payload_ratio, routed_bytes
from lumos_df.whatif.durations.replaced_collectives import replacement
from lumos_df.whatif.job.recorded_job import RecordedJob

_SHAPE_ERROR: Final = 0.12
"""Threshold, relative error. One among other ranks, over other links or of twice the bytes is so far off by the model
of the GPU that it ran on. Evidence: 8 of 10 of the figures that its cost functions are fitted to are nearer."""
_STAND_IN_ERROR: Final = 0.25
"""Threshold, relative error. The same by the model of another GPU. Evidence: 8 of 10 of the others' figures are
nearer."""
_TRIED_BYTES: Final = np.exp2(np.arange(8, 36))
"""Payloads among which one that the trace does not tell is looked for by its time."""


@dataclass(frozen=True, slots=True)
class Retimed:
    """The collectives of one rank after a change [k]."""

    row: NDArray[np.int32]
    transfer: NDArray[np.int64]
    """ns, NONE where nothing tells."""
    delta: NDArray[np.int64]
    """ns that they last longer."""
    error: NDArray[np.float64]
    """Relative, of the transfer."""
    kind: NDArray[np.int64]
    """Place in `COLLECTIVES` of what each becomes, NONE where it stays what it is."""
    gone: NDArray[np.bool_]
    """Whether it runs no more."""
    unscaled: NDArray[np.bool_]
    """Whether it should move and too little is known of it: it lasts as long as recorded."""


@dataclass(frozen=True, slots=True)
class Transfers:
    """The collectives of a job, those of its ranks one behind the other [k]."""

    kind: NDArray[np.int64]
    """Place in `COLLECTIVES` of the kind whose cost function holds; NONE: none does."""
    place: NDArray[np.int64]
    """Dimension of the plan, in `plan_words.DIMENSIONS`."""
    size: NDArray[np.int64]
    """Ranks of the group."""
    stride: NDArray[np.int64]
    """Distance between neighbouring ranks of it."""
    wanted: NDArray[np.int64]
    """Ranks of it after the change."""
    become: NDArray[np.int64]
    """Place in `COLLECTIVES` of what it becomes, NONE where it stays what it is."""
    gone: NDArray[np.bool_]
    """Whether it runs no more."""
    payload: NDArray[np.float64]
    """Bytes, as nccl-tests count them; nan where the trace does not tell."""
    stated: NDArray[np.bool_]
    """Whether the trace states the payload; else the shapes of an operator may tell it."""
    grown: NDArray[np.float64]
    """Payload after the change over that."""
    seconds: NDArray[np.float64]
    """What the transfer takes; nan where nothing tells."""
    whole: NDArray[np.bool_]
    """Whether it holds no waiting."""
    unlike: NDArray[np.bool_]
    """Whether nothing tells its bytes, and it takes far longer than others of its kind: its length tells none."""

    @property
    def nameless(self) -> NDArray[np.bool_]:
        """Return which nothing tells the kind of [k]."""
        nameless: NDArray[np.bool_] = self.kind == NONE
        return nameless

    @property
    def unseen(self) -> NDArray[np.bool_]:
        """Return of which the trace tells neither the bytes nor how long the transfer takes [k]."""
        return ~self.nameless & np.isnan(self.seconds)

    @property
    def untold(self) -> NDArray[np.bool_]:
        """Return of which too little is known to move them [k]."""
        untold: NDArray[np.bool_] = self.nameless | self.unseen | self.unlike
        return untold

    def moved(self, change: PlannedChange) -> NDArray[np.bool_]:
        """Return which a change should move [k]."""
        moved: NDArray[np.bool_] = (self.grown != 1) | (self.wanted != self.size) | change.other_links
        return moved

    @property
    def told(self) -> NDArray[np.bool_]:
        """Return which have a cost function and a time that tells of their bytes [k]."""
        known: NDArray[np.bool_] = (self.kind != NONE) & (self.size > 1) & (self.seconds > 0) & ~self.unlike
        return known


def retimed(anchor: RecordedJob, change: PlannedChange, job: Job) -> tuple[list[Retimed], list[str], str | None]:
    """Return the collectives of each rank after a change, and what to say of those that it should have moved.

    Last comes the GPU by whose model some of them move, where that is not theirs and none of their group is measured.

    Args:
        anchor: the job as recorded.
        change: the change.
        job: the job before it, with what switches made of it.
    """
    rows, transfers = recorded(anchor, change, job)
    lasts = np.concatenate([graph.own[row] for graph, row in zip(job.graphs, rows, strict=True)])
    (before, after, least, error, less, unseen), modelled = _by_laws(anchor, change, transfers)
    seconds = transfers.seconds
    kept = transfers.whole | (seconds <= before)
    proportion = np.divide(after, before, out=np.ones_like(after), where=before > 0)
    new = np.maximum(np.where(kept | (after == 0), seconds * proportion, seconds - before + after), least)
    delta = np.round(np.nan_to_num(new - seconds) * 1e9).astype(np.int64)
    transfer = np.where(np.isnan(new), NONE, np.round(np.nan_to_num(new) * 1e9)).astype(np.int64)
    ends = np.cumsum([len(row) for row in rows])[:-1]
    untold = transfers.moved(change) & transfers.untold
    waited = np.divide(less, new, out=np.zeros_like(less), where=~transfers.whole & (new > 0))
    error = np.where(delta != 0, np.hypot(error, waited), moved_law.KEPT_ERROR)
    if untold.any():
        error[untold] = _untold_error(anchor, change, transfers, lasts)[untold]
    all_ranks = (transfer, delta, error, transfers.become, transfers.gone, untold)
    columns = (np.split(column, ends) for column in all_ranks)
    each = [Retimed(row, *of_rank) for row, *of_rank in zip(rows, *columns, strict=True)]
    stand_in = change.measured_on.hardware.name if modelled.any() and not anchor.known_hardware else None
    return each, [*_untold(change, transfers, lasts), *_unseen(change, unseen > 0)], stand_in


def _untold_error(
    anchor: RecordedJob, change: PlannedChange, transfers: Transfers, lasts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the relative error of transfers that stay because too little is known: as if all they last was transfer.

    What kind they are matters little: it is the links' ratio that moves them. Below 0 where they can only be shorter.
    """
    untold = transfers.untold
    known = replace(
        transfers,
        kind=np.where(transfers.nameless, ALL_REDUCE, transfers.kind),
        payload=np.where(untold, np.nan, transfers.payload),
        seconds=np.where(untold, 1e-9 * lasts, transfers.seconds),
        unlike=np.zeros_like(untold),
    )
    (before, after, *_), _ = _by_laws(anchor, change, known)
    far = np.divide(after, before, out=np.ones_like(after), where=(before > 0) & (after > 0))
    error: NDArray[np.float64] = np.maximum(np.maximum(far, 1 / far) - 1, moved_law.KEPT_ERROR)
    return np.where(far < 1, -error, error)


def recorded(anchor: RecordedJob, change: PlannedChange, job: Job) -> tuple[list[NDArray[np.int32]], Transfers]:
    """Return the collectives of each rank, and what is known of all of them; arguments as for `retimed`."""
    of_job = collective_waits.waits([graph.rows for graph in job.graphs], job.instances)
    rows, parts = [], []
    for rank in range(len(job.graphs)):
        row, degree = collectives(anchor, rank)
        rows.append(row)
        parts.append(_transfers(anchor, change, job, rank, row, degree, of_job))
    return rows, Transfers(*(np.concatenate([getattr(part, name) for part in parts]) for name in Transfers.__slots__))


def _transfers(
    anchor: RecordedJob,
    change: PlannedChange,
    job: Job,
    rank: int,
    row: NDArray[np.int32],
    degree: NDArray[np.int8],
    of_job: CollectiveWaits,
) -> Transfers:
    rows, own = job.graphs[rank].rows, job.graphs[rank].own
    old, new = change.groups
    number = rows.collective[row]
    kind = np.array([*(MODELLED_AS.get(word, NONE) for word in rows.collectives), NONE], np.int64)[number]
    gathers = name_mask(rows.collectives, lambda word: GROWS.get(word, 0) > 0)[number]
    place = np.where(degree != NONE, degree, DP).astype(np.int64)
    before, after = (np.array(groups.size, np.int64)[place] for groups in (old, new))
    recorded = rows.group_size[row].astype(np.int64)
    # Where nothing tells of a group it is that of all ranks.
    size = np.where(recorded > 0, recorded, np.where(before > 1, before, max(int(rows.world_size), 1)))
    stride = np.array(old.stride, np.int64)[place]
    if rows.world_size > 0:
        # Ranks of a group are no further apart than the job has room for.
        stride = np.minimum(stride, np.maximum(rows.world_size // size, 1))
    # Groups that the trace names may be others than the plan's: they grow as the plan's do.
    wanted = np.maximum(np.round(size * after / before), 1).astype(np.int64)
    size, wanted = (np.where(kind == SEND, 2, ranks) for ranks in (size, wanted))
    known = rows.in_bytes[row] > 0
    carried = routed_bytes(anchor, change, rank, row, degree)
    payload = np.where(known, rows.in_bytes[row] * np.where(gathers, size, 1), carried)
    at = of_job.bounds[rank] + np.searchsorted(of_job.row[of_job.of_trace(rank)], row)
    told = of_job.transfer[at] != NONE
    # A kernel that nothing matches may hold waiting, but its bytes tell how much at most.
    alone = ~told & ~np.isnan(carried)
    # What a switch has changed is a transfer of that much less.
    lasted = np.maximum(rows.dur[row], 1)
    share = np.where(of_job.members[at] > 1, 1.0, own[row] / lasted)
    seconds = np.where(told, of_job.transfer[at] * share * 1e-9, np.where(alone, own[row] * 1e-9, np.nan))
    grown = payload_ratio(anchor, change, rank, row, degree)
    # A kernel that was matched with no other one may have waited, too.
    whole = of_job.whole[at] & (of_job.members[at] > 1) & ~alone
    other = replacement(anchor, change, rank, row, degree)
    become, gone = other.kind, other.gone
    like = packed(kind, place, size, stride)
    usual = longest_usual(like, np.round(np.nan_to_num(seconds) * 1e9).astype(np.int64))
    unlike = np.isnan(payload) & (usual != NONE)
    return Transfers(kind, place, size, stride, wanted, become, gone, payload, known, grown, seconds, whole, unlike)


def _by_laws(
    anchor: RecordedJob, change: PlannedChange, transfers: Transfers
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return what the law of each collective says, and which of them the model moves [k].

    The first are what `MovedLaw.seconds` returns, and whether the law is `unseen` [6, k].
    """
    answers, modelled = np.zeros((6, len(transfers.kind))), np.zeros(len(transfers.kind), np.bool_)
    told = transfers.told
    key = np.stack(
        (transfers.kind, transfers.place, transfers.size, transfers.stride, transfers.wanted, transfers.become)
    )
    _, number = np.unique(key, axis=1, return_inverse=True)
    number = number.reshape(-1)
    for which in np.unique(number[told]).tolist():
        mine = np.flatnonzero(told & (number == which))
        law = _law(anchor, change, transfers, _measured(transfers, mine), mine[0])
        payload = transfers.payload[mine]
        untold = np.isnan(payload)
        if untold.any():
            tried = [law.group.seconds(law.before, size) for size in _TRIED_BYTES.tolist()]
            payload = np.where(untold, np.interp(transfers.seconds[mine], tried, _TRIED_BYTES), payload)
        alike, inverse = np.unique(np.stack((payload, transfers.grown[mine])), axis=1, return_inverse=True)
        said = np.array([law.seconds(size, grown) for size, grown in alike.T.tolist()]).T[:, inverse.reshape(-1)]
        answers[:5, mine], answers[5, mine] = said, law.unseen
        modelled[mine] = (law.law.sizes == 0) & (said[0] != said[1])
        guessed = mine[~transfers.stated[mine]]
        answers[3, guessed] = np.hypot(answers[3, guessed], kernel_times.MODELLED_ERROR)
    return answers, modelled


def _measured(transfers: Transfers, mine: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the transfers that tell the law of some: their own, else those of most bytes told over the same links."""
    if not np.isnan(transfers.payload[mine]).all():
        return mine
    first = mine[0]
    beside = transfers.told & (transfers.size == transfers.size[first]) & (transfers.stride == transfers.stride[first])
    beside &= ~np.isnan(transfers.payload)
    if not beside.any():
        return mine
    kind = np.bincount(transfers.kind[beside]).argmax()
    return np.flatnonzero(beside & (transfers.kind == kind))


def _law(
    anchor: RecordedJob, change: PlannedChange, transfers: Transfers, mine: NDArray[np.int64], first: np.int64
) -> MovedLaw:
    """Return the law of the collectives of one kind in one group: of `first`, as `mine` tell it."""
    place = int(transfers.place[first])
    old, new = change.groups
    group = GroupLinks(int(transfers.kind[first]), int(transfers.size[first]), int(transfers.stride[first]))
    apart = max(1, round(group.stride * new.stride[place] / old.stride[place]))
    kind = int(transfers.become[first])
    wanted = GroupLinks(group.kind if kind == NONE else kind, int(transfers.wanted[first]), apart)
    library = Links.of(change.measured_on)
    told_by = replace(group, kind=int(transfers.kind[mine[0]]))
    law = fitted(transfers, mine, told_by, library, bounded=anchor.known_hardware)
    before = law.links(library, group)
    after, stated = links_after(anchor, change, law, group, wanted), change.stated_links
    rewired = change.other_links or wanted != group
    peak = library.peak(group.size, group.stride) if anchor.known_hardware else None
    return MovedLaw(
        law=law,
        group=group,
        before=before,
        wanted=wanted,
        after=after,
        stated=stated and stated[0],
        absolute=bool(change.settings.network),
        peak=peak,
        rewired=rewired,
        unseen=unseen_network(change, wanted) and not library.crosses(group.size, group.stride),
        shape_error=shape_error(anchor),
    )


def unseen_network(change: PlannedChange, wanted: GroupLinks) -> bool:
    """Return whether a group crosses nodes over links that are not stated."""
    return not change.settings.network and change.links[1].crosses(wanted.size, wanted.stride)


def shape_error(anchor: RecordedJob) -> float:
    """Return the relative error of the network model where no transfer is like it."""
    return _SHAPE_ERROR if anchor.known_hardware else _STAND_IN_ERROR


def links_after(
    anchor: RecordedJob, change: PlannedChange, law: LinkLaw, group: GroupLinks, wanted: GroupLinks
) -> Links:
    """Return the links that a group has after a change.

    Args:
        anchor: the job.
        change: the change.
        law: how transfers do, as fitted.
        group: the group that it is fitted to.
        wanted: the group after the change.
    """
    before, stated = law.links(Links.of(change.measured_on), group), change.stated_links
    if stated is not None and wanted.size > 1:
        # The largest transfers reach the bandwidth that is stated, and none surpasses it.
        after = before.all_of(*stated)
        return before.all_of(stated[0] ** 2 / wanted.bandwidth(after), stated[1])
    if change.settings.network:
        return change.links[1]
    if change.other_links:
        # How a job does over links that the library does not know tells nothing of those that it does.
        return law.links(change.links[1], group) if anchor.known_hardware else change.links[1]
    return before


def fitted(
    transfers: Transfers, mine: NDArray[np.int64], group: GroupLinks, library: Links, *, bounded: bool
) -> LinkLaw:
    """Return the law of transfers whose bytes are told: of each size the median, of those that may wait the least."""
    known = mine[~np.isnan(transfers.payload[mine])]
    if transfers.whole[known].any():
        known = known[transfers.whole[known]]
    if not len(known):
        return LinkLaw()
    may_wait = not bool(transfers.whole[known[0]])
    payload, inverse = np.unique(transfers.payload[known], return_inverse=True)
    ordered = np.lexsort((transfers.seconds[known], inverse.reshape(-1)))
    counts = np.bincount(inverse.reshape(-1))
    starts = np.cumsum(counts) - counts
    taken = starts if may_wait else starts + counts // 2
    return fit(group, library, payload, transfers.seconds[known[ordered[taken]]], may_wait=may_wait, bounded=bounded)


def _unseen(change: PlannedChange, unseen: NDArray[np.bool_]) -> list[str]:
    """Return what to say of groups that come to cross nodes, which no recorded group did."""
    if not unseen.any():
        return []
    gbps, factor = 8e-9 * change.links[1].out_bandwidth, 1 + moved_law.UNSEEN_NETWORK_ERROR
    said = (
        "groups come to cross nodes, and the trace shows nothing of the links between: taken for "
        f"{gbps:.0f} Gb/s a GPU, as of {change.runs_on.hardware.name}, within a factor of {factor:.0f}; "
        "tell them with --set network=BYTES/S or a hardware"
    )
    return [said]


def _untold(change: PlannedChange, transfers: Transfers, lasts: NDArray[np.int64]) -> list[str]:
    """Return what to say of collectives that the change should have moved, and of which too little is known."""
    moved = transfers.moved(change)
    total = max(float(lasts.sum()), 1.0)
    nameless, unseen = transfers.nameless, transfers.unseen
    unlike = ~nameless & ~unseen & transfers.unlike
    guessed = ~nameless & ~unseen & ~unlike & np.isnan(transfers.payload)
    shaped = ~nameless & ~unseen & ~unlike & ~guessed & ~transfers.stated
    said = {
        "could not be rescaled: nothing tells what kind of collective it is": nameless,
        "could not be rescaled: the trace tells neither its bytes nor what it did on all ranks of its group": unseen,
        "could not be rescaled: the trace does not tell its bytes, and it takes far longer than others like it": unlike,
        "is rescaled by the shapes of its operators: the trace does not tell its bytes": shaped,
        "is rescaled by its length alone: the trace does not tell its bytes": guessed,
    }
    return [
        f"{share:.0%} of the communication's time {text}"
        for text, rows in said.items()
        if (share := float(lasts[moved & rows].sum()) / total) > 0
    ]
