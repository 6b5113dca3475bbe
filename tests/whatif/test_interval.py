"""The interval of a changed job: each cause on jobs that have only it. And what is refused, or said to be guessed."""

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lumos_df.base.errors import QueryError
from lumos_df.whatif import answerable
from lumos_df.whatif.answer.cause import Cause
from lumos_df.whatif.answer.interval import Interval
from lumos_df.whatif.estimate import estimate
from lumos_df.whatif.job.settings import parse
from tests.conftest import Run
from tests.emulator import Job, Profiler, simulate, write
from tests.whatif import hosted
from tests.whatif.conftest import emulate, ingested


def answers(corpus: Path, *texts: str, **more: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = estimate(corpus, parse([*texts]), **more).to_pylist()
    return rows


def half(row: dict[str, Any]) -> float:
    """Return half the width of a step's interval, relative."""
    return float((row["high_s"] - row["low_s"]) / 2 / row["iteration_time_s"])


def alone(row: dict[str, Any], cause: str) -> float:
    """Return what a cause alone makes of a step, relative; 0 where it is not named."""
    alone = [text.split("±")[1] for text in row["causes"] if text.startswith(f"{cause} ±")]
    return sum(float(text.removesuffix("%")) / 100 for text in alone)


def test_independent_causes_add_up_like_squares_and_the_largest_is_named() -> None:
    step = [np.array([100e6])]
    causes = [
        Cause(name, [step[0] * np.exp(-error)], [step[0] * np.exp(error)]) for name, error in (("a", 0.03), ("b", 0.04))
    ]
    both = Interval(step, tuple(causes))
    assert both.high(0)[0] == pytest.approx(100e6 * np.exp(0.05))
    assert both.low(0)[0] == pytest.approx(100e6 * np.exp(-0.05))
    assert both.words(0, 0) == ["b ±4.0%", "a ±3.0%"]


def test_a_call_that_waits_for_rescaled_kernels_is_not_told_as_measured(tmp_path: Path) -> None:
    """The host waits at the end of each step, for as long as the GPU works: half of what lasts is such a call."""
    for row in answers(emulate(tmp_path, Job(ranks=1, layers=4, hidden=1024)), "seq=16384"):
        assert row["rescaled_pct"] > 95


def test_no_interval_is_narrower_than_the_steps_of_the_job_differ(tmp_path: Path) -> None:
    # The second step loads code at the first launch of each layer.
    corpus = emulate(tmp_path, Job(ranks=2, layers=4, hidden=256, loading_ns=400_000))
    for change in ("dp=4", "layers=8", "network=20e9"):
        rows = [row for row in answers(corpus, change) if row["rank"] == 0]
        recorded = [row["original_iteration_time_s"] + 1e-9 * row["left_out_ns"] for row in rows]
        low, middle, high = np.percentile(recorded, (10, 50, 90))
        assert (high - low) / 2 / middle > 0.05
        for row in rows:
            # What comes once lasts as long in a longer step.
            assert half(row) * row["iteration_time_s"] > 0.99 * (high - low) / 2
            assert alone(row, "what came once") > 0.05


def test_what_came_once_lasts_as_long_in_a_longer_step(tmp_path: Path) -> None:
    corpus = emulate(tmp_path, Job(ranks=2, layers=4, hidden=256, loading_ns=400_000))
    short, long = (answers(corpus, change)[0] for change in ("network=20e9", "network=1e8"))
    assert long["iteration_time_s"] > 5 * short["iteration_time_s"]
    added = [alone(row, "what came once") * row["iteration_time_s"] for row in (short, long)]
    assert added[1] == pytest.approx(added[0], rel=0.1)


def test_a_host_that_bounds_the_step_is_why_it_may_be_longer(emulated: Path, tmp_path: Path) -> None:
    slow = emulate(tmp_path, Job(ranks=4, layers=6, hidden=256, batch=2, python_ns=6_000))
    for row in answers(slow, "dp=8"):
        assert row["causes"][0].startswith("host ±")
        assert alone(row, "host") > 0.02
    for row in answers(emulated, "layers=12"):
        assert row["causes"][0] == row["interval_from"]
        assert row["interval_from"].startswith("kernels ±")


def test_a_gpu_that_is_idle_for_what_nobody_recorded_may_be_idle_for_longer(tmp_path: Path) -> None:
    emulate(tmp_path, Job(ranks=2, layers=4, hidden=256, batch=2, python_ns=6_000))
    for file in (tmp_path / "four").glob("*.gz"):
        trace = json.loads(gzip.decompress(file.read_bytes()))
        trace["traceEvents"] = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
        file.write_bytes(gzip.compress(json.dumps(trace).encode()))
    corpus = ingested(tmp_path / "again", *sorted((tmp_path / "four").glob("*.gz")))
    for row in answers(corpus, "network=20e9"):
        assert alone(row, "host") > 0.05


def test_the_only_step_of_a_job_differs_as_its_stretches_do(tmp_path: Path) -> None:
    job = Job(ranks=1, layers=6, steps=1, hidden=256, python_ns=6_000)
    steady = emulate(tmp_path, job)
    _warp(tmp_path / "four", stretches=8, slowest=1.4)
    shaky = ingested(tmp_path / "again", tmp_path / "four")
    (row,), (other,) = answers(steady), answers(shaky)
    assert 0.02 < alone(row, "host") < 0.5 * alone(other, "host")


def test_what_only_single_launches_differ_by_is_nothing_that_a_step_differs_by(tmp_path: Path) -> None:
    job = Job(ranks=1, layers=6, steps=1, hidden=256, python_ns=6_000)
    steady, noisy = (emulate(tmp_path / str(jitter), replace(job, jitter_ns=jitter)) for jitter in (0, 3_000))
    (row,), (other,) = answers(steady), answers(noisy)
    assert alone(other, "host") < 1.5 * alone(row, "host")


@pytest.fixture(scope="module")
def of_speeds(tmp_path_factory: pytest.TempPathFactory) -> dict[float, Path]:
    """Files of runs of a job that its host bounds, alike but for how fast time passes in them."""
    job = Job(ranks=1, layers=4, steps=2, hidden=256, batch=2, python_ns=6_000)
    files = {}
    for number, slower in enumerate((1.0, 1.02, 1.3)):
        folder = tmp_path_factory.mktemp("runs")
        write(simulate(replace(job, seed=number)), Profiler(memory=False, stacks=False), folder / "job")
        _warp(folder / "job", stretches=1, slowest=slower, least=slower)
        (files[slower],) = (folder / "job").glob("*.gz")
    return files


def test_calls_that_differ_tell_that_runs_may(tmp_path: Path, of_speeds: dict[float, Path]) -> None:
    """A machine that disturbs single calls disturbs whole runs; operators that compute there err as kernels do."""
    assert alone(answers(ingested(tmp_path / "steady", of_speeds[1.0]), "layers=8")[0], "another run's host") < 0.02
    for slowest, least, most in ((1.1, 0.02, 0.1), (1.25, 0.2, 0.4), (2.5, 0.4, 0.44)):
        folder = tmp_path / str(slowest)
        (folder / "job").mkdir(parents=True)
        shutil.copy(of_speeds[1.0], folder / "job")
        _warp(folder / "job", stretches=150, slowest=slowest)
        for row in answers(ingested(folder / "corpus", folder / "job"), "layers=8"):
            assert row["interval_from"].startswith("another run's host ±")
            assert least < alone(row, "another run's host") < most
    work = ingested(tmp_path / "work", hosted.write(hosted.HostJob(), tmp_path / "traces"))
    assert alone(answers(work, "layers=4")[0], "another run's host") < 0.1


def test_a_step_whose_host_and_kernels_take_as_long_may_be_shorter_where_both_are(tmp_path: Path) -> None:
    """Alone, either is held up by the other: what each makes of the step is far less than what both do."""
    corpus = emulate(tmp_path, Job(ranks=1, layers=4, steps=2, hidden=512, batch=4, python_ns=6_000))
    few, *as_long, many = (answers(corpus, f"micro_batch={batch}")[0] for batch in (6, 9, 10, 32))
    assert max(alone(row, "host and kernels at once") for row in as_long) > 0.008
    # Without a GPU all adds up.
    work = ingested(tmp_path / "work", hosted.write(hosted.HostJob(), tmp_path / "traces"))
    for row in (few, many, *answers(work, "micro_batch=6")):
        assert alone(row, "host and kernels at once") < 0.005


def test_too_few_calls_tell_nothing_of_other_runs(tmp_path: Path) -> None:
    few = emulate(tmp_path, Job(ranks=1, layers=1, steps=1, hidden=256, batch=2, python_ns=6_000))
    assert 0.1 < alone(answers(few, "batch_scale=2")[0], "another run's host") < 0.21


def test_several_recordings_tell_how_much_their_hosts_differ(tmp_path: Path, of_speeds: dict[float, Path]) -> None:
    alike = ingested(tmp_path / "alike", of_speeds[1.0], of_speeds[1.02])
    apart = ingested(tmp_path / "apart", of_speeds[1.0], of_speeds[1.3])
    assert alone(answers(alike, "layers=8")[0], "another run's host") < 0.1
    assert alone(answers(apart, "layers=8")[0], "another run's host") > 0.15


def test_a_changed_job_has_the_host_of_all_its_recordings(tmp_path: Path, of_speeds: dict[float, Path]) -> None:
    fast, slow = (ingested(tmp_path / f"{speed}", of_speeds[speed]) for speed in (1.0, 1.3))
    both = ingested(tmp_path / "both", of_speeds[1.0], of_speeds[1.3])
    ends = [answers(corpus, "layers=8")[0]["iteration_time_s"] for corpus in (fast, slow)]
    of_both = {row["trace_id"]: row for row in answers(both, "layers=8")}
    assert ends[1] > 1.2 * ends[0]
    for row in of_both.values():
        assert row["iteration_time_s"] == pytest.approx(np.sqrt(ends[0] * ends[1]), rel=0.03)
    told = [text for row in of_both.values() for text in row["warnings"] if "as fast as in 2 recordings" in text]
    assert any("slower than in this one" in text for text in told)
    assert any("faster than in this one" in text for text in told)
    # A recording as it is stays as it is.
    for row in answers(both):
        assert row["iteration_time_s"] == pytest.approx(row["original_iteration_time_s"], rel=0.02)


def _warp(folder: Path, stretches: int, slowest: float, least: float = 1.0) -> None:
    """Let the time of a trace pass more slowly, by turns `least` and `slowest` times."""
    for file in folder.glob("*.gz"):
        trace = json.loads(gzip.decompress(file.read_bytes()))
        timed = [event for event in trace["traceEvents"] if "ts" in event]
        begin = [event["ts"] for event in timed]
        end = [event["ts"] + event.get("dur", 0) for event in timed]
        edges = np.linspace(min(begin), max(end), stretches + 1)
        speed = np.tile([least, slowest], stretches)[:stretches]
        later = np.append(edges[0], edges[0] + np.cumsum(speed * np.diff(edges)))
        for event, first, last in zip(timed, np.interp(begin, edges, later), np.interp(end, edges, later), strict=True):
            event["ts"] = first
            if "dur" in event:
                event["dur"] = last - first
        file.write_bytes(gzip.compress(json.dumps(trace).encode()))


@pytest.fixture(scope="module")
def shapeless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Operators of a job whose products record no shapes."""
    folder = tmp_path_factory.mktemp("shapeless")
    emulate(folder, Job(ranks=1, layers=4))
    for file in (folder / "four").glob("*.gz"):
        trace = json.loads(gzip.decompress(file.read_bytes()))
        for event in trace["traceEvents"]:
            if event.get("name", "").startswith(("aten::native_layer_norm", "aten::gelu")):
                event["args"] = {name: value for name, value in event["args"].items() if name != "Input Dims"}
        file.write_bytes(gzip.compress(json.dumps(trace).encode()))
    return ingested(folder / "again", *sorted((folder / "four").glob("*.gz")))


def test_what_has_no_shapes_is_said_and_widens_the_interval(emulated: Path, shapeless: Path) -> None:
    whole, part = answers(emulated, "micro_batch=16")[0], answers(shapeless, "micro_batch=16")[0]
    assert whole["unscaled_gpu_pct"] == 0
    assert 1 < part["unscaled_gpu_pct"] < 33
    assert any("could not be rescaled, because no shapes are recorded" in text for text in part["warnings"])
    assert any(cause.startswith("unscaled ±") for cause in part["causes"])
    assert not any(cause.startswith("unscaled ±") for cause in whole["causes"])
    # Layers are copied as measured: no kernel should take another time.
    assert answers(shapeless, "layers=8")[0]["unscaled_gpu_pct"] == 0


def test_mostly_guessed_is_refused_with_what_to_record_unless_forced(tmp_path: Path, lumos: Run) -> None:
    emulate(tmp_path, Job(ranks=1, layers=4))
    for file in (tmp_path / "four").glob("*.gz"):
        text = gzip.decompress(file.read_bytes()).decode().replace('"Input Dims"', '"Other"')
        file.write_bytes(gzip.compress(text.encode()))
    corpus = ingested(tmp_path / "again", *sorted((tmp_path / "four").glob("*.gz")))
    change = ("--corpus", str(corpus), "--set", "batch_scale=2")
    refused = lumos("estimate", *change)
    assert refused.returncode == 1
    assert len(refused.stderr.strip().splitlines()) == 1
    assert "record_shapes=True" in refused.stderr
    assert "--force" in refused.stderr
    forced = lumos("estimate", *change, "--force")
    assert forced.returncode == 0, forced.stderr
    (row, *_) = answers(corpus, "batch_scale=2", force=True)
    assert row["unscaled_gpu_pct"] > 33
    assert row["low_s"] <= row["original_iteration_time_s"]


def test_the_host_s_share_without_shapes_counts_where_there_is_no_gpu(tmp_path: Path) -> None:
    folder = hosted.write(hosted.HostJob(), tmp_path / "traces")
    text = gzip.decompress((folder / "rank0.json.gz").read_bytes()).decode()
    trace = json.loads(text)
    for event in trace["traceEvents"]:
        if event["name"] == "aten::embedding_dense_backward":
            del event["args"]["Input Dims"]
    (folder / "rank0.json.gz").write_bytes(gzip.compress(json.dumps(trace).encode()))
    row = answers(ingested(tmp_path / "corpus", folder), "micro_batch=6")[0]
    assert row["unscaled_gpu_pct"] == 0
    assert 0 < row["unscaled_host_pct"] < 33


def test_a_setting_without_effect_is_an_error_alone_and_a_warning_among_others(emulated: Path) -> None:
    with pytest.raises(QueryError, match="dp=4 changes nothing, because it was 4 already"):
        answers(emulated, "dp=4")
    for dtype, why in (
        ("bf16", "was recorded with bfloat16$"),
        ("fp16", "bfloat16, of which the GPU multiplies as much"),
    ):
        with pytest.raises(QueryError, match=why):
            answers(emulated, f"dtype={dtype}")
    row = answers(emulated, "dp=4", "layers=12")[0]
    assert row["warnings"][0] == "dp=4 changes nothing, because it was 4 already"
    assert answers(emulated, "layers=12")[0]["step_ns"] == row["step_ns"]


def test_another_gpu_changes_nothing_where_kernels_are_too_short(tmp_path: Path) -> None:
    small = Job(ranks=1, layers=1, hidden=64, heads=1, vocabulary=64, sequence=16, batch=1, silence_ns=4_000_000_000)
    with pytest.raises(QueryError, match="hardware=b200 changes nothing, because its kernels are too short for any"):
        answers(emulate(tmp_path, small), "hardware=b200")


def test_links_of_a_job_without_collectives_change_nothing(tmp_path: Path) -> None:
    alone = emulate(tmp_path, Job(ranks=1))
    with pytest.raises(QueryError, match="network=1e9 changes nothing, because no rank has a collective"):
        answers(alone, "network=1e9")
    assert any(
        "network=1e9 changes nothing" in text for text in answers(alone, "network=1e9", "layers=4")[0]["warnings"]
    )


def test_a_job_whose_replay_is_off_is_refused_or_stands_beside_its_recording(
    emulated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (before, *_) = answers(emulated)
    monkeypatch.setattr(answerable, "_REPLAY_OFF", -1.0)
    with pytest.raises(QueryError, match=r"the replay of rank \d is .* off the recorded steps"):
        answers(emulated, "layers=12")
    (forced, *_) = answers(emulated, "layers=12", force=True)
    assert any("original_... are the recorded steps" in text for text in forced["warnings"])
    assert forced["original_step_ns"] == pytest.approx(before["original_step_ns"], rel=0.01)
    assert forced["original_step_ns"] != before["original_step_ns"]


@pytest.mark.parametrize("batch", [2, 8])
def test_no_interval_begins_below_the_operations_of_the_step_at_the_peak(tmp_path: Path, batch: int) -> None:
    corpus = emulate(tmp_path, Job(ranks=1, layers=2, steps=1, batch=batch))
    # The last one would begin a third below.
    for change in ("micro_batch=1", "seq=4096", "ffn=65536", "hardware=b200", "hidden=16384,micro_batch=64"):
        for row in answers(corpus, *change.split(","), force=True):
            least = row["mfu_pct"] / 100 * row["iteration_time_s"]
            assert row["low_s"] >= least * (1 - 1e-9), change
