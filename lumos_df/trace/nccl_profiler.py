"""The reader of NCCL's example profiler plugin: asynchronous Chrome events of what a communicator did.

As NCCL has it since 2.23 [NVIDIA/nccl 145e67e7, ext-profiler/example/print_event.c; 0e3a403d, plugins/profiler/example/
print_event.cc]. An event is a line; those of an operation's kernel stand between its own two. Each process counts time
from its start, so nothing tells when something ran on the clock of another.
"""

from pathlib import Path
from typing import Any, Final

import polars as pl

from lumos_df.base.errors import TraceError
from lumos_df.base.units import format_count
from lumos_df.schema.codes import NONE
from lumos_df.schema.dtypes import element_type
from lumos_df.trace import communication_records
from lumos_df.trace.recording import ArgsSink, Recording
from lumos_df.trace.stored_file import StoredFile

_ARGS: Final = {
    "SeqNum": pl.Int64,
    "CommHash": pl.UInt64,
    "Rank": pl.Int64,
    "Peer": pl.Int64,
    "Count": pl.Int64,
    "Datatype": pl.String,
    "Algorithm": pl.String,
    "Protocol": pl.String,
    "StartGpuClk": pl.Int64,
    "StopGpuClk": pl.Int64,
}
_SCHEMA: Final[dict[str, Any]] = {
    "name": pl.String,
    "cat": pl.String,
    "ph": pl.String,
    "ts": pl.Float64,
    "args": pl.Struct(_ARGS),
}
_OPERATIONS: Final = ("COLL", "P2P")
_KERNEL: Final = "KernelCh"
"""What one channel of a kernel did."""
_SPELT: Final = {"Float8e4m3": "float8_e4m3fn", "Float8e5m2": "float8_e5m2"}
"""Types that NCCL spells otherwise than all others do, without its prefix."""


def read(file: StoredFile, _: ArgsSink) -> Recording:
    """Read a file of one communicator and rank.

    Raises:
        TraceError: no collective, send or receive is in it.
    """
    with file.on_disk(in_memory=True) as path:
        texts = pl.Series(Path(path).read_bytes().decode("utf-8", "replace").splitlines(), dtype=pl.String)
    whole = texts.filter(texts.str.contains(r"^\{.*\},$"))  # a writer that is killed leaves half a line
    wanted = whole.filter(whole.str.contains(r'"cat": "(?:COLL|P2P|GPU)"')).str.strip_suffix(",")
    try:
        events = pl.read_ndjson("\n".join(wanted.to_list()).encode(), schema=_SCHEMA, ignore_errors=True)
    except pl.exceptions.PolarsError as error:
        what = str(error).partition("\n")[0]
        raise TraceError(f"{file.name}: not as NCCL's profiler plugin writes it ({what})") from None
    events = events.unnest("args").with_columns(begins=pl.col("cat").is_in(_OPERATIONS) & (pl.col("ph") == "b"))
    events = events.with_columns(operation=pl.col("begins").cum_sum())
    records = events.filter("begins").join(_on_gpu(events), on="operation", how="left", maintain_order="left")
    if not records.height:
        raise TraceError(
            f"{file.name}: no collective of NCCL's profiler plugin in it; record it with NCCL_PROFILE_EVENT_MASK=70"
        )
    kinds = [_element(name) for name in records["Datatype"].to_list()]
    columns: dict[str, Any] = {
        "record": range(records.height),
        "group": records["CommHash"].cast(pl.String).to_list(),
        "collective": communication_records.words(records["name"].to_list()),
        "peer": records["Peer"].to_list(),
        "seq": records["SeqNum"].to_list(),
        "dtype": [kind.name if kind else None for kind in kinds],
        "message_bytes": [
            round(count * kind.bytes) if kind and count is not None else None
            for kind, count in zip(kinds, records["Count"].to_list(), strict=True)
        ],
        "state": ["completed"] * records.height,  # a file is written when its communicator is destroyed
        "duration_ns": records["ns"].to_list(),
        "algorithm": records.select(pl.concat_str("Algorithm", "Protocol", separator=" ")).to_series().to_list(),
    }
    ranks = records["Rank"].drop_nulls().unique().to_list()
    left_out = len(texts) - len(whole) - int(texts.is_in(["[", "{}]"]).sum())
    return communication_records.recording(
        communication_records.table(columns, records.height),
        dialect="nccl-profiler",
        origin=0,
        rank=ranks[0] if len(ranks) == 1 else NONE,
        truncated=left_out > 0,
        warnings=(f"{format_count(left_out, 'line')} that are no event left out",) if left_out else (),
    )


def _on_gpu(events: pl.DataFrame) -> pl.DataFrame:
    """Return how long each operation ran on the GPU, ns: by its clock, where it was recorded, else as the host saw it.

    Without events of its kernel the end of an operation is that of its launch, or of what the network did.
    """
    channels = events.filter((pl.col("name") == _KERNEL) & (pl.col("operation") > 0))
    clock = pl.col("StopGpuClk").max() - pl.col("StartGpuClk").min()
    seen = pl.col("ts").filter(pl.col("ph") == "e").max() - pl.col("ts").filter(pl.col("ph") == "b").min()
    timed = pl.col("StopGpuClk").min() > 0
    ns = pl.when(timed).then(clock).otherwise((1000 * seen).round().cast(pl.Int64, strict=False))
    return channels.group_by("operation").agg(ns=pl.when(ns >= 0).then(ns))


def _element(name: str | None) -> Any:
    """Return the element type that NCCL calls so, None where it is not known."""
    short = (name or "").removeprefix("nccl")
    return element_type(_SPELT.get(short, short.lower()))
