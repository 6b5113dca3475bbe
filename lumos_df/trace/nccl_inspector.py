"""The reader of NCCL Inspector: JSON objects, one a line and collective, as NCCL's profiler plugin writes them.

Output formats 4.0 to 5.0 [NVIDIA/nccl, ext-profiler/inspector; 4.2: 35d819ec,
plugins/profiler/inspector/inspector_json.cc]. It says how long a collective took, not when it ran.
"""

from pathlib import Path
from typing import Any, Final

import polars as pl

from lumos_df.base.errors import TraceError
from lumos_df.base.units import format_count
from lumos_df.schema.codes import NONE
from lumos_df.trace import communication_records
from lumos_df.trace.recording import ArgsSink, Recording
from lumos_df.trace.stored_file import StoredFile

_OPERATION: Final = {
    "{0}": pl.String,
    "{0}_sn": pl.Int64,
    "{0}_msg_size_bytes": pl.Int64,
    "{0}_exec_time_us": pl.Float64,
    "{0}_timing_source": pl.String,
    "{0}_algo": pl.String,
    "{0}_proto": pl.String,
    "{0}_peer": pl.Int64,
}
_HEADER: Final = {"id": pl.String, "comm_name": pl.String, "rank": pl.Int64, "n_ranks": pl.Int64}
_METADATA: Final = {"hostname": pl.String, "inspector_output_format_version": pl.String, "dump_timestamp_us": pl.Int64}
_SCHEMA: Final = {
    "header": pl.Struct(_HEADER),
    "metadata": pl.Struct(_METADATA),
    **{f"{kind}_perf": pl.Struct({key.format(kind): of for key, of in _OPERATION.items()}) for kind in ("coll", "p2p")},
}
_OF_CALL: Final = "collective_cpu"
_UNNAMED: Final = "unknown"


def read(file: StoredFile, _: ArgsSink) -> Recording:
    """Read a file of one rank.

    Raises:
        TraceError: no line of it is a record.
    """
    with file.on_disk(in_memory=True) as path:
        texts = pl.Series(Path(path).read_bytes().decode("utf-8", "replace").splitlines(), dtype=pl.String)
    whole = texts.filter(texts.str.contains(r"^\s*\{.*\}\s*$"))  # a writer that is killed leaves half a line
    try:
        lines = pl.read_ndjson("\n".join(whole.to_list()).encode(), schema=_SCHEMA, ignore_errors=True)
    except pl.exceptions.PolarsError as error:
        what = str(error).partition("\n")[0]
        raise TraceError(f"{file.name}: not as NCCL Inspector writes it ({what})") from None
    # A marker's header holds for the records behind it, which have none.
    lines = lines.with_columns(pl.col("header").forward_fill(), pl.col("metadata").forward_fill())
    parts = [
        lines.filter(pl.col(f"{kind}_perf").struct.field(kind).is_not_null()).select(
            pl.col("header").struct.unnest(),
            pl.col("metadata").struct.unnest(),
            *(pl.col(f"{kind}_perf").struct.field(key.format(kind)).alias(key.format("op")) for key in _OPERATION),
        )
        for kind in ("coll", "p2p")
    ]
    records = pl.concat(parts)
    if not records.height:
        raise TraceError(f"{file.name}: no record of NCCL Inspector in it; set NCCL_INSPECTOR_ENABLE=1")
    # Where no kernel was seen, the time is that of the host's call.
    took = pl.when(pl.col("op_timing_source").ne_missing(_OF_CALL)).then(1000 * pl.col("op_exec_time_us"))
    named = pl.when(pl.col("comm_name") != _UNNAMED).then("comm_name")
    algorithm = pl.concat_str("op_algo", "op_proto", separator=" ")
    columns: dict[str, Any] = {
        "record": range(records.height),
        "group": records["id"].to_list(),
        "group_description": records.select(named).to_series().to_list(),
        "group_size": records["n_ranks"].to_list(),
        "collective": communication_records.words(records["op"].to_list()),
        "peer": records["op_peer"].to_list(),
        "seq": records["op_sn"].to_list(),
        "message_bytes": records["op_msg_size_bytes"].to_list(),
        "state": ["completed"] * records.height,
        "duration_ns": records.select(took.round().cast(pl.Int64, strict=False)).to_series().to_list(),
        "algorithm": records.select(algorithm).to_series().to_list(),
        "host": records["hostname"].to_list(),
    }
    # The largest communicator is that of the job.
    world = records.sort(pl.col("n_ranks").fill_null(0), descending=True, maintain_order=True).row(0, named=True)
    return communication_records.recording(
        communication_records.table(columns, records.height),
        dialect="nccl-inspector",
        origin=1000 * min(records["dump_timestamp_us"].drop_nulls().to_list(), default=0),
        rank=NONE if world["rank"] is None else world["rank"],
        world_size=world["n_ranks"],
        truncated=len(whole) < len(texts),
        warnings=(f"{format_count(len(texts) - len(whole), 'line')} that are no record left out",)
        if len(whole) < len(texts)
        else (),
        versions={"nccl_inspector": world["inspector_output_format_version"]},
    )
