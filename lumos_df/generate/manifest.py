"""What a benchmark replays, replaces and leaves out, with the share of the recorded time that each makes."""

from typing import Any, Final

import polars as pl

from lumos_df.generate.process_group_members import ALONE
from lumos_df.generate.replayed_calls import REPLACED, ReplayedCalls

_LEFT_OUT: Final = "left out"
_COLUMNS: Final = ("name", "how", "by", "reason", "calls", "gpu_ns", "host_ns")


def manifest_rows(replays: list[ReplayedCalls], calls: list[pl.DataFrame]) -> pl.DataFrame:
    """Return one row an operator's name and what becomes of it: name, how, by, reason, calls, times and shares.

    Args:
        replays: of each rank.
        calls: of each rank, with `alone`: whether a collective is only copied.

    Shares are percent of all ranks' time on the GPU, and of the time of their outermost host operators.
    """
    alone = pl.col("alone")
    called = (
        pl.concat([each.select("name", "how", "by", "alone", "gpu_ns", "host_ns") for each in calls])
        .with_columns(
            how=pl.when(alone).then(pl.lit(REPLACED)).otherwise("how"),
            by=pl.when(alone).then(pl.lit(ALONE)).otherwise("by"),
            reason=pl.when(alone).then(pl.lit("its ranks are not all here, or do not all run it")),
        )
        .group_by("name", "how", "by", "reason")
        .agg(pl.len().alias("calls"), pl.col("gpu_ns").sum(), pl.col("host_ns").sum())
    )
    lost = pl.concat([each.left_out for each in replays]).group_by("name", "reason")
    left = lost.agg(pl.col("calls", "gpu_ns", "host_ns").sum()).with_columns(
        how=pl.lit(_LEFT_OUT), by=pl.lit(None, pl.String)
    )
    both = pl.concat([called.select(_COLUMNS), left.select(_COLUMNS)], how="vertical_relaxed")
    gpu_ns, host_ns = sum(each.gpu_ns for each in replays), sum(each.host_ns for each in replays)
    return both.with_columns(
        (100 * pl.col("gpu_ns") / max(1, gpu_ns)).round(3).alias("gpu_pct"),
        (100 * pl.col("host_ns") / max(1, host_ns)).round(3).alias("host_pct"),
    ).sort("gpu_ns", "host_ns", "name", "how", descending=[True, True, False, False])


def manifest(rows: pl.DataFrame, replays: list[ReplayedCalls]) -> dict[str, Any]:
    """Return the totals of a manifest and its rows, without what is null."""
    totals = rows.group_by("how").agg(pl.col("calls", "gpu_pct", "host_pct").sum()).sort("how")
    shaped = sum(each.shaped_gpu_ns for each in replays)
    kept = int(rows.filter(pl.col("how") != _LEFT_OUT)["gpu_ns"].sum())
    return {
        "share_pct": round(share_pct(rows, replays), 2),
        "share_is_of": "GPU time" if _on_gpu(replays) else "host time",
        **({"share_of_gpu_time_with_shapes_pct": round(100 * kept / shaped, 2)} if shaped else {}),
        "totals": {row.pop("how"): _rounded(row) for row in totals.to_dicts()},
        "operators": [
            {key: value for key, value in row.items() if value is not None}
            for row in rows.drop("gpu_ns", "host_ns").to_dicts()
        ],
    }


def share_pct(rows: pl.DataFrame, replays: list[ReplayedCalls]) -> float:
    """Return what the calls stand for, percent of the GPU's time, or of the host's where nothing ran on a GPU."""
    column = "gpu_ns" if _on_gpu(replays) else "host_ns"
    whole = sum(getattr(each, column) for each in replays)
    kept = float(rows.filter(pl.col("how") != _LEFT_OUT)[column].sum())
    return 100 * kept / max(1.0, float(whole))


def _on_gpu(replays: list[ReplayedCalls]) -> bool:
    return any(each.gpu_ns for each in replays)


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {key: round(value, 2) if isinstance(value, float) else value for key, value in row.items()}
