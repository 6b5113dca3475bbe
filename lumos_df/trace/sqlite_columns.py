"""SQLite files of profilers as columns: a block of rows at a time, without a Python statement for a row."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lumos_df.base.errors import TraceError
from lumos_df.schema.codes import NULL
from lumos_df.trace.stored_file import StoredFile

MAGIC: Final = b"SQLite format 3\0"
_ROWS: Final = 1 << 16
"""Rows of a block."""


class Database:
    """An open file: its tables, and their columns. What cannot be read of it stands in `damage`."""

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        connection.text_factory = bytes  # the texts of some recorders are no UTF-8
        self._connection = connection
        self.name = name
        self.damage: list[str] = []
        """What was left out since the file is damaged, a clause each."""
        self.broken_texts = 0
        """Texts that are no UTF-8."""
        try:
            found = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
            self.tables = {
                table.decode(): frozenset(
                    row[1].decode() for row in connection.execute(f'PRAGMA table_info("{table.decode()}")')
                )
                for (table,) in found
            }
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise TraceError(f"{name}: SQLite cannot read it ({error}); {_remedy(error)}") from None

    def columns(self, table: str, wanted: Sequence[str]) -> list[str]:
        """Return those of the wanted columns that a table has."""
        return [column for column in wanted if column in self.tables.get(table, ())]

    def rows(self, table: str) -> int:
        """Return the rows of a table, by its last row's number: no more than that; 0 where there is none."""
        if table not in self.tables:
            return 0
        try:
            return int(self._connection.execute(f'SELECT coalesce(max(rowid), 0) FROM "{table}"').fetchone()[0])
        except sqlite3.Error:
            return 0

    def numbers(self, table: str, columns: Mapping[str, str], tail: str = "") -> dict[str, NDArray[Any]]:
        """Return columns of integers, int64, NULL for null.

        Args:
            table: no rows where the file lacks it.
            columns: SQL of each column by its name in the answer. Names of columns stand in double quotes; one that the
                table lacks is null.
            tail: SQL behind FROM.
        """
        present = self.tables.get(table)
        if present is None:
            return dict.fromkeys(columns, np.zeros(0, np.int64))
        selected = ", ".join(f"coalesce(cast({sql} AS INTEGER), {NULL + 1} - 1)" for sql in columns.values())
        query = f"SELECT {selected} FROM {self._padded(table, *columns.values(), tail)} {tail}"
        blocks = list(self._blocks(table, query, len(columns)))
        whole = np.concatenate(blocks, axis=1) if blocks else np.zeros((len(columns), 0), np.int64)
        return dict(zip(columns, whole, strict=True))

    def texts(self, table: str, text: str, tail: str = "") -> pa.Array:
        """Return a column of texts by its SQL, null for null; what is no UTF-8 is replaced by U+FFFD and counted."""
        if table not in self.tables:
            return pa.array([], pa.string())
        texts: list[bytes | None] = []
        try:
            cursor = self._connection.execute(
                f"SELECT cast({text} AS TEXT) FROM {self._padded(table, text, tail)} {tail}"
            )
            while block := cursor.fetchmany(_ROWS):
                texts.extend(chain.from_iterable(block))
        except sqlite3.Error as error:
            self._damaged(table, error)
        array = pa.array(texts, pa.binary())
        try:
            return array.cast(pa.string())
        except pa.ArrowInvalid:
            decoded = [None if text is None else text.decode("utf-8", "replace") for text in texts]
            self.broken_texts += sum("\ufffd" in text for text in decoded if text is not None)
            return pa.array(decoded, pa.string())

    def _blocks(self, table: str, query: str, width: int) -> Iterator[NDArray[np.int64]]:
        """Yield the rows of a query as [column, row], until they end or cannot be read."""
        try:
            cursor = self._connection.execute(query)
            while len(block := np.fromiter(chain.from_iterable(islice(cursor, _ROWS)), np.int64)):
                yield block.reshape(-1, width).T.copy()
        except (sqlite3.Error, OverflowError) as error:
            self._damaged(table, error)

    def _padded(self, table: str, *sql: str) -> str:
        """Return the table with a null in each column, in double quotes, that the SQL names and the file lacks."""
        named = {column for text in sql for column in text.split('"')[1::2]}
        nulls = "".join(f', NULL AS "{column}"' for column in sorted(named - self.tables[table]))
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
