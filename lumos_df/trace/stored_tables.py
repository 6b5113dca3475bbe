"""Tables of a profiler's file as columns, however they are stored: what readers of SQLite and of Parquet share."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
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

    def __init__(
        self,
        name: str,
        tables: Mapping[str, frozenset[str]],
        unreadable: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.name = name
        self.tables = tables
        """Columns of each table."""
        self._unreadable = unreadable
        """Why other tables cannot be read."""
        self.damage: list[str] = []
        """What was left out since the file is damaged, a clause each."""
        self.broken_texts = 0
        """Texts that are no UTF-8."""

    def columns(self, table: str, wanted: Sequence[str]) -> list[str]:
        """Return those of the wanted columns that a table has."""
        return [column for column in wanted if column in self.tables.get(table, ())]

    def read(
        self,
        table: str,
        numbers: Mapping[str, str],
        texts: Mapping[str, str] | None = None,
        blobs: Mapping[str, str] | None = None,
        tail: str = "",
    ) -> dict[str, Any]:
        """Return columns of a table by their names in the answer, all of one length; no rows where the file lacks it.

        Args:
            table: its name.
            numbers: SQL of each column of integers: int64, NULL for null.
            texts: SQL of each column of texts: strings, null for null; what is no UTF-8 is replaced by U+FFFD and
                counted.
            blobs: SQL of each column of bytes, null for null.
            tail: SQL behind FROM.
        """
        texts, blobs = texts or {}, blobs or {}
        if table not in self.tables:
            if why := self._unreadable.get(table):
                self.damage.append(f"{table} ({why})")
            return {
                **dict.fromkeys(numbers, np.zeros(0, np.int64)),
                **dict.fromkeys(texts, pa.array([], pa.string())),
                **dict.fromkeys(blobs, pa.array([], pa.binary())),
            }
        found = self._columns(table, [*numbers.values()], [*texts.values(), *blobs.values()], tail)
        columns: dict[str, Any] = dict(zip((*numbers, *texts, *blobs), found, strict=True))
        return columns | {name: self._decoded(columns[name]) for name in texts}

    def numbers(self, table: str, columns: Mapping[str, str], tail: str = "") -> dict[str, NDArray[Any]]:
        """Return columns of integers alone, as `read`."""
        return self.read(table, columns, tail=tail)

    def texts(self, table: str, text: str, tail: str = "") -> pa.Array:
        """Return one column of texts, as `read`."""
        return self.read(table, {}, {"text": text}, tail=tail)["text"]

    def _decoded(self, array: pa.Array) -> pa.Array:
        try:
            return array.cast(pa.string())
        except pa.ArrowInvalid:
            decoded = [None if text is None else text.decode("utf-8", "replace") for text in array.to_pylist()]
            self.broken_texts += sum("\ufffd" in text for text in decoded if text is not None)
            return pa.array(decoded, pa.string())

    @abstractmethod
    def rows(self, table: str) -> int:
        """Return the rows of a table, no fewer than it has; 0 where there is none."""

    @abstractmethod
    def _columns(self, table: str, integers: list[str], of_bytes: list[str], tail: str) -> list[Any]:
        """Return columns by their SQL as far as they can be read: of integers, then of bytes, whatever they are."""


def as_integer(sql: str) -> str:
    """Return the SQL of a column of integers with NULL for null."""
    return f"coalesce(cast({sql} AS BIGINT), {NULL + 1} - 1)"


def columns_named(sql: Sequence[str]) -> frozenset[str]:
    """Return the columns, in double quotes, that SQL names."""
    return frozenset(column for text in sql for column in text.split('"')[1::2])
