"""Tables of a profiler's file as columns, however they are stored: what readers of SQLite and of Parquet share."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lumos_df.schema.codes import NULL


class StoredTables(ABC):
    """The tables of an open file. What cannot be read of it stands in `damage`.

    SQL of columns is what SQLite and DuckDB have in common; names of columns stand in double quotes, and one that the
    table lacks is null.
    """

    def __init__(self, name: str, tables: Mapping[str, frozenset[str]]) -> None:
        self.name = name
        self.tables = tables
        """Columns of each table."""
        self.damage: list[str] = []
        """What was left out since the file is damaged, a clause each."""
        self.broken_texts = 0
        """Texts that are no UTF-8."""

    def columns(self, table: str, wanted: Sequence[str]) -> list[str]:
        """Return those of the wanted columns that a table has."""
        return [column for column in wanted if column in self.tables.get(table, ())]

    def numbers(self, table: str, columns: Mapping[str, str], tail: str = "") -> dict[str, NDArray[Any]]:
        """Return columns of integers, int64, NULL for null.

        Args:
            table: no rows where the file lacks it.
            columns: SQL of each column by its name in the answer.
            tail: SQL behind FROM.
        """
        if table not in self.tables:
            return dict.fromkeys(columns, np.zeros(0, np.int64))
        selected = ", ".join(f"coalesce(cast({sql} AS BIGINT), {NULL + 1} - 1)" for sql in columns.values())
        found = self._integers(table, f"SELECT {selected}", [*columns.values(), tail], tail, len(columns))
        return dict(zip(columns, found, strict=True))

    def texts(self, table: str, text: str, tail: str = "") -> pa.Array:
        """Return a column of texts by its SQL, null for null; what is no UTF-8 is replaced by U+FFFD and counted."""
        if table not in self.tables:
            return pa.array([], pa.string())
        array = self._bytes(table, f"cast({text} AS TEXT)", [text, tail], tail)
        try:
            return array.cast(pa.string())
        except pa.ArrowInvalid:
            decoded = [None if text is None else text.decode("utf-8", "replace") for text in array.to_pylist()]
            self.broken_texts += sum("\ufffd" in text for text in decoded if text is not None)
            return pa.array(decoded, pa.string())

    def blobs(self, table: str, column: str, tail: str = "") -> pa.Array:
        """Return a column of bytes by its SQL, null for null."""
        if table not in self.tables:
            return pa.array([], pa.binary())
        return self._bytes(table, f"cast({column} AS BLOB)", [column, tail], tail)

    @abstractmethod
    def rows(self, table: str) -> int:
        """Return the rows of a table, no fewer than it has; 0 where there is none."""

    @abstractmethod
    def _integers(
        self, table: str, select: str, named: list[str], tail: str, width: int
    ) -> Sequence[NDArray[np.int64]]:
        """Return the columns of a query as far as it can be read; `named` is all SQL that names columns."""

    @abstractmethod
    def _bytes(self, table: str, column: str, named: list[str], tail: str) -> pa.Array:
        """Return a column of bytes, whatever they are."""


def columns_named(sql: Sequence[str]) -> frozenset[str]:
    """Return the columns, in double quotes, that SQL names."""
    return frozenset(column for text in sql for column in text.split('"')[1::2])
