"""Where the time of two steps differs: `lumos-df diff`, by layer, phase, family and operator.

Every nanosecond of a step belongs to one piece of the view `step_piece`, or of `host_piece` where no GPU ran, and of an
estimated step to one of `estimate_piece`. So the rows of each grouping add up to the difference of both steps exactly.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from lumos_df.catalog import connect
from lumos_df.errors import QueryError, nearest
from lumos_df.layout import ESTIMATE


class By(StrEnum):
    """What the pieces of a step are grouped by."""

    LAYER = "layer"
    """The model's layers, as `lumos-df describe` found them."""
    PHASE = "phase"
    """Forward, backward, recompute, optimizer, communication, other."""
    FAMILY = "family"
    """What kernels do; `idle` where none ran."""
    OPERATOR = "operator"
    """The host operators that launched them."""


_GROUPS: Final = {
    By.LAYER: "coalesce('layer ' || layer, 'outside the layers')",
    By.PHASE: "phase",
    By.FAMILY: "family",
    By.OPERATOR: "CASE family WHEN 'idle' THEN 'idle before ' ELSE '' END || coalesce(operator, 'the end of the step')",
}
_MEASURED: Final = "{} WHERE trace_id = $1 AND step IS NOT DISTINCT FROM $2"
_SIDE: Final = re.compile(r"(?P<name>.*?)(?::(?P<step>[0-9]{1,9}))?")


@dataclass(frozen=True, slots=True)
class Side:
    """One step of one rank, or an estimated one."""

    asked: str
    """As the user named it."""
    trace_id: str
    """Of a trace, or of an estimate."""
    job: str | None
    rank: int | None
    """None of an estimate, which stands for all ranks."""
    step: int | None
    """None in a trace without marks, and of an estimate."""
    step_ns: int
    of: int
    """Steps that it was chosen from, as the one of median duration."""
    has_layers: bool
    """Whether any operator of its trace has a layer."""
    has_gpu: bool = True
    """Whether anything ran on a GPU; else the pieces are of host operators."""


def diff(corpus: Path, a: str, b: str, by: Sequence[By] = ()) -> tuple[pa.Table, Side, Side]:
    """Compare two steps.

    Args:
        corpus: the corpus folder.
        a, b: a job's name, or the id of a trace or an estimate or its beginning; `:N` behind it means step N. Of
            several steps the one of median duration is compared.
        by: the groupings; none: every one.

    Returns:
        Rows (what, value, a_ns, b_ns, difference_ns, difference_pct: of the step A) of which the first is the step
        itself, and those of each grouping add up to it, the largest difference first; and the two steps.

    Raises:
        LumosError: no such corpus, job, trace or step.
    """
    with connect(corpus) as connection:
        sides = (_side(connection, corpus, a), _side(connection, corpus, b))
        for name, side in zip(("_a", "_b"), sides, strict=True):
            connection.execute(
                f"CREATE TEMP TABLE {name} AS SELECT layer, phase, family, operator, dur FROM " + _pieces(side),
                [side.trace_id] if side.rank is None else [side.trace_id, side.step],
            )
        groups = [("step", "'step'"), *((one, _GROUPS[one]) for one in dict.fromkeys(by or By))]
        both = " UNION ALL ".join(
            f"SELECT {place} AS place, '{what}' AS what, {value} AS value, {durations} FROM {table}"
            for place, (what, value) in enumerate(groups)
            for table, durations in (("_a", "dur AS a_ns, 0 AS b_ns"), ("_b", "0 AS a_ns, dur AS b_ns"))
        )
        rows = connection.sql(
            "SELECT what, value, a_ns, b_ns, b_ns - a_ns AS difference_ns, "
            "round(100 * (b_ns - a_ns) / nullif(max(a_ns) OVER (), 0), 3) AS difference_pct FROM ("
            "SELECT place, what, value, sum(a_ns)::BIGINT AS a_ns, sum(b_ns)::BIGINT AS b_ns "
            f"FROM ({both}) GROUP BY place, what, value) ORDER BY place, abs(b_ns - a_ns) DESC, a_ns DESC, value"
        ).to_arrow_table()
    return rows, *sides


