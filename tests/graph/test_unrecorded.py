"""What a profiler did not record, from literal traces: launches, steps."""

from pathlib import Path

import pytest

from lumos_df.graph import replay_warnings
from lumos_df.graph.job import groups, load
from lumos_df.graph.replay import Replay
from lumos_df.graph.switches import changed, scale
from tests.trace.literal import Event, annotation, corpus_of, kernel, launch, op, x


def replays(folder: Path, events: list[Event], *changes: str) -> tuple[Replay, list[str]]:
    """Return the replay of the only step with some changes, and what warnings say of the trace."""
    corpus_of(folder, events, distributedInfo={"rank": 0, "world_size": 1})
    corpus = folder / "corpus"
    job = load(corpus, groups(corpus)[0])
    (replay,) = job.replay(changed(job.event_graph, job.graphs, [scale(text) for text in changes])).replays
    return replay, replay_warnings.of_traces(job)[0]


def length_us(replay: Replay) -> float:
    return float(replay.high[0] - replay.low[0]) / 1000


def test_gaps_between_kernels_whose_launches_are_not_recorded_are_unknown(tmp_path: Path) -> None:
    """Ten kernels of 100 us begin every 150 us, and nothing says why."""
    events = [kernel("gemm", 150 * number, 100) for number in range(10)]
    replay, warnings = replays(tmp_path, events)
    assert length_us(replay) == 9 * 150 + 100
    faster, _ = replays(tmp_path, events, "family=gemm:0.5")
    assert length_us(faster) == 9 * 150 + 100 - 10 * 50
    assert "450 us between GPU operators without a launch call are unknown: they stay as recorded" in warnings


def test_few_kernels_without_launches_were_in_the_queue_when_the_recording_began(tmp_path: Path) -> None:
    """Two kernels were issued before the recording; after a gap that nothing explains come four that it launched."""
    before = [kernel("gemm", 0, 100), kernel("gemm", 5_000, 100)]
    after = [
        event
        for number in range(4)
        for event in (
            launch(10 + 10 * number, 5, number + 1),
            kernel("gemm", 5_100 + 100 * number, 100, correlation=number + 1),
        )
    ]
    _, warnings = replays(tmp_path, [*before, *after])
    assert not any("unknown" in text for text in warnings)
    assert any("2 GPU operators issued before the recording began" in text for text in warnings)


def test_a_stream_without_any_launch_is_not_called_work_of_before(tmp_path: Path) -> None:
    """Two kernels that were launched, and one on another stream that nothing issued."""
    events = [
        event
        for number in (1, 2)
        for event in (launch(10 * number, 5, number), kernel("gemm", 20 * number, 10, correlation=number))
    ]
    _, warnings = replays(tmp_path, [*events, kernel("copy", 70, 5, stream=8)])
    assert not any("issued before the recording began" in text for text in warnings)
    assert any("1 GPU operator without a launch call or an operator in the trace" in text for text in warnings)


@pytest.mark.parametrize(("other_stream", "lost_us"), [([], 3_000), ([kernel("copy", 50, 20, stream=8)], 0)])
def test_a_queued_kernel_of_the_only_stream_that_starts_late_waited_for_another_program(
    tmp_path: Path, other_stream: list[Event], lost_us: int
) -> None:
    """Ten launches in 100 us, ten kernels of 100 us one after another; before the sixth the GPU stands still 3 ms."""
    events = [
        event
        for number in range(10)
        for event in (
            launch(10 * number, 5, number + 1),
            kernel("gemm", 100 + 101 * number + (3_000 if number > 4 else 0), 100, correlation=number + 1),
        )
    ]
    replay, warnings = replays(tmp_path, [*events, *other_stream])
    assert length_us(replay) == pytest.approx(100 + 10 * 101 + lost_us, abs=100)  # what a launch takes shows nowhere
    text = "3.00 ms between GPU operators that were in the queue of the only stream are unknown: they stay as recorded"
    assert (text in warnings) == bool(lost_us)


@pytest.mark.parametrize("waiting", [("python_function", "threading.py: wait"), ("Trace", "PyTorch Profiler (0)")])
def test_what_merely_waits_does_not_lengthen_a_trace_without_steps(tmp_path: Path, waiting: tuple[str, str]) -> None:
    category, name = waiting
    work = [op("aten::mm", 1_000, 100), launch(1_050, 10, 1), kernel("gemm", 1_100, 400, correlation=1)]
    replay, _ = replays(tmp_path, [x(name, category, 0, 50_000, tid=9, Python_id=1), *work])
    assert (replay.steps.high - replay.steps.low).tolist() == [500_000]
    assert length_us(replay) == pytest.approx(500, abs=50)


