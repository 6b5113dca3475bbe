"""Steps that validate among steps that train are told, with how long they take."""

import re
from pathlib import Path

import pytest

from lumos_df.advice.job_advice import advise
from lumos_df.trace.ingest import ingest
from tests.advice.emulated import BRIEF
from tests.emulator import Job, simulate, write


def notes(folder: Path, job: Job) -> tuple[str, ...]:
    write(simulate(job), BRIEF, folder / "traces")
    assert not ingest([folder / "traces"], folder / "corpus", workers=1).failed
    (said,) = advise(folder / "corpus")
    return said.warnings


def test_steps_that_validate_are_told(tmp_path: Path) -> None:
    first = notes(tmp_path, Job(ranks=2, steps=5, validates=True))[0]
    assert first.startswith("4 of 10 steps have no backward pass, such as validation: they take ")
    times = re.findall(r"([\d.]+) (us|ms), ", first)
    validation, training = (float(time) * {"us": 1.0, "ms": 1e3}[unit] for time, unit in times)
    assert validation < training / 2


@pytest.mark.parametrize("job", [Job(ranks=1), Job(ranks=1, recompute="full")])
def test_steps_that_all_train_are_not_told(tmp_path: Path, job: Job) -> None:
    assert not [text for text in notes(tmp_path, job) if "backward" in text]
