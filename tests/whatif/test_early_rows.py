"""GPU rows that were issued before the recording began: their work is that of the same rows in a recorded step."""

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lumos_df.cli.screens.estimate_screen import draw_changed, seconds
from lumos_df.graph.job import groups
from lumos_df.whatif.durations.kernel_times import shaped
from lumos_df.whatif.estimate import estimate
from lumos_df.whatif.job.recorded_job import RecordedJob, load
from lumos_df.whatif.job.settings import parse
from tests.emulator import Job, Profiler, simulate, write
from tests.whatif.conftest import ingested

RECORDING = Path(__file__).parent.parent / "recordings" / "grid" / "l4_w2048_b16_s1024_eager"
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
JOB = Job(ranks=1, layers=2, steps=5, batch=32)


def late(folder: Path, steps: int, job: Job = JOB) -> Path:
    """Run a job, whose profiler notes the GPU's work from the first step on, and the host only in the last steps."""
    (path,) = write(simulate(job), Profiler(memory=False, stacks=False), folder / "whole")
    trace = json.loads(gzip.decompress(path.read_bytes()))
    begin = sorted(event["ts"] for event in trace["traceEvents"] if is_mark(event))[-steps]
    trace["traceEvents"] = [
        event
        for event in trace["traceEvents"]
        if event["ph"] == "M" or event.get("cat") in ON_GPU or event["ts"] >= begin
    ]
    cut = folder / "late" / path.name
    cut.parent.mkdir()
    cut.write_bytes(gzip.compress(json.dumps(trace, separators=(",", ":")).encode()))
    return cut


def is_mark(event: dict[str, str]) -> bool:
    return event.get("cat") == "user_annotation" and event["name"].startswith("ProfilerStep")


def anchor(corpus: Path) -> RecordedJob:
    (ids,) = groups(corpus)
    return load(corpus, ids, {})


def by_start(job: RecordedJob) -> tuple[list[str], list[tuple[int, str]]]:
    """Kernel, and phase with the shapes of its operator, of every GPU row by start."""
    (rank,) = job.about.ranks
    rows, dims = rank.trace.rows, rank.trace.dims
    row = np.flatnonzero(rows.on_gpu).astype(np.int32)
    row = row[np.argsort(rows.ts[row])]
    operator = shaped(rank.trace, row)
    words = [dims.words[dims.code[at]] if at >= 0 else "" for at in operator.tolist()]
    names = [rows.names[name] for name in rows.name[row].tolist()]
    return names, list(zip(rank.structure.phase[row].tolist(), words, strict=True))


@pytest.mark.parametrize("steps", [3, 2])
def test_work_of_steps_before_is_told_as_in_a_recording_of_them(tmp_path: Path, steps: int) -> None:
    """Of five steps the others: two, fewer than were recorded, and three, more than these."""
    cut = late(tmp_path, steps)
    whole = anchor(ingested(tmp_path / "all", tmp_path / "whole"))
    part = anchor(ingested(tmp_path / "corpus", cut))
    assert by_start(part) == by_start(whole)


def test_what_is_like_nothing_in_the_recording_stays_unknown(tmp_path: Path) -> None:
    cut = late(tmp_path, 2)
    trace = json.loads(gzip.decompress(cut.read_bytes()))
    kernels = sorted((event for event in trace["traceEvents"] if event.get("cat") == "kernel"), key=lambda e: e["ts"])
    kernels[20]["name"] = "something_else"
    cut.write_bytes(gzip.compress(json.dumps(trace, separators=(",", ":")).encode()))
    names, told = by_start(anchor(ingested(tmp_path / "corpus", cut)))
    other = names.index("something_else")
    assert {words for _, words in told[: other + 1]} == {""}
    assert "" not in {words for _, words in told[other + 1 : other + 10]}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording whose first two steps waited for work that is not in it."""
    return ingested(tmp_path_factory.mktemp("recorded") / "corpus", RECORDING)


@pytest.fixture(scope="module")
def changed(recorded: Path) -> pa.Table:
    """The same with a fourth of its batch."""
    return estimate(recorded, parse(["micro_batch=4"]))


def test_a_changed_job_rescales_what_was_issued_before(changed: pa.Table) -> None:
    assert max(changed["unscaled_gpu_pct"].to_pylist()) < 1


def test_steps_that_waited_for_work_of_before_are_told_and_not_shown(
    recorded: Path, changed: pa.Table, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert changed["waits_unseen"].to_pylist() == [True, True, False]
    draw_changed(changed, ["--set micro_batch=4"], recorded, "", "", full=False)
    screen = capsys.readouterr().out
    last = changed["iteration_time_s"][2].as_py()
    assert f"-> {seconds(last)}" in screen
    assert "steps 1, 2 waited for GPU work that was issued before the recording" in screen
    draw_changed(changed.slice(0, 2), ["--set micro_batch=4"], recorded, "", "", full=False)
    assert f"-> {seconds(sum(changed['iteration_time_s'].to_pylist()[:2]) / 2)}" in capsys.readouterr().out


def test_a_queue_with_room_holds_no_step_back(tmp_path: Path) -> None:
    rows = estimate(ingested(tmp_path / "corpus", late(tmp_path, 2)), parse(["layers=4"]))
    assert not any(rows["waits_unseen"].to_pylist())
    assert not any("issued before" in text for text in rows["warnings"][0].as_py())
