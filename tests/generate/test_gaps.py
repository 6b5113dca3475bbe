"""When a generated benchmark makes its calls: the host's own time between them, and what it is not."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lumos_df.generate.benchmark_folder import generate
from tests.generate.benchmarks import (
    ADD,
    MM,
    STEP,
    called,
    generated,
    names,
    needs_torch,
    on_gpu,
    read,
    run_benchmark,
    run_beside,
)
from tests.trace.literal import Event, annotation, corpus_of, op, stated, x


def test_the_hosts_own_time_is_kept_between_calls(tmp_path: Path) -> None:
    plan, _ = generated(tmp_path, STEP)
    rank = plan["ranks"]["0"]
    assert rank["calls"]["gap_ns"] == [12_000, 15_000, 10_000, 4_000, 4_000]
    assert rank["last_gap_ns"] == 24_000
    assert rank["step_ns"] == 100_000


def alike(pauses: dict[int, float]) -> list[Event]:
    """Return five steps of two calls, the second 10 us after the first, and in some steps a pause more."""
    return [
        each
        for step in range(5)
        for each in (
            annotation(f"ProfilerStep#{step}", 1000 * step, 100 + pauses.get(step, 0)),
            op("aten::mm", 1000 * step + 10, 8, **MM),
            op("aten::add", 1000 * step + 28 + pauses.get(step, 0), 5, **ADD),
        )
    ]


def test_a_pause_in_the_chosen_step_is_none_of_the_hosts_own_time(tmp_path: Path) -> None:
    """What one step waits is no time of the job; what most of them do, is."""
    plan, manifest = generated(tmp_path, alike({2: 400, 3: 70}), step=2)
    assert plan["ranks"]["0"]["calls"]["gap_ns"] == [10_000, 10_000]
    assert plan["ranks"]["0"]["last_gap_ns"] == 67_000
    assert manifest["host_gaps_of_steps"] == {"0": 5}
    assert manifest["host_gaps_longer_in_step_ns"] == {"0": 400_000}


def test_a_pause_that_most_steps_have_is_kept(tmp_path: Path) -> None:
    plan, _ = generated(tmp_path, alike({0: 70, 2: 70, 3: 70}), step=1)
    assert plan["ranks"]["0"]["calls"]["gap_ns"] == [10_000, 80_000]


def test_gaps_of_steps_with_other_calls_do_not_count(tmp_path: Path) -> None:
    other = [each | {"name": "aten::sub"} if each["name"] == "aten::add" else each for each in alike({2: 400})]
    events = [*alike({2: 400})[6:9], *other[:6], *other[9:]]
    plan, manifest = generated(tmp_path, events, step=2)
    assert plan["ranks"]["0"]["calls"]["gap_ns"] == [10_000, 410_000]
    assert manifest["host_gaps_of_steps"] == {"0": 1}


def captured(profiled_us: float, *unprofiled_us: float) -> dict[str, Any]:
    """Return what `lumos-df capture` writes into a trace of what steps take with and without the profiler."""
    unprofiled = [round(us * 1000) for us in unprofiled_us]
    times = {"unprofiledBeforeNs": unprofiled[:1], "unprofiledAfterNs": unprofiled[1:]}
    profiled = [round(profiled_us * 1000)] if profiled_us else []
    return {"lumosCapture": {"profiledNs": profiled, "complete": True, **times}}


WRAPPED = [
    annotation("ProfilerStep#1", 0, 100),
    op("a_wrapper", 10, 20),
    op("a_wrapper_in_it", 12, 17),
    op("aten::mm", 15, 10, **MM),
    op("aten::fill_", 16, 2, **called([[64, 16], []], ["float", "Scalar"], ["", "0"])),
    op("aten::fill_", 20, 2, **called([[64, 16], []], ["float", "Scalar"], ["", "0"])),
    op("aten::add", 35, 5, **ADD),
    op("of_another_thread", 36, 1, tid=9),
    op("behind_the_last", 50, 1),
]

WRITTEN_DOWN = 8
"""Rows of the thread that makes the calls, the step's own among them."""


@pytest.mark.parametrize(
    ("times", "each_us", "unprofiled_ns"),
    [
        (captured(100 + WRITTEN_DOWN / 2, 98, 100, 102), 0.5, 100_000),
        (captured(90, 100), 0, 100_000),
        (captured(0, 100 - WRITTEN_DOWN / 2), 0.5, 96_000),
        (captured(100), 0, None),
        ({}, 0, None),
    ],
    ids=["longer by 4 us", "no longer", "the recorded step itself", "not timed without", "not by capture"],
)
def test_what_the_profiler_took_between_calls_goes_by_the_rows_that_begin_there(
    tmp_path: Path, times: dict[str, Any], each_us: float, unprofiled_ns: int | None
) -> None:
    """Before the first call begin the step, two wrappers and the call; what is inside it costs nothing outside."""
    corpus_of(tmp_path, WRAPPED, **times)
    generate(tmp_path / "corpus", tmp_path / "benchmark")
    rank = read(tmp_path / "benchmark")[0]["ranks"]["0"]
    assert names(rank) == ["aten::mm", "aten::add"]
    assert rank["calls"]["gap_ns"] == [15_000, 10_000]
    assert rank["calls"]["profiler_ns"] == [4 * 1000 * each_us, 1000 * each_us]
    assert rank["last_profiler_ns"] == 1000 * each_us
    assert rank["unprofiled_step_ns"] == unprofiled_ns


