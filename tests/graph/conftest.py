"""Jobs for tests of the graph: the generated sample, and those of the real traces."""

from pathlib import Path

import pytest

from lumos_df.graph.job import Job, groups, load


@pytest.fixture(scope="session", params=["real_corpus", "later_corpus"], ids=["first set", "second set"])
def real_jobs(request: pytest.FixtureRequest) -> list[Job]:
    """Every job of a set of real traces that ran on a GPU."""
    corpus = request.getfixturevalue(request.param)
    jobs = [load(corpus, ids) for ids in groups(corpus)]
    return [job for job in jobs if any(len(graph.gpu.row) for graph in job.graphs)]


@pytest.fixture(scope="session")
def generated(sample_corpus: Path) -> Job:
    """Four emulated ranks, of which rank 2 sleeps for 2 ms in each step."""
    (ids,) = [ids for ids in groups(sample_corpus) if len(ids) == 4]
    return load(sample_corpus, ids)
