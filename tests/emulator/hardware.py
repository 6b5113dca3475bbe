"""The emulated machine: one node of A100-like GPUs, and how long its work takes.

Peak rates are the data sheet's; efficiencies and host costs are round numbers of the usual size, not measurements.
"""

from math import exp
from random import Random
from typing import Final

from tests.emulator.device import Device

MULTIPROCESSORS: Final = 108
DEVICE: Final = Device("NVIDIA A100-SXM4-80GB", 85_094_825_984, (8, 0), MULTIPROCESSORS)

FLOPS_PER_NS: Final = 312_000 * 0.6
FLOAT32_FLOPS_PER_NS: Final = 19_500 * 0.6
"""Of float32 without tensor cores."""
TF32_FLOPS_PER_NS: Final = 156_000 * 0.6
HBM_BYTES_PER_NS: Final = 2_039 * 0.8
PCIE_BYTES_PER_NS: Final = 32 * 0.75
PAGEABLE_BYTES_PER_NS: Final = 10
"""Of copies that go through the driver's own pinned memory."""
BUS_BYTES_PER_NS: Final = 220
COLLECTIVE_LATENCY_NS: Final = 20_000
SHORTEST_KERNEL_NS: Final = 1_800

LAUNCH_LATENCY_NS: Final = 5_500
"""From the start of the launching call to the earliest start on the GPU."""
KERNEL_GAP_NS: Final = 1_000
"""Between two rows of one stream."""

LAUNCH_CALL_NS: Final = 5_000
EVENT_CALL_NS: Final = 1_200
MEMORY_CALL_NS: Final = 40_000
"""To ask the driver for memory, or to give it some back."""
SYNC_RETURN_NS: Final = 2_500
OPERATOR_NS: Final = 3_000
"""Host time of one operator on each side of what it calls."""
PYTHON_NS: Final = 1_500
"""Host time of a Python function, likewise."""
THREAD_HANDOFF_NS: Final = 25_000
GPU_SPREAD = 0.0
"""Standard deviation, as a logarithm, of how long one GPU's work takes beside another's, all the time."""
HOST_SPREAD = 0.0
"""Likewise of the hosts of one run beside those of another."""

_NOISE: Final = 0.03


class Noise:
    """Reproducible noise of one thread or stream; others never disturb it."""

    def __init__(self, key: str, share: float = _NOISE) -> None:
        self._random = Random(key)  # noqa: S311 - noise, not a secret
        self._share = share

    def around(self, ns: float) -> int:
        """Return `ns`, off by at most the share, 3 % where none was given."""
        return round(ns * (1 + self._share * (2 * self._random.random() - 1))) if self._share else round(ns)

    def up_to(self, ns: int) -> int:
        """Return something between 0 and `ns`."""
        return round(ns * self._random.random()) if ns else 0


def gpu_pace(seed: int, rank: int) -> float:
    """Return how many times as long as usual the work of a rank's GPU takes."""
    return exp(GPU_SPREAD * Random(f"{seed}/{rank}/gpu").gauss(0, 1))  # noqa: S311 - noise, not a secret


def host_pace(seed: int) -> float:
    """Return how many times as long as usual a run's hosts take."""
    return exp(HOST_SPREAD * Random(f"{seed}/hosts").gauss(0, 1))  # noqa: S311 - noise, not a secret


def kernel_ns(flops: int, moved_bytes: int, flops_per_ns: float = FLOPS_PER_NS) -> float:
    """Return the time of a kernel: arithmetic or memory traffic, whichever takes longer."""
    return max(flops / flops_per_ns, moved_bytes / HBM_BYTES_PER_NS, SHORTEST_KERNEL_NS)


def copy_ns(moved_bytes: int, *, pageable: bool = False) -> float:
    """Return the time of a copy between host and GPU; `pageable`: whether the host's memory is."""
    return max(moved_bytes / (PAGEABLE_BYTES_PER_NS if pageable else PCIE_BYTES_PER_NS), SHORTEST_KERNEL_NS)


def all_reduce_ns(payload_bytes: int, ranks: int) -> int:
    """Return the time of the transfer of a ring all-reduce, once every rank is there."""
    return round(COLLECTIVE_LATENCY_NS + 2 * (ranks - 1) / ranks * payload_bytes / BUS_BYTES_PER_NS)


def one_way_ns(payload_bytes: int, ranks: int) -> int:
    """Return the time of the transfer of an all-to-all, an all-gather or a reduce-scatter, once every rank is there."""
    return round(COLLECTIVE_LATENCY_NS + (ranks - 1) / ranks * payload_bytes / BUS_BYTES_PER_NS)
