"""What the page computes by itself, and what it leaves to commands where the corpus is too large for that."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from lumos_df.advice import on_demand
from lumos_df.cli.app import app
from lumos_df.trace.ingest import ingest

SAMPLE = Path(__file__).parents[2] / "data" / "traces" / "gpu_generated"


def test_the_page_of_a_large_corpus_names_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, page = tmp_path / "corpus", tmp_path / "page.html"
    ingest([SAMPLE], corpus, workers=1)
    monkeypatch.setattr(on_demand, "_AT_ONCE", 10)
    done = CliRunner().invoke(app, ["report", "--corpus", str(corpus), "--html", str(page)])
    assert done.exit_code == 0, done.output
    text = page.read_text()
    for command, unknown in (
        ("advise", "what to change is not known yet"),
        ("critical-path", "critical paths are not known yet"),
    ):
        assert f"{unknown}; with" in done.stderr
        assert f"`lumos-df {command} --corpus {corpus}`" in text
