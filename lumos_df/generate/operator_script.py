"""One recorded operator, or the distinct shapes of a family, as a script that torch alone runs."""

from pathlib import Path
from typing import Any, Final

import polars as pl

from lumos_df.base.errors import LumosError, QueryError, nearest
from lumos_df.base.files import publish_file, unwritable
from lumos_df.corpus import catalog
from lumos_df.generate.recorded_ranks import recorded_ranks
from lumos_df.generate.recorded_rows import RecordedRows
from lumos_df.generate.replayed_calls import replay
from lumos_df.model.library import data_folder

SCRIPT: Final = "operators.py"

_PLACE: Final = "CASES = []"
"""Line of the program that the operators are written into."""


def write_operator(corpus: Path, output: Path, op_id: int, job: str | None = None, ranks: str = "all") -> int:
    """Write the operator of an id, of the first rank asked for; return 1.

    Raises `QueryError` where no call of the rank is that operator or holds it.
    """
    calls, operators, rows = _first_rank(corpus, job, None, ranks, whole=True)
    found = calls.filter(pl.col("op_id") == op_id)
    if not len(found):
        see = f"lumos-df sql \"SELECT op_id, name FROM operators WHERE kind = 'cpu_op'\" --corpus {corpus}"
        named = rows.frame.filter(pl.col("op_id") == op_id)["name"].to_list()
        what = f"{named[0]}, which is not called by itself" if named else "no operator"
        raise QueryError(f"{corpus}: {op_id} is {what}; give the outermost operator with shapes; see: {see}")
    return _write(output, found, operators)


def write_family(
    corpus: Path, output: Path, family: str, job: str | None = None, step: int | None = None, ranks: str = "all"
) -> int:
    """Write the distinct operators of a family in a step of the first rank asked for; return how many.

    Raises `QueryError` where the step has none.
    """
    calls, operators, _ = _first_rank(corpus, job, step, ranks)
    found = calls.filter((pl.col("family") == family) & (pl.col("kind") == "operator"))
    if not len(found):
        families = sorted(calls["family"].unique())
        known = ", ".join(families) or "none"
        raise QueryError(f"{corpus}: no operators of family '{family}'{nearest(family, families)}; there are {known}")
    return _write(output, found, operators)


def _first_rank(
    corpus: Path, job: str | None, step: int | None, ranks: str, *, whole: bool = False
) -> tuple[pl.DataFrame, list[dict[str, Any]], RecordedRows]:
    with catalog.connect(corpus) as connection:
        chosen = recorded_ranks(connection, corpus, job, step, ranks)
        trace_id = next(iter(chosen.trace_ids.values()))
        rows = RecordedRows.read(connection, trace_id, None if whole else chosen.step)
    replayed = replay(rows)
    return replayed.calls, replayed.operators, rows


def _write(output: Path, calls: pl.DataFrame, operators: list[dict[str, Any]]) -> int:
    took = pl.when(pl.col("gpu_ns") > 0).then("gpu_ns").otherwise("host_ns")
    times = calls.group_by("operator").agg(took.median().cast(pl.Int64).alias("ns"), took.sum().alias("all_ns"))
    cases = [
        operators[operator] | {"recorded_ns": ns}
        for operator, ns in times.sort("all_ns", "operator", descending=[True, False])
        .select("operator", "ns")
        .iter_rows()
    ]
    text = (data_folder() / "benchmark" / "recorded_operators.py").read_text("utf-8")
    lines = ",\n".join(f"    {case!r}" for case in cases)
    path = output / SCRIPT
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        publish_file(path, text.replace(_PLACE, f"CASES = [\n{lines},\n]", 1).encode())
    except OSError as error:
        raise LumosError(unwritable(path.parent, error)) from None
    return len(cases)
