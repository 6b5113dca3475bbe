"""What the table `traces` says, without a query: from summaries of many traces while they hold, else file by file."""

from pathlib import Path
from typing import Any

from lumos_df.corpus.folder import traces_without
from lumos_df.corpus.layout import SUMMARIES, trace_folder
from lumos_df.schema import TRACES, Table


def summarised(corpus: Path, *columns: str) -> dict[str, dict[str, Any]]:
    """Return some columns of all traces, by id; nothing where the corpus has no summaries that hold."""
    if not (corpus / SUMMARIES).is_dir():
        return {}
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    from lumos_df.corpus import summaries  # noqa: PLC0415 - as above

    folder, names = summaries.current(corpus)
    if TRACES.name not in names:
        return {}
    files = (corpus / folder).glob(f"{TRACES.name}-*.parquet")
    try:
        rows = [row for file in files for row in pq.ParquetFile(file).read(["trace_id", *columns]).to_pylist()]
    except (OSError, ValueError, pa.ArrowException):
        # Another command makes them anew.
        return {}
    return {row.pop("trace_id"): row for row in rows}


def unanswered(corpus: Path, table: Table) -> set[str]:
    """Return the traces without a table in which something ran: others never get what a replay tells."""
    missing = traces_without(corpus, table)
    known = summarised(corpus, "operators", "others") if missing else {}
    return {trace_id for trace_id in missing if _something_ran(corpus, trace_id, known.get(trace_id))}


def _something_ran(corpus: Path, trace_id: str, about: dict[str, Any] | None) -> bool:
    """Return whether a trace has operators of its job; what cannot be read is for whoever reads it to say."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    if about is None:
        file = trace_folder(corpus, trace_id) / f"{TRACES.name}.parquet"
        try:
            (about,) = pq.ParquetFile(file).read(["operators", "others"]).to_pylist()
        except (OSError, ValueError, pa.ArrowException):
            return True
    return bool(about["operators"] > about["others"])
