"""Models, hardware, plans and software as records of numpy structured arrays, which is what kernels read."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np


class Column(NamedTuple):
    """One field of a record."""

    name: str
    doc: str
    kind: type[np.generic] = np.int64
    shape: tuple[int, ...] = ()


WHOLE: Final = np.int64
REAL: Final = np.float64


def row_type(columns: Iterable[Column]) -> np.dtype[np.void]:
    """Return the structured dtype of columns, in their order; flags and codes are int64 like any whole number."""
    return np.dtype([(column.name, column.kind, column.shape) for column in columns])


def record(kind: np.dtype[np.void], values: Mapping[str, Any]) -> np.void:
    """Return one record of `kind` from values by field; there may be more. Raises `KeyError` for a missing one."""
    row: np.void = np.array([tuple(values[name] for name in kind.names or ())], kind)[0]
    return row
