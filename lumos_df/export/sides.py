"""What the processes of a timeline show, as SQL: slices with what is said of them, and the arrows between slices."""

from typing import Final

from lumos_df.export.job_ranks import HIDDEN_KINDS
from lumos_df.schema import GPU_KINDS

_LANE: Final = (
    "CASE WHEN o.stream IS NULL THEN 'thread ' || o.thread ELSE 'GPU ' || o.device || ' stream ' || o.stream END"
)


def _args(**values: str) -> str:
    """Return SQL for a JSON object of what these expressions give; what is null is left out, but not the first."""
    (first, value), *others = values.items()
    parts = [f"'{{\"{first}\":' || {value}", *(f"""coalesce(',"{name}":' || {text}, '')""" for name, text in others)]
    return " || ".join([*parts, "'}'"])


_OPERATOR_ARGS: Final = {
    "op_id": "o.op_id",
    "step": "o.step",
    "phase": "to_json(coalesce(l.phase, o.phase))",
    "layer": "coalesce(l.layer, o.layer)",
    "layer_evidence": "to_json(l.layer_evidence)",
    "shapes": "to_json(o.input_dims)",
    "in_bytes": "o.in_bytes",
    "out_bytes": "o.out_bytes",
    "occupancy_pct": "round(o.occupancy::DOUBLE, 1)",
}
_RECORDED_ARGS: Final = _args(
    **_OPERATOR_ARGS,
    waiting_us="(o.dur - c.transfer_ns) / 1000",
    known="to_json(coalesce(s.provenance, 'measured'))",
)
_REPLAYED: Final = "to_json('replayed')"
_PATH_ARGS: Final = _args(
    kind="to_json(p.kind)",
    step="p.step",
    piece="p.piece",
    rank="p.on_rank",
    op_id="p.op_id",
    slack_us="p.slack_ns / 1000",
    known=_REPLAYED,
)
_OPERATORS: Final = """
FROM operators o
LEFT JOIN (SELECT * FROM layers WHERE trace_id = $trace) l ON l.op_id = o.op_id
LEFT JOIN (SELECT * FROM collectives WHERE trace_id = $trace) c ON c.op_id = o.op_id
"""
_SHOWN: Final = f"o.trace_id = $trace AND o.kind NOT IN {HIDDEN_KINDS}"

RECORDED: Final = f"""
SELECT coalesce({_LANE}, 'elsewhere') AS lane, o.name, o.kind, o.ts - $zero AS ts, o.dur, o.op_id AS key,
  {_RECORDED_ARGS} AS args
{_OPERATORS}
LEFT JOIN (SELECT * FROM operator_sources WHERE trace_id = $trace) s ON s.op_id = o.op_id
WHERE {_SHOWN}
"""
"""The operators of a trace as recorded, or as estimated."""


def simulated(replay: str, waiting_ns: str) -> str:
    """Return the operators of a trace in a replay.

    Args:
        replay: the table of the replay.
        waiting_ns: how long collectives wait in it.
    """
    said = _args(
        **_OPERATOR_ARGS,
        waiting_us=f"{waiting_ns} / 1000",
        slack_us="r.slack_ns / 1000",
        known=_REPLAYED,
    )
    return f"""
    SELECT coalesce({_LANE}, 'elsewhere') AS lane, o.name, o.kind, r.ts - $zero AS ts, r.dur, o.op_id AS key,
      {said} AS args
    {_OPERATORS}
    JOIN {replay} r ON r.trace_id = o.trace_id AND r.op_id = o.op_id
    WHERE {_SHOWN}
    """


PATH: Final = f"""
SELECT 'rank ' || coalesce(p.on_rank, p.rank) || coalesce(' ' || {_LANE}, '') AS lane,
  coalesce(p.operator, p.kind) AS name, p.kind,
  p.ts - $zero AS ts, p.dur, row_number() OVER (ORDER BY p.step, p.piece) AS key,
  {_PATH_ARGS} AS args
FROM critical_path p
LEFT JOIN operators o ON o.trace_id = p.on_trace_id AND o.op_id = p.op_id
WHERE p.trace_id = $trace AND p.dur > 0
"""
"""The critical path of the steps of a rank, which may run on others."""

LAUNCHES: Final = f"""
SELECT parent_id AS src, op_id AS dst, 'launch' AS name FROM operators
WHERE trace_id = $trace AND kind IN {GPU_KINDS} AND parent_id IS NOT NULL
"""
NEXT: Final = """
SELECT lag(key) OVER w AS src, key AS dst, 'critical path' AS name
FROM (
  SELECT step, piece, row_number() OVER (ORDER BY step, piece) AS key
  FROM critical_path WHERE trace_id = $trace AND dur > 0
)
WINDOW w AS (PARTITION BY step ORDER BY piece)
"""
