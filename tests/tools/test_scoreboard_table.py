"""The table of errors in README and docs is what the scoreboard says."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from lumos_df.calibrate.scoreboard import Score
from tests.conftest import ROOT
from tools.scoreboard import PAGES, Calibrated, Line, calibrated_row, calibrated_table, row, table

TRUTH = Path(os.environ.get("LUMOS_TRUTH", ROOT.parent / "shared" / "truth"))
SCORE = Score("some", 90, 80, 10, [], 6.04, 3.0, 9.0, -1.0, 0.925, 2.0, 79.6, None, 0, 0, 0)


def test_a_row_says_what_was_aimed_at_and_missed() -> None:
    line = Line("Some", "some", mean=7, elsewhere="Other 9")
    assert row(line, SCORE) == "| Some | 80 | 6.0 | 3.0 | 7 | 0.93 | 80 | Other 9 |\n"
    assert "| 7, **missed** |" in row(line, replace(SCORE, mape_pct=7.01))
    other = Line("Some", "some", median=2, ranks=0.93)
    assert row(other, SCORE) == "| Some | 80 | 6.0 | 3.0 | median 2, **missed** | 0.93, aim 0.93 **missed** | 80 |  |\n"


def test_a_set_without_a_scored_run_is_no_row() -> None:
    with pytest.raises(ValueError, match="some: no run is scored"):
        row(Line("Some", "some"), replace(SCORE, mape_pct=None))


def test_a_calibration_is_held_against_its_set_s_own_profile_or_a_number() -> None:
    line = Calibrated("Some", "some", 5, times_own=2)
    assert calibrated_row(line, 8.0, 85.4, 4.0) == "| Some | 5 | 8.0 | 8.0, 2 times its own profile's | 85 |\n"
    assert "own profile's, **missed** |" in calibrated_row(line, 8.01, 85.0, 4.0)
    assert "| 10.0, **missed** |" in calibrated_row(Calibrated("Some", "some", 3, mean=10), 10.1, 85.0, 90.0)


@pytest.mark.skipif(not TRUTH.is_dir(), reason="needs the tables of measured runs (LUMOS_TRUTH)")
def test_the_pages_have_the_table_of_now() -> None:
    found = table(TRUTH)
    for page in PAGES:
        assert found in page.read_text("utf-8"), "written anew by python -m tools.scoreboard DIR?"


@pytest.mark.skipif(not TRUTH.is_dir(), reason="needs the tables of measured runs (LUMOS_TRUTH)")
def test_the_readme_has_the_calibrations_of_now() -> None:
    assert calibrated_table(TRUTH) in PAGES[0].read_text("utf-8"), "written anew by python -m tools.scoreboard DIR?"
