"""Estimated plans, ranked: table `estimates`, where the corpus has it, or what a sweep has found or stored."""

from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa

from lumos_df.base.errors import QueryError
from lumos_df.base.units import format_ns
from lumos_df.corpus.catalog import query
from lumos_df.page.section import Columns, Section
from lumos_df.schema.rankings import what_to_measure

_MAX_PLANS: Final = 500
"""Of a corpus or a stored sweep."""
_SHORT: Final = {"micro_batch": "mbs", "sequence_parallel": "sp"}
_PLAN: Final = (
    "tp",
    "pp",
    "vp",
    "dp",
    "cp",
    "ep",
    "sequence_parallel",
    "micro_batch",
    "batch",
    "zero",
    "recompute",
    "schedule",
)
_FIELDS: Final = ("model", "hardware", "gpus", *_PLAN)
"""What plans may differ in."""

_OF_A_SWEEP: Final = """(
  SELECT
    * EXCLUDE (number),
    number::VARCHAR AS trace_id,
    round(1e9 * iteration_time_s)::BIGINT AS step_ns,
    round(1e9 * low_s)::BIGINT AS low_ns,
    round(1e9 * high_s)::BIGINT AS high_ns,
    round(1e9 * memory_gb)::BIGINT AS memory_bytes,
    round(1e9 * memory_margin_gb)::BIGINT AS memory_margin_bytes
  FROM {rows}
)"""


def section(connection: duckdb.DuckDBPyConnection, sweep: Path | None = None) -> Section | None:
    """Return the section of the fastest estimated plans; None where there are none.

    A plan is on the Pareto front when no other of the same model is as good in time, memory and GPUs and better in one.

    Args:
        connection: the corpus, opened.
        sweep: the folder that `lumos-df sweep --output` wrote, instead of the corpus's own estimates.

    Raises `QueryError` where that folder is none.
    """
    if sweep is not None:
        return _ranked(connection, _OF_A_SWEEP.format(rows=f"read_parquet({_files(sweep)})"))
    tables = query(
        connection, "FROM information_schema.tables SELECT count(*) WHERE table_name = 'estimates'"
    ).fetchone()
    return _ranked(connection, "estimates") if tables and tables[0] else None


def section_of(found: pa.Table) -> Section | None:
    """Return the section of plans that a sweep has found, rows as `lumos-df sweep` returns them; None for no row."""
    with duckdb.connect() as connection:
        connection.register("found", found)
        return _ranked(connection, _OF_A_SWEEP.format(rows="found"), len(found))