def test_time_after_the_last_call_of_a_thread_is_its_host_time(tmp_path: Path) -> None:
    events = [launch(10, 5, 1), kernel("gemm", 20, 10, correlation=1), op("aten::cpu_work", 5, 900)]
    replay, _ = replays(tmp_path, events)
    assert length_us(replay) == 900


def allocator(end_of_silence: float, *more: Event) -> list[Event]:
    """A cudaMalloc fails, its thread is silent while a kernel runs from 30 to 1,030 us, then memory is freed."""
    return [
        launch(10, 5, 1),
        kernel("gemm", 30, 1_000, correlation=1),
        x("cudaMalloc", "cuda_runtime", 40, 10, correlation=2),
        x("cudaFree", "cuda_runtime", end_of_silence, 20, correlation=3),
        op("aten::cat", 5, end_of_silence + 30),
        *more,
    ]


def test_a_silence_that_ends_with_a_kernel_that_ran_through_it_waited_for_it(tmp_path: Path) -> None:
    events = allocator(1_032)
    assert length_us(replays(tmp_path, events)[0]) == 1_062
    assert length_us(replays(tmp_path, events, "family=gemm:0.5")[0]) == 1_062 - 500


def test_the_more_streams_ran_the_nearer_to_the_end_of_a_row_a_silence_ends_by_accident(tmp_path: Path) -> None:
    """The silence ends 20 us after the kernel, 2 % of its length; beside copies on two streams that is no evidence."""
    copies = [
        event
        for stream in (8, 9)
        for event in (launch(stream, 1, stream), kernel("copy", 32, 400, correlation=stream, stream=stream))
    ]
    alone, beside = allocator(1_050), allocator(1_050, *copies)
    assert length_us(replays(tmp_path / "alone", alone, "family=gemm:0.5")[0]) == 1_080 - 500
    assert length_us(replays(tmp_path / "beside", beside, "family=gemm:0.5")[0]) == 1_080


def test_a_silence_that_ends_well_after_the_kernel_is_work_of_the_host(tmp_path: Path) -> None:
    events = allocator(1_400)
    assert length_us(replays(tmp_path, events, "family=gemm:0.5")[0]) == 1_430


def test_one_of_many_silences_alike_ends_with_a_kernel_by_accident(tmp_path: Path) -> None:
    more = [
        event
        for number in range(20)
        for event in (
            launch(2_000 + 200 * number, 5, 10 + number),
            kernel("copy", 2_010 + 200 * number, 30, correlation=10 + number),
            x("cudaMalloc", "cuda_runtime", 2_012 + 200 * number, 3, correlation=100 + number),
            x("cudaFree", "cuda_runtime", 2_190 + 200 * number, 1, correlation=200 + number),
        )
    ]
    end = 2_000 + 200 * 20
    events = allocator(1_032, *more, op("aten::last", end, 10))
    assert length_us(replays(tmp_path, events, "family=gemm:0.5")[0]) == end + 10 - 5


def test_calls_of_one_moment_came_in_the_order_of_their_correlation_ids(tmp_path: Path) -> None:
    calls = [
        x("cudaStreamWaitEvent", "cuda_runtime", 20, 0, correlation=2),
        x("cudaEventRecord", "cuda_runtime", 20, 0, correlation=1),
    ]
    events = [launch(10, 5, 3), kernel("gemm", 20, 100, correlation=3), *calls, launch(30, 5, 4)]
    corpus_of(tmp_path, [*events, kernel("gemm", 150, 100, correlation=4)])
    (graph,) = load(tmp_path / "corpus", groups(tmp_path / "corpus")[0]).graphs
    called = [graph.rows.names[name] for name in graph.rows.name[graph.atoms.row].tolist()]
    assert [name for name in called if "Event" in name] == ["cudaEventRecord", "cudaStreamWaitEvent"]


@pytest.mark.parametrize(
    ("updated", "said"),
    [
        (
            (1, 3),
            ["the optimizer works in 2 of 4 marked steps: each is a micro-batch, and 2 of them are a step of training"],
        ),
        ((2,), ["the optimizer works in 1 of 4 marked steps: each is a micro-batch"]),
        ((0, 1, 2), []),
        ((), []),
    ],
)
def test_marks_around_micro_batches_are_said_to_be_so(
    tmp_path: Path, updated: tuple[int, ...], said: list[str]
) -> None:
    gradient = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
    events = [
        *(annotation(f"ProfilerStep#{step}", 100 * step, 100) for step in range(4)),
        *(op(gradient, 100 * step + 20, 30) for step in range(4)),
        *(annotation("Optimizer.step#AdamW.step", 100 * step + 60, 30) for step in updated),
    ]
    warnings = replays(tmp_path, events)[1]
    assert [text for text in warnings if "optimizer" in text] == said
