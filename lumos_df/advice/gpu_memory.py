"""What the framework's allocator had of a GPU's memory, and how much there is."""

import json
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lumos_df import schema
from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.corpus.layout import trace_folder
from lumos_df.graph.rows import about


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemory:
    """The memory of one rank's GPU; bytes, e events in the order of time."""

    at: NDArray[np.int64]
    """[e] ns on the trace's clock."""
    change: NDArray[np.int64]
    """[e] taken, or below 0 given back."""
    reserved: int
    """Most that the allocator had."""
    total: int
    """The GPU has."""

    def taken(self, at: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what had been taken by some moments, ns, since the first event [moments]."""
        return np.append(0, np.cumsum(self.change))[np.searchsorted(self.at, at)]


def gpu_memory(advised: AdvisedJob) -> list[GpuMemory]:
    """Return the memory of every rank's GPU; nothing where that of one rank is not known."""
    known = [_of_rank(advised, place) for place in range(len(advised.graphs))]
    return [] if None in known else [memory for memory in known if memory]


def _of_rank(advised: AdvisedJob, place: int) -> GpuMemory | None:
    file = trace_folder(advised.corpus, advised.ranks[place].trace_id) / "memory_events.parquet"
    total = _total_bytes(advised, place)
    if total is None or not file.is_file():
        return None
    events = pq.ParquetFile(file).read(["ts", "device_type", "change_bytes", "reserved_bytes"])
    on_gpu = pc.and_(pc.equal(events["device_type"], "gpu"), pc.is_valid(events["change_bytes"]))
    events = events.filter(on_gpu).sort_by("ts")
    if events["reserved_bytes"].null_count == events.num_rows:
        return None
    reserved = int(pc.max(events["reserved_bytes"]).as_py())
    return GpuMemory(
        at=events["ts"].to_numpy(), change=events["change_bytes"].to_numpy(), reserved=reserved, total=total
    )


def _total_bytes(advised: AdvisedJob, place: int) -> int | None:
    """Return the memory of a rank's GPU as its trace states it, else by the GPU's name; None where neither tells."""
    stated = about(advised.corpus, advised.ranks[place].trace_id, "metadata")["metadata"]
    listed = json.loads(stated or "{}").get("deviceProperties")
    devices = [device for device in listed if isinstance(device, dict)] if isinstance(listed, list) else []
    sizes = [schema.within(device.get("totalGlobalMem"), 64) or 0 for device in devices]
    if max(sizes, default=0) > 0:
        return min(size for size in sizes if size > 0)
    return None if advised.hardware is None else int(advised.hardware.hbm_bytes)
