"""The bench that puts one step's durations into another's graph, on steps whose answer is known."""

from pathlib import Path

import pytest

from lumos_df.trace.ingest import ingest
from tests.bench import crossstep
from tests.graph.rounds import ROUND_US, ROUNDS, round_at, step
from tests.trace.literal import write

LONGER_US, SLOWER_US = 200, 40
"""By how much the second step's kernels take longer, and the host's work between its rounds."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of two steps; in the second one kernels take longer, and the host."""
    folder, begin, events = tmp_path_factory.mktemp("steps"), 0, []
    for number, (longer, slower) in enumerate(((0, 0), (LONGER_US, SLOWER_US))):
        apart = ROUND_US + longer + slower
        rounds = (
            round_at(begin + 100 + place * apart, number * ROUNDS + place, 20, longer=longer) for place in range(ROUNDS)
        )
        events += step(number + 1, begin, ROUNDS * (apart - ROUND_US), rounds)
        begin += ROUNDS * apart
    assert not ingest([write(folder / "rank0.json", events)], folder / "corpus", workers=1).failed
    return folder / "corpus"


def test_a_step_is_as_long_as_the_one_that_lends_it_its_durations(corpus: Path) -> None:
    (rank,) = crossstep.of_corpus(corpus)
    second = ROUND_US + LONGER_US + SLOWER_US
    assert rank.error == pytest.approx([0], abs=0.01)
    assert rank.naive == pytest.approx([100 * (ROUND_US / second - 1)])
    assert rank.host == pytest.approx([100 * (ROUND_US + SLOWER_US - 359) / second])
    assert "    1     0.00" in str(rank)
