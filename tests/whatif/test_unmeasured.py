"""One process that stood for many ranks: its collectives, which did nothing, are filled in."""

from pathlib import Path
from typing import Any

import pytest

from lumos_df.whatif.estimate import estimate
from lumos_df.whatif.job.settings import parse
from tests.whatif.conftest import ingested
from tests.whatif.hosted import GAP_US, HostJob, write

JOB = HostJob(layers=3, tp=2)
REDUCES = 2 * JOB.layers
"""All-reduces of a step: one a block, forward and backward."""
MESSAGE = 4 * JOB.tokens * JOB.hidden
MARK = {"unmeasured": ["collectives"]}
SLOW = "network=1e9/1e-5"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The job twice: as one process that stood for two ranks, and as if its collectives had been that fast."""
    folder = tmp_path_factory.mktemp("unmeasured")
    write(JOB, folder / "marked", MARK)
    write(JOB, folder / "plain")
    return ingested(folder / "corpus", folder / "marked", folder / "plain")


def answers(corpus: Path, job: str, *texts: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = estimate(corpus, parse([*texts]), job=job).to_pylist()
    return rows


def test_each_unmeasured_collective_is_waited_for_as_long_as_the_network_model_says(corpus: Path) -> None:
    for row in answers(corpus, "marked", SLOW):
        each = row["exposed_communication_ns"] / REDUCES
        # A ring of two sends the message once, and no links are used to the full by one this small.
        assert 1 <= each / MESSAGE <= 2.5
        # The host goes on when the operator that waits would have ended, or the transfer is over.
        grown = row["step_ns"] - row["original_step_ns"]
        assert grown == pytest.approx(REDUCES * each, abs=1000 * REDUCES * (2 * GAP_US + 3))
        assert 5 < row["modelled_pct"] < 100
        (modelled,) = (cause for cause in row["causes"] if cause.startswith("modelled"))
        half = float(modelled.removeprefix("modelled ±").removesuffix("%")) / 100
        assert half * row["step_ns"] == pytest.approx(0.3 * grown, rel=0.35)
        assert any("collectives were not measured" in text and f"{REDUCES} a step" in text for text in row["warnings"])


def test_a_job_without_the_mark_is_left_as_it_was(corpus: Path) -> None:
    for row in answers(corpus, "plain"):
        assert row["step_ns"] == row["original_step_ns"]
        assert not any("not measured" in text for text in row["warnings"])


def test_they_follow_the_plan_that_is_asked_for(corpus: Path) -> None:
    (two, *_), (more, *_) = answers(corpus, "marked", SLOW), answers(corpus, "marked", SLOW, "layers=6")
    assert more["exposed_communication_ns"] == 2 * two["exposed_communication_ns"]
    (four, *_) = answers(corpus, "marked", SLOW, "tp=4")
    # Of a ring of n every byte goes 2 (n - 1) / n times.
    assert four["exposed_communication_ns"] / two["exposed_communication_ns"] == pytest.approx(1.5, rel=0.15)
    (longer, *_) = answers(corpus, "marked", SLOW, "seq=192")
    assert longer["exposed_communication_ns"] / two["exposed_communication_ns"] == pytest.approx(2, rel=0.1)
