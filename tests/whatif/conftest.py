"""Corpora for tests of changed jobs: of traces, and of emulated jobs."""

from pathlib import Path

import pytest

from lumos_df.trace.ingest import ingest
from tests.emulator import Job, Profiler, simulate, write


def ingested(corpus: Path, *paths: Path) -> Path:
    """Return a new corpus of some traces; skip where they are not there."""
    for path in paths:
        if not path.exists():
            pytest.skip(f"no real traces at {path}; name their folder in LUMOS_TRACES")
    assert not ingest([*paths], corpus, workers=1).failed
    return corpus


@pytest.fixture(scope="session")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of the job `four`: four ranks, six layers."""
    return emulate(tmp_path_factory.mktemp("four"), Job(ranks=4, layers=6))


def emulate(folder: Path, job: Job) -> Path:
    """Run a job on the emulator and return the corpus of its traces."""
    write(simulate(job), Profiler(memory=False, stacks=False), folder / "four")
    return ingested(folder / "corpus", folder / "four")
