"""Where the time of two steps differs: `lumos-df diff`, by cause, layer, phase, family and operator.

Every nanosecond of a step belongs to one piece of the view `step_piece`, or of `host_piece` where no GPU ran, and of an
estimated step to one of `estimate_piece`; a piece of communication is waiting, then transfer. So the rows of each
grouping add up to the difference of both steps exactly.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from lumos_df.base.errors import QueryError, nearest
from lumos_df.corpus.catalog import connect
from lumos_df.corpus.layout import ESTIMATE, MANIFEST


class Grouping(StrEnum):
    """What the pieces of a step are grouped by."""

    CAUSE = "cause"
    """What ran: a kernel, a transfer; or who was waited for."""
    LAYER = "layer"
    """The model's layers, as `lumos-df describe` found them."""
    PHASE = "phase"
    """Forward, backward, recompute, optimizer, communication, other."""
    FAMILY = "family"
    """What kernels do; `idle` where none ran."""
    OPERATOR = "operator"
    """The host operators that launched them."""


STEP_PIECE: Final = "step_piece"
"""View of a step that ran on a GPU; it tells who waits for whom, once the job's collectives are matched."""
_GROUPS: Final = {
    Grouping.CAUSE: "cause",
    Grouping.LAYER: "coalesce('layer ' || layer, 'outside the layers')",
    Grouping.PHASE: "phase",
    Grouping.FAMILY: "family",
    Grouping.OPERATOR: "if(family = 'idle', 'idle before ', '') || coalesce(operator, 'the end of the step')",
}
_WAITS: Final = """'waiting for ' || coalesce('rank ' || waits_for, 'ranks that were not recorded') || ' in '"""
_QUERIES: Final = {
    STEP_PIECE: f"""
        SELECT layer, phase, family, operator, part.ns AS dur, CASE WHEN state <> 'idle' THEN op_id END AS op_id,
            CASE
                WHEN part.waits THEN {_WAITS} || coalesce(collective, name)
                WHEN state = 'idle' THEN 'no kernel runs, ' || phase
                WHEN waiting_ns IS NOT NULL THEN 'transfer of ' || coalesce(collective, name)
                ELSE family || ' ' || name
            END AS cause
        FROM (
            SELECT piece.*, gpu.collective,
                coalesce(waiting_ns, 0) AS wait_ns,
                unnest([{{waits: true, ns: wait_ns}}, {{waits: false, ns: piece.dur - wait_ns}}]) AS part
            FROM step_piece AS piece
            LEFT JOIN operators AS gpu USING (trace_id, op_id)
            WHERE trace_id = $1 AND piece.step IS NOT DISTINCT FROM $2
        )
        WHERE part.ns > 0
    """,
    "host_piece": """
        SELECT layer, phase, family, operator, dur, CASE WHEN state <> 'idle' THEN op_id END AS op_id,
            CASE state WHEN 'idle' THEN 'no operator runs, ' || phase ELSE family || ' ' || operator END AS cause
        FROM host_piece
        WHERE trace_id = $1 AND step IS NOT DISTINCT FROM $2
    """,
    "estimate_piece": """
        SELECT layer, phase, family, operator, dur, NULL AS op_id,
            CASE WHEN family IN ('idle', operator) THEN operator ELSE family || ' ' || operator END AS cause
        FROM estimate_piece
        WHERE trace_id = $1
    """,
}
"""Query for the pieces of a step, by the view that has them."""
_ASKED: Final = re.compile(r"(?P<name>.*?)(?::(?P<step>[0-9]{1,9}))?")


@dataclass(frozen=True, slots=True)
class ComparedStep:
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
    candidates: int
    """Steps that it was chosen from, as the one of median duration."""
    has_layers: bool
    """Whether any operator of its trace has a layer."""
    has_gpu: bool = True
    """Whether anything ran on a GPU; else the pieces are of host operators."""

    @property
    def view(self) -> str:
        """View of its pieces."""
        if self.rank is None:
            return "estimate_piece"
        return STEP_PIECE if self.has_gpu else "host_piece"


