"""The files of `sql/`: one view or table macro each, written so that its documentation can be read."""

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

from lumos_df.corpus.sql_folder import sql_folder
from lumos_df.schema import OPERATORS

_VIEW: Final = re.compile(
    r"-- (?P<first>\S[^\n]*)\n-- (?P<second>\S[^\n]*)\n"
    r"(?P<sql>CREATE VIEW (?P<name>\w+)\(\n(?P<columns>.*?)\n\) AS\n.+);\n\Z",
    re.DOTALL,
)
_MACRO: Final = re.compile(
    r"-- (?P<first>\S[^\n]*)\n-- (?P<second>\S[^\n]*)\n"
    r"(?P<sql>CREATE MACRO (?P<name>\w+)\(\n(?P<parameters>.*?)\n\) AS TABLE\n"
    r"SELECT\n(?P<columns>.*?)\nFROM \(\n.+);\n\Z",
    re.DOTALL,
)
_COLUMN: Final = re.compile(r'  -- (?P<doc>\S.*)\n  "?(?P<name>\w+)"?(?P<default> := \w+)?(?:,\n|\Z)')
_SOURCE: Final = re.compile(r"\b(?:FROM|JOIN)\s+(\w+)")
_WINDOW: Final = re.compile(r"\bOVER\b")
_COMMENT: Final = re.compile(r"--.*")


@dataclass(frozen=True, slots=True, eq=False)
class ViewColumn:
    """One column of a view."""

    name: str
    doc: str


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """One file of `sql/`."""

    name: str
    folder: str
    """Folder below `sql/`: `base` (building blocks), `trace` (row by row), `report` (summaries), `sim` (estimates)."""
    doc: str
    columns: tuple[ViewColumn, ...]
    sql: str
    """The `CREATE VIEW` statement."""

    @property
    def internal(self) -> bool:
        """Whether it is there for other views only."""
        return self.name.startswith("_")


@dataclass(frozen=True, slots=True, eq=False)
class Macro:
    """One table macro of `sql/`: a query with parameters."""

    name: str
    folder: str
    """Folder below `sql/`."""
    doc: str
    parameters: tuple[ViewColumn, ...]
    """Those without a default are names of tables; those with one are given by name."""
    optional: frozenset[str]
    """Parameters with a default."""
    columns: tuple[ViewColumn, ...]
    sql: str
    """The `CREATE MACRO` statement."""


@cache
def views() -> tuple[View, ...]:
    """Return every view of `sql/`, each after the views that it reads.

    Raises `ValueError` when a file breaks the rules of `read_view`, or views read one another in a circle.
    """
    return in_order(map(read_view, _files_of("VIEW")))


@cache
def macros() -> tuple[Macro, ...]:
    """Return every table macro of `sql/`; raises `ValueError` when a file breaks the rules of `read_macro`."""
    return tuple(map(read_macro, _files_of("MACRO")))


def _files_of(kind: str) -> list[Path]:
    """Return the files of `sql/` that hold a MACRO, or those that do not."""
    files = sorted(sql_folder().glob("*/*.sql"))
    return [file for file in files if ("\nCREATE MACRO " in file.read_text("utf-8")) == (kind == "MACRO")]


def read_view(path: Path) -> View:
    """Read a view file.

    It is two comment lines, `CREATE VIEW <file name>(`, the columns, each after a comment line of its own, `) AS`,
    the query and a semicolon. Raises `ValueError` when the file is not written so.
    """
    match = _statement(path, _VIEW, f"'CREATE VIEW {path.stem}(', columns, ') AS', a query")
    return View(
        name=path.stem,
        folder=path.parent.name,
        doc=f"{match['first']} {match['second']}",
        columns=tuple(ViewColumn(name, doc) for name, doc, _ in _documented(path, match["columns"])),
        sql=match["sql"],
    )


