"""A job that did run: its graph, what is known of its model and plan, and the GPU it ran on."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from lumos_df.corpus import profiler_overhead
from lumos_df.corpus.layout import trace_folder
from lumos_df.graph.job import Job
from lumos_df.graph.job import load as load_job
from lumos_df.graph.replay_warnings import seldom_updated
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.model.hardware import Hardware
from lumos_df.schema.dtypes import Precision
from lumos_df.structure import labelled_rows
from lumos_df.structure.describe import DescribedRank, Description, of_traces
from lumos_df.whatif.durations import host_times
from lumos_df.whatif.job.recorded_gpu import TENSOR_FLOAT, RecordedGpu, recorded_on, usual_precision
from lumos_df.whatif.job.settings import Sizes, told_precision

_ON_HOST: Final = "the job ran on no GPU: its operators on the host stand for kernels"
_UNMARKED: Final = "no step is marked: all that was recorded counts as one; ingest --step-from NAME tells its steps"


@dataclass(frozen=True, slots=True)
class RecordedJob:
    """What an estimate starts from."""

    job: Job
    about: Description
    sizes: Sizes
    gpu: RecordedGpu
    """What is known of the GPU that it ran on."""
    precision: Precision
    """Of its matrix products; that of float16 where the trace does not tell."""
    experts: int | None
    """Ranks of an expert-parallel group."""
    peak_bytes: int | None
    """Most memory that the allocator of any rank held, as recorded; None where it was not."""
    warnings: tuple[str, ...]
    tensor_float: bool = False
    """Whether its products of float32 ran in tensor cores."""
    unmeasured: bool = False
    """Whether its collectives did nothing: one process stood for many ranks."""

    @property
    def hardware(self) -> Hardware:
        """The GPU that it ran on, or the one that stands in for it."""
        return self.gpu.hardware

    @property
    def known_hardware(self) -> bool:
        """Whether that is the GPU that it ran on."""
        return self.gpu.known

    @property
    def records_shapes(self) -> bool:
        """Whether any rank's trace has shapes of operators."""
        return any(bool((rank.trace.dims.code >= 0).any()) for rank in self.about.ranks)


def load(corpus: Path, trace_ids: list[str], known: Mapping[str, int], ran_on: Hardware | None = None) -> RecordedJob:
    """Read a job. Raise `LumosError` where it cannot be read.

    Args:
        corpus: the corpus folder.
        trace_ids: its traces.
        known: dimensions and degrees that hold whatever the traces say.
        ran_on: the GPU that it ran on, whatever the traces say.
    """
    job = load_job(corpus, trace_ids)
    about = of_traces([labelled_rows.extend(corpus, graph.rows) for graph in job.graphs], known)
    on_host = all(map(host_times.runs_here, job.graphs))
    about = replace(about, ranks=list(map(_with_updates, about.ranks, job.graphs)))
    file = trace_folder(corpus, trace_ids[0]) / "traces.parquet"
    device = pq.ParquetFile(file).read(["device_name"])["device_name"][0].as_py()
    gpu = RecordedGpu(ran_on) if ran_on else recorded_on(device)
    sizes = Sizes.of(about)
    sizes = replace(sizes, zero=known.get("zero", sizes.zero))
    return RecordedJob(
        job,
        about,
        sizes,
        gpu,
        told_precision(about) or usual_precision(gpu.hardware),
        about.facts["ep"].number,
        max((peak for trace_id in trace_ids if (peak := _peak(corpus, trace_id)) is not None), default=None),
        (
            *(() if any((graph.rows.step >= 0).any() for graph in job.graphs) else (_UNMARKED,)),
            *seldom_updated(job.graphs[0].rows),
            *((_ON_HOST,) if on_host else (gpu.warning,) if gpu.warning else ()),
            *profiler_overhead.told(corpus, trace_ids),
        ),
        any(_multiplies_in_tensor_cores(graph) for graph in job.graphs),
        _unmeasured(corpus, trace_ids),
    )


def _multiplies_in_tensor_cores(graph: TraceGraph) -> bool:
    """Return whether any product of float32 ran in tensor cores, as names of kernels say it."""
    rows = graph.rows
    return bool((rows.named(TENSOR_FLOAT.search) & rows.on_gpu).any())


def _with_updates(rank: DescribedRank, graph: TraceGraph) -> DescribedRank:
    layer = host_times.update_layers(rank.trace, graph, rank.structure)
    return replace(rank, structure=replace(rank.structure, layer=layer))


def _unmeasured(corpus: Path, trace_ids: list[str]) -> bool:
    """Return whether `lumos-df capture --fake-world` has marked the collectives of any of the traces as unmeasured."""
    for trace_id in trace_ids:
        file = trace_folder(corpus, trace_id) / "traces.parquet"
        said = pq.ParquetFile(file).read(["metadata"])["metadata"][0].as_py()
        added = json.loads(said or "{}").get("lumosCapture")
        unmeasured = added.get("unmeasured") if isinstance(added, dict) else None
        if isinstance(unmeasured, list) and "collectives" in unmeasured:
            return True
    return False


def _peak(corpus: Path, trace_id: str) -> int | None:
    """Return the most that a GPU's allocator held: reserved, else allocated; None where no totals were recorded."""
    file = trace_folder(corpus, trace_id) / "memory_events.parquet"
    if not file.exists():
        return None
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import, and few traces record their memory

    columns = ["device_type", "reserved_bytes", "allocated_bytes"]
    table = pq.read_table(file, columns=columns, partitioning=None)
    table = table.filter(pc.equal(table["device_type"], "gpu"))
    peaks = (pc.max(table[name]).as_py() for name in columns[1:])
    return next((int(peak) for peak in peaks if peak), None)
