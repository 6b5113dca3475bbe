"""Which ranks of a benchmark a collective runs among, and that all of them run the same."""

from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    import duckdb

_MOVED = ("collective", "group", "dtype", "in_bytes", "out_bytes")
ALONE = "a copy of as many bytes"
"""What stands for a collective whose other ranks are not there."""


def with_members(
    connection: "duckdb.DuckDBPyConnection",
    trace_ids: dict[int, str],
    calls: dict[int, pl.DataFrame],
    operators: dict[int, list[dict[str, Any]]],
) -> tuple[dict[int, pl.DataFrame], dict[str, list[int]]]:
    """Return the calls of every rank with their collectives' operators settled, and each group's places.

    Operators of collectives are appended to `operators`: named by a group's number, of as many bytes on all its ranks.
    A group whose ranks were not all recorded runs among those that were; one whose ranks do not run the same
    collectives in the same order, or that has one rank here, is a copy on each rank.

    Args:
        connection: to the corpus.
        trace_ids: the trace of each rank, by rank.
        calls, operators: as `replayed_calls` has them, by rank.
    """
    places = {rank: place for place, rank in enumerate(sorted(trace_ids))}
    listed = {
        (trace_id, name): tuple(places[rank] for rank in ranks if rank in places)
        for trace_id, name, ranks in connection.execute(
            'SELECT trace_id, "group", ranks FROM process_groups WHERE ranks IS NOT NULL'
        ).fetchall()
    }
    rows = []
    for rank, trace_id in sorted(trace_ids.items()):
        known = _collectives(operators[rank])
        own = calls[rank].with_row_index("place").filter(pl.col("kind") == "collective").select("place", "operator")
        own = own.join(known, on="operator", maintain_order="left")
        named = pl.DataFrame(
            [(name, list(ranks)) for (trace, name), ranks in listed.items() if trace == trace_id and ranks],
            schema={"group": pl.String, "members": pl.List(pl.Int64)},
            orient="row",
        )
        own = own.join(named, on="group", how="left", maintain_order="left")
        rows.append(own.with_columns(pl.lit(rank).alias("rank")))
    table = pl.concat(rows) if rows else pl.DataFrame()
    if not len(table):
        return {rank: each.with_columns(pl.lit(False).alias("alone")) for rank, each in calls.items()}, {}
    table = _settled(table, places)
    groups = table.filter("runs").select("members").unique(maintain_order=True).with_row_index("number")
    names = {f"group {number}": list(members) for number, members in groups.iter_rows()}
    names |= {f"rank {place}": [place] for place in places.values()}
    table = table.join(groups, on="members", how="left", maintain_order="left").with_columns(
        pl.when("runs")
        .then(pl.format("group {}", "number"))
        .otherwise(pl.format("rank {}", pl.col("rank").replace_strict(places, return_dtype=pl.Int64)))
        .alias("group")
    )
    return {rank: _renumbered(calls[rank], operators[rank], table.filter(rank=rank)) for rank in calls}, names


def _collectives(operators: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {
                "operator": number,
                "name": each["name"],
                "collective": each["collective"],
                "group": each["group"],
                "dtype": each["dtype"],
                "in_bytes": each["bytes"][0],
                "out_bytes": each["bytes"][1],
            }
            for number, each in enumerate(operators)
            if "collective" in each
        ],
        schema={
            "operator": pl.UInt32,
            "name": pl.String,
            **dict.fromkeys(("collective", "group", "dtype"), pl.String),
            **dict.fromkeys(("in_bytes", "out_bytes"), pl.Int64),
        },
    )


def _settled(table: pl.DataFrame, places: dict[int, int]) -> pl.DataFrame:
    """Return collectives with their members, the same bytes on all of them, and whether they run among them."""
    named = table.group_by("group").agg(pl.col("rank").replace_strict(places).unique().sort().alias("naming"))
    table = table.join(named, on="group", maintain_order="left").with_columns(pl.coalesce("members", "naming"))
    table = table.with_columns(pl.int_range(pl.len()).over("rank", "members").alias("turn"))
    turns = table.group_by("members", "turn").agg(
        (pl.len() == pl.col("members").first().list.len()).alias("all_there"),
        (pl.struct("collective", "dtype").n_unique() == 1).alias("alike"),
        pl.col("in_bytes").max(),
        pl.col("out_bytes").max(),
    )
    runs = turns.group_by("members").agg((pl.col("all_there") & pl.col("alike")).all().alias("runs"))
    return (
        table.drop("in_bytes", "out_bytes")
        .join(turns, on=["members", "turn"], maintain_order="left")
        .join(runs, on="members", maintain_order="left")
        .with_columns(runs=pl.col("runs") & (pl.col("members").list.len() > 1))
    )


def _renumbered(calls: pl.DataFrame, operators: list[dict[str, Any]], own: pl.DataFrame) -> pl.DataFrame:
    """Append the operators of a rank's collectives and return its calls with their numbers."""
    distinct = own.select("name", *_MOVED).unique(maintain_order=True)
    distinct = distinct.with_row_index("settled", offset=len(operators))
    operators += [
        {
            "name": row["name"],
            "family": "communication",
            **{key: row[key] for key in ("collective", "group", "dtype")},
            "bytes": [row["in_bytes"], row["out_bytes"]],
            "inputs": [],
        }
        for row in distinct.iter_rows(named=True)
    ]
    settled = own.join(distinct, on=["name", *_MOVED], maintain_order="left").select("place", "settled", "runs")
    return (
        calls.with_row_index("place")
        .join(settled, on="place", how="left", maintain_order="left")
        .with_columns(
            pl.coalesce("settled", "operator").alias("operator"),
            (~pl.col("runs")).fill_null(False).alias("alone"),
        )
        .drop("settled", "runs", "place")
    )