@needs_torch
def test_a_step_without_the_profiler_is_held_against_the_recorded_one_without_it(tmp_path: Path) -> None:
    """Of gaps of 200 ms the profiler took 150: they are there again under a profiler only."""
    calls = [op("aten::mm", 100_000, 10, **MM), op("aten::add", 200_000, 10, **ADD)]
    corpus_of(tmp_path, [annotation("ProfilerStep#1", 0, 200_010), *calls], **captured(200_000, 50_000))
    generate(tmp_path / "corpus", tmp_path / "benchmark")
    result = run_benchmark(tmp_path / "benchmark", "--iterations", 3, "--warmup", 1)
    assert (result["recorded_step_ms"], result["recorded_without_profiler_step_ms"]) == (200.01, 50)
    # A step that a busy machine made late is made up for by the next.
    assert 49 <= result["step_ms"] < 150
    assert result["profiled_step_ms"] >= 199


LATE = """
import argparse, json, pathlib
from benchmark import Step
plan = json.loads((pathlib.Path(__file__).parent / "plan.json").read_text())
step = Step(plan, 0, argparse.Namespace(small=1, seed=0, host_gaps="keep"))
step.late[0] = {late}
print(*step.timed(1), step.late[0])
"""


@needs_torch
@pytest.mark.parametrize(("late_ns", "least_ms", "most_ms"), [(0, 199, None), (150e6, 49, 150), (10e9, 0, 150)])
def test_what_a_step_was_late_by_is_taken_off_the_gaps_of_the_next(
    tmp_path: Path, late_ns: float, least_ms: float, most_ms: float | None
) -> None:
    """Of a pause longer than a step, one step is made up for."""
    calls = [op("aten::mm", 100_000, 10, **MM), op("aten::add", 200_000, 10, **ADD)]
    generated(tmp_path, [annotation("ProfilerStep#1", 0, 200_010), *calls])
    (tmp_path / "benchmark" / "late.py").write_text(LATE.format(late=late_ns))
    command = [sys.executable, str(tmp_path / "benchmark" / "late.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    step_ms, late = map(float, done.stdout.split())
    assert least_ms <= step_ms < (most_ms or sys.maxsize)
    assert late <= 200e6


WAITING = """
import argparse, json, pathlib
from statistics import mean, median
from benchmark import Step
plan = json.loads((pathlib.Path(__file__).parent / "plan.json").read_text())
step = Step(plan, 0, argparse.Namespace(small=1, seed=0, host_gaps="keep"))
times = step.timed(20)
print([row[2] is None for row in step.times[2][0]], mean(times), median(times))
"""


@needs_torch
def test_calls_in_a_graph_wait_as_long_as_recorded(tmp_path: Path) -> None:
    """Before each of 20 calls lie 0.2 ms; gaps of 1 us before as many others are waited for with the next."""
    near = [op("aten::add", 200 * turn + 11, 10, **ADD) for turn in range(1, 21)]
    calls = [op("aten::add", 200 * turn, 10, **ADD) for turn in range(1, 21)] + near
    corpus_of(tmp_path, [annotation("ProfilerStep#1", 0, 4100), *sorted(calls, key=lambda call: call["ts"])])
    generate(tmp_path / "corpus", tmp_path / "benchmark")
    joined, mean_ms, median_ms = run_beside(tmp_path / "benchmark", WAITING).split()
    assert joined == "[True]"
    assert float(mean_ms) > 3.7
    assert float(median_ms) < 7  # 20 x (179 + 1) us, 79 behind the last, and what 40 additions take


PAUSED = """
import argparse, json, pathlib, torch
from benchmark import Step
plan = json.loads((pathlib.Path(__file__).parent / "plan.json").read_text())
step = Step(plan, 0, argparse.Namespace(small=1, seed=0, host_gaps="cut"))
(number, run, *others), *rest = step.threads[0]
steps, large = iter(range(100)), torch.ones(1000, 1000)
def once_long():
    if next(steps) == 3:
        for _ in range(10):
            torch.mm(large, large)
    return run()
step.threads[0] = [(number, once_long, *others), *rest]
print(step.by_family(5)["gemm"])
"""


@needs_torch
def test_a_pause_in_one_step_is_no_time_of_a_family(tmp_path: Path) -> None:
    """Ten large products in one of five steps take 30 ms or more, a mean of 6; the step's own takes microseconds."""
    generated(
        tmp_path, [annotation("ProfilerStep#1", 0, 100), op("aten::mm", 10, 10, **MM), op("aten::add", 35, 5, **ADD)]
    )
    (tmp_path / "benchmark" / "paused.py").write_text(PAUSED)
    command = [sys.executable, str(tmp_path / "benchmark" / "paused.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert 0 < float(done.stdout) < 3


@pytest.mark.parametrize(
    ("end", "thread", "after"),
    [(48, [0, 0, 0], [None, None, None]), (62, [0, 1, 0], [None, 0, None])],
    ids=["threads that take turns are one", "threads beside each other"],
)
def test_a_call_of_another_thread_begins_after_the_call_before_it(
    tmp_path: Path, end: int, thread: list[int], after: list[int | None]
) -> None:
    """A profiler of a benchmark follows the thread that starts it: else nothing of autograd's would be in its trace."""
    backward = [op("aten::mm", 40, end - 40, tid=2, **MM), *on_gpu(2, 41), op("aten::mm", 60, 8, **MM), *on_gpu(3, 61)]
    plan, _ = generated(
        tmp_path, [annotation("ProfilerStep#1", 0, 100), op("aten::mm", 10, 8, **MM), *on_gpu(1, 11), *backward]
    )
    calls = plan["ranks"]["0"]["calls"]
    assert calls["thread"] == thread
    assert calls["after"] == after
    assert calls["gap_ns"] == [10_000, 22_000, 12_000 if end == 48 else 42_000]


def test_work_on_another_stream_is_waited_for_once_it_had_ended(tmp_path: Path) -> None:
    events = [
        annotation("ProfilerStep#1", 0, 100),
        op("aten::mm", 1, 4, **MM),
        *on_gpu(1, 2, dur=30),
        op("aten::add", 6, 4, **ADD),
        *on_gpu(2, 7, "vectorized_elementwise_kernel", stream=20),
        op("aten::mm", 40, 4, **MM),
        *on_gpu(3, 41),
    ]
    calls = generated(tmp_path, events)[0]["ranks"]["0"]["calls"]
    assert calls["stream"] == [0, 1, 0]
    assert calls["waits"] == [[], [], [1]]


def test_what_a_collective_of_the_hosts_threads_took_is_no_time_of_the_hosts_own(tmp_path: Path) -> None:
    """The call behind it waits for it, and then for what the host did from its end on; a call before it does not."""
    said = stated("allreduce", 1000, 1000, Group_size=2, Process_Group_Name="7", Process_Group_Ranks="[0, 1]")
    events = [
        annotation("ProfilerStep#1", 0, 100),
        op("aten::mm", 10, 4, **MM),
        op("c10d::allreduce_", 20, 3, **called([[[1000]]], ["TensorList"])),
        op("record_param_comms", 21, 1, **called([[[1000]]], ["TensorList"]), **said),
        annotation("gloo:all_reduce", 24, 46, tid=9),
        op("aten::mm", 30, 4, **MM),
        op("aten::add", 75, 5, **ADD),
    ]
    calls = generated(tmp_path, events)[0]["ranks"]["0"]["calls"]
    assert calls["waits"] == [[], [], [], [1]]
    assert calls["gap_ns"] == [10_000, 6_000, 7_000, 5_000]


def test_a_trace_without_steps_begins_with_its_first_row(tmp_path: Path) -> None:
    plan, manifest = generated(tmp_path, [op("aten::mm", 5000, 8, **MM), *on_gpu(1, 5001)])
    assert plan["ranks"]["0"]["calls"]["gap_ns"] == [0]
    assert manifest["recorded_step_ns"] == {"0": 13_000}


def test_a_synchronisation_is_called_and_is_no_time_of_the_hosts_own(tmp_path: Path) -> None:
    events = [
        annotation("ProfilerStep#1", 0, 100),
        op("aten::mm", 1, 4, **MM),
        *on_gpu(1, 2, dur=30),
        x("cudaDeviceSynchronize", "cuda_runtime", 6, 30, correlation=9),
    ]
    rank = generated(tmp_path, events)[0]["ranks"]["0"]
    assert names(rank) == ["aten::mm", "synchronize"]
    assert rank["calls"]["gap_ns"] == [1_000, 1_000]


def test_a_wait_for_the_gpu_is_no_time_of_the_operators(tmp_path: Path) -> None:
    sync = x("cudaDeviceSynchronize", "cuda_runtime", 90, 5000)
    _, manifest = generated(tmp_path, [*STEP, sync])
    assert sum(row["host_pct"] for row in manifest["operators"]) <= 100
