"""Jobs for tests of the graph: the generated sample, and those of the real traces."""

from pathlib import Path

import pytest

from lumos_df.graph.job import Job, groups, load


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
