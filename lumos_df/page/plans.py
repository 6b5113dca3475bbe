"""Estimated plans, ranked: table `estimates`, where the corpus has it."""

from typing import Any, Final

import duckdb

from lumos_df.catalog import query
from lumos_df.page.section import Section
from lumos_df.units import format_ns

_MAX_PLANS: Final = 500


def section(connection: duckdb.DuckDBPyConnection) -> Section | None:
    """Return the section of the fastest plans that the corpus has estimates of; None where it has none.

    A plan is on the Pareto front when no other of the same model is as good in time, memory and GPUs and better in one.
    """
    there = query(
        connection, "SELECT count(*) FROM information_schema.tables WHERE table_name = 'estimates'"
    ).fetchone()
    if not there or not there[0]:
        return None
    cursor = query(
        connection,
        f"""
        WITH ranked AS (
          SELECT *, count(*) OVER () AS estimates
          FROM estimates
          ORDER BY fits DESC, step_ns, memory_bytes, trace_id
          LIMIT {_MAX_PLANS}
        )
        SELECT
          concat_ws(
            ', ',
            'tp=' || tp, 'pp=' || pp, CASE WHEN vp > 1 THEN 'vp=' || vp END, 'dp=' || dp,
            CASE WHEN cp > 1 THEN 'cp=' || cp END, CASE WHEN ep > 1 THEN 'ep=' || ep END,
            'micro_batch=' || micro_batch, 'batch=' || batch, CASE WHEN zero > 0 THEN 'zero=' || zero END,
            CASE WHEN recompute <> 'none' THEN 'recompute=' || recompute END
          ) AS plan,
          model,
          hardware,
          gpus,
          step_ns,
          low_ns,
          high_ns,
          round(mfu_pct, 2) AS mfu_pct,
          memory_bytes,
          memory_margin_bytes,
          fits,
          fits AND NOT EXISTS (
            FROM ranked AS other
            WHERE other.fits AND other.model IS NOT DISTINCT FROM ranked.model
              AND other.step_ns <= ranked.step_ns AND other.memory_bytes <= ranked.memory_bytes
              AND other.gpus <= ranked.gpus
              AND (other.step_ns < ranked.step_ns OR other.memory_bytes < ranked.memory_bytes
                OR other.gpus < ranked.gpus)
          ) AS on_front,
          estimates
        FROM ranked
        ORDER BY fits DESC, step_ns, memory_bytes, trace_id
        """,
    )
    names = [column[0] for column in cursor.description or ()]
    rows = cursor.fetchall()
    if not rows:
        return None
    found: dict[str, list[Any]] = {
        name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)
    }
    (estimates, *_), best = found.pop("estimates"), {name: column[0] for name, column in found.items()}
    left_out = estimates - len(rows)
    return Section(
        f"{best['plan']} is the fastest that fits: {format_ns(best['step_ns'])} a step on {best['gpus']:,} GPUs"
        if best["fits"]
        else "No estimated plan fits in memory",
        "Estimated steps with the interval that holds the truth 8 times of 10, and the memory of the fullest GPU; "
        "nothing of it was measured. On the front no other plan of the model is as good in time, memory and GPUs "
        "and better in one." + (f" The fastest {len(rows)} of {estimates:,} estimates are shown." if left_out else ""),
        {"plans": found},
    )
