"""Every view against literal rows: `tests/sql/<folder>/<view>.toml` holds cases of stored rows and the expected CSV.

A case is CSV text for each stored table it needs, and `expect`. That of a table macro also has `call`, and `given`
tables of its own, each the text of a query. What a row leaves out is null, but for `trace_id`
(`t`), `rank` (0) and `op_id` (the row's place, from 0). `expect` may name some of the view's columns only; over all
its cases a view must have each of them named.
"""

import csv
import tomllib
from pathlib import Path
from typing import Any

import pytest
from duckdb import DuckDBPyConnection

from lumos_df.corpus.kept_rows import keep_computed, keep_recorded
from lumos_df.corpus.report import report_views
from lumos_df.corpus.view_files import Macro, View, macros, views
from lumos_df.schema import TABLES

HERE = Path(__file__).parent
CASES = {file: tomllib.loads(file.read_text("utf-8")) for file in sorted(HERE.glob("*/*.toml"))}
PARAMETERS = [
    pytest.param(file.stem, case, id=f"{file.stem}: {name}")
    for file, found in CASES.items()
    for name, case in found.items()
]


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line] for line in csv.reader(text.strip().splitlines(), skipinitialspace=True)]


def fill(database: DuckDBPyConnection, case: dict[str, Any]) -> None:
    for table in TABLES:
        header, *lines = cells(case.get(table.name, "-"))
        for place, line in enumerate(lines):
            implied = {"trace_id": "t", "rank": "0", "op_id": str(place)}
            row = {name: value for name, value in implied.items() if name in {column.name for column in table.columns}}
            row |= dict(zip(header, line, strict=True))
            names = ", ".join(f'"{name}"' for name in row)
            marks = ", ".join("?" for _ in row)
            database.execute(
                f"INSERT INTO {table.name}({names}) VALUES ({marks})", [value or None for value in row.values()]
            )


@pytest.mark.parametrize(("view", "case"), PARAMETERS)
def test_view(empty_database: DuckDBPyConnection, view: str, case: dict[str, Any]) -> None:
    assert case.keys() <= {table.name for table in TABLES} | {"expect", "call", "given"}
    fill(empty_database, case)
    for name, rows in case.get("given", {}).items():
        empty_database.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {rows}")
    columns, *rows = cells(case["expect"])
    selected = ", ".join(f"coalesce(\"{name}\"::VARCHAR, '')" for name in columns)
    assert sorted(empty_database.execute(f"SELECT {selected} FROM {case.get('call', view)}").fetchall()) == sorted(
        map(tuple, rows)
    )


@pytest.mark.parametrize("view", report_views())
def test_a_view_says_the_same_over_rows_that_are_kept(empty_database: DuckDBPyConnection, view: str) -> None:
    fill(empty_database, max(CASES[HERE / "report" / f"{view}.toml"].values(), key=lambda case: len(str(case))))
    for table in TABLES:
        empty_database.execute(
            f"INSERT INTO traces(trace_id) FROM (SELECT DISTINCT trace_id FROM {table.name}) "
            "WHERE trace_id NOT IN (SELECT trace_id FROM traces)"
        )
    ask = f"SELECT columns(*)::VARCHAR FROM {view} ORDER BY ALL"
    plain = empty_database.execute(ask).fetchall()
    assert plain
    keep_recorded(empty_database, [view])
    keep_computed(empty_database, [view])
    assert empty_database.execute(ask).fetchall() == plain


@pytest.mark.parametrize(
    "view", [*(view for view in views() if not view.internal), *macros()], ids=lambda view: view.name
)
def test_every_column_of_every_view_has_a_case(view: View | Macro) -> None:
    cases = CASES.get(HERE / view.folder / f"{view.name}.toml", {})
    named = {name for case in cases.values() for name in cells(case["expect"])[0]}
    assert named == {column.name for column in view.columns}


def test_every_view_of_traces_begins_with_their_job() -> None:
    columns = [[column.name for column in view.columns] for view in views() if not view.internal]
    assert all(names[0] == "job" for names in columns if {"job", "trace_id", "rank"} & set(names))
