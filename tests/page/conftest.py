"""Corpora that pages are made of, and a browser to look at them where there is one."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lumos_df.advice.job_advice import advise
from lumos_df.graph.run import replay
from tests.page.browser import Browser


@pytest.fixture(scope="session")
def played_corpus(sample_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus of data/traces with advice, replays and critical paths; read it only."""
    corpus = tmp_path_factory.mktemp("played") / "corpus"
    shutil.copytree(sample_corpus, corpus)
    replay(corpus, path=True, gains=True)
    advise(corpus)
    return corpus


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Chromium without a window."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no chromium on the PATH; on Debian install the package chromium")
    browser = Browser(program, tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()
