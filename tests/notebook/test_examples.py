"""The example notebooks run from the first cell to the last, and say what they promise."""

import ast
import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.conftest import ROOT

EXAMPLES = ROOT / "examples"
JUPYTER = EXAMPLES / "job_advice.ipynb"
MARIMO = EXAMPLES / "sweep_plans.py"

Cell = tuple[set[str], ast.Module]
"""The names a cell asks of those before it, and its code."""


def test_the_notebook_of_a_job_runs(sample_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    altair = pytest.importorskip("altair", reason="charts need Altair: pip install 'lumos-df[plots]'")
    folder = tmp_path / "examples"
    folder.mkdir()
    (tmp_path / "data").symlink_to(ROOT / "data")
    shutil.copytree(sample_corpus, tmp_path / "corpus")
    monkeypatch.chdir(folder)
    names = run_cells(jupyter_cells())
    assert names["advice"]["what"][0].startswith("rank 2 is waited for")
    assert names["replay"]["error_pct"].abs().max() < 1
    assert (names["faster"]["changed_ns"] < names["faster"]["replayed_ns"]).all()
    steps = names["replay"].filter(pl.col("step") == 3)
    assert names["path"]["total_ns"].sum() == steps["recorded_ns"].sum()
    for name in ("breakdown_chart", "timeline"):
        assert isinstance(names[name], altair.TopLevelMixin)
        assert names[name].to_dict()["$schema"]


def test_the_notebook_of_plans_runs() -> None:
    altair = pytest.importorskip("altair", reason="charts need Altair: pip install 'lumos-df[plots]'")
    names = run_cells(marimo_cells())
    assert names["counts"]["fit"] <= names["counts"]["legal"] <= names["counts"]["configurations"]
    assert names["best"]["iteration_time_s"].is_sorted()
    assert names["best"]["gpus"].unique().to_list() == [64]
    assert 0 < len(names["worth_measuring"]) <= len(names["best"])
    assert set(names["front"]["gpus"]) <= {32, 64, 128}
    assert isinstance(names["chart"], altair.LayerChart)


def test_a_notebook_is_stored_without_what_it_printed() -> None:
    cells = json.loads(JUPYTER.read_text("utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    assert len({cell["id"] for cell in cells}) == len(cells)


def run_cells(cells: list[Cell]) -> dict[str, Any]:
    """Run cells in their order and return the names that they leave."""
    names: dict[str, Any] = {}
    for asked, code in cells:
        assert asked <= names.keys()
        exec(compile(code, "<cell>", "exec"), names)  # noqa: S102 - cells of our own notebooks
    return names


def jupyter_cells() -> list[Cell]:
    cells = json.loads(JUPYTER.read_text("utf-8"))["cells"]
    return [(set(), ast.parse("".join(cell["source"]))) for cell in cells if cell["cell_type"] == "code"]


def marimo_cells() -> list[Cell]:
    """Return the bodies of the functions that are cells; what they ask for are the functions' parameters."""
    page = ast.parse(MARIMO.read_text("utf-8"))
    functions = [node for node in page.body if isinstance(node, ast.FunctionDef)]
    assert all(ast.unparse(function.decorator_list[0]) == "app.cell" for function in functions)
    return [
        (
            {argument.arg for argument in function.args.args},
            ast.Module([line for line in function.body if not isinstance(line, ast.Return)], []),
        )
        for function in functions
    ]
