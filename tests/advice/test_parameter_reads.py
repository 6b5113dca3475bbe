"""Numbers read of one parameter after another; the gain is that of the job in which none is."""

from pathlib import Path

import pytest

from lumos_df.advice.rules import parameter_reads
from tests.advice.test_parameter_loop import PARAMETERS, ROUND, job


def test_numbers_read_of_every_parameter_are_the_first_advice(tmp_path: Path) -> None:
    first = job(tmp_path, optimizer="", calls=("aten::linalg_vector_norm", "aten::item")).first
    assert first.remedy.rule == "parameter_reads"
    assert first.remedy.what.startswith("numbers are read of each of 20 parameters, ")
    # Of four parameters one is large.
    assert first.gain_ns == pytest.approx(1000 * PARAMETERS * (ROUND + 500 / 4), rel=0.05)


@pytest.mark.parametrize("optimizer", ["AdamW", ""], ids=["optimizer", "averages"])
def test_loops_that_read_nothing_are_others(tmp_path: Path, optimizer: str) -> None:
    assert not list(parameter_reads.remedies(job(tmp_path, optimizer=optimizer).job))