def diff(corpus: Path, a: str, b: str, by: Sequence[Grouping] = ()) -> tuple[pa.Table, ComparedStep, ComparedStep]:
    """Compare two steps.

    Args:
        corpus: the corpus folder.
        a, b: a job's name, or the id of a trace or an estimate or its beginning; `:N` behind it means step N. Of
            several steps the one of median duration is compared.
        by: the groupings; none: every one.

    Returns:
        Rows (what, value, a_ns, b_ns, difference_ns, difference_pct: of the step A, a_operators, b_operators: that ran
        meanwhile, 0 of an estimate) of which the first is the step itself, and the times of each grouping add up to it,
        the largest difference first; and the two steps.

    Raises:
        LumosError: no such corpus, job, trace or step.
    """
    with connect(corpus) as connection:
        compared = (_compared(connection, corpus, a), _compared(connection, corpus, b))
        for name, step in zip(("_a", "_b"), compared, strict=True):
            connection.execute(
                f"CREATE TEMP TABLE {name} AS {_QUERIES[step.view]}",
                [step.trace_id] if step.rank is None else [step.trace_id, step.step],
            )
        groupings = [("step", "'step'"), *((grouping, _GROUPS[grouping]) for grouping in dict.fromkeys(by or Grouping))]
        both = " UNION ALL ".join(
            f"SELECT {place} AS place, '{grouping}' AS what, {value} AS value, {columns} FROM {table}"
            for place, (grouping, value) in enumerate(groupings)
            for table, columns in (
                ("_a", "dur AS a_ns, 0 AS b_ns, op_id AS a_id, NULL AS b_id"),
                ("_b", "0 AS a_ns, dur AS b_ns, NULL AS a_id, op_id AS b_id"),
            )
        )
        rows = connection.sql(
            "SELECT what, value, a_ns, b_ns, b_ns - a_ns AS difference_ns, "
            "round(100 * (b_ns - a_ns) / nullif(max(a_ns) OVER (), 0), 3) AS difference_pct, a_operators, b_operators "
            "FROM (SELECT place, what, value, sum(a_ns)::BIGINT AS a_ns, sum(b_ns)::BIGINT AS b_ns, "
            "count(DISTINCT a_id) AS a_operators, count(DISTINCT b_id) AS b_operators "
            f"FROM ({both}) GROUP BY place, what, value) ORDER BY place, abs(b_ns - a_ns) DESC, a_ns DESC, value"
        ).to_arrow_table()
    return rows, *compared


def _compared(connection: duckdb.DuckDBPyConnection, corpus: Path, asked: str) -> ComparedStep:
    """Return the step that a name means: of several the one of median duration."""
    match = _ASKED.fullmatch(asked)
    name, number = (match["name"], match["step"]) if match else (asked, None)
    traces = connection.execute("SELECT trace_id, job FROM traces ORDER BY trace_id").fetchall()
    chosen = [trace_id for trace_id, job in traces if name in {trace_id, job}]
    if not chosen and name.startswith(ESTIMATE):
        return _estimate(connection, corpus, asked, name, number)
    if not chosen:
        chosen = [trace_id for trace_id, _ in traces if name and trace_id.startswith(name)]
        if len(chosen) > 1:
            raise QueryError(f"{corpus}: {len(chosen)} traces have an id that begins with '{name}'; write more of it")
    if not chosen and (Path(asked) / MANIFEST).is_file():
        raise QueryError(
            f"{asked}: a corpus, not a job: steps are compared within one; ingest both jobs into one corpus, each with "
            "--job NAME, and name them"
        )
    if not chosen:
        names = sorted({str(text) for row in traces for text in row})
        see = f"lumos-df sql 'SELECT DISTINCT job, trace_id FROM traces' --corpus {corpus}"
        raise QueryError(f"{corpus}: no job or trace '{name}'{nearest(name, names)}; see: {see}")
    steps = connection.execute(
        "SELECT trace_id, job, rank, step, dur FROM step "
        "WHERE list_contains($1, trace_id) AND ($2 IS NULL OR step = $2) ORDER BY dur, rank, step, trace_id",
        [chosen, number],
    ).fetchall()
    if not steps:
        numbers = connection.execute(
            "SELECT string_agg(DISTINCT step, ', ' ORDER BY step) FROM step WHERE list_contains($1, trace_id)", [chosen]
        ).fetchall()[0][0]
        if number is None:
            raise QueryError(f"{corpus}: '{name}' has no step to compare: nothing that a step is made of was recorded")
        raise QueryError(f"{corpus}: '{name}' has no step {number}; it has {numbers or 'none with a number'}")
    trace_id, job, rank, step, step_ns = steps[(len(steps) - 1) // 2]
    layers, gpu = connection.execute(
        "SELECT EXISTS (FROM layers WHERE trace_id = $1 AND layer IS NOT NULL) "
        "OR EXISTS (FROM operators WHERE trace_id = $1 AND layer IS NOT NULL), "
        "EXISTS (FROM _gpu WHERE trace_id = $1)",
        [trace_id],
    ).fetchall()[0]
    return ComparedStep(
        asked, trace_id, job, rank, step, step_ns, candidates=len(steps), has_layers=layers, has_gpu=gpu
    )


def _estimate(
    connection: duckdb.DuckDBPyConnection, corpus: Path, asked: str, name: str, number: str | None
) -> ComparedStep:
    """Return the step of an estimate."""
    estimates = connection.execute("SELECT trace_id, job, step_ns FROM estimates ORDER BY trace_id").fetchall()
    matching = [row for row in estimates if str(row[0]).startswith(name)]
    if not matching:
        see = f"lumos-df sql 'SELECT trace_id, model, hardware FROM estimates' --corpus {corpus}"
        raise QueryError(
            f"{corpus}: no estimate '{name}'{nearest(name, [str(row[0]) for row in estimates])}; see: {see}"
        )
    if len(matching) > 1:
        raise QueryError(f"{corpus}: {len(matching)} estimates have an id that begins with '{name}'; write more of it")
    if number is not None:
        raise QueryError(f"{corpus}: '{name}' is an estimate, whose steps are all alike; leave out ':{number}'")
    trace_id, job, step_ns = matching[0]
    return ComparedStep(asked, str(trace_id), job, None, None, int(step_ns), candidates=1, has_layers=True)
