"""What once took far longer than ever else: listed, and left out of a changed job unless it is to be kept."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lumos_df import Corpus
from lumos_df.whatif.estimate import estimate
from lumos_df.whatif.job.settings import parse
from tests.emulator import Job, Profiler, simulate, write
from tests.whatif.conftest import emulate, ingested

HEALTHY = Job(ranks=2, layers=3, steps=3)
LOADED_NS = 6_000_000
STALLED = replace(HEALTHY, loading_ns=LOADED_NS)
"""In its second step the first launch of each of its three layers loads code, on both ranks."""


@pytest.fixture(scope="module")
def stalled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return emulate(tmp_path_factory.mktemp("stalled"), STALLED)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return emulate(tmp_path_factory.mktemp("healthy"), HEALTHY)


def steps(corpus: Path, change: str, **more: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = estimate(corpus, replace(parse([change]), **more)).to_pylist()
    return rows


def test_a_changed_job_is_that_of_one_that_never_stalled(stalled: Path, healthy: Path) -> None:
    told = steps(stalled, "micro_batch=8")
    for row, other in zip(told, steps(healthy, "micro_batch=8"), strict=True):
        assert row["step_ns"] == pytest.approx(other["step_ns"], rel=0.005)
        # One of three steps may have them again, but none is as much shorter.
        assert row["low_s"] == pytest.approx(other["low_s"], rel=0.02)
        assert row["high_s"] > 1.5 * other["high_s"]
        assert row["causes"][0].startswith("what came once ")
    (note,) = (text for text in told[0]["warnings"] if text.startswith("left out"))
    assert note.startswith("left out 3 stalls of rank ")
    assert ", 18.0 ms that came once, the longest cudaLaunchKernel of aten::" in note


def test_what_befalls_another_rank_in_each_step_comes_again(tmp_path: Path) -> None:
    """Each of three ranks does nothing for 10 ms in one of three steps, and all wait for it: for stalls: -60 %."""
    turns = Job(ranks=3, layers=2, steps=3, by_turns_ns=10_000_000)
    told = steps(emulate(tmp_path / "three", turns), "dp=6")
    ran = steps(emulate(tmp_path / "six", replace(turns, ranks=6)), "batch=2")
    for row in told:
        (other,) = (of for of in ran if (of["rank"], of["step"]) == (row["rank"], row["step"]))
        assert row["step_ns"] == pytest.approx(other["original_step_ns"], rel=0.02)
        assert row["step_ns"] > 10_000_000
        assert not any(text.startswith("left out") for text in row["warnings"])


@pytest.mark.parametrize("everywhere", [False, True], ids=["one step", "each step"])
def test_a_step_that_is_no_longer_than_those_held_up_elsewhere_has_no_stalls(
    tmp_path: Path,
    everywhere: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """A step is held up for 6 ms before one operator, and the others, perhaps, as long before all of theirs."""
    write(simulate(Job(ranks=1, layers=3, steps=3)), Profiler(memory=False, stacks=False), tmp_path / "job")
    (file,) = (tmp_path / "job").glob("*.gz")
    recorded = json.loads(gzip.decompress(file.read_bytes()))
    events = recorded["traceEvents"]
    named = [event for event in events if event.get("cat") == "user_annotation"]
    marks = sorted(event["ts"] for event in named if event["name"].startswith("ProfilerStep#"))
    calls = np.array(sorted({event["ts"] for event in events if event.get("cat") == "cpu_op"}))
    inside = np.searchsorted(marks, calls) - 1
    late = np.zeros(len(calls))
    late[np.flatnonzero(inside == 1)[2]] = 6000
    for step in (0, 2) if everywhere else ():
        late[inside == step] = 6000 / (inside == step).sum()
    until = np.append(0, np.cumsum(late))
    for event in events:
        if "ts" in event:
            end = event["ts"] + event.get("dur", 0)
            event["ts"] += until[np.searchsorted(calls, event["ts"], side="right")]
            if event.get("cat") != "kernel" and "dur" in event:
                event["dur"] = end + until[np.searchsorted(calls, end, side="right")] - event["ts"]
    file.write_bytes(gzip.compress(json.dumps(recorded).encode()))
    # No dependency explains why kernels come later as well.
    told = estimate(ingested(tmp_path / "corpus", file), parse(["micro_batch=8"]), force=True).to_pylist()
    assert any(text.startswith("left out 1 stall") for text in told[0]["warnings"]) != everywhere


def test_stalls_are_kept_on_demand(stalled: Path) -> None:
    kept = {(row["rank"], row["step"]): row for row in steps(stalled, "micro_batch=8", keep_stalls=True)}
    longer = [kept[row["rank"], row["step"]]["step_ns"] - row["step_ns"] for row in steps(stalled, "micro_batch=8")]
    assert sum(late > 0.8 * 3 * LOADED_NS for late in longer) == 2
    assert not any(text.startswith("left out") for row in kept.values() for text in row["warnings"])


def test_a_job_that_does_not_change_keeps_them(stalled: Path) -> None:
    for row in estimate(stalled, parse([])).to_pylist():
        assert row["step_ns"] == row["original_step_ns"]


def test_the_view_lists_them_with_their_share(stalled: Path, healthy: Path) -> None:
    listed = Corpus(stalled).view("stall")
    assert sorted(listed["rank"].to_list()) == [0, 0, 0, 1, 1, 1]
    assert listed["over_ns"].to_list() == pytest.approx([LOADED_NS] * 6, rel=0.01)
    steps_ns = Corpus(stalled).view("step").select("rank", "step", "dur").rename({"dur": "lasted"})
    share = listed.join(steps_ns, on=["rank", "step"])
    assert listed["over_pct"].to_list() == pytest.approx((100 * share["over_ns"] / share["lasted"]).to_list(), 1e-3)
    assert Corpus(healthy).view("stall").is_empty()


def test_without_steps_the_few_that_take_far_longer_are_stalls(stalled: Path, tmp_path: Path) -> None:
    for file in (stalled.parent / "four").glob("*.gz"):
        text = gzip.decompress(file.read_bytes()).decode().replace("ProfilerStep#", "iteration ")
        (tmp_path / file.name).write_bytes(gzip.compress(text.encode()))
    listed = Corpus(ingested(tmp_path / "corpus", *tmp_path.glob("*.gz"))).view("stall")
    assert listed["over_ns"].to_list() == pytest.approx([LOADED_NS] * 6, rel=0.01)
    assert all(text.startswith("cudaLaunchKernel of aten::") for text in listed["what"])


def test_a_watchdog_that_sleeps_is_no_stall(tmp_path: Path) -> None:
    """It asks at its own pace whether an event is over: in one of three steps twice."""
    write(simulate(replace(HEALTHY, ranks=1)), Profiler(memory=False, stacks=False), tmp_path / "job")
    (file,) = (tmp_path / "job").glob("*.gz")
    recorded = json.loads(gzip.decompress(file.read_bytes()))
    marks = [event for event in recorded["traceEvents"] if event["name"].startswith("ProfilerStep#")]
    call = next(event for event in recorded["traceEvents"] if event["name"] == "cudaLaunchKernel")
    for turn in range(5):
        at = marks[0]["ts"] + 0.7 * turn * marks[0]["dur"]
        args = {"correlation": 1_000_000 + turn}
        recorded["traceEvents"].append(
            {**call, "name": "cudaEventQuery", "tid": 777, "ts": at, "dur": 1.0, "args": args}
        )
    file.write_bytes(gzip.compress(json.dumps(recorded).encode()))
    assert Corpus(ingested(tmp_path / "corpus", file)).view("stall").is_empty()


@pytest.mark.parametrize(("pauses", "copied"), [((4,), 0), ((4, 8), 4)])
def test_copies_of_the_one_layer_that_paused_in_the_only_step_do_not_pause(
    tmp_path: Path, pauses: tuple[int, ...], copied: int
) -> None:
    """Three seconds in one of four layers: with four more they came three times. In two layers they may come in any."""
    write(simulate(Job(ranks=1, layers=4, steps=1)), Profiler(memory=False, stacks=False), tmp_path / "job")
    (file,) = (tmp_path / "job").glob("*.gz")
    recorded = json.loads(gzip.decompress(file.read_bytes()))
    for pause in pauses:
        at = [event for event in recorded["traceEvents"] if event.get("name") == "aten::linear"][pause]["ts"] - 0.5
        for event in recorded["traceEvents"]:
            if event.get("ts", 0) >= at:
                event["ts"] += 3_000_000
            elif event.get("ts", 0) + event.get("dur", 0) > at and event.get("cat") != "kernel":
                event["dur"] += 3_000_000
    file.write_bytes(gzip.compress(json.dumps(recorded).encode()))
    corpus = ingested(tmp_path / "corpus", file)
    (row,) = steps(corpus, "layers=8")
    assert row["original_step_ns"] == pytest.approx(3e9 * len(pauses), rel=0.01)
    assert row["step_ns"] == pytest.approx(3e9 * (len(pauses) + copied), rel=0.01)
    (row,) = steps(corpus, "batch=2")
    assert row["step_ns"] == pytest.approx(3e9 * len(pauses) * (2 if copied else 1), rel=0.01)


@pytest.mark.parametrize(("inside", "stalls"), [("fallback_function", 1), ("aten::mul", 0)])
def test_in_one_step_a_silence_before_a_scripted_function_compiles_it(tmp_path: Path, inside: str, stalls: int) -> None:
    corpus = _silent(tmp_path, Job(ranks=1, layers=3, steps=1), inside)
    listed = Corpus(corpus).view("stall")
    assert listed["over_ns"].to_list() == pytest.approx([300_000_000] * stalls, rel=0.01)
    # How often it comes one step does not tell: it is named, and the interval is not a hundred times as wide.
    (row,) = steps(corpus, "micro_batch=8")
    assert any(text.startswith("left out 1 stall") for text in row["warnings"]) == (stalls == 1)
    assert row["high_s"] - row["iteration_time_s"] < 0.1 or not stalls
    assert not any(text.startswith("what came once") for text in row["causes"])


def test_by_what_came_once_in_the_only_step_the_host_does_not_differ(tmp_path: Path) -> None:
    """A step of 6 ms that its host bounds, and 300 ms of silence: most of that work is like no other."""
    job = Job(ranks=1, layers=6, steps=1, hidden=256, python_ns=6_000)
    (row,), (other,) = (
        steps(_silent(tmp_path / str(us), job, "fallback_function", us, at_linear=-1), "micro_batch=8")
        for us in (0, 300_000)
    )
    assert other["step_ns"] == pytest.approx(row["step_ns"], rel=0.005)
    for end in ("low_s", "high_s"):
        assert other[end] == pytest.approx(row[end], rel=0.005)


def _silent(folder: Path, job: Job, before: str, us: int = 300_000, at_linear: int = 4) -> Path:
    """Return a corpus of a job whose host is silent so long before a call of `before`, which it makes once."""
    write(simulate(job), Profiler(memory=False, stacks=False), folder / "job")
    (file,) = (folder / "job").glob("*.gz")
    recorded = json.loads(gzip.decompress(file.read_bytes()))
    events = [event for event in recorded["traceEvents"] if event.get("name") != "DistributedDataParallel.forward"]
    called = [event for event in events if event.get("name") == "aten::linear"][at_linear]
    at = called["ts"]
    for event in events:
        # What goes on around the silence goes on through it.
        if event.get("ts", 0) >= at:
            event["ts"] += us
        elif event.get("ts", 0) + event.get("dur", 0) > at and event.get("cat") != "kernel":
            event["dur"] += us
    for name, wider in (("delta", 2), (before, 1)):
        place = {"ts": called["ts"] - wider, "dur": called["dur"] + 2 * wider, "args": {}}
        events.append({**called, "name": name, **place})
    recorded["traceEvents"] = events
    file.write_bytes(gzip.compress(json.dumps(recorded).encode()))
    return ingested(folder / "corpus", file)
