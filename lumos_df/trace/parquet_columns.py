"""A folder of Parquet files of a profiler, one a table, as columns."""

from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lumos_df.base.errors import TraceError
from lumos_df.trace.stored_tables import StoredTables, as_integer, columns_named

_ENDING: Final = ".parquet"


class ParquetFolder(StoredTables):
    """A folder whose files are named by their tables. A file that is no Parquet is left out, and stands in `damage`."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._rows: dict[str, int] = {}
        tables: dict[str, frozenset[str]] = {}
        unreadable: list[str] = []
        for file in sorted(self._folder.glob(f"*{_ENDING}")):
            try:
                metadata = pq.read_metadata(file)
            except (pa.ArrowException, OSError) as error:
                unreadable.append(f"{file.name} ({_first_line(error)})")
                continue
            tables[file.stem] = frozenset(metadata.schema.to_arrow_schema().names)
            self._rows[file.stem] = metadata.num_rows
        if not tables:
            raise TraceError(
                f"{folder}: no file here can be read as Parquet ({'; '.join(unreadable)}); export it again"
            )
        super().__init__(folder, tables)
        self.damage += unreadable

    def rows(self, table: str) -> int:
        """Return the rows of a table; 0 where there is none."""
        return self._rows.get(table, 0)

    def _columns(self, table: str, integers: list[str], of_bytes: list[str], tail: str) -> list[Any]:
        wanted, bytes_of = columns_named([*integers, *of_bytes, tail]), columns_named(of_bytes)
        # DuckDB's texts are UTF-8, as not all of these are: as bytes they go through untouched.
        select = ", ".join([*map(as_integer, integers), *(f"cast({sql} AS BLOB)" for sql in of_bytes)]) or "NULL"
        try:
            rows = pq.read_table(self._folder / f"{table}{_ENDING}", columns=sorted(wanted & self.tables[table]))
            plain = {name: _plain(rows.column(name)) for name in rows.column_names}
            nulls = {
                name: pa.nulls(rows.num_rows, pa.binary() if name in bytes_of else pa.int64())
                for name in wanted - plain.keys()
            }
            with duckdb.connect() as connection:
                connection.register("stored", pa.table({**plain, **nulls}))
                found = connection.sql(f"SELECT {select} FROM stored {tail}").to_arrow_table().combine_chunks()
        except (pa.ArrowException, OSError, duckdb.Error) as error:
            self.damage.append(f"{table} ({_first_line(error)})")
            return [*[np.zeros(0, np.int64)] * len(integers), *[pa.array([], pa.binary())] * len(of_bytes)]
        columns, count = found.columns, len(integers)
        return [
            *(column.to_numpy() for column in columns[:count]),
            *(column.cast(pa.binary()).combine_chunks() for column in columns[count : count + len(of_bytes)]),
        ]


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return integers as int64, so that differences of unsigned ones may be negative, and texts as bytes."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64(), safe=False)
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    return column.cast(pa.large_binary()) if is_text else column


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
