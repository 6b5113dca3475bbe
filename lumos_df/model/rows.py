"""Nouns as records of numpy structured arrays, which is what kernels read."""

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


def record(columns: Iterable[Column], values: Mapping[str, Any]) -> np.void:
    """Return one record with a value for every column; `values` may hold more. Raises `KeyError` where one lacks."""
    columns = tuple(columns)
    row = np.zeros((), row_type(columns))
    for column in columns:
        row[column.name] = values[column.name]
    one: np.void = row[()]
    return one
