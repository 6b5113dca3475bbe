"""What being unlike the measured runs adds to an interval, as told by the sources that have runs of the kind."""

from pathlib import Path

import numpy as np
import pytest

from lumos_df.calibrate import population
from lumos_df.calibrate.measured_runs import MeasuredRuns
from tests.calibrate.tables import write
from tools import fit_population


def test_a_source_with_one_run_of_a_kind_says_less_than_one_with_four(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four runs are 0.3 off by figures of others and met by those of all, one is met by others' and 0.3 off by all."""
    plans = [{"gbs": 128 * (place + 1), "iteration_time_s": 10.0} for place in range(4)]
    runs = [*({**plan, "framework": "NeMo"} for plan in plans), {**plans[0], "framework": "torchtitan"}]
    write(tmp_path / "published_training_runs.csv", runs)
    some = population.sources(tmp_path)
    assert [len(source.parts[0]) for source in some] == [4, 1]

    def off(part: MeasuredRuns, figures: dict[str, float]) -> np.ndarray:
        return np.full(len(part), 0.3 if (len(part) == 1) == bool(figures) else 0.0)

    monkeypatch.setattr(fit_population, "common", lambda chosen: {"passes": 1.0} if chosen else {})
    monkeypatch.setattr(fit_population, "off", off)
    found = fit_population.unlike(some, lambda part: np.ones(len(part), bool))
    assert found == pytest.approx(1.28 * 0.3 * np.sqrt(3 / 5))
    # Two doublings away half of it is one doubling's.
    halved = fit_population.unlike(some, lambda part: np.ones(len(part), bool), lambda part: np.full(len(part), 2.0))
    assert halved == pytest.approx(found / 2)