def _pieces(side: Side) -> str:
    if side.rank is None:
        return "estimate_piece WHERE trace_id = $1"
    return _MEASURED.format("step_piece" if side.has_gpu else "host_piece")


def _side(connection: duckdb.DuckDBPyConnection, corpus: Path, asked: str) -> Side:
    """Return the step that a name means: of several the one of median duration."""
    match = _SIDE.fullmatch(asked)
    name, number = (match["name"], match["step"]) if match else (asked, None)
    known = connection.execute("SELECT trace_id, job FROM traces ORDER BY trace_id").fetchall()
    chosen = [trace_id for trace_id, job in known if name in {trace_id, job}]
    if not chosen and name.startswith(ESTIMATE):
        return _estimate(connection, corpus, asked, name, number)
    if not chosen:
        chosen = [trace_id for trace_id, _ in known if name and trace_id.startswith(name)]
        if len(chosen) > 1:
            raise QueryError(f"{corpus}: {len(chosen)} traces have an id that begins with '{name}'; write more of it")
    if not chosen:
        names = sorted({str(text) for row in known for text in row})
        see = f"lumos-df sql 'SELECT DISTINCT job, trace_id FROM traces' --corpus {corpus}"
        raise QueryError(f"{corpus}: no job or trace '{name}'{nearest(name, names)}; see: {see}")
    steps = connection.execute(
        "SELECT step.trace_id, traces.job, step.rank, step.step, step.dur FROM step JOIN traces USING (trace_id) "
        "WHERE list_contains($1, step.trace_id) AND ($2 IS NULL OR step.step = $2) ORDER BY dur, rank, step, trace_id",
        [chosen, number],
    ).fetchall()
    if not steps:
        there = connection.execute(
            "SELECT string_agg(DISTINCT step, ', ' ORDER BY step) FROM step WHERE list_contains($1, trace_id)", [chosen]
        ).fetchall()[0][0]
        raise QueryError(f"{corpus}: '{name}' has no step {number or ''}; it has {there or 'none with a number'}")
    trace_id, job, rank, step, step_ns = steps[(len(steps) - 1) // 2]
    layers, gpu = connection.execute(
        "SELECT EXISTS (FROM layers WHERE trace_id = $1 AND layer IS NOT NULL) "
        "OR EXISTS (FROM operators WHERE trace_id = $1 AND layer IS NOT NULL), "
        "EXISTS (FROM _gpu WHERE trace_id = $1)",
        [trace_id],
    ).fetchall()[0]
    return Side(asked, trace_id, job, rank, step, step_ns, len(steps), layers, gpu)


def _estimate(connection: duckdb.DuckDBPyConnection, corpus: Path, asked: str, name: str, number: str | None) -> Side:
    """Return the step of an estimate."""
    known = connection.execute("SELECT trace_id, job, step_ns FROM estimates ORDER BY trace_id").fetchall()
    found = [row for row in known if str(row[0]).startswith(name)]
    if not found:
        see = f"lumos-df sql 'SELECT trace_id, model, hardware FROM estimates' --corpus {corpus}"
        raise QueryError(f"{corpus}: no estimate '{name}'{nearest(name, [str(row[0]) for row in known])}; see: {see}")
    if len(found) > 1:
        raise QueryError(f"{corpus}: {len(found)} estimates have an id that begins with '{name}'; write more of it")
    if number is not None:
        raise QueryError(f"{corpus}: '{name}' is an estimate, whose steps are all alike; leave out ':{number}'")
    trace_id, job, step_ns = found[0]
    return Side(asked, str(trace_id), job, None, None, int(step_ns), 1, has_layers=True)
