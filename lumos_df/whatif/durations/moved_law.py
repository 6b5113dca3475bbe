"""A law of some transfers before a change and after it: how long they take, and how far off that may be."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from lumos_df.whatif.durations.collective_times import Links
from lumos_df.whatif.durations.link_laws import GroupLinks, LinkLaw, latency_share

KEPT_ERROR: Final = 0.01
"""Threshold, relative error. A transfer that stays as it was measured is so far off. Evidence: a judgement."""
UNSEEN_NETWORK_ERROR: Final = 1.0
"""Threshold, relative error. Transfers across nodes are so far off where no recorded group crossed any.
Evidence: systems of one GPU have 50 to 200 (A100), 200 to 400 (H100) or 400 to 800 Gb/s a GPU (B200) between nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedLaw:
    """A fitted law, and the links that it holds for before and after a change."""

    law: LinkLaw
    group: GroupLinks
    before: Links
    wanted: GroupLinks
    after: Links
    stated: float | None
    """Bytes/s of nccl-tests' busbw that the change states, which nothing surpasses; None where it states none."""
    absolute: bool
    """Whether the links after the change are those asked for, whatever the transfers did before."""
    peak: float | None
    """Bytes/s of nccl-tests' busbw that the links before can carry; None where the GPU is unknown."""
    rewired: bool
    """Whether links or ranks are others."""
    unseen: bool
    """Whether it comes to cross links between nodes that no recorded group crossed, and none are stated."""
    shape_error: float
    """Relative, of the model where it is not measured."""

    def seconds(self, payload: float, grown: float) -> tuple[float, float, float, float, float]:
        """Return what a transfer takes, s: before, after, after at least; and how far off that may be.

        Last come the relative error of the ratio, and the seconds by which a transfer of which nothing tells whether it
        holds waiting changes less, were it as short as the links let it be.

        Args:
            payload: bytes before, as nccl-tests count them.
            grown: bytes after over that.
        """
        before = self.group.seconds(self.before, payload)
        after = self.wanted.seconds(self.after, payload * grown)
        if after == before:
            return before, after, 0.0, KEPT_ERROR, 0.0
        shares = (
            latency_share(self.group, self.before, payload),
            (latency_share(self.wanted, self.after, payload * grown) if self.wanted.size > 1 else 0.0),
        )
        # As measured the whole is known: what latency has more of it bandwidth has less. One that is stated is known.
        moved = 2 * (shares[1] * (1 - shares[0]) if self.stated else shares[1] - shares[0])
        far = 1.0 if self.rewired or not before > 0 < after else min(abs(float(np.log2(after / before))), 1.0)
        network = UNSEEN_NETWORK_ERROR * self.unseen
        parts = (self.law.tilt_error * moved, self.law.spread, self.shape_error * far, network, KEPT_ERROR)
        least = self.wanted.wire_bytes(payload * grown) / self.stated if self.stated and after else 0.0
        shortest = min(self.group.wire_bytes(payload) / self.peak, before) if self.peak else 0.0
        shortest_after = after if self.absolute else after * shortest / before if before else after
        less = abs((after - before) - (shortest_after - shortest))
        return before, after, least, float(np.hypot.reduce(parts)), less
