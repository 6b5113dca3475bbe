"""The Python reference has every public name, as its docstring and its signature have it."""

import inspect
import re

import lumos_df
from lumos_df import estimate
from lumos_df.corpus import report
from tools.python_reference import python_reference

PAGE = python_reference()


def section(name: str) -> str:
    return PAGE.split(f"### `{name}`\n", 1)[1].split("\n### ", 1)[0]


def test_every_public_name_has_a_section() -> None:
    public = {f"lumos_df.{name}" for name in lumos_df.__all__ if name not in {"__version__", "estimate", "report"}}
    public |= {f"lumos_df.estimate.{name}" for name in estimate.__all__} | {"lumos_df.capture.profile"}
    public |= {
        f"lumos_df.corpus.report.{name}"
        for name in ("CorpusSummary", "JobSummary", "export", "report_views", "select", "summary")
    }
    assert public <= set(re.findall(r"^### `(.*)`$", PAGE, re.MULTILINE))


def test_a_function_shows_its_signature_and_each_argument() -> None:
    text = section("lumos_df.ingest")
    assert text.startswith("\n```python\ndef ingest(\n    paths: str")
    for name in inspect.signature(lumos_df.ingest).parameters:
        assert f"\n- `{name}`: " in text
    assert "**Raises**\n\n- `LumosError`: the corpus cannot be written" in text


def test_a_class_shows_its_fields_and_its_own_methods_only() -> None:
    text = section("lumos_df.estimate.Estimate")
    assert "| `plan` | `Plan` | How the job is spread. |" in text
    methods = re.findall(r"^#### `lumos_df\.estimate\.Estimate\.(.*)`$", text, re.MULTILINE)
    assert methods == ["operators", "to_dict", "row", "by_name"]
    assert "| `job` | `str` |" in section("lumos_df.corpus.report.JobSummary")
    assert str(inspect.getdoc(report.JobSummary)) in section("lumos_df.corpus.report.JobSummary")
