"""What a measured collective takes in another group, over other links, or with other bytes.

The measured transfer anchors, the network model scales: time of the new collective over that of the old one.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.model.kernels import network
from lumos_df.model.kernels.placement import members_per_domain
from lumos_df.schema.codes import NONE
from lumos_df.schema.collective_kinds import GROWS, MODELLED_AS
from lumos_df.schema.plan_words import DP
from lumos_df.structure.labelled_rows import Trace
from lumos_df.whatif.job.recorded_gpu import Machine
from lumos_df.whatif.job.settings import Sizes

_UNKNOWN_BYTES: Final = tuple(float(1 << power) for power in range(8, 36))
"""Sizes that are tried where the trace does not say how much was sent."""


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
        """Return links of one bandwidth, bytes/s, and of a latency a step, s; nan: as it was."""
        up, out = self.up.copy(), self.out.copy()
        if not np.isnan(latency):
            up[:, [1, 4, 7]] = latency
            out[[1, 2]] = latency
        return Links(self.gpus, bandwidth, bandwidth, up, out)

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
    """Size and stride of the ranks' groups, by `plan_words.DIMENSIONS`; no trace tells of context parallelism."""

    size: tuple[int, ...]
    stride: tuple[int, ...]

    @classmethod
    def of(cls, sizes: Sizes, experts: int | None) -> "Groups":
        """Return the groups of a job whose ranks are numbered tp first, then dp, then pp, as Megatron does."""
        tp, dp, pp = sizes.tp or 1, sizes.dp or 1, sizes.pp or 1
        return cls((tp, 1, experts or 1, dp, 2 if pp > 1 else 1), (1, tp, tp, tp, tp * dp))


def retimed(
    trace: Trace,
    row: NDArray[np.int32],
    degree: NDArray[np.int8],
    shortest: NDArray[np.int64],
    old: tuple[Groups, Links],
    new: tuple[Groups, Links],
    bytes_ratio: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the new transfer of each collective over the old one [k].

    Args:
        trace: the trace.
        row: collectives [k].
        degree: place in `schema.plan_words.DIMENSIONS`, NONE where unknown: taken for a group of all ranks over dp [k].
        shortest: ns of the transfer, which tells the bytes where the trace does not [k].
        old: groups and links as recorded.
        new: those of the changed job.
        bytes_ratio: new payload over the old one [k].
    """
    rows = trace.rows
    columns = (rows.collective[row], rows.in_bytes[row], rows.group_size[row], degree, bytes_ratio)
    table = np.stack([np.asarray(column, np.float64) for column in columns])
    unknown = rows.in_bytes[row] == rows.null
    table = np.vstack((table, np.where(unknown, shortest, 0)))
    _, first, inverse = np.unique(table, axis=1, return_index=True, return_inverse=True)
    ratio = np.ones(len(first))
    for number, at in enumerate(first.tolist()):
        word = rows.collectives[rows.collective[row[at]]]
        kind = MODELLED_AS.get(word)
        if kind is None:
            continue
        place = int(degree[at]) if degree[at] != NONE else DP
        recorded = int(rows.group_size[row[at]])
        size = recorded if recorded > 0 else old[0].size[place]
        # Groups that the trace names may be others than the plan's: they grow as the plan's do.
        wanted = max(1, round(size * new[0].size[place] / old[0].size[place]))
        if size <= 1:
            continue
        seconds = float(shortest[at]) * 1e-9
        payload = float(rows.in_bytes[row[at]])
        if unknown[at]:
            tried = [old[1].seconds(kind, each, size, old[0].stride[place]) for each in _UNKNOWN_BYTES]
            payload = float(np.interp(seconds, tried, _UNKNOWN_BYTES))
        elif GROWS[word] > 0:
            payload *= size
        before = old[1].seconds(kind, payload, size, old[0].stride[place])
        after = new[1].seconds(kind, payload * bytes_ratio[at], wanted, new[0].stride[place]) if wanted > 1 else 0.0
        ratio[number] = after / before if before > 0 else 1.0
    return ratio[inverse.reshape(-1)] if len(row) else np.empty(0)
