"""Small traces on disk, and what a corpus made of them holds."""

from pathlib import Path

import pyarrow.parquet as pq

from lumos_df.corpus.catalog import connect
from lumos_df.trace.ingest import IngestResult
from tests.conftest import SAMPLES
from tests.trace.literal import op, rows, write

GPU = SAMPLES / "gpu_generated"
ONE = GPU / "rank0.json.gz"


def small(path: Path, *names: str) -> Path:
    """Write a trace whose operators have `names`."""
    return write(path, [op(name, 10 * k, 5) for k, name in enumerate(names or (path.stem,))])


def names(corpus: Path) -> list[str]:
    """Return the names of all operators."""
    with connect(corpus) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM operators ORDER BY name").fetchall()]


def counts(result: IngestResult) -> tuple[int, int, int]:
    return len(result.done), len(result.skipped), len(result.failed)


def whole(corpus: Path) -> None:
    """Check that every trace in the corpus has all the rows it says it has."""
    with connect(corpus) as connection:
        for row in rows(connection, "SELECT * FROM traces"):
            for table, counted in (("operators", row["operators"]), ("memory_events", row["memory_events"])):
                found = connection.execute(f"SELECT count(*) FROM {table} WHERE trace_id = ?", [row["trace_id"]])
                assert found.fetchall() == [(counted,)], table


def unread_dictionaries(corpus: Path) -> list[str]:
    """Return the stored columns with a dictionary that none of their rows refers to.

    So pyarrow writes one where a word stands twice, and behind the words memory that nobody filled.
    """
    return [
        f"{file.name}: {chunk.path_in_schema}"
        for file in sorted(corpus.glob("trace_id=*/*.parquet"))
        for stored in [pq.read_metadata(file)]
        for group in map(stored.row_group, range(stored.num_row_groups))
        for chunk in map(group.column, range(group.num_columns))
        if chunk.num_values and chunk.has_dictionary_page and "RLE_DICTIONARY" not in chunk.encodings
    ]
