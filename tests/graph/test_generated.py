"""A job whose truth is known: four emulated ranks, of which one sleeps."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lumos_df.graph import switches
from lumos_df.graph.job import Job, build, groups, load
from lumos_df.graph.replayed_tables import step_columns
from lumos_df.graph.rows import Rows
from lumos_df.graph.simulate.forward import UNSET
from lumos_df.trace.ingest import ingest
from tests.conftest import Run
from tests.emulator import Job as Emulated
from tests.emulator import Profiler, simulate, write
from tests.graph.paths import critical_paths


@pytest.fixture(scope="module")
def own_corpus(sample_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the samples' corpus, to which commands may add."""
    copy = tmp_path_factory.mktemp("own") / "corpus"
    shutil.copytree(sample_corpus, copy)
    return copy


def steps(job: Job) -> np.ndarray:
    return np.array([one.high - one.low for one in job.replay().replays])


def test_replay_of_the_job_is_the_recording(generated: Job) -> None:
    recorded = np.array([one.steps.high - one.steps.low for one in generated.replay().replays])
    assert steps(generated) == pytest.approx(recorded, rel=0.001)


@pytest.mark.parametrize("marks", [True, False])
def test_starts_are_as_far_off_as_the_rows_of_each_step_say(generated: Job, *, marks: bool) -> None:
    rows = generated.graphs[2].rows
    if not marks:
        rows = replace(rows, names=[name.replace("ProfilerStep#", "step ") for name in rows.names])
    # Whole host gaps away, so that nearly every row starts elsewhere than recorded.
    job = build([rows])
    lag = job.event_graph.lag
    (played,) = job.replay(replace(job.event_graph, lag=lag // 3)).replays
    stored = step_columns(played, [])
    for k, number in enumerate(played.steps.number.tolist()):
        placed = (played.start != UNSET) & ((rows.step == number) | (not marks))
        off = (played.start[placed] - played.low[k]) - (rows.ts[placed] - played.steps.low[k])
        assert stored["operators"][k] == placed.sum() > 0
        for percent in (50, 99):
            wanted = np.percentile(np.abs(off), percent)
            assert stored[f"start_error_p{percent}_ns"][k] == pytest.approx(wanted, abs=0.51)
            assert wanted > 0
        edges = np.ones(len(lag), np.bool_) if not marks else rows.step[job.graphs[0].edges.dst] == number
        assert stored["edges"][k] == edges.sum()


def emulated(folder: Path, job: Emulated, profiler: Profiler | None = None) -> Job:
    write(simulate(job), profiler or Profiler(), folder / "traces")
    corpus = folder / "corpus"
    assert not ingest([folder / "traces"], corpus, workers=1).failed
    return load(corpus, groups(corpus)[0])


def test_without_its_sleep_a_job_is_as_fast_as_one_that_never_slept(tmp_path: Path) -> None:
    job = Emulated(ranks=4, layers=2, steps=2, sleep_rank=2, sleep_ns=1_000_000_000)
    asleep = emulated(tmp_path / "asleep", job)
    never = steps(emulated(tmp_path / "never", replace(job, sleep_rank=None, sleep_ns=0)))
    awake = switches.changed(asleep.event_graph, asleep.graphs, [switches.no_wait("rank=2")])
    assert np.array([one.high - one.low for one in asleep.replay(awake).replays]) == pytest.approx(never, rel=0.1)
    assert (steps(asleep) > 1_000_000_000).all()


def test_collectives_without_arguments_are_matched_all_the_same(tmp_path: Path) -> None:
    job = emulated(tmp_path, Emulated(ranks=4, layers=2, steps=2), Profiler(collective_args=False))
    assert job.instances is not None
    assert np.bincount(job.instances.instance).tolist() == [4] * 6


def test_the_sleeper_is_what_the_others_wait_for(generated: Job) -> None:
    played = generated.replay()
    found = critical_paths(generated, played)
    for rank in (0, 1, 3):
        for path in found[rank]:
            assert path.dur[path.trace == 2].sum() > 0.8 * path.dur.sum()


def test_clocks_that_differ_are_found_and_change_nothing(generated: Job) -> None:
    ranks = [graph.rows for graph in generated.graphs]
    moved = [shifted(rows, 5_000_000 * rows.rank) for rows in ranks]
    job = build(moved)
    assert job.instances is not None
    assert [clock.offset_ns for clock in job.instances.clocks] == pytest.approx([0, 5e6, 10e6, 15e6], abs=2000)
    assert steps(job) == pytest.approx(steps(generated), rel=0.001)


def shifted(rows: Rows, by: int) -> Rows:
    return replace(rows, clock_origin=rows.clock_origin + by)


def test_a_job_with_a_rank_missing_is_still_replayed(generated: Job) -> None:
    job = build([graph.rows for graph in generated.graphs if graph.rows.rank != 1])
    assert job.instances is not None
    assert len(job.instances.transfer) == 9
    assert steps(job) == pytest.approx(steps(generated)[[0, 2, 3]], rel=0.001)


def test_collectives_without_counterpart_last_as_recorded_and_are_told(generated: Job) -> None:
    ranks = [graph.rows for graph in generated.graphs]
    ranks[3] = without_last_collectives(ranks[3], 2)
    job = build(ranks)
    assert job.instances is not None
    assert np.bincount(job.instances.instance).tolist() == [4] * 7 + [3] * 2
    job.replay()


def without_last_collectives(rows: Rows, many: int) -> Rows:
    """Make the last collectives of a rank kernels like any other."""
    kernels = np.flatnonzero(rows.on_gpu & (rows.collective >= 0))[-many:]
    collective = rows.collective.copy()
    collective[kernels] = -1
    return replace(rows, collective=collective)


def test_replay_prints_one_row_a_step(lumos: Run, own_corpus: Path) -> None:
    done = lumos("replay", "--corpus", own_corpus, "--format", "json")
    rows = json.loads(done.stdout)
    assert done.returncode == 0
    assert len(rows) == 18
    wanted = {"trace_id", "path", "rank", "step", "recorded_ns", "replayed_ns", "error_pct", "unexplained_ns"}
    wanted |= {"start_error_p50_ns", "start_error_p99_ns", "edges", "operators"}
    parts = ("exposed_compute", "overlapped", "exposed_communication", "other")
    wanted |= {f"{part}_ns_{when}" for part in parts for when in ("recorded", "replayed")}
    assert wanted <= rows[0].keys()
    assert max(abs(row["error_pct"]) for row in rows) < 1


def test_a_change_shows_the_new_step_beside_the_old(lumos: Run, own_corpus: Path) -> None:
    done = lumos("replay", "--corpus", own_corpus, "--no-wait", "rank=2", "--step", 3, "--format", "json")
    rows = json.loads(done.stdout)
    generated = [row for row in rows if "gpu_generated" in row["path"]]
    assert {row["step"] for row in rows} == {3}
    assert all(row["changed_ns"] < 0.7 * row["replayed_ns"] for row in generated)


def test_the_stored_path_adds_up_and_a_timeline_shows_it(lumos: Run, own_corpus: Path, tmp_path: Path) -> None:
    assert lumos("critical-path", "--corpus", own_corpus).returncode == 0
    query = (
        "SELECT sum(p.dur)::BIGINT AS path, any_value(r.recorded_ns) AS step FROM critical_path p "
        "JOIN replay_steps r ON r.trace_id = p.trace_id AND r.step = p.step GROUP BY p.trace_id, p.step"
    )
    rows = json.loads(lumos("sql", query, "--corpus", own_corpus, "--format", "json").stdout)
    assert len(rows) == 18
    assert all(row["path"] == row["step"] for row in rows)
    file = tmp_path / "path.json"
    assert lumos("export", "--what", "critical-path", "--corpus", own_corpus, "--output", file).returncode == 0
    events = json.loads(file.read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X", "s", "f", "C"}
