"""SQLite files of profilers as columns, by Arrow's driver: a block of rows at a time, and no Python object a row."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from adbc_driver_manager import Error
from adbc_driver_sqlite import StatementOptions, dbapi
from numpy.typing import NDArray

from lumos_df.base.errors import TraceError
from lumos_df.schema.codes import NULL
from lumos_df.trace.stored_file import StoredFile
from lumos_df.trace.stored_tables import StoredTables, as_integer, columns_named

MAGIC: Final = b"SQLite format 3\0"
_ROWS: Final = 1 << 14
"""Rows of a block."""
_DRIVER: Final = re.compile(r"^(?:[A-Z_]+: )?(?:\[SQLite\] )?(?:Failed to \w+ query: )?")
"""What the driver writes before SQLite's words."""
_FAULTS: Final = (Error, OSError, pa.ArrowException)
"""What the driver raises when it prepares a query, and when it reads on."""
_COLUMNS: Final = (
    "SELECT CAST(of.name AS BLOB), CAST(has.name AS BLOB) FROM sqlite_master AS of, pragma_table_info(of.name) AS has "
    "WHERE {}"
)


class Database(StoredTables):
    """An open SQLite file."""

    def __init__(self, connection: dbapi.Connection, name: str) -> None:
        self._connection = connection
        tables: dict[str, set[str]] = {}
        unreadable: dict[str, str] = {}
        try:
            for table, column in self._names(_COLUMNS.format("of.type = 'table'")):
                tables.setdefault(table, set()).add(column)
            views = [
                view for (view,) in self._names("SELECT CAST(name AS BLOB) FROM sqlite_master WHERE type = 'view'")
            ]
        except (*_FAULTS, UnicodeDecodeError) as error:
            raise TraceError(f"{name}: SQLite cannot read it ({_reason(error)}); {_remedy(error)}") from None
        for view in views:
            quoted = view.replace("'", "''")
            try:
                tables[view] = {column for _, column in self._names(_COLUMNS.format(f"of.name = '{quoted}'"))}
            except _FAULTS as error:  # what it reads is not there
                unreadable[view] = _reason(error)
        super().__init__(name, {table: frozenset(columns) for table, columns in tables.items()}, unreadable)

    def _names(self, query: str) -> list[tuple[str, ...]]:
        """Return the rows of a query for names."""
        columns = [block.columns for block in self._blocks(query)]
        return [
            tuple(name.decode() for name in row)
            for of_block in columns
            for row in zip(*(column.to_pylist() for column in of_block), strict=True)
        ]

    def rows(self, table: str) -> int:
        """Return the number of the table's last row: no fewer than it has; 0 where there is none."""
        if table not in self.tables:
            return 0
        try:
            (block,) = self._blocks(f'SELECT coalesce(max(rowid), 0) FROM "{table}"')
        except _FAULTS:
            return 0
        return int(block.column(0)[0].as_py())

    def _columns(self, table: str, integers: list[str], of_bytes: list[str], tail: str) -> list[Any]:
        rows = f"FROM {self._padded(table, [*integers, *of_bytes, tail])} {tail}"
        known = self._known(table, integers, of_bytes, rows)
        # The driver takes the type of a column from its first block, where it may have nulls alone.
        asked = {
            **{sql: as_integer(sql) for sql in integers if sql in known},
            **{sql: f"coalesce(cast({sql} AS BLOB), x'')" for sql in of_bytes if sql in known},
            **{f"{sql} IS NULL": f"{sql} IS NULL" for sql in of_bytes if known.get(sql)},
        }
        blocks = self._readable(table, f"SELECT {', '.join(asked.values()) or 'NULL'} {rows}")
        count = sum(block.num_rows for block in blocks)
        place = {sql: number for number, sql in enumerate(asked)}
        return [
            *(_integers(blocks, place[sql]) if sql in known else np.full(count, NULL) for sql in integers),
            *(
                _bytes(blocks, place[sql], place.get(f"{sql} IS NULL"))
                if sql in known
                else pa.nulls(count, pa.binary())
                for sql in of_bytes
            ),
        ]

    def _known(self, table: str, integers: list[str], of_bytes: list[str], rows: str) -> dict[str, bool]:
        """Return those of some columns that are not null in every row, and whether they are in some.

        To count takes far less than to fetch, and where there are texts many columns are empty in most files.
        """
        columns = [*integers, *of_bytes]
        if of_bytes:
            counted = ", ".join(f"count({sql})" for sql in columns)
            for counts in self._readable(table, f"SELECT count(*), {counted} {rows}"):
                every, *of_columns = (count[0].as_py() for count in counts.columns)
                return {sql: count < every for sql, count in zip(columns, of_columns, strict=True) if count}
        return dict.fromkeys(columns, True)

    def _readable(self, table: str, query: str) -> list[pa.RecordBatch]:
        """Return the rows of a query until they end or cannot be read."""
        blocks: list[pa.RecordBatch] = []
        try:
            blocks.extend(self._blocks(query))
        except _FAULTS as error:
            if "locked" in str(error):
                raise TraceError(f"{self.name}: {_reason(error)}; {_remedy(error)}") from None
            clause = f"the rest of {table} ({_reason(error)})"
            self.damage += [clause] if clause not in self.damage else []
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


def _integers(blocks: list[pa.RecordBatch], place: int) -> NDArray[np.int64]:
    """Return a column of blocks."""
    return np.concatenate([block.column(place).to_numpy() for block in blocks] or [np.zeros(0, np.int64)])


def _bytes(blocks: list[pa.RecordBatch], place: int, nulls: int | None) -> pa.Array:
    """Return a column of blocks, null where the column `nulls` says so."""
    parts = [block.column(place) for block in blocks]
    if nulls is not None:
        null = pa.scalar(None, pa.binary())
        parts = [
            pc.if_else(block.column(nulls).cast(pa.bool_()), null, part)
            for block, part in zip(blocks, parts, strict=True)
        ]
    return pa.concat_arrays(parts) if parts else pa.array([], pa.binary())


def _reason(error: Exception) -> str:
    """Return what SQLite says, without the driver's words before it and the query behind it."""
    return _DRIVER.sub("", str(error).partition("\n")[0])


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
