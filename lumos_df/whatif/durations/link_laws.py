"""What a group's own transfers say of its links: the network model with the latency and bandwidth that fit them.

The model has the shape of a collective: its steps, its bytes on the wire, its protocols. Two factors, on every latency
and on every bandwidth, make it a law of one kind of collective in one group. One size tells their product alone; then
the ratio of latency to bandwidth stays the model's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.schema.collective_kinds import COLLECTIVES, ROUNDS
from lumos_df.whatif.durations import kernel_times
from lumos_df.whatif.durations.collective_times import Links

_HUGE: Final = 1e15
"""Bytes of a payload whose latency does not count."""
_NOISE: Final = 0.05
"""Threshold, relative error. So closely a law is made to follow the transfers of one size. Evidence: a judgement, the
spread of like transfers."""
_TILT_SPREAD: Final = 1.0
"""Threshold, logarithm. Before anything is measured a law's latency to its bandwidth is so far from the model's.
Evidence: a judgement; links of another kind than the library's, PCIe or a network, are a factor of e apart from it."""
_STEEPEST: Final = 4.0
"""Of that logarithm, at most."""
_TRIES: Final = 33
_REFINEMENTS: Final = 20


@dataclass(frozen=True, slots=True)
class GroupLinks:
    """The links of one kind of collective in one group."""

    kind: int
    """Place in `schema.COLLECTIVES` of the kind whose cost function holds."""
    size: int
    """Ranks."""
    stride: int
    """Distance between neighbouring ranks."""

    def wire_bytes(self, payload: float) -> float:
        """Return what each rank sends, by nccl-tests' factor: over the bandwidth that is the least a transfer takes."""
        rounds = ROUNDS[COLLECTIVES[self.kind]]
        return payload * (rounds * (self.size - 1) / self.size if rounds else 1.0)

    def seconds(self, links: Links, payload: float) -> float:
        """Return the time of a transfer over some links."""
        return links.seconds(self.kind, payload, self.size, self.stride) if self.size > 1 else 0.0

    def bandwidth(self, links: Links) -> float:
        """Return what the largest transfers reach over some links, bytes/s, as nccl-tests count busbw."""
        return self.wire_bytes(_HUGE) / self.seconds(links, _HUGE)


@dataclass(frozen=True, slots=True)
class LinkLaw:
    """How transfers do against the network model."""

    latency: float = 1.0
    """Every latency over the model's."""
    bandwidth: float = 1.0
    """Every bandwidth over the model's."""
    spread: float = 0.0
    """Relative: how far the sizes lie from the law."""
    tilt_error: float = _TILT_SPREAD
    """Of the logarithm of latency to bandwidth."""
    sizes: int = 0
    """From how many it is fitted; 0: it is the model."""

    def links(self, links: Links, group: GroupLinks) -> Links:
        """Return a machine's links as this law has them. What a group did not cross, it tells nothing of."""
        return links.scaled(self.latency, self.bandwidth, across=links.crosses(group.size, group.stride))


def fit(
    group: GroupLinks,
    links: Links,
    payload: NDArray[np.float64],
    seconds: NDArray[np.float64],
    *,
    may_wait: bool,
    bounded: bool,
) -> LinkLaw:
    """Return the law of some transfers.

    Args:
        group: what ran.
        links: of the machine, as the model has them.
        payload: bytes, as nccl-tests count them, each size once [k].
        seconds: their transfers [k].
        may_wait: whether they may hold waiting: then the law lies below all of them, and its latency is at most the
            model's for that bandwidth, for what is added to each is the waiting.
        bounded: whether the links' peak is known, which no law surpasses.
    """
    measured = np.log(seconds)

    def distances(tilt: float) -> tuple[float, NDArray[np.float64]]:
        apart = measured - _modelled(group, links, payload, tilt)
        scale = float(apart.min() if may_wait else np.median(apart))
        return scale, np.abs(apart - scale)

    def cost(tilt: float) -> float:
        return float(distances(tilt)[1].sum() / _NOISE + 0.5 * (tilt / _TILT_SPREAD) ** 2)

    tilt = _least(cost, -_STEEPEST, 0.0 if may_wait else _STEEPEST) if len(payload) > 1 else 0.0
    scale, distance = distances(tilt)
    bandwidth = float(np.exp(tilt - scale))
    if bounded:
        # What the model says is measured: where that is above the bandwidth stated, it is the peak.
        bandwidth = min(bandwidth, max(links.peak(group.size, group.stride) / group.bandwidth(links), 1.0))
    slope = _slopes(group, links, payload, tilt)
    spread = float(np.hypot(distance.mean(), kernel_times.MODELLED_ERROR if may_wait else 0.0))
    known = float(((slope - slope.mean()) ** 2).sum()) / _NOISE**2 + _TILT_SPREAD**-2
    return LinkLaw(float(np.exp(tilt + scale)), bandwidth, spread, known**-0.5, len(payload))


def latency_share(group: GroupLinks, links: Links, payload: float) -> float:
    """Return which part of a transfer grows with the latencies of its links."""
    whole = group.seconds(links, payload)
    return (group.seconds(links.scaled(1.0, 1e3, across=True), payload) / whole) if whole > 0 else 0.0


def _modelled(group: GroupLinks, links: Links, payload: NDArray[np.float64], tilt: float) -> NDArray[np.float64]:
    """Return the logarithm of the model's seconds, its latency `exp(2 tilt)` as large against its bandwidth [k]."""
    tilted = LinkLaw(float(np.exp(tilt)), float(np.exp(tilt))).links(links, group)
    return np.log([group.seconds(tilted, size) for size in payload.tolist()])


def _slopes(group: GroupLinks, links: Links, payload: NDArray[np.float64], tilt: float) -> NDArray[np.float64]:
    """Return how fast each grows with the tilt: from -1, all of it bandwidth, to 1, all of it latency [k]."""
    width = 0.05
    return (_modelled(group, links, payload, tilt + width) - _modelled(group, links, payload, tilt - width)) / (
        2 * width
    )


def _least(cost: Callable[[float], float], low: float, high: float) -> float:
    """Return where a cost is least: the best of some places, and then of those around it."""
    places = np.linspace(low, high, _TRIES)
    best = int(np.argmin([cost(place) for place in places.tolist()]))
    low, high = float(places[max(best - 1, 0)]), float(places[min(best + 1, _TRIES - 1)])
    for _ in range(_REFINEMENTS):
        third = (high - low) / 3
        low, high = (low, high - third) if cost(low + third) <= cost(high - third) else (low + third, high)
    return (low + high) / 2
