"""Changes are ranked by what they bring; what a better one covers, or the replay cannot support, is no advice."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.ranked_advice import ranked
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.graph import host_spread
from tests.advice.emulated import advised
from tests.emulator import Job

JOB = Job(ranks=1, steps=2, batch=16)


@pytest.fixture
def job(tmp_path: Path) -> AdvisedJob:
    return advised(tmp_path, JOB).job


def faster_gpu(what: str, job: AdvisedJob, part: float) -> Remedy:
    """Return a change by which the GPU takes so much less."""
    gpu = job.ranks[0].on_gpu

    def apply(changed: ChangedGraph) -> None:
        left = (1 - part) * job.event_graph.own[gpu]
        changed.own[gpu] = changed.own[gpu].clip(max=left.astype(int))

    return Remedy(rule="test", what=what, known=Known.REPLAYED, rests_on="the test", view="stall", apply=apply)


def test_the_largest_gain_comes_first_and_covers_what_it_includes(job: AdvisedJob) -> None:
    said = ranked(job, [faster_gpu("a little", job, 0.2), faster_gpu("much", job, 0.5)])
    assert [advice.remedy.what for advice in said] == ["much"]


@pytest.mark.parametrize(("part", "told"), [(0.202, "sure"), (0.4, "unsure")], ids=["the same time", "more"])
def test_of_two_names_for_the_same_time_the_surer_one_is_told(job: AdvisedJob, part: float, told: str) -> None:
    unsure = replace(faster_gpu("unsure", job, part), uncertainty=0.9)
    assert [advice.remedy.what for advice in ranked(job, [unsure, faster_gpu("sure", job, 0.2)])] == [told]


def test_what_brings_nothing_is_told_where_money_would_buy_it(job: AdvisedJob) -> None:
    nothing = faster_gpu("nothing", job, 0.0)
    said = ranked(job, [nothing, replace(nothing, what="bought", bought=True)])
    assert [(advice.remedy.what, advice.worthwhile) for advice in said] == [("bought", False)]


def test_what_money_buys_comes_last_and_covers_nothing(job: AdvisedJob) -> None:
    bought = replace(faster_gpu("bought", job, 0.5), bought=True)
    said = ranked(job, [bought, faster_gpu("changed", job, 0.2)])
    assert [advice.remedy.what for advice in said] == ["changed", "bought"]


def test_a_probe_is_never_advice(job: AdvisedJob) -> None:
    assert not ranked(job, [replace(faster_gpu("much", job, 0.5), bought=True, probe=True)])


def test_what_the_replay_misses_supports_no_advice(job: AdvisedJob) -> None:
    little = faster_gpu("a little", job, 0.05)
    assert ranked(job, [little])
    doubtful = AdvisedJob(job.corpus, job.job, job.played)
    missed = int(0.2 * job.steps_ns.mean())
    vars(doubtful)["recorded_ns"] = job.recorded_ns + missed
    assert not ranked(doubtful, [little])


def test_the_interval_holds_the_gain_and_what_is_assumed(job: AdvisedJob) -> None:
    (sure,) = ranked(job, [faster_gpu("much", job, 0.5)])
    (unsure,) = ranked(job, [replace(faster_gpu("much", job, 0.5), uncertainty=0.25)])
    assert sure.gain_ns == unsure.gain_ns
    assert unsure.high_ns - sure.high_ns == pytest.approx(0.25 * sure.gain_ns)
    assert sure.low_ns < sure.gain_ns < sure.high_ns


@pytest.mark.parametrize("steps", [1, 4])
def test_no_interval_is_narrower_than_steps_or_stretches_differ(tmp_path: Path, steps: int) -> None:
    job = advised(tmp_path, replace(JOB, steps=steps)).job
    much = faster_gpu("much", job, 0.5)
    changed = ChangedGraph.of(job.event_graph)
    much.apply(changed)
    after = job.changed_steps_ns(changed)
    graph, shape = job.graphs[0], job.shapes[0]
    alone = host_spread.of_stretches(graph, shape) if steps == 1 else host_spread.of_steps(after)
    assert alone > 0
    for known in (much, replace(much, once=True)):
        (advice,) = ranked(job, [known])
        assert np.log(advice.high_ns / advice.gain_ns) >= np.sqrt(2) * alone
        assert advice.gain_ns - advice.low_ns > 0.02 * advice.gain_ns


def test_a_gain_larger_than_what_is_left_differs_no_more_than_that(tmp_path: Path) -> None:
    asleep = advised(tmp_path, Job(ranks=2, steps=3, batch=8, sleep_rank=1, sleep_ns=50_000_000))
    job, remedy = asleep.job, replace(asleep.first.remedy, once=True)
    changed = ChangedGraph.of(job.event_graph)
    remedy.apply(changed)
    after = job.changed_steps_ns(changed)
    missed = abs((job.steps_ns - job.recorded_ns).mean())
    (advice,) = ranked(job, [remedy])
    assert advice.gain_ns > 2 * after.mean()
    assert advice.gain_ns - advice.low_ns == pytest.approx(missed + after.mean() * -np.expm1(-job.spread(after)))


def test_steps_that_differ_a_thousandfold_bound_nothing_but_the_whole_step(
    job: AdvisedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the first of them compiles."""
    much = replace(faster_gpu("much", job, 1.0), once=True)
    monkeypatch.setattr(AdvisedJob, "spread", lambda *_: 1000.0)
    (advice,) = ranked(job, [much])
    assert advice.low_ns < advice.gain_ns < advice.high_ns == job.steps_ns.mean()