def _ranked(connection: duckdb.DuckDBPyConnection, source: str, most: int = _MAX_PLANS) -> Section | None:
    cursor = query(
        connection,
        f"""
        WITH ranked AS (
          SELECT *, count(*) OVER () AS estimates
          FROM {source}
          ORDER BY fits DESC, step_ns, memory_bytes, trace_id
          LIMIT {most}
        )
        SELECT
          concat_ws(
            ', ',
            'tp=' || tp, 'pp=' || pp, CASE WHEN vp > 1 THEN 'vp=' || vp END, 'dp=' || dp,
            CASE WHEN cp > 1 THEN 'cp=' || cp END, CASE WHEN ep > 1 THEN 'ep=' || ep END,
            CASE WHEN sequence_parallel THEN 'sp=on' END,
            'micro_batch=' || micro_batch, 'batch=' || batch, CASE WHEN zero > 0 THEN 'zero=' || zero END,
            CASE WHEN recompute <> 'none' THEN 'recompute=' || recompute END,
            CASE WHEN schedule <> '1f1b' THEN 'schedule=' || schedule END
          ) AS plan,
          {", ".join(_FIELDS)},
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
    alike = _alike(columns)
    return Section(
        f"{format_ns(best['step_ns'])} a step of {best['model']} on {best['gpus']:,} x {best['hardware']}: "
        f"{best['plan']} is the fastest that fits"
        if best["fits"]
        else "No estimated plan fits in memory",
        "Estimated steps with the interval that holds the truth 8 times of 10, and the memory of the fullest GPU; "
        "nothing of it was measured. On the front no other plan of the model is as good in time, memory and GPUs "
        "and better in one."
        + (f" {what_to_measure(alike).capitalize()}." if alike > 1 else "")
        + (f" The fastest {len(rows)} of {estimates:,} estimates are shown." if left_out else ""),
        {
            "plans": columns,
            "fields": _fields(columns),
            "front": _along_front(columns),
            "limits": _limits(columns),
        },
    )


def _alike(columns: Columns) -> int:
    """Return how many of the first plans lie in the interval of the first one, and it in theirs."""
    first, high = columns["step_ns"][0], columns["high_ns"][0]
    near = [step <= high and low <= first for step, low in zip(columns["step_ns"], columns["low_ns"], strict=True)]
    return near.index(False) if False in near else len(near)


def _differing(columns: Columns, rows: list[int]) -> list[str]:
    """Return the fields in which some rows differ."""
    return [name for name in _FIELDS if len({columns[name][row] for row in rows}) > 1]


def _fields(columns: Columns) -> dict[str, Any]:
    """Return the columns of a table of the plans: keys and labels of what differs, and in words what is alike."""
    differing = _differing(columns, list(range(len(columns["plan"]))))
    return {
        "key": differing,
        "label": [_SHORT.get(name, name) for name in differing],
        "alike": ", ".join(f"{name}={_said(columns[name][0])}" for name in _FIELDS if name not in differing),
    }


def _labels(columns: Columns, rows: list[int]) -> list[str]:
    """Return some plans by what tells them apart: `tp4 dp16 full`; one alone by its degrees."""
    names = _differing(columns, rows) or ["tp", "pp", "dp"]
    return [" ".join(filter(None, (_label(name, columns[name][row]) for name in names))) for row in rows]


def _label(name: str, value: object) -> str:
    if isinstance(value, bool):
        return _SHORT.get(name, name) if value else ""
    if isinstance(value, str):
        return "" if value == "none" else value
    return f"{_SHORT.get(name, name)}{value}"


def _along_front(columns: Columns) -> Columns:
    """Return the plans on the front of one model, the fastest first, each with what it changes from the one before.

    Of plans that are alike in time, memory and GPUs the first stands for all.

    Columns: row, among the plans; label; changes; step_change_ns and memory_change_bytes; empty where models differ.
    """
    alike = zip(columns["step_ns"], columns["memory_bytes"], columns["gpus"], strict=True)
    first = {key: row for row, key in reversed(list(enumerate(alike))) if columns["on_front"][row]}
    rows = sorted(first.values())
    if len({columns["model"][row] for row in rows}) != 1:
        return {}
    changes = ["", *(_change(columns, before, after) for before, after in pairwise(rows))]
    return {
        "row": rows,
        "label": _labels(columns, rows),
        "changes": changes,
        "step_change_ns": _steps(columns["step_ns"], rows),
        "memory_change_bytes": _steps(columns["memory_bytes"], rows),
    }


def _steps(values: list[int], rows: list[int]) -> list[int | None]:
    """Return how much each of some rows is more than the one before it; of the first nothing is known."""
    return [None, *(values[after] - values[before] for before, after in pairwise(rows))]


def _change(columns: Columns, before: int, after: int) -> str:
    pairs = ((name, columns[name][before], columns[name][after]) for name in _differing(columns, [before, after]))
    return ", ".join(f"{_SHORT.get(name, name)} {_said(old)} \u2192 {_said(new)}" for name, old, new in pairs)


def _said(value: object) -> object:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


def _limits(columns: Columns) -> Columns:
    """Return how much memory a GPU of each kind has for a plan: hardware, bytes."""
    limits = dict(
        zip(
            columns["hardware"],
            map(sum, zip(columns["memory_bytes"], columns["memory_margin_bytes"], strict=True)),
            strict=True,
        )
    )
    return {"hardware": list(limits), "bytes": list(limits.values())}


def _files(sweep: Path) -> str:
    """Return the files of a sweep, as DuckDB writes a list of texts."""
    files = sorted(str(file).replace("'", "''") for file in sweep.glob("part-*.parquet"))
    if not files:
        raise QueryError(f"{sweep}: no sweep is stored here; make one with: lumos-df sweep ... --output {sweep}")
    return "['" + "', '".join(files) + "']"
