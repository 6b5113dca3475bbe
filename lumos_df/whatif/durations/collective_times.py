"""What joins ranks: their links, their groups, and what the network model says of a collective over them."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.model.kernels import network
from lumos_df.model.kernels.placement import members_per_domain
from lumos_df.whatif.job.recorded_gpu import Machine
from lumos_df.whatif.job.settings import Sizes

_STARTS: Final = [0, 3, 6, 10], [0, 3]
"""Times before the first step, among the parameters inside a domain and those between domains."""
_STEPS: Final = [1, 4, 7], [1, 2]
"""Times of a step."""


@dataclass(frozen=True, slots=True)
class Links:
    """What joins ranks: a GPU's links, their parameters, and how many GPUs are near."""

    gpus: int
    up_bandwidth: float
    out_bandwidth: float
    up: NDArray[np.float64]
    out: NDArray[np.float64]

    @classmethod
    def of(cls, machine: Machine) -> "Links":
        """Return a machine's links."""
        row = machine.row
        return cls(
            int(row["scale_up_gpus"]),
            float(row["scale_up_bandwidth"]),
            float(row["scale_out_bandwidth"]),
            np.ascontiguousarray(row["scale_up"]),
            np.ascontiguousarray(row["scale_out"]),
        )

    def all_of(self, bandwidth: float, latency: float) -> "Links":
        """Return links of one bandwidth, bytes/s, and of a latency a step, s; nan: as it was.

        What software takes to start a collective stays.
        """
        up, out = self.up.copy(), self.out.copy()
        if not np.isnan(latency):
            up[:, _STEPS[0]], out[_STEPS[1]] = latency, latency
        return Links(self.gpus, bandwidth, bandwidth, up, out)

    def scaled(self, latency: float, bandwidth: float, *, across: bool) -> "Links":
        """Return links of other latencies and bandwidths, as factors; `across`: those between domains, too."""
        up, out = self.up.copy(), self.out.copy()
        up[:, _STARTS[0] + _STEPS[0]] *= latency
        out_bandwidth = self.out_bandwidth
        if across:
            out[_STARTS[1] + _STEPS[1]] *= latency
            out_bandwidth *= bandwidth
        return Links(self.gpus, self.up_bandwidth * bandwidth, out_bandwidth, up, out)

    def crosses(self, size: int, stride: int) -> bool:
        """Return whether a group has ranks in several domains."""
        return int(members_per_domain(size, stride, self.gpus)) < size

    def peak(self, size: int, stride: int) -> float:
        """Return what links can carry of a group's transfers, bytes/s of nccl-tests' busbw."""
        near = int(members_per_domain(size, stride, self.gpus))
        return self.up_bandwidth if near >= size else min(self.up_bandwidth, near * self.out_bandwidth)

    def seconds(self, kind: int, payload: float, size: int, stride: int) -> float:
        """Return the time of a collective of `size` ranks that are `stride` apart; `payload` as nccl-tests count it."""
        near = int(members_per_domain(size, stride, self.gpus))
        return float(
            network.collective_seconds(
                kind, payload, size, near, self.up_bandwidth, self.out_bandwidth, self.up, self.out
            )
        )


@dataclass(frozen=True, slots=True)
class Groups:
    """Size and stride of the ranks' groups, by `plan_words.DIMENSIONS`; dp's has all ranks with its gradients."""

    size: tuple[int, ...]
    stride: tuple[int, ...]

    @classmethod
    def of(cls, sizes: Sizes) -> "Groups":
        """Return the groups of a job whose ranks are numbered tp first, then cp, dp and pp, as Megatron does."""
        tp, replicas, pp = sizes.tp or 1, sizes.replicas, sizes.pp or 1
        return cls((tp, sizes.cp, sizes.ep or 1, replicas, 2 if pp > 1 else 1), (1, tp, tp, tp, tp * replicas))
