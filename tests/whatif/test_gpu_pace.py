"""How long steps are whose host runs ahead of the GPU: three literal steps of 1 ms on the host, of ten kernels each."""

from pathlib import Path

import pytest

from lumos_df import connect
from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.graph import switches
from lumos_df.graph.gpu_pace import GpuPace
from lumos_df.graph.job import groups, load
from lumos_df.graph.run import replay, what_if
from lumos_df.graph.steps import steps
from lumos_df.whatif.answer import step_rows
from lumos_df.whatif.estimate import estimated
from lumos_df.whatif.job import recorded_job
from lumos_df.whatif.job.settings import Settings
from tests.trace.literal import annotation, corpus_of, kernel, launch, op

STEPS, KERNELS, HOST_US = 3, 10, 1000


def recorded(folder: Path, kernel_us: float, backlog_us: float = 0, stalled_us: float = 0) -> Path:
    """Return a corpus: each kernel runs behind the one before, the first ones behind work of before the recording.

    Before its last kernel the last step's host does nothing for `stalled_us`.
    """
    events = [kernel("gemm", 0, backlog_us, correlation=1000)] if backlog_us else []
    end = backlog_us
    for step in range(STEPS):
        silent_us = stalled_us * (step == STEPS - 1)
        events.append(annotation(f"ProfilerStep#{step}", HOST_US * step, HOST_US + silent_us))
        for place in range(KERNELS):
            number, at = KERNELS * step + place, HOST_US * (step + place / KERNELS) + silent_us * (place == KERNELS - 1)
            begin = max(end, at + 8)
            events += [
                op("aten::mm", at, 90),
                launch(at, 5, number),
                kernel("gemm", begin, kernel_us, correlation=number),
            ]
            end = begin + kernel_us
    corpus_of(folder, events, distributedInfo={"rank": 0, "world_size": 1})
    return folder / "corpus"


def advised(corpus: Path) -> AdvisedJob:
    job = load(corpus, groups(corpus)[0])
    return AdvisedJob(corpus, job, job.replay())


@pytest.mark.parametrize(
    ("kernel_us", "backlog_us", "steps_us"),
    [
        (200, 0, [2008, 2000, 2000]),
        (200, 500, [2000, 2000, 2000]),
        (50, 0, [HOST_US] * STEPS),  # the host is what takes long
        (50, 500, [HOST_US] * STEPS),  # a backlog that is worked off
    ],
)
def test_a_step_takes_what_the_slower_of_host_and_gpu_takes(
    tmp_path: Path, kernel_us: float, backlog_us: float, steps_us: list[float]
) -> None:
    job = advised(recorded(tmp_path, kernel_us, backlog_us))
    assert (job.recorded_ns / 1000).tolist() == steps_us
    assert (job.steps_ns / 1000).tolist() == pytest.approx(steps_us, abs=1)  # a launch may take 1 us less
    rows = step_rows.rows(estimated(recorded_job.load(job.corpus, groups(job.corpus)[0], {}), Settings())).to_pylist()
    assert [row["original_step_ns"] / 1000 for row in rows] == pytest.approx(steps_us, abs=1)
    assert [row["step_ns"] / 1000 for row in rows] == pytest.approx(steps_us, abs=1)


@pytest.mark.parametrize(("factor", "steps_us"), [(2, [4008, 4000, 4000]), (0.25, [HOST_US] * STEPS)])
def test_kernels_that_take_longer_or_shorter_make_the_gpu_or_the_host_what_counts(
    tmp_path: Path, factor: float, steps_us: list[float]
) -> None:
    corpus = recorded(tmp_path, 200)
    anchor = recorded_job.load(corpus, groups(corpus)[0], {})
    rows = step_rows.rows(estimated(anchor, Settings(), (switches.scale(f"family=gemm:{factor}"),))).to_pylist()
    assert [row["step_ns"] / 1000 for row in rows] == pytest.approx(steps_us, abs=1)
    for row in rows:
        parts = ("exposed_compute", "overlapped", "exposed_communication", "other")
        assert sum(row[f"{part}_ns"] for part in parts) == row["step_ns"]


