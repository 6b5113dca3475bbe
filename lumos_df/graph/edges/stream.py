"""Stream edges: GPU work follows what ran before it on its stream."""

from lumos_df.graph.edges.columns import Edges, edges
from lumos_df.graph.gpu_constants import GpuConstants
from lumos_df.graph.gpu_streams import GpuStreams
from lumos_df.schema.codes import STREAM


def stream_edges(gpu: GpuStreams, constants: GpuConstants) -> Edges:
    """Return the order within every stream; the lag is the typical gap, negative where rows of a stream overlap."""
    return edges(gpu.before, gpu.row, STREAM, constants.gap, True)