def read_macro(path: Path) -> Macro:
    """Read a file of a table macro.

    It is two comment lines, `CREATE MACRO <file name>(`, the parameters, each after a comment line of its own,
    `) AS TABLE`, `SELECT`, the columns likewise, `FROM (`, the query that they come from, and `);`. Raises
    `ValueError` when the file is not written so.
    """
    match = _statement(
        path,
        _MACRO,
        f"'CREATE MACRO {path.stem}(', parameters, ') AS TABLE', 'SELECT', columns, 'FROM (', a query, ')'",
    )
    parameters = _documented(path, match["parameters"])
    return Macro(
        name=path.stem,
        folder=path.parent.name,
        doc=f"{match['first']} {match['second']}",
        parameters=tuple(ViewColumn(name, doc) for name, doc, _ in parameters),
        optional=frozenset(name for name, _, optional in parameters if optional),
        columns=tuple(ViewColumn(name, doc) for name, doc, _ in _documented(path, match["columns"])),
        sql=match["sql"],
    )


def _statement(path: Path, pattern: re.Pattern[str], parts: str) -> re.Match[str]:
    match = pattern.match(path.read_text("utf-8"))
    if match is None:
        raise ValueError(f"{path}: must be two comment lines, {parts}, ';'")
    if match["name"] != path.stem:
        raise ValueError(f"{path}: defines view '{match['name']}'; the file must bear the view's name")
    return match


def _documented(path: Path, text: str) -> list[tuple[str, str, bool]]:
    """Return name, documentation and whether there is a default, of each line of a list of columns or parameters."""
    lines = list(_COLUMN.finditer(text))
    if "".join(line[0] for line in lines) != text:
        raise ValueError(f"{path}: every column of the view needs one comment line before it and a line of its own")
    return [(line["name"], line["doc"], line["default"] is not None) for line in lines]


def in_order(unordered: Iterable[View]) -> tuple[View, ...]:
    """Return views so that each comes after those it reads; raises `ValueError` when they form a circle."""
    by_name = {view.name: view for view in unordered}
    reads = {name: sorted(_sources(view) & by_name.keys()) for name, view in by_name.items()}
    try:
        order = tuple(TopologicalSorter(reads).static_order())
    except CycleError as error:
        raise ValueError(f"views read one another in a circle: {' -> '.join(error.args[1])}") from None
    return tuple(by_name[name] for name in order)


@cache
def _sources(view: View | Macro) -> frozenset[str]:
    return frozenset(_SOURCE.findall(_query(view)))


@cache
def _query(view: View | Macro) -> str:
    """Return what a view or macro selects, without comments and without the names that its own columns get."""
    return _COMMENT.sub("", view.sql).partition("\n) AS")[2]


def read_by(names: Iterable[str]) -> frozenset[str]:
    """Return some views, and the stored tables and views that they read, directly or through views."""
    by_name = {view.name: view for view in views()}
    found, left = set[str](), set(names)
    while left:
        found |= left
        left = {source for name in left if name in by_name for source in _sources(by_name[name])} - found
    return frozenset(found)


def read_once(names: Iterable[str]) -> tuple[str, ...]:
    """Return the internal views that several views below `names` read, and that sort rows or go through all operators.

    Each comes after those it reads.
    """
    below = read_by(names)
    return tuple(
        view.name
        for view in views()
        if view.internal
        and len(queries_over(view.name, below)) > 1
        and (OPERATORS.name in _sources(view) or _WINDOW.search(view.sql) is not None)
    )


def queries_over(name: str, below: Container[str]) -> list[str]:
    """Return the queries of those views, of some, that read a table or view directly, without comments."""
    return [_query(view) for view in views() if view.name in below and name in _sources(view)]


@cache
def readers(table: str) -> frozenset[str]:
    """Return a stored table's name, and those of the views and macros that read it, directly or through views."""
    names = {table}
    defined: tuple[View | Macro, ...] = (*views(), *macros())
    for reader in defined:
        if not names.isdisjoint(_sources(reader)):
            names.add(reader.name)
    return frozenset(names)