@pytest.mark.parametrize("stalled_us", [0, 1500])
def test_a_stall_that_the_gpu_does_not_wait_for_widens_no_interval(tmp_path: Path, stalled_us: float) -> None:
    """The GPU is two steps behind the host, and its own steps are as long as each other."""
    corpus = recorded(tmp_path, 200, stalled_us=stalled_us)
    anchor = recorded_job.load(corpus, groups(corpus)[0], {})
    rows = step_rows.rows(estimated(anchor, Settings(), (switches.scale("family=gemm:2"),))).to_pylist()
    assert [row["step_ns"] / 1000 for row in rows] == pytest.approx([4008, 4000, 4000], abs=1)
    for row in rows:
        assert any(text.startswith("left out 1 stall") for text in row["warnings"]) == (stalled_us > 0)
        assert row["high_s"] < 1.05 * row["low_s"]


def test_the_path_and_the_gains_of_a_gpu_that_falls_behind_are_those_of_its_kernels(tmp_path: Path) -> None:
    """Of ten kernels of 200 us a step, the host launching them within 1 ms."""
    corpus = recorded(tmp_path, 200, backlog_us=500)
    replay(corpus, path=True, gains=True)
    with connect(corpus) as connection:
        path = connection.sql(
            "SELECT step, kind, sum(dur) / 1000 FROM critical_path WHERE dur > 0 GROUP BY ALL ORDER BY step, kind"
        ).fetchall()
        gains = connection.sql(
            "SELECT gain_ns / 1000, gain_pct, half_gain_ns / 1000 FROM gain WHERE what = 'family' AND step > 0"
        )
        assert path == [(step, "kernel", 2000) for step in range(STEPS)]
        for whole, percent, half in gains.fetchall():
            # Without any of it, or half of it, the host is what takes long.
            assert (whole, percent, half) == pytest.approx((HOST_US, 50, HOST_US), abs=10)
        summary = connection.sql("SELECT mean_step_ns, exposed_compute_pct, other_pct FROM corpus_summary").fetchall()
        assert summary == [(2_000_000, 100, 0)]
        errors = connection.sql("SELECT recorded_ns, replayed_ns FROM replay_error").fetchall()
    assert errors == [(2_000_000, 2_000_000)] * STEPS
    halved = what_if(corpus, [switches.scale("family=gemm:0.75")]).to_pylist()
    assert [row["changed_ns"] for row in halved] == pytest.approx([1_500_000] * STEPS, abs=10_000)


def test_marks_of_one_number_tell_no_pace(tmp_path: Path) -> None:
    """The GPU's work of the second mark of a number lies behind the step of that number."""
    events = [annotation(f"ProfilerStep#{number}", HOST_US * place, HOST_US) for place, number in enumerate((2, 3, 2))]
    for place in range(3):
        at = HOST_US * place
        events += [op("aten::mm", at, 900), launch(at, 5, place), kernel("gemm", at + 8, 900, correlation=place)]
    corpus_of(tmp_path, events, distributedInfo={"rank": 0, "world_size": 1})
    (graph,) = load(tmp_path / "corpus", groups(tmp_path / "corpus")[0]).graphs
    assert GpuPace.of(graph, steps(graph.rows)) is None


def test_a_trace_without_marks_or_without_a_gpu_has_no_pace(tmp_path: Path) -> None:
    for name, events in (
        ("unmarked", [op("aten::mm", 0, 90), launch(0, 5, 1), kernel("gemm", 8, 50, correlation=1)]),
        ("host", [annotation("ProfilerStep#1", 0, HOST_US), op("aten::mm", 0, 90)]),
    ):
        corpus_of(tmp_path / name, events, distributedInfo={"rank": 0, "world_size": 1})
        corpus = tmp_path / name / "corpus"
        (graph,) = load(corpus, groups(corpus)[0]).graphs
        assert GpuPace.of(graph, steps(graph.rows)) is None
