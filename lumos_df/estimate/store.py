"""Estimates in a corpus, beside what was measured: tables `estimates` and `estimate_operators`."""

import hashlib
from pathlib import Path
from typing import Any, Final

from lumos_df.base.errors import CorpusError
from lumos_df.base.files import unwritable
from lumos_df.corpus import table_files
from lumos_df.corpus.folder import open_for_writing
from lumos_df.corpus.layout import EMPTY_PARTITION, ESTIMATE, MANIFEST, trace_folder, write_manifest
from lumos_df.estimate.configuration import Estimate
from lumos_df.schema import ESTIMATE_OPERATORS, ESTIMATES, ID_LENGTH, STEP_PARTS, Table

_NS: Final = 1e9


def write(corpus: Path, estimate: Estimate, job: str | None = None) -> str:
    """Store an estimate and its operators, over those of the same inputs; return its `trace_id`.

    A folder that is not there yet becomes a corpus.

    Args:
        corpus: the corpus folder.
        estimate: what to store.
        job: the job of the corpus that it estimates, for the view `estimate_vs_measured`.

    Raises:
        CorpusError: the folder is something else, or cannot be written.
    """
    inputs = (vars(estimate.model), vars(estimate.hardware), vars(estimate.software), vars(estimate.plan), job)
    name = f"{ESTIMATE}{hashlib.sha256(repr(inputs).encode()).hexdigest()[:ID_LENGTH]}"
    try:
        open_for_writing(corpus)
        (corpus / EMPTY_PARTITION).mkdir(exist_ok=True)
        if not (corpus / MANIFEST).exists():
            write_manifest(corpus)
        trace_folder(corpus, name).mkdir(exist_ok=True)
    except OSError as error:
        raise CorpusError(unwritable(corpus, error)) from None
    # The estimate last: who finds it finds its operators, too.
    _write(corpus, name, ESTIMATE_OPERATORS, estimate.operators)
    _write(corpus, name, ESTIMATES, [_row(estimate, job)])
    return name


def _write(corpus: Path, name: str, table: Table, rows: list[dict[str, Any]]) -> None:
    columns = {column.name: [row[column.name] for row in rows] for column in table.columns[1:]}
    table_files.write(corpus, name, table, columns)


def _row(estimate: Estimate, job: str | None) -> dict[str, Any]:
    """Return the row of `estimates`: times in whole nanoseconds, of which the four parts add up to the step."""
    row: dict[str, Any] = dict(estimate.answers) | {"job": job, "provenance": "modelled"}
    for key, value in estimate.answers.items():
        if key.endswith("_s"):
            row[f"{key[:-2]}_ns"] = round(value * _NS)
        elif key.endswith("_gb"):
            row[f"{key[:-3]}_bytes"] = round(value * _NS)
    row["step_ns"] = row.pop("iteration_time_ns")
    *rounded, last = (f"{part.name}_ns" for part in STEP_PARTS)
    row[last] = row["step_ns"] - sum(row[part] for part in rounded)
    return (
        row
        | vars(estimate.plan)
        | {
            "model": estimate.model.name,
            "hardware": estimate.hardware.name,
            "software": estimate.software.name,
        }
    )
