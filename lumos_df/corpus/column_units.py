"""Units of columns, for files whose header is all that a reader sees."""

from typing import Final

_UNITS: Final = {"occupancy": "pct"}
"""Units of columns whose names do not say them, but for times."""


def unit_name(column: str) -> str:
    """Return a column's name with the unit that it does not say: `ts_ns` for `ts`."""
    is_time = column in {"ts", "dur"} or column.endswith(("_ts", "_dur"))
    unit = "ns" if is_time else _UNITS.get(column)
    return f"{column}_{unit}" if unit else column
