"""What is said of the profiler's cost, of literal recordings."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lumos_df.cli.app import app
from lumos_df.corpus import profiler_overhead
from lumos_df.graph.job import groups
from tests.trace.literal import Event, annotation, corpus_of, kernel, launch, op


def said(folder: Path, events: list[Event], **top: Any) -> list[str]:
    corpus_of(folder, events, distributedInfo={"rank": 0, "world_size": 1}, **top)
    corpus = folder / "corpus"
    (ids,) = groups(corpus)
    told = profiler_overhead.told(corpus, ids)
    shown = CliRunner().invoke(app, ["describe", "--corpus", str(corpus)], env={"COLUMNS": "160"}).stdout
    assert all(note in " ".join(shown.split()) for note in told)
    assert shown.count("note: ") == len(told)
    return told


@pytest.mark.parametrize(("silent_us", "percent"), [(100, 50), (15, 13), (5, None)])
def test_a_gpu_that_waits_for_its_host_is_told_where_nothing_was_timed(
    tmp_path: Path, silent_us: int, percent: int | None
) -> None:
    """Kernels of 60 and 40 us on two streams overlap or follow one another at once but for one silence."""
    events = [
        op("aten::mm", 0, 5),
        kernel("gemm", 10, 60),
        kernel("copy", 20, 10, stream=8),
        kernel("gemm", 70 + silent_us, 40),
    ]
    told = said(tmp_path, events)
    assert [f"the GPU stands still {percent}% of the time" in text for text in told] == [True] * (percent is not None)


def test_what_was_timed_is_told_and_no_guess(tmp_path: Path) -> None:
    events = [kernel("gemm", 10, 60), kernel("gemm", 500, 40)]
    timed = {"profiledNs": [9_000_000], "unprofiledBeforeNs": [6_000_000], "unprofiledAfterNs": []}
    (note,) = said(tmp_path, events, lumosCapture=timed)
    assert note.startswith("a step under the profiler is 50% longer")


@pytest.mark.parametrize("timed", [[0, 0], [-5], ["a"], None])
def test_steps_that_took_nothing_were_not_timed(tmp_path: Path, timed: Any) -> None:
    events = [annotation("ProfilerStep#1", 0, 700), kernel("gemm", 10, 60), kernel("gemm", 500, 40)]
    capture = {"profiledNs": [700_000], "unprofiledBeforeNs": timed, "unprofiledAfterNs": []}
    (note,) = said(tmp_path, events, lumosCapture=capture)
    assert note.endswith("no step here was timed without it")
    (ids,) = groups(tmp_path / "corpus")
    assert profiler_overhead.unprofiled(tmp_path / "corpus", ids[0]) == []


def test_a_recorded_step_is_no_shorter_than_the_hosts(tmp_path: Path) -> None:
    """A slowed host marks steps of 12 and 14 ms, while the GPU works off a queue in steps of 9."""
    marks = [annotation(f"ProfilerStep#{step}", ts, dur) for step, ts, dur in ((1, 0, 12_000), (2, 12_000, 14_000))]
    timed = {"profiledNs": [9_000_000], "unprofiledBeforeNs": [8_000_000], "unprofiledAfterNs": []}
    (note,) = said(tmp_path, [*marks, kernel("gemm", 10, 60), annotation("other", 30_000, 99_000)], lumosCapture=timed)
    assert note.startswith("a step under the profiler is 62% longer (13.0 ms, without 8.00 ms)")


def test_a_recording_without_a_gpu_says_nothing(tmp_path: Path) -> None:
    assert said(tmp_path, [op("aten::mm", 0, 5), op("aten::mm", 100, 5)]) == []


@pytest.mark.parametrize(("alone_us", "notes"), [(600, 1), (1000, 0)])
def test_screens_of_recorded_steps_say_that_they_are_longer(tmp_path: Path, alone_us: int, notes: int) -> None:
    """Two steps of 1 ms, in which the host calls operators one after another; advice counts steps without it."""
    calls = [op("aten::relu", 10 * place, 9) for place in range(200)]
    marks = [annotation(f"ProfilerStep#{step}", 1000 * step, 1000) for step in (0, 1)]
    gpu = [each for at in (900, 1900) for each in (launch(at, 1, at), kernel("gemm", at + 5, 60, correlation=at))]
    timed = {"profiledNs": [1_000_000] * 2, "unprofiledBeforeNs": [alone_us * 1000] * 2, "unprofiledAfterNs": []}
    corpus_of(tmp_path, [*marks, *calls, *gpu], distributedInfo={"rank": 0, "world_size": 1}, lumosCapture=timed)
    for command in ("replay", "critical-path", "replay --scale family=gemm:0.5", "report"):
        asked = [*command.split(), "--corpus", str(tmp_path / "corpus")]
        shown = " ".join(CliRunner().invoke(app, asked, env={"COLUMNS": "160"}).stdout.split())
        note = (
            "gains are of other steps than the table's" if command == "report" else "a step under the profiler is 67%"
        )
        assert shown.count(note) == notes, shown
