"""Calls that wait, from literal traces: for rows of the GPU, whose clock differs a little, and for room in a queue."""

from pathlib import Path

import pytest

from lumos_df.graph import switches
from lumos_df.graph.job import Job, groups, load
from tests.trace.literal import Event, annotation, corpus_of, kernel, launch, op, x


def job_of(folder: Path, events: list[Event], end: float) -> Job:
    """Return the job of one step from 0 to `end` us."""
    step = [annotation("ProfilerStep#1", 0, end), op("aten::mm", 1, 1)]
    corpus_of(folder, [*step, *events], distributedInfo={"rank": 0, "world_size": 1})
    return load(folder / "corpus", groups(folder / "corpus")[0])


def step_us(job: Job, *changes: str) -> float:
    """Return the length of the step, replayed with changes."""
    changed = switches.changed(job.event_graph, job.graphs, [switches.scale(text) for text in changes])
    (replay,) = job.replay(changed).replays
    return float(replay.high[0] - replay.low[0]) / 1000


ROUNDS = 10


def rounds(call: str, late_us: float, clock_us: float) -> list[Event]:
    """Every 200 us a kernel of 100 us, and a call that ends so long before it; later calls are for the whole device.

    Those wait for sure: they end when their kernels do, by a clock that shows `clock_us` less than the GPU's.
    """
    events = []
    for number in range(ROUNDS):
        at, correlation = 10 + 200 * number, 1 + number
        sure = number >= ROUNDS // 2
        events += [
            launch(at, 5, correlation),
            kernel("gemm", at + 10, 100, correlation=correlation),
            x(
                "cudaDeviceSynchronize" if sure else call,
                "cuda_runtime",
                at + 6,
                104 - (clock_us if sure else late_us),
                correlation=100 + number,
            ),
        ]
    return events


@pytest.mark.parametrize("call", ["cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize"])
@pytest.mark.parametrize("late_us", [0, 1, 3, 8])
def test_a_call_waits_for_a_row_that_ends_after_it_by_a_clock_that_is_ahead(
    tmp_path: Path, call: str, late_us: float
) -> None:
    job = job_of(tmp_path, rounds(call, late_us, clock_us=late_us), end=2100)
    assert step_us(job) == 2100
    # Each kernel is 50 us shorter, and so is each wait.
    assert step_us(job, "family=gemm:0.5") == 2100 - ROUNDS * 50


@pytest.mark.parametrize("call", ["cudaStreamSynchronize", "cudaEventSynchronize"])
def test_a_call_did_not_wait_for_a_row_that_ends_after_it_by_a_clock_that_is_right(tmp_path: Path, call: str) -> None:
    job = job_of(tmp_path, rounds(call, 3, clock_us=0), end=2100)
    assert step_us(job) == 2100
    # The later kernels alone were waited for.
    assert step_us(job, "family=gemm:0.5") == 2100 - ROUNDS // 2 * 50


def test_rows_that_begin_before_their_launch_show_a_clock_that_is_behind(tmp_path: Path) -> None:
    """The GPU's clock is 40 us behind: kernels begin 30 us before their launches, and calls seem to wait on."""
    events = rounds("cudaStreamSynchronize", 0, clock_us=0)
    behind = [{**event, "ts": event["ts"] - 40} if event["cat"] == "kernel" else event for event in events]
    job = job_of(tmp_path, behind, end=2100)
    rows = job.graphs[0].rows
    assert rows.gpu_shift == 30_000
    assert (rows.ts[rows.on_gpu] >= rows.ts[rows.parent[rows.on_gpu]]).all()
    assert step_us(job) == 2100
    assert step_us(job, "family=gemm:0.5") == 2100 - ROUNDS * 50


@pytest.mark.parametrize("work_us", [0, 20])
@pytest.mark.parametrize("call", ["cudaFree", "hipHostFree", "cuMemFree_v2", "cuModuleUnload"])
def test_a_release_of_memory_waits_for_the_device_and_then_works(tmp_path: Path, call: str, work_us: float) -> None:
    job = job_of(tmp_path, rounds(call, -work_us, clock_us=0), end=2100)
    assert step_us(job) == 2100
    assert step_us(job, "family=gemm:0.5") == 2100 - ROUNDS * 50


COPIES = [(1, 4), (1, 5), (1, 4), (1, 6), (1, 5), (700, 1400), (5000, 1500), (5000, 1600)]
"""Of copies to the host what the GPU takes, and how much longer their calls, which put it into pageable memory; us."""


def test_what_the_host_copies_on_itself_is_work_of_each_copy(tmp_path: Path) -> None:
    """Most copies are small; what is usual of them says nothing of the large ones."""
    events, at = [], 10.0
    for number, (gpu, host) in enumerate(COPIES):
        name = "Memcpy DtoH (Device -> Pageable)"
        copied = x(name, "gpu_memcpy", at + 5, gpu, 7, device=0, stream=7, correlation=1 + number)
        events += [x("cudaMemcpyAsync", "cuda_runtime", at, 5 + gpu + host, correlation=1 + number), copied]
        at += 15 + gpu + host
    job = job_of(tmp_path, events, end=at)
    assert step_us(job) == at
    faster = sum(gpu for gpu, _ in COPIES if gpu > 1) / 2
    assert step_us(job, "name~^Memcpy:0.5") == pytest.approx(at - faster, abs=5)


