"""What a stored table is: its columns, each with an Arrow type and one line of documentation."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column of a stored table."""

    name: str
    type: str
    """Arrow type by name: `int32`, `int64`, `float32`, `float64`, `bool`, `string`, `list<string>`, `list<int32>`."""
    doc: str


@dataclass(frozen=True, slots=True)
class Table:
    """One stored table."""

    name: str
    doc: str
    columns: tuple[TableColumn, ...]


def table(name: str, doc: str, *columns: tuple[str, str, str]) -> Table:
    """Return a table of columns (name, type, documentation), behind the key `trace_id` that all have."""
    key = TableColumn(
        "trace_id", "string", "The trace: first 16 hex digits of the file's digest (and its rank, for merged files)."
    )
    return Table(name, doc, (key, *(TableColumn(*column) for column in columns)))


def within(value: object, bits: int) -> int | None:
    """Return `value` if it is an integer that a signed column of `bits` can hold, else None: traces may say anything."""
    fits = isinstance(value, int) and not isinstance(value, bool) and -(1 << bits - 1) <= value < 1 << bits - 1
    return value if fits and isinstance(value, int) else None
