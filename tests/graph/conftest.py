"""Corpora for tests of the graph: the generated sample, and the real traces where LUMOS_TRACES has them."""

import os
from pathlib import Path

import pytest

from lumos_df.graph.job import Job, groups, load
from lumos_df.trace.ingest import ingest
from tests.conftest import ROOT

REAL = Path(os.environ.get("LUMOS_TRACES", ROOT.parent / "shared" / "traces"))


@pytest.fixture(scope="session")
def real_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus of the real traces; read it only."""
    if not REAL.is_dir():
        pytest.skip(f"no real traces at {REAL}; name their folder in LUMOS_TRACES")
    corpus = tmp_path_factory.mktemp("real") / "corpus"
    result = ingest([REAL], corpus)
    assert not result.failed
    return corpus


@pytest.fixture(scope="session")
def real_jobs(real_corpus: Path) -> list[Job]:
    """Every job of the real traces that ran on a GPU."""
    jobs = [load(real_corpus, ids) for ids in groups(real_corpus)]
    return [job for job in jobs if any(len(graph.gpu.row) for graph in job.graphs)]


@pytest.fixture(scope="session")
def generated(sample_corpus: Path) -> Job:
    """Four emulated ranks, of which rank 2 sleeps for 2 ms in each step."""
    (ids,) = [ids for ids in groups(sample_corpus) if len(ids) == 4]
    return load(sample_corpus, ids)
