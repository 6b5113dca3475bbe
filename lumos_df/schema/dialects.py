"""What writes the files that are read, by dialect, and which views and columns no file of theirs can fill."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple


class Dialect(NamedTuple):
    """A profiler, or a recorder of memory or communication alone."""

    name: str
    unfilled: frozenset[str] = frozenset()
    """Views without a row (`memory_timeline`), and columns that are null (`kernel.occupancy_pct`), however it is used."""
    records: frozenset[str] = frozenset()
    """Of a recorder of no operators the only views that its files fill; empty of a profiler."""

    def fills(self, view: str, column: str = "") -> bool:
        """Return whether a file may fill a view that reads recorded rows, or a column of one."""
        if self.records:
            return view in self.records
        return view not in self.unfilled and f"{view}.{column}" not in self.unfilled


_MEMORY: Final = frozenset({"memory_peak", "memory_fragmentation", "estimate_vs_held"})
_OF_RECORDS: Final = _MEMORY | {"collective_hang", "host_link"}
_COMMUNICATION: Final = frozenset({"straggler", "waited_for", "collective_summary"})
_OF_TORCH: Final = _OF_RECORDS | {"memory_timeline", "kernel.occupancy_pct"}
"""What PyTorch's profiler alone says, beside what only recorders do."""
_SHAPES: Final = frozenset(f"kernel_efficiency.{size}" for size in ("m", "n", "k", "batch", "tflops"))
_ROCM: Final = _OF_TORCH | _SHAPES | {"kernel.operator", "kernel.operator_id"}

DIALECTS: Final[Mapping[str, Dialect]] = MappingProxyType(
    {
        "kineto": Dialect("Kineto", _OF_RECORDS),
        "kineto-2021": Dialect("Kineto", _OF_RECORDS),
        "chrome": Dialect("Kineto", _OF_RECORDS),
        "nsight": Dialect("Nsight Systems", _OF_TORCH),
        "xplane": Dialect("XPlane", _OF_TORCH | _SHAPES | {"annotation_summary"}),
        "rocprofv3": Dialect("rocprofv3", _ROCM),
        "rocpd": Dialect("rocpd", _ROCM),
        "rpd": Dialect("RPD", _ROCM),
        "memory-snapshot": Dialect("PyTorch's memory snapshots", records=_MEMORY),
        "flight-recorder": Dialect("PyTorch's flight recorder", records=_COMMUNICATION | {"collective_hang"}),
        "nccl-inspector": Dialect("NCCL Inspector", records=_COMMUNICATION | {"host_link"}),
        "nccl-profiler": Dialect("NCCL's profiler plugin", records=_COMMUNICATION),
    }
)
"""By `traces.dialect`. A page of `docs/formats` says the same of each."""
RECORD_DIALECTS: Final = frozenset(dialect for dialect, known in DIALECTS.items() if known.records)
"""Dialects of files that hold records and no operators."""
