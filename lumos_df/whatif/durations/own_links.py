"""What collectives that no trace has take over the links of a changed job: by its own transfers, where it has any.

A law of one group holds for another whose ranks are joined alike, inside a domain of fast links or across several: its
factors on latency and bandwidth are those of the links. Of several laws that of the same kind of collective is taken,
then that of the same group, then that of most sizes. Where none holds, the network model of the GPU does.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumos_df.schema.collective_kinds import SEND
from lumos_df.whatif.durations import kernel_times, moved_law, transfers
from lumos_df.whatif.durations.collective_times import Links
from lumos_df.whatif.durations.link_laws import GroupLinks, LinkLaw
from lumos_df.whatif.durations.operator_times import PlannedChange
from lumos_df.whatif.job.recorded_job import RecordedJob


@dataclass(frozen=True, slots=True)
class Lasting:
    """How long collectives of one kind and group take [k]."""

    ns: NDArray[np.int64]
    error: NDArray[np.float64]
    """Relative."""
    source: str
    """What says so, for messages."""


@dataclass(frozen=True, slots=True)
class OwnLinks:
    """The links of a changed job."""

    anchor: RecordedJob
    change: PlannedChange
    laws: tuple[tuple[GroupLinks, int, LinkLaw], ...]
    """Each with the group that it is fitted to, and the group's place in `plan_words.DIMENSIONS`."""

    @classmethod
    def of(cls, anchor: RecordedJob, change: PlannedChange) -> "OwnLinks":
        """Fit the laws of a job's transfers; none where its collectives did nothing."""
        if anchor.unmeasured:
            return cls(anchor, change, ())
        _, of_job = transfers.recorded(anchor, change, anchor.job)
        told = np.flatnonzero(of_job.told)
        key = np.stack((of_job.kind, of_job.place, of_job.size, of_job.stride))[:, told]
        groups, number = np.unique(key, axis=1, return_inverse=True)
        library = Links.of(change.measured_on)
        laws = []
        for which, (kind, place, size, stride) in enumerate(groups.T.tolist()):
            group = GroupLinks(kind, size, stride)
            mine = told[number.reshape(-1) == which]
            law = transfers.fitted(of_job, mine, group, library, bounded=anchor.known_hardware)
            if law.sizes:
                laws.append((group, place, law))
        return cls(anchor, change, tuple(laws))

    def lasting(self, kind: int, place: int, payload: NDArray[np.int64]) -> Lasting:
        """Return how long collectives of the changed job take.

        Args:
            kind: place in `schema.COLLECTIVES`.
            place: of the group, in `plan_words.DIMENSIONS`.
            payload: bytes, as nccl-tests count them [k].
        """
        groups = self.change.groups[1]
        wanted = GroupLinks(kind, 2 if kind == SEND else groups.size[place], groups.stride[place])
        links, error, source = self.change.links[1], kernel_times.MODELLED_ERROR, "the network model says"
        library = Links.of(self.change.measured_on)
        crosses = library.crosses(wanted.size, wanted.stride)
        alike = [each for each in self.laws if library.crosses(each[0].size, each[0].stride) == crosses]
        if alike:
            group, _, law = max(alike, key=lambda each: (each[0].kind == kind, each[1] == place, each[2].sizes))
            links = transfers.links_after(self.anchor, self.change, law, group, wanted)
            if group.kind == kind:
                error = float(np.hypot(law.spread, transfers.shape_error(self.anchor)))
            source = "the job's own transfers say"
        elif transfers.unseen_network(self.change, wanted):
            error = float(np.hypot(error, moved_law.UNSEEN_NETWORK_ERROR))
        alike_bytes, inverse = np.unique(payload, return_inverse=True)
        seconds = np.array([*(wanted.seconds(links, size) for size in alike_bytes.tolist()), 0.0])
        ns = np.round(seconds * 1e9).astype(np.int64)[inverse.reshape(-1)]
        return Lasting(ns, np.full(len(payload), error), source)
