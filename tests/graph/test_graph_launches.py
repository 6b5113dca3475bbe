"""CUDA graphs, from literal traces: nodes that the profiler left out, and streams inside of a graph."""

from pathlib import Path

import pytest

from lumos_df.graph.job import Job
from tests.graph.test_waiting_calls import job_of, step_us
from tests.trace.literal import Event, kernel, launch, x

LAUNCHES = 6
ROUND_US = 1000


def graph_call(ts: float, dur: float, correlation: int) -> Event:
    return x("cudaGraphLaunch", "cuda_runtime", ts, dur, correlation=correlation)


def wait_for_all(begin: float, end: float, correlation: int) -> Event:
    return x("cudaDeviceSynchronize", "cuda_runtime", begin, end - begin, correlation=correlation)


def rounds(folder: Path, launches: int, *, head: float, gap: float) -> Job:
    """Each round launches a graph behind a copy of 100 us; two kernels are recorded, after `head`, `gap` apart."""
    events = []
    for number in range(launches):
        at, correlation = 10.0 + ROUND_US * number, 10 + number
        first = at + 105 + head
        second = first + 100 + gap
        events += [
            launch(at, 3, 300 + number),
            kernel("copy", at + 5, 100, correlation=300 + number),
            graph_call(at + 4, 16, correlation),
            kernel("gemm", first, 100, correlation=correlation),
            kernel("softmax", second, 50, correlation=correlation),
            wait_for_all(at + 21, second + 50, 100 + number),
        ]
    # Launches on an idle stream, 5 us after the beginning of their calls, show how long that takes.
    end = ROUND_US * launches
    for number in range(LAUNCHES):
        at = end + 20.0 * number
        events += [launch(at, 3, 200 + number), kernel("copy", at + 5, 1, correlation=200 + number)]
    return job_of(folder, events, end=end + 200)


def test_what_a_profiler_leaves_out_of_a_graph_is_work_of_the_gpu(tmp_path: Path) -> None:
    job = rounds(tmp_path, LAUNCHES, head=300, gap=200)
    assert step_us(job) == LAUNCHES * ROUND_US + 200
    # Recorded nodes are faster, the others are not.
    assert step_us(job, "family=gemm:0.5") == LAUNCHES * ROUND_US + 200 - LAUNCHES * 50


def test_a_call_that_waits_for_a_graph_waits_for_what_was_not_recorded_of_it(tmp_path: Path) -> None:
    """Each fifth graph goes on for 300 us after its recorded kernel, others for 40; calls end 2 us after that."""
    events: list[Event] = []
    rounds_of_all = 5 * LAUNCHES
    for number in range(rounds_of_all):
        at, correlation = 10.0 + ROUND_US * number, 10 + number
        name, tail = ("softmax", 40) if number % 5 else ("gemm", 300)
        end = at + 5 + 100 + tail + 2
        events += [
            graph_call(at, 20, correlation),
            kernel(name, at + 5, 100, correlation=correlation),
            wait_for_all(at + 21, end, 100 + number),
        ]
    job = job_of(tmp_path, events, end=rounds_of_all * ROUND_US)
    assert step_us(job) == rounds_of_all * ROUND_US
    assert step_us(job) - step_us(job, "name=gemm:0.5") == LAUNCHES * 50


def test_what_follows_a_graph_waits_for_what_was_not_recorded_of_it(tmp_path: Path) -> None:
    """Of three graphs one kernel of 100 us each is recorded.

    The first works 50 us before it and 200 after, the second 30 and 70. The second runs behind the first, then behind
    a copy, the copy behind it. The third one does nothing else, on an idle stream.
    """
    events: list[Event] = []
    round_us = 2 * ROUND_US
    for number in range(LAUNCHES):
        at = 10.0 + round_us * number
        gemm = at + 5 + 100 + 50
        behind_gemm = gemm + 100 + 200 + 30
        copy = behind_gemm + 100 + 70
        behind_copy = copy + 100 + 30
        last = behind_copy + 100 + 70
        events += [
            launch(at, 3, 10 + number),
            kernel("copy", at + 5, 100, correlation=10 + number),
            graph_call(at + 4, 5, 110 + number),
            kernel("gemm", gemm, 100, correlation=110 + number),
            graph_call(at + 10, 5, 210 + number),
            kernel("softmax", behind_gemm, 100, correlation=210 + number),
            launch(at + 16, 3, 310 + number),
            kernel("copy", copy, 100, correlation=310 + number),
            graph_call(at + 20, 5, 410 + number),
            kernel("softmax", behind_copy, 100, correlation=410 + number),
            launch(at + 26, 3, 510 + number),
            kernel("copy", last, 100, correlation=510 + number),
            wait_for_all(at + 30, last + 100, 610 + number),
            graph_call(at + 1500, 5, 710 + number),
            kernel("dropout", at + 1505, 100, correlation=710 + number),
            wait_for_all(at + 1506, at + 1605, 810 + number),
        ]
    job = job_of(tmp_path, events, end=LAUNCHES * round_us)
    whole = LAUNCHES * round_us
    assert step_us(job) == pytest.approx(whole, abs=LAUNCHES)
    assert step_us(job, "name=gemm:0.5") == pytest.approx(whole - LAUNCHES * 50, abs=LAUNCHES)
    assert step_us(job, "name=softmax:3") == pytest.approx(whole + LAUNCHES * 400, abs=LAUNCHES)


def test_what_few_launches_show_stays_as_recorded_on_the_only_stream(tmp_path: Path) -> None:
    job = rounds(tmp_path, 2, head=300, gap=200)
    # Nothing tells what the GPU did before and between the rows, but no other stream held them up.
    assert step_us(job) == pytest.approx(2 * ROUND_US + 200, abs=5)


def test_streams_of_a_graph_wait_for_one_another(tmp_path: Path) -> None:
    """A graph forks to a second stream and joins: each third kernel starts when the second one has ended."""
    events: list[Event] = []
    for number in range(LAUNCHES):
        at, correlation = 10.0 + ROUND_US * number, 10 + number
        events += [
            graph_call(at, 20, correlation),
            kernel("gemm", at + 5, 100, correlation=correlation),
            kernel("softmax", at + 106, 300, correlation=correlation, stream=8),
            kernel("dropout", at + 407, 50, correlation=correlation),
            wait_for_all(at + 21, at + 457, 100 + number),
        ]
    job = job_of(tmp_path, events, end=LAUNCHES * ROUND_US)
    assert step_us(job) == pytest.approx(LAUNCHES * ROUND_US, abs=LAUNCHES * 5)
    assert step_us(job) - step_us(job, "name=softmax:0.5") == pytest.approx(LAUNCHES * 150, abs=1)
    assert step_us(job) - step_us(job, "name=gemm:0.5") == pytest.approx(LAUNCHES * 50, abs=1)


def test_the_first_row_of_a_gpu_waited_for_what_ran_before_the_recording(tmp_path: Path) -> None:
    events = [
        launch(10, 5, 1),
        kernel("gemm", 500, 100, correlation=1),
        wait_for_all(20, 600, 2),
    ]
    job = job_of(tmp_path, events, end=700)
    assert step_us(job) == pytest.approx(700, abs=5)
    assert step_us(job) - step_us(job, "family=gemm:0.5") == 50