DEPTH = 300
BESIDE_ROOM = [(240, 2000.0, 1000.0), (500, 40.0, 20.0)]
"""Launches, what the last ten take (2 ms: where code is loaded), and their kernels; us. Over 200 are unfinished."""


def full_queue(folder: Path, before: int = 0, unseen: int = 0) -> Job:
    """From the 301st on, each of 400 launches ends 1 us after a kernel of 100 us has left a queue of 300.

    The recording began when the first ones, of `before`, were over; and the GPU's when the first `unseen` kernels were.
    """
    events, at = [], 10.0
    for number in range(400):
        begin = 17 + 100 * number
        room = 17 + 100 * (number - DEPTH + 1) + 1
        lasts = max(5.0, room - at)
        if number >= unseen:
            events.append(kernel("gemm", begin, 100, correlation=number))
        if number >= before:
            events.append(launch(at, lasts, number))
        at += lasts + 1
    # What a launch takes that waits for nothing, on a stream with room.
    for number in range(unseen):
        start, other = 10 + 20 * number, 1000 + number
        events += [launch(start, 5, other), kernel("other", start + 8, 5, stream=9, correlation=other)]
    # The last launch has room once 100 kernels are over.
    assert at == 17 + 100 * 100 + 1 + 1
    return job_of(folder, events, end=10_100)


def beside_room(folder: Path, launches: int, lasts_us: float, kernel_us: float) -> Job:
    """Of some launches of kernels, each 5 us, the last ten take longer."""
    events, at = [], 10.0
    for number in range(launches):
        lasts = 5.0 if number < launches - 10 else lasts_us
        events += [launch(at, lasts, number), kernel("gemm", 20 + kernel_us * number, kernel_us, correlation=number)]
        at += lasts + 1
    return job_of(folder, events, end=at)


@pytest.mark.parametrize("before", [0, 150])
def test_a_launch_waits_for_room_in_a_full_queue(tmp_path: Path, before: int) -> None:
    job = full_queue(tmp_path, before)
    assert step_us(job) == 10_100
    assert step_us(job, "family=gemm:0.5") == 10_100 - 100 * 50


def test_a_launch_that_waits_for_a_kernel_that_is_not_recorded_is_no_work_of_the_host(tmp_path: Path) -> None:
    """Launches 361 to 398 wait for kernels 62 to 99, of which nothing was recorded: they end as they did."""
    job = full_queue(tmp_path, before=360, unseen=99)
    assert step_us(job) == 10_100
    assert step_us(job, "name=cudaLaunchKernel:2") == pytest.approx(10_100, abs=20)
    assert step_us(job, "name=cudaLaunchKernel:0.5") == pytest.approx(10_100, abs=20)


@pytest.mark.parametrize(("launches", "lasts_us", "kernel_us"), BESIDE_ROOM)
def test_a_launch_that_takes_long_beside_a_queue_with_room_waits_for_nothing(
    tmp_path: Path, launches: int, lasts_us: float, kernel_us: float
) -> None:
    job = beside_room(tmp_path, launches, lasts_us, kernel_us)
    length = 10 + 6 * (launches - 10) + 10 * (lasts_us + 1)
    assert step_us(job) == step_us(job, "family=gemm:0.01") == length


def test_a_wait_in_the_tick_of_a_launch_that_it_holds_up_came_before_it(tmp_path: Path) -> None:
    """By a clock of microseconds both begin at once; the wait has the lower number, the longer call is the launch."""
    events = []
    for number in range(ROUNDS):
        at, first = 10.0 + 1000 * number, 10 * number + 1
        events += [
            launch(at, 5, first),
            kernel("gemm", at + 8, 500, correlation=first),
            x("cudaEventRecord", "cuda_runtime", at + 10, 0, correlation=first + 1),
            x("cudaStreamWaitEvent", "cuda_runtime", at + 20, 0, correlation=first + 2),
            launch(at + 20, 5, first + 3),
            kernel("softmax", at + 509, 50, correlation=first + 3, stream=8),
            x("cudaDeviceSynchronize", "cuda_runtime", at + 30, 532, correlation=first + 4),
        ]
    job = job_of(tmp_path, events, end=1000 * ROUNDS)
    assert step_us(job) - step_us(job, "name=gemm:0.5") == pytest.approx(250 * ROUNDS, abs=ROUNDS)
    rows, atoms = job.graphs[0].rows, job.graphs[0].atoms
    called = [rows.names[name] for name in rows.name[atoms.row].tolist() if rows.names[name].startswith("cuda")]
    assert called[2:4] == ["cudaStreamWaitEvent", "cudaLaunchKernel"]
