"""What NVTX ranges of NCCL say of its calls and communicators.

Payloads are JSON texts with the entries of NCCL's schemas [NCCL, src/include/nvtx_payload_schemas.h].
"""

from typing import Final, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from lumos_df.schema.codes import NULL
from lumos_df.trace.row_collector import TID_BITS

_CALL: Final = r"^nccl(AllReduce|AllGather|AlltoAll|Broadcast|Gather|Recv|Reduce|ReduceScatter|Scatter|Send)$"
_GROUP_START, _GROUP_END = "ncclGroupStart", "ncclGroupEnd"
_NUMBER: Final = r"([0-9]{1,18})"
_BYTES: Final = rf"Message size \[bytes\]\W+{_NUMBER}"
_COMMUNICATOR: Final = r"NCCL communicator ID\W+(\w+)"
_SIZE: Final = rf"No\. of ranks\W+{_NUMBER}"
_RANK: Final = rf'"Rank\W+{_NUMBER}'
_DEVICE: Final = rf"CUDA device\W+{_NUMBER}"
_PEERS: Final = pl.col("call").is_in(["Send", "Recv"])
_SENT_AND_RECEIVED: Final = "SendRecv"
"""How NCCL names the kernel of sends and receives of one group."""


class NcclCalls(NamedTuple):
    """The ranges that launch what NCCL does: n of some ranges."""

    row: NDArray[np.int64]
    """Place among the ranges."""
    name: pa.Array
    """Of the collective: `AllReduce`."""
    bytes: NDArray[np.int64]
    """Size of the message, NULL where no payload says it; of sends and receives in one group what is sent."""
    communicator: pa.Array
    """Null where no payload says it."""
    size: NDArray[np.int64]
    """Ranks of the communicator, NULL where no payload says it."""


class NcclRank(NamedTuple):
    """Which rank a process is by a communicator."""

    process: int
    device: int
    """CUDA's index of the GPU, NULL where it is not said."""
    rank: int


def frame(texts: pa.Array, payloads: pa.Array, thread: NDArray[np.int64], ts: NDArray[np.int64]) -> pl.DataFrame:
    """Return what is said by ranges, each with its thread's key and start, in the order of threads and starts."""
    ranges = pl.DataFrame({"name": pl.Series(texts, dtype=pl.String), "payload": pl.Series(payloads, dtype=pl.String)})
    return (
        ranges.with_columns(thread=thread, ts=ts)
        .with_row_index("row")
        .filter(pl.col("name").str.starts_with("nccl"))
        .with_columns(
            pl.col("row").cast(pl.Int64),
            call=pl.col("name").str.extract(_CALL),
            bytes=pl.col("payload").str.extract(_BYTES).cast(pl.Int64),
            communicator=pl.col("payload").str.extract(_COMMUNICATOR),
            size=pl.col("payload").str.extract(_SIZE).cast(pl.Int64),
            rank=pl.col("payload").str.extract(_RANK).cast(pl.Int64),
            device=pl.col("payload").str.extract(_DEVICE).cast(pl.Int64),
        )
        .sort("thread", "ts", "row")
    )


def calls(said: pl.DataFrame) -> NcclCalls:
    """Return the calls of NCCL, and the ends of groups of calls, which launch what the calls inside only say."""
    sizes = (
        said.filter(pl.col("size").is_not_null())
        .unique("communicator", keep="first")
        .select("communicator", ranks="size")
    )
    starts, ends = (pl.col("name") == name for name in (_GROUP_START, _GROUP_END))
    depth = starts.cast(pl.Int64).cum_sum().over("thread") - ends.cast(pl.Int64).cum_sum().over("thread")
    grouped = said.with_columns(depth=depth).with_columns(
        group=(starts & (pl.col("depth") == 1)).cum_sum().over("thread"),
        closes=ends & (pl.col("depth") == 0),
        inside=pl.col("depth") > 0,
    )
    called = grouped.filter(pl.col("call").is_not_null())
    of_group = (
        called.filter("inside")
        .group_by("thread", "group")
        .agg(
            call=pl.when(_PEERS.all())
            .then(pl.lit(_SENT_AND_RECEIVED))
            .when(pl.col("call").n_unique() == 1)
            .then(pl.col("call").first()),
            bytes=pl.col("bytes").filter(pl.col("call") != "Recv").sum(),
            unsaid=pl.col("bytes").is_null().any(),
            communicator=pl.when(pl.col("communicator").n_unique() == 1).then(pl.col("communicator").first()),
        )
        .with_columns(bytes=pl.when("unsaid").then(None).otherwise("bytes"))
    )
    closing = grouped.filter("closes").select("row", "thread", "group").join(of_group, on=["thread", "group"])
    wanted = ["row", "call", "bytes", "communicator"]
    rows = (
        pl.concat([called.select(wanted), closing.select(wanted)])
        .filter(pl.col("call").is_not_null())
        .join(sizes, on="communicator", how="left")
        .sort("row")
    )
    return NcclCalls(
        row=rows["row"].to_numpy(),
        name=_arrow(rows["call"]),
        bytes=rows["bytes"].fill_null(NULL).to_numpy(),
        communicator=_arrow(rows["communicator"]),
        size=rows["ranks"].fill_null(NULL).to_numpy(),
    )


def ranks(said: pl.DataFrame) -> list[NcclRank]:
    """Return the rank of each process and GPU in the largest communicator that it joined, the first of such."""
    process = pl.col("thread") // (1 << TID_BITS)
    joined = said.with_columns(process=process).filter(pl.col("rank").is_not_null() & pl.col("size").is_not_null())
    best = joined.sort("size", "ts", descending=[True, False]).unique(
        ["process", "device"], keep="first", maintain_order=True
    )
    return [
        NcclRank(*row) for row in best.select("process", pl.col("device").fill_null(NULL), "rank").sort("rank").rows()
    ]


def _arrow(texts: pl.Series) -> pa.Array:
    return texts.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.string())
