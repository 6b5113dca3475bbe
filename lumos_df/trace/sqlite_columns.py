"""SQLite files of profilers as columns, by Arrow's driver: a block of rows at a time, and no Python object a row."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from adbc_driver_manager import Error
from adbc_driver_sqlite import StatementOptions, dbapi
from numpy.typing import NDArray

from lumos_df.base.errors import TraceError
from lumos_df.trace.stored_file import StoredFile
from lumos_df.trace.stored_tables import StoredTables, columns_named

MAGIC: Final = b"SQLite format 3\0"
_ROWS: Final = 1 << 14
"""Rows of a block."""
_FAULTS: Final = (Error, OSError, pa.ArrowException)
"""What the driver raises when it prepares a query, and when it reads on."""


class Database(StoredTables):
    """An open SQLite file."""

    def __init__(self, connection: dbapi.Connection, name: str) -> None:
        self._connection = connection
        tables: dict[str, set[str]] = {}
        try:
            for block in self._blocks(
                "SELECT CAST(of.name AS BLOB), CAST(has.name AS BLOB) FROM sqlite_master AS of, "
                "pragma_table_info(of.name) AS has WHERE of.type IN ('table', 'view')"
            ):
                for table, column in zip(*(of_all.to_pylist() for of_all in block.columns), strict=True):
                    tables.setdefault(table.decode(), set()).add(column.decode())
        except (*_FAULTS, UnicodeDecodeError) as error:
            raise TraceError(f"{name}: SQLite cannot read it ({_reason(error)}); {_remedy(error)}") from None
        super().__init__(name, {table: frozenset(columns) for table, columns in tables.items()})

    def rows(self, table: str) -> int:
        """Return the number of the table's last row: no fewer than it has; 0 where there is none."""
        if table not in self.tables:
            return 0
        try:
            (block,) = self._blocks(f'SELECT coalesce(max(rowid), 0) FROM "{table}"')
        except _FAULTS:
            return 0
        return int(block.column(0)[0].as_py())

    def _integers(
        self, table: str, select: str, named: list[str], tail: str, width: int
    ) -> Sequence[NDArray[np.int64]]:
        blocks = self._readable(table, f"{select} FROM {self._padded(table, named)} {tail}")
        if not blocks:
            return [np.zeros(0, np.int64)] * width
        whole = pa.Table.from_batches(blocks)
        return [column.to_numpy() for column in whole.columns]

    def _bytes(self, table: str, column: str, named: list[str], tail: str) -> pa.Array:
        rows = f"FROM {self._padded(table, named)} {tail}"
        # Most columns of texts are empty in most files, and to count takes far less than to fetch.
        for counts in self._readable(table, f"SELECT count(*), count({column}) {rows}"):
            count, known = (of_all[0].as_py() for of_all in counts.columns)
            if not known:
                return pa.nulls(count, pa.binary())
        # The driver takes the type of a column from its first block, where it may have nulls alone.
        blocks = self._readable(table, f"SELECT coalesce(cast({column} AS BLOB), x''), {column} IS NULL {rows}")
        null = pa.scalar(None, pa.binary())
        values = [pc.if_else(block.column(1).cast(pa.bool_()), null, block.column(0)) for block in blocks]
        return pa.concat_arrays(values) if values else pa.array([], pa.binary())

    def _readable(self, table: str, query: str) -> list[pa.RecordBatch]:
        """Return the rows of a query until they end or cannot be read."""
        blocks: list[pa.RecordBatch] = []
        try:
            blocks.extend(self._blocks(query))
        except _FAULTS as error:
            if "locked" in str(error):
                raise TraceError(f"{self.name}: {_reason(error)}; {_remedy(error)}") from None
            self.damage.append(f"the rest of {table} ({_reason(error)})")
        return blocks

    def _blocks(self, query: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query; none is an empty block, whose columns have no types."""
        with self._connection.cursor(adbc_stmt_kwargs={StatementOptions.BATCH_ROWS.value: _ROWS}) as cursor:
            cursor.execute(query)
            yield from (block for block in cursor.fetch_record_batch() if block.num_rows)

    def _padded(self, table: str, named: list[str]) -> str:
        """Return the table with a null in each column that the SQL names and the file lacks."""
        absent = sorted(columns_named(named) - self.tables[table])
        nulls = "".join(f', NULL AS "{column}"' for column in absent)
        return f'(SELECT *{nulls} FROM "{table}")' if nulls else f'"{table}"'


def _reason(error: Exception) -> str:
    """Return what SQLite says, without the driver's words around it."""
    return str(error).partition("\n")[0].rpartition(": ")[2]


def _remedy(error: Exception) -> str:
    if "locked" in str(error):
        return "another program writes it: wait until it is done"
    return "the file is damaged or was copied while it was written: export it again"


@contextmanager
def opened(file: StoredFile) -> Iterator[Database]:
    """Open a file for reading; one that is packed or not on this machine is copied first.

    Raises:
        TraceError: SQLite cannot read it.
    """
    with file.on_disk() as path:
        try:
            connection = dbapi.connect(f"{Path(path).absolute().as_uri()}?mode=ro", autocommit=True)
        except _FAULTS as error:
            raise TraceError(f"{file.name}: SQLite cannot open it ({_reason(error)}); check its permissions") from None
        with connection:
            yield Database(connection, file.name)


def has_table(file: StoredFile, names: frozenset[str]) -> bool:
    """Return whether a file is SQLite and has one of some tables."""
    if file.head(len(MAGIC)) != MAGIC:
        return False
    with opened(file) as database:
        return not names.isdisjoint(database.tables)
