"""Estimated plans, ranked: table `estimates`, where the corpus has it, or what a sweep has stored."""

from pathlib import Path
from typing import Any, Final

import duckdb

from lumos_df.base.errors import QueryError
from lumos_df.base.units import format_ns
from lumos_df.corpus.catalog import query
from lumos_df.page.section import Section

_MAX_PLANS: Final = 500

_OF_A_SWEEP: Final = """(
  SELECT
    * EXCLUDE (number),
    number::VARCHAR AS trace_id,
    round(1e9 * iteration_time_s)::BIGINT AS step_ns,
    round(1e9 * low_s)::BIGINT AS low_ns,
    round(1e9 * high_s)::BIGINT AS high_ns,
    round(1e9 * memory_gb)::BIGINT AS memory_bytes,
    round(1e9 * memory_margin_gb)::BIGINT AS memory_margin_bytes
  FROM read_parquet({files})
)"""


def section(connection: duckdb.DuckDBPyConnection, sweep: Path | None = None) -> Section | None:
    """Return the section of the fastest estimated plans; None where there are none.

    A plan is on the Pareto front when no other of the same model is as good in time, memory and GPUs and better in one.

    Args:
        connection: the corpus, opened.
        sweep: the folder that `lumos-df sweep --output` wrote, instead of the corpus's own estimates.

    Raises `QueryError` where that folder is none.
    """
    source = "estimates" if sweep is None else _OF_A_SWEEP.format(files=_files(sweep))
    tables = query(
        connection, "FROM information_schema.tables SELECT count(*) WHERE table_name = 'estimates'"
    ).fetchone()
    if sweep is None and not (tables and tables[0]):
        return None
    cursor = query(
        connection,
        f"""
        WITH ranked AS (
          SELECT *, count(*) OVER () AS estimates
          FROM {source}
          ORDER BY fits DESC, step_ns, memory_bytes, trace_id
          LIMIT {_MAX_PLANS}
        )
        SELECT
          concat_ws(
            ', ',
            'tp=' || tp, 'pp=' || pp, CASE WHEN vp > 1 THEN 'vp=' || vp END, 'dp=' || dp,
            CASE WHEN cp > 1 THEN 'cp=' || cp END, CASE WHEN ep > 1 THEN 'ep=' || ep END,
            'micro_batch=' || micro_batch, 'batch=' || batch, CASE WHEN zero > 0 THEN 'zero=' || zero END,
            CASE WHEN recompute <> 'none' THEN 'recompute=' || recompute END,
            CASE WHEN schedule <> '1f1b' THEN 'schedule=' || schedule END
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
    columns: dict[str, list[Any]] = {
        name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)
    }
    (estimates, *_), best = columns.pop("estimates"), {name: column[0] for name, column in columns.items()}
    left_out = estimates - len(rows)
    return Section(
        f"{best['plan']} is the fastest that fits: {format_ns(best['step_ns'])} a step on {best['gpus']:,} GPUs"
        if best["fits"]
        else "No estimated plan fits in memory",
        "Estimated steps with the interval that holds the truth 8 times of 10, and the memory of the fullest GPU; "
        "nothing of it was measured. On the front no other plan of the model is as good in time, memory and GPUs "
        "and better in one." + (f" The fastest {len(rows)} of {estimates:,} estimates are shown." if left_out else ""),
        {"plans": columns},
    )


def _files(sweep: Path) -> str:
    """Return the files of a sweep, as DuckDB writes a list of texts."""
    files = sorted(str(file).replace("'", "''") for file in sweep.glob("part-*.parquet"))
    if not files:
        raise QueryError(f"{sweep}: no sweep is stored here; make one with: lumos-df sweep ... --output {sweep}")
    return "['" + "', '".join(files) + "']"
