"""Pictures of a corpus as Altair charts: objects that a notebook shows, and that one may change further."""

from collections.abc import Sequence
from typing import Any, Protocol

import polars as pl

from lumos_df.base.errors import LumosError, QueryError
from lumos_df.schema import STEP_PARTS

try:
    import altair as alt
except ModuleNotFoundError:
    raise LumosError("charts need Altair: pip install 'lumos-df[plots]'") from None

_ROWS = 5_000
"""Marks of a chart: browsers draw more too slowly."""


class Frames(Protocol):
    """What charts are drawn from: a `Corpus`."""

    def sql(self, query: str, parameters: Sequence[Any] = ()) -> pl.DataFrame:
        """Return the rows of a query."""

    def view(self, name: str, job: str | None = None) -> pl.DataFrame:
        """Return the rows of a view, with their job."""


class Charts:
    """Charts of one corpus; every method returns an `altair.Chart`."""

    def __init__(self, corpus: Frames) -> None:
        self._corpus = corpus

    def __dir__(self) -> list[str]:
        """List what a user may call."""
        return [name for name in vars(type(self)) if not name.startswith("_")]

    def breakdown(self, job: str | None = None) -> Any:
        """Draw where the steps of each rank go, ms a step: one bar a rank, waiting apart from transfer."""
        steps = self._corpus.view("breakdown", job)
        known = {part.name: part.label for part in STEP_PARTS}
        parts = {f"{name}_ns": label for name, label in known.items() if name != "exposed_communication"}
        waiting = pl.col("exposed_waiting_ns").fill_null(0)
        steps = steps.with_columns(waiting=waiting, transfer=pl.col("exposed_communication_ns") - waiting)
        parts |= {"waiting": "exposed waiting", "transfer": "exposed transfer"}
        mean = steps.group_by("job", "rank").agg(pl.col(name).mean() / 1e6 for name in parts)
        long = mean.rename(parts).unpivot(index=["job", "rank"], variable_name="part", value_name="ms")
        return (
            alt.Chart(long.head(_ROWS))
            .mark_bar()
            .encode(x="ms:Q", y="rank:O", color="part:N", row="job:N", tooltip=["job", "rank", "part", "ms"])
        )

    def timeline(self, trace: str | None = None, step: int | None = None) -> Any:
        """Draw the GPU rows of a trace, its longest 5,000: time in ms against stream, coloured by family.

        Args:
            trace: its id, or the beginning of it; by default the first of the first job with a kernel.
            step: only this step.
        """
        if trace is None:
            with_kernels = "FROM traces WHERE kernels > 0 ORDER BY job, rank, trace_id LIMIT 1"
            trace = "".join(self._corpus.sql(f"SELECT trace_id {with_kernels}")["trace_id"])
        rows = self._corpus.sql(
            "SELECT ts, dur, stream, family, name FROM operators WHERE starts_with(trace_id, ?) AND stream IS NOT NULL "
            f"AND kind IN ('kernel', 'memcpy', 'memset') AND (? IS NULL OR step = ?) ORDER BY dur DESC LIMIT {_ROWS}",
            [trace, step, step],
        )
        if not len(rows):
            raise QueryError(f"no GPU row of trace '{trace}'" + ("" if step is None else f" in step {step}"))
        first = rows["ts"].min()
        begin = (pl.col("ts") - first) / 1e6
        bars = rows.select("stream", "family", "name", start_ms=begin, end_ms=begin + pl.col("dur") / 1e6)
        return (
            alt.Chart(bars)
            .mark_bar()
            .encode(x="start_ms:Q", x2="end_ms", y="stream:O", color="family:N", tooltip=["name", "start_ms", "end_ms"])
        )

    def roofline(self, job: str | None = None) -> Any:
        """Draw how near its peak each kind of kernel comes, percent, against the GPU time of its calls, ms."""
        kernels = self._corpus.view("kernel_efficiency", job).filter(pl.col("peak_pct").is_not_null())
        if not len(kernels):
            raise QueryError("no kernel whose work and GPU are known; record shapes (record_shapes=True)")
        total_ms = pl.col("p50_ns") * pl.col("calls") / 1e6
        return (
            alt.Chart(kernels.head(_ROWS).with_columns(total_ms=total_ms))
            .mark_circle()
            .encode(
                x=alt.X("total_ms:Q", scale=alt.Scale(type="log")),
                y="peak_pct:Q",
                color="family:N",
                tooltip=["operator", "m", "n", "k", "bytes", "calls", "total_ms", "peak_pct"],
            )
        )

    def busbw(self, job: str | None = None) -> Any:
        """Draw the bus bandwidth of collectives, GB/s, against the bytes that a rank gives; waiting left out."""
        collectives = self._corpus.view("collective_summary", job)
        return (
            alt.Chart(collectives.head(_ROWS))
            .mark_circle()
            .encode(
                x=alt.X("in_bytes:Q", scale=alt.Scale(type="log")),
                y=alt.Y("busbw_gbps:Q", scale=alt.Scale(type="log")),
                color="collective:N",
                tooltip=["job", "collective", "in_bytes", "busbw_gbps"],
            )
        )


def plans(best: pl.DataFrame) -> Any:
    """Draw the plans of a sweep: step in s, with its interval, against memory in GB.

    Args:
        best: rows as `sweep` stores or writes them.
    """
    base = alt.Chart(best.head(_ROWS))
    color = alt.Color("gpus:N")
    points = base.mark_circle().encode(
        x="iteration_time_s:Q", y="memory_gb:Q", color=color, tooltip=["tp", "pp", "dp", "micro_batch", "recompute"]
    )
    return base.mark_rule(opacity=0.4).encode(x="low_s:Q", x2="high_s", y="memory_gb:Q", color=color) + points
