"""SQLite files of profilers as columns: a block of rows at a time, without a Python statement for a row."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lumos_df.base.errors import TraceError
from lumos_df.trace.stored_file import StoredFile
from lumos_df.trace.stored_tables import StoredTables, columns_named

MAGIC: Final = b"SQLite format 3\0"
_ROWS: Final = 1 << 16
"""Rows of a block."""


class Database(StoredTables):
    """An open SQLite file."""

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        connection.text_factory = bytes  # the texts of some recorders are no UTF-8
        self._connection = connection
        try:
            found = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
            tables = {
                table.decode(): frozenset(
                    row[1].decode() for row in connection.execute(f'PRAGMA table_info("{table.decode()}")')
                )
                for (table,) in found
            }
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise TraceError(f"{name}: SQLite cannot read it ({error}); {_remedy(error)}") from None
        super().__init__(name, tables)

    def rows(self, table: str) -> int:
        """Return the number of the table's last row: no fewer than it has; 0 where there is none."""
        if table not in self.tables:
            return 0
        try:
            return int(self._connection.execute(f'SELECT coalesce(max(rowid), 0) FROM "{table}"').fetchone()[0])
        except sqlite3.Error:
            return 0

    def _integers(
        self, table: str, select: str, named: list[str], tail: str, width: int
    ) -> Sequence[NDArray[np.int64]]:
        blocks = list(self._blocks(table, f"{select} FROM {self._padded(table, named)} {tail}", width))
        whole: NDArray[np.int64] = np.concatenate(blocks, axis=1) if blocks else np.zeros((width, 0), np.int64)
        return list(whole)

    def _bytes(self, table: str, column: str, named: list[str], tail: str) -> pa.Array:
        values: list[bytes | None] = []
        rows = f"FROM {self._padded(table, named)} {tail}"
        try:
            # Most columns of texts are empty in most files, and to count takes far less than to fetch.
            count, known = self._connection.execute(f"SELECT count(*), count({column}) {rows}").fetchone()
            if not known:
                return pa.nulls(count, pa.binary())
            cursor = self._connection.execute(f"SELECT {column} {rows}")
            while block := cursor.fetchmany(_ROWS):
                values.extend(chain.from_iterable(block))
        except sqlite3.Error as error:
            self._damaged(table, error)
        return pa.array(values, pa.binary())

    def _blocks(self, table: str, query: str, width: int) -> Iterator[NDArray[np.int64]]:
        """Yield the rows of a query as [column, row], until they end or cannot be read."""
        try:
            cursor = self._connection.execute(query)
            while len(block := np.fromiter(chain.from_iterable(islice(cursor, _ROWS)), np.int64)):
                yield block.reshape(-1, width).T.copy()
        except (sqlite3.Error, OverflowError) as error:
            self._damaged(table, error)

    def _padded(self, table: str, named: list[str]) -> str:
        """Return the table with a null in each column that the SQL names and the file lacks."""
        absent = sorted(columns_named(named) - self.tables[table])
        nulls = "".join(f', NULL AS "{column}"' for column in absent)
        return f'(SELECT *{nulls} FROM "{table}")' if nulls else f'"{table}"'

    def _damaged(self, table: str, error: Exception) -> None:
        if "locked" in str(error):
            raise TraceError(f"{self.name}: {error}; {_remedy(error)}") from None
        self.damage.append(f"the rest of {table} ({error})")


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
        uri = f"{Path(path).absolute().as_uri()}?mode=ro"
        try:
            connection = sqlite3.connect(uri, uri=True, timeout=1)
        except sqlite3.Error as error:
            raise TraceError(f"{file.name}: SQLite cannot open it ({error}); check its permissions") from None
        with closing(connection):
            yield Database(connection, file.name)


def has_table(file: StoredFile, names: frozenset[str]) -> bool:
    """Return whether a file is SQLite and has one of some tables."""
    if file.head(len(MAGIC)) != MAGIC:
        return False
    with opened(file) as database:
        return not names.isdisjoint(database.tables)
