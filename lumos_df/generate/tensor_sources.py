"""Where the tensors come from that each call reads or writes, by the addresses of their storages.

`lumos-df capture` records these beside the allocations. A tensor is the result of the call that took its memory; one
whose memory nobody took in the step, a parameter or the state of an optimizer, is there in every step.
"""

from typing import TYPE_CHECKING, Any, Final

import polars as pl

from lumos_df.generate.recorded_inputs import tensors

if TYPE_CHECKING:
    import duckdb

_TAKEN: Final = """
SELECT ts AS taken, thread, address, change_bytes AS bytes
FROM memory_events WHERE trace_id = $trace AND address IS NOT NULL AND change_bytes > 0 AND ts < $end
"""
_NOT_AS_RECORDED: Final = ("by", "otherwise", "collective")
"""What an operator of a plan has whose inputs are not those that were recorded, or in another order."""


def tensor_sources(
    connection: "duckdb.DuckDBPyConnection",
    trace_id: str,
    calls: pl.DataFrame,
    operators: list[dict[str, Any]],
    start_ns: int,
    end_ns: int,
) -> pl.Series:
    """Return for each call where its tensors come from, in their order; an empty list where that was not recorded.

    Of c calls, n + k c is a result of call n, of those of its bytes that others read the k-th that took memory; -1 - n
    the n-th tensor that is there in every step; null is not known.

    Args:
        connection: to the corpus.
        trace_id: of the rank.
        calls, operators: those of `replayed_calls`, calls by their start.
        start_ns, end_ns: of the step, on the trace's clock.
    """
    counts = [
        0 if any(name in each for name in _NOT_AS_RECORDED) else len(tensors(each["inputs"])) for each in operators
    ]
    counted = pl.DataFrame({"operator": pl.Series(range(len(counts)), dtype=calls["operator"].dtype), "count": counts})
    listed = pl.col("storages").str.strip_chars("[]").str.split(",")
    # No JSON parser: a file of another maker may have anything under this name.
    decoded = listed.list.eval(pl.element().str.strip_chars().cast(pl.Int64, strict=False))
    asked = (
        calls.select("operator", "ts", decoded, call=pl.int_range(pl.len()))
        .join(counted, on="operator", how="left", maintain_order="left")
        .filter(pl.col("storages").list.len() == pl.col("count"))
        .explode("storages")
        .with_row_index("place")
        .rename({"storages": "address"})
    )
    taken = connection.sql(_TAKEN, params={"trace": trace_id, "end": end_ns}).pl().sort("taken")
    spans = calls.select("thread", "end", began="ts", maker=pl.int_range(pl.len())).sort("began")
    made = taken.join_asof(spans, left_on="taken", right_on="began", by="thread", check_sortedness=False)
    of_a_call = (pl.col("taken") >= start_ns) & (pl.col("taken") < pl.col("end"))
    made = made.select("address", "taken", "bytes", pl.when(of_a_call).then("maker").alias("maker"))
    found = asked.sort("ts").join_asof(made, left_on="ts", right_on="taken", by="address", check_sortedness=False)
    read = found.filter(pl.col("maker").is_not_null()).select("maker", "bytes", "taken", "address").unique()
    read = read.with_columns((pl.col("taken").rank("ordinal").over("maker", "bytes") - 1).cast(pl.Int64).alias("turn"))
    found = found.join(read.drop("bytes"), on=("maker", "taken", "address"), how="left", maintain_order="left")
    # Memory that was taken again is another tensor.
    same = pl.struct("address", pl.col("taken").fill_null(0)).rank("dense").cast(pl.Int64)
    result = pl.col("maker") + pl.col("turn") * len(calls)
    source = pl.when(pl.col("address").is_not_null()).then(pl.coalesce(result, -same))
    lists = found.with_columns(source.alias("source")).sort("place").group_by("call").agg("source")
    rows = pl.DataFrame({"call": pl.int_range(len(calls), eager=True)})
    return rows.join(lists, on="call", how="left", maintain_order="left")["source"].fill_null([])
