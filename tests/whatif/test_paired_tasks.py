"""DualPipe's pairs of a job with experts: all-to-alls of one pass behind compute of the other."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lumos_df.graph.job import groups
from lumos_df.schema.plan_words import EP
from lumos_df.whatif.durations.operator_times import collectives
from lumos_df.whatif.estimate import estimates
from lumos_df.whatif.job.recorded_job import load
from lumos_df.whatif.job.settings import parse
from lumos_df.whatif.pipeline import staged_job
from lumos_df.whatif.pipeline.paired_tasks import Paired, at_once
from tests.emulator import Job
from tests.whatif.conftest import emulate
from tests.whatif.test_emulated import answers

DUALPIPE = ("pp=2", "batch=8", "schedule=dualpipe")
PAIRS = 5
"""Of eight micro-batches on either of two stages."""
ROUTED = Job(ranks=2, layers=4, steps=1, experts=8, batch=8)


@pytest.fixture(scope="module")
def routed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return emulate(tmp_path_factory.mktemp("routed"), ROUTED)


def exchanged_ns(corpus: Path) -> int:
    """Return what the all-to-alls of a micro-batch's both passes take without waiting."""
    anchor = load(corpus, groups(corpus)[0], {})
    row, degree = collectives(anchor, 0)
    known = anchor.job.instances
    assert known is not None
    mine = (known.trace == 0) & np.isin(known.row, row[degree == EP])
    return int(known.transfer[known.instance[mine]].sum())


def test_a_pair_takes_as_long_as_its_compute(routed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paired = answers(routed, *DUALPIPE)[0]
    exchange_ns = staged_job._exchange_ns  # noqa: SLF001 - without exchanges nothing runs at once
    monkeypatch.setattr(staged_job, "_exchange_ns", lambda *job: 0 * exchange_ns(*job))
    in_turn = answers(routed, *DUALPIPE)[0]
    # Each of two stages has half of the layers.
    assert in_turn["step_ns"] - paired["step_ns"] == pytest.approx(PAIRS * exchanged_ns(routed) / 2, rel=0.03)
    # What the GPU computes stays; how much slower it is beside all-to-alls is not known.
    assert paired["exposed_compute_ns"] + paired["overlapped_ns"] == pytest.approx(
        in_turn["exposed_compute_ns"] + in_turn["overlapped_ns"], rel=0.01
    )
    assert paired["low_s"] < paired["iteration_time_s"] < in_turn["iteration_time_s"] < paired["high_s"]
    assert paired["causes"][0].startswith("passes at once")
    assert any("the interval holds that nothing is gained" in text for text in paired["warnings"])
    assert any("run one after the other" in text for text in in_turn["warnings"])


def test_what_comes_behind_a_pair_waits_for_its_all_to_alls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = emulate(tmp_path, replace(ROUTED, hidden=256, heads=4))
    made: list[Paired] = []

    def kept(*arguments: Any) -> Paired:
        made.append(at_once(*arguments))
        return made[-1]

    monkeypatch.setattr(staged_job, "at_once", kept)
    (changed,) = estimates(corpus, parse([*DUALPIPE, "network=1e9"]), None, None, {}, ())
    # Behind those of the change are those of what it would be without one of its settings.
    for paired, replay in zip(made[:4], changed.after.replays, strict=True):
        waits = paired.waits
        assert len(waits) == PAIRS
        assert (replay.start[waits.dst] >= replay.end[waits.src]).all()
        # Both passes send behind all of their pair.
        assert (paired.at.last_exchange >= 0).sum() == 2 * PAIRS


def test_all_to_alls_longer_than_compute_are_what_a_pair_takes(tmp_path: Path) -> None:
    """Of links so slow that tokens travel for longer than they are computed."""
    corpus = emulate(tmp_path, replace(ROUTED, hidden=256, heads=4))
    slow = answers(corpus, *DUALPIPE, "network=1e9")[0]
    slower = answers(corpus, *DUALPIPE, "network=5e8")[0]
    for row in (slow, slower):
        assert row["overlapped_ns"] > 0
    # Twice the time of links is twice the step, but for what is computed beside it.
    assert 1.7 < slower["step_ns"] / slow["step_ns"] < 2
