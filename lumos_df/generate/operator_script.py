"""One recorded operator, or the distinct shapes of a family, as a script that torch alone runs."""

from pathlib import Path
from typing import Any, Final

import polars as pl

from lumos_df.base.errors import LumosError, QueryError, nearest
from lumos_df.base.files import publish_file, unwritable
from lumos_df.corpus import catalog
from lumos_df.generate.operator_page import operator_page
from lumos_df.generate.recorded_ranks import recorded_ranks
from lumos_df.generate.recorded_rows import RecordedRows
from lumos_df.generate.replayed_calls import replay
from lumos_df.model.library import data_folder

SCRIPT: Final = "operators.py"

_PLACE: Final = "CASES = []"
"""Line of the program that the operators are written into."""


def write_operator(corpus: Path, output: Path, op_id: int, job: str | None = None, ranks: str = "all") -> int:
    """Write the operator of an id, or that of which a kernel of this id is; of the first rank asked for. Return 1.

    Raises `QueryError` where the rank has no such row, or none around it with known inputs, and for a collective.
    """
    rows = _first_rank(corpus, job, None, ranks, whole=True)
    replayed = replay(rows, op_id)
    named = rows.frame.filter(pl.col("op_id") == op_id)["name"].to_list()
    if not named:
        see = f"lumos-df sql \"SELECT trace_id, op_id, name FROM operators WHERE kind = 'cpu_op'\" --corpus {corpus}"
        raise QueryError(f"{corpus}: no operator {op_id} in the trace; name its trace with --job; see: {see}")
    if not len(replayed.calls):
        raise QueryError(
            f"{corpus}: {op_id} is {named[0][:60]}, whose inputs are not known, nor those of an operator "
            "around it; record with shapes (lumos-df capture, or record_shapes=True)"
        )
    if replayed.calls["kind"][0] == "collective":
        raise QueryError(
            f"{corpus}: {op_id} is {named[0][:60]}, a collective, which one process cannot run; write the step, "
            "without --operator"
        )
    ((operator, recorded_ns),) = _timed(replayed.calls, replayed.operators)
    _write(output, operator_page(operator, recorded_ns))
    return 1


def write_family(
    corpus: Path, output: Path, family: str, job: str | None = None, step: int | None = None, ranks: str = "all"
) -> int:
    """Write the distinct operators of a family in a step of the first rank asked for; return how many.

    Raises `QueryError` where the step has none.
    """
    replayed = replay(_first_rank(corpus, job, step, ranks))
    operators = replayed.calls.filter(pl.col("kind") == "operator")
    found = operators.filter(pl.col("family") == family)
    if not len(found):
        families = sorted(operators["family"].unique())
        known = ", ".join(families) or "none"
        raise QueryError(f"{corpus}: no operators of family '{family}'{nearest(family, families)}; there are {known}")
    cases = [operator | {"recorded_ns": ns} for operator, ns in _timed(found, replayed.operators)]
    text = (data_folder() / "benchmark" / "recorded_operators.py").read_text("utf-8")
    lines = ",\n".join(f"    {case!r}" for case in cases)
    _write(output, text.replace(_PLACE, f"CASES = [\n{lines},\n]", 1))
    return len(cases)


def _first_rank(corpus: Path, job: str | None, step: int | None, ranks: str, *, whole: bool = False) -> RecordedRows:
    with catalog.connect(corpus) as connection:
        chosen = recorded_ranks(connection, corpus, job, step, ranks)
        trace_id = next(iter(chosen.trace_ids.values()))
        return RecordedRows.read(connection, trace_id, None if whole else chosen.step)


def _timed(calls: pl.DataFrame, operators: list[dict[str, Any]]) -> list[tuple[dict[str, Any], int]]:
    """Return what calls run, that with the most time first, each with the median of its recorded times."""
    took = pl.when(pl.col("gpu_ns") > 0).then("gpu_ns").otherwise("host_ns")
    times = calls.group_by("operator").agg(took.median().cast(pl.Int64).alias("ns"), took.sum().alias("all_ns"))
    times = times.sort("all_ns", "operator", descending=[True, False])
    return [(operators[operator], ns) for operator, ns in times.select("operator", "ns").iter_rows()]


def _write(output: Path, text: str) -> None:
    path = output / SCRIPT
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        publish_file(path, text.encode())
    except OSError as error:
        raise LumosError(unwritable(path.parent, error)) from None
