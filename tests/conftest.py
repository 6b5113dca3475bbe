"""What tests of several parts use: a corpus of the sample traces and the command line."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lumos_df.trace.ingest import ingest

ROOT = Path(__file__).parent.parent
SAMPLES = ROOT / "data" / "traces"

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def sample_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus of data/traces; read it only."""
    corpus = tmp_path_factory.mktemp("samples") / "corpus"
    result = ingest([SAMPLES], corpus, workers=1)
    assert not result.failed
    return corpus


@pytest.fixture
def lumos(tmp_path: Path) -> Run:
    """Run the command line in an empty folder and return what it printed and its exit status."""

    def run(*arguments: object, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*arguments),
            input=stdin,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
            check=False,
            timeout=120,
        )

    return run


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "lumos_df", *map(str, arguments)]
