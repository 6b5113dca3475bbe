"""What a section of the page is, and how rows become its columns."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import duckdb

from lumos_df.base.plain_names import plain
from lumos_df.corpus.catalog import query

Columns = dict[str, list[Any]]
"""Rows by column: lists of one length. Times are ns; those on a clock count from a start near by, not from 1970."""

MAX_NAME: Final = 1_000
"""Characters of a name that the page keeps: those of templates run to many thousands."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page about one job: what was found, in a sentence, and the numbers behind it."""

    title: str
    """The finding; where there is none, what is missing."""
    note: str = ""
    """What the numbers are and what was left out; without data, how to get them. Commands stand in backticks."""
    data: dict[str, Any] = field(default_factory=dict)
    """Named tables and figures; empty where there is nothing to draw."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How much of each thing a job may take of the page."""

    jobs: int
    """Jobs that share the page."""

    _BARS = 10_000
    _CELLS = 120_000
    _SLICES = 14_000
    _LINES = 24

    @property
    def bars(self) -> int:
        """Steps times ranks."""
        return max(200, self._BARS // self.jobs)

    @property
    def cells(self) -> int:
        """Moments times ranks."""
        return max(2_000, self._CELLS // self.jobs)

    @property
    def slices(self) -> int:
        """Stretches of time that a timeline tells apart, over all its ranks."""
        return max(2_000, self._SLICES // self.jobs)

    @property
    def lines(self) -> int:
        """Ranks drawn as a line each."""
        return self._LINES


def by_job(connection: duckdb.DuckDBPyConnection, sql: str) -> dict[str, Columns]:
    """Run a query whose first column is `job` and return the other columns by job; a job's rows keep their order.

    Raises `QueryError` when DuckDB refuses the query.
    """
    cursor = query(connection, sql)
    names = [column[0] for column in cursor.description or ()][1:]
    rows = sorted(cursor.fetchall(), key=itemgetter(0))
    return {job: _columns(names, list(group)) for job, group in groupby(rows, key=itemgetter(0))}


def _columns(names: Sequence[str], rows: list[tuple[Any, ...]]) -> Columns:
    return {name: list(values) for name, values in zip(names, list(zip(*rows, strict=True))[1:], strict=True)}


def with_plain(columns: Columns, column: str) -> Columns:
    """Return columns and, as `plain`, the names in one of them as one says them."""
    return {**columns, "plain": [None if name is None else plain(name) for name in columns[column]]}


def percent(part: float, whole: float) -> str:
    """Return a share as people read it: `66%`, `0.4%`; `0%` of nothing."""
    share = 100 * part / whole if whole else 0.0
    return f"{share:.0f}%" if share >= 10 or share == 0 else f"{share:.1f}%"
