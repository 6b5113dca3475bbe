"""A data loader that is not ready; the gain is that of the job in which it is."""

from dataclasses import replace
from math import ceil
from pathlib import Path

import pytest

from tests.advice.emulated import BRIEF, advice_on, advised, mean_step_ns, true_gain_ns
from tests.emulator import Job
from tests.trace.literal import Event, annotation, op, write

HEALTHY = Job(ranks=2, steps=3, batch=8, loader_ns=10_000)


@pytest.mark.parametrize(("stacks", "batch_ms"), [(False, 5), (True, 5), (False, 30)])
def test_a_slow_loader_is_the_first_advice(tmp_path: Path, stacks: bool, batch_ms: int) -> None:  # noqa: FBT001
    slow = replace(HEALTHY, loader_ns=1_000_000 * batch_ms)
    said = advised(tmp_path, slow, replace(BRIEF, stacks=stacks))
    assert said.first.remedy.rule == "data_loader"
    # While the rest of a step runs, so many batches are in the making.
    workers = ceil(batch_ms * 1e6 / (mean_step_ns(slow) - batch_ms * 1e6))
    assert said.first.remedy.what == (
        f"the host waits {batch_ms:.3g}{'.00' if batch_ms < 10 else '.0'} ms a step for the data loader: "
        f"num_workers={workers} or more, on as many cores, pin_memory"
    )
    assert said.first.remedy.rests_on == "6 calls of the loader"
    assert said.first.gain_ns == pytest.approx(true_gain_ns(slow, HEALTHY), rel=0.1)


@pytest.mark.parametrize(
    ("loads", "more"), [(4000, "num_workers=1 or more, on as many cores"), (9900, "as many workers as cores")]
)
def test_batches_of_a_job_without_a_gpu_go_to_no_gpu(tmp_path: Path, loads: int, more: str) -> None:
    events: list[Event] = []
    for step in range(4):
        begin = 10_000 * step
        asks = annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begin + 10, loads)
        events += [annotation(f"ProfilerStep#{step}", begin, 9990), asks, op("aten::randint", begin + 20, loads - 20)]
        events.append(op("aten::linear", begin + 20 + loads, 9960 - loads))
    write(tmp_path / "traces" / "rank0.json", events)
    said = advice_on(tmp_path).first.remedy.what
    assert said.endswith(f" a step for the data loader: {more}")


def test_a_loader_that_is_ready_is_left_alone(tmp_path: Path) -> None:
    assert not advised(tmp_path, HEALTHY).of_rule("data_loader")


@pytest.mark.parametrize("anew", [True, False])
def test_workers_that_start_anew_should_be_kept(tmp_path: Path, anew: bool) -> None:  # noqa: FBT001
    """A loader draws a seed when it makes workers; what shuffles the samples draws one in any case."""
    events: list[Event] = []
    for step in range(6):
        begin = 10_000 * step
        asks = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        events += [annotation(f"ProfilerStep#{step}", begin, 9990), annotation(asks, begin + 1, 8)]
        at = begin + 10
        if step % 2:
            if anew:
                events += [op("aten::random_", at + 5, 5), op("aten::item", at + 12, 3)]
            events += [op("aten::random_", at + 2985, 5), op("aten::item", at + 2992, 3)]
            events += [op("aten::randperm", at + 2996, 3), annotation(asks, at + 3000, 1000)]
            at += 4000
        events.append(op("aten::linear", at, begin + 9980 - at))
    write(tmp_path / "traces" / "rank0.json", events)
    (said,) = advice_on(tmp_path).of_rule("data_loader")
    if not anew:
        assert said.remedy.what.endswith("for the data loader: more workers, a larger prefetch_factor")
        return
    lasts, workers = "2.00 ms", "it starts its workers 3 times, persistent_workers=True keeps them"
    assert said.remedy.what == f"the host waits {lasts} a step for the data loader: {workers}"
    assert said.gain_ns == pytest.approx(2_000_000, rel=0.03)
