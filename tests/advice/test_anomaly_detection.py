"""A backward pass that looks for NaN; the gain is that of the job in which it does not, and keeps no stacks for it."""

from pathlib import Path

import pytest

from lumos_df.advice.advised_job import ChangedGraph
from lumos_df.advice.rules import anomaly_detection
from lumos_df.base.plain_names import plain
from tests.advice.emulated import Advised, advice_on
from tests.trace.literal import Event, annotation, kernel, launch, op, write

STEPS, NODES = 4, 4
STACK, LOOK = 60, 30
"""Us that a forward operator keeps its stack for, and a node of the backward pass looks for NaN."""
VIEW = 2
"""Us that a view takes that keeps no stack, where a GPU is."""


def job(folder: Path, *, looking: int = NODES, gpu: bool = False) -> Advised:
    """Return what is said of a job of steps of 1000 us, of whose nodes so many look for NaN."""
    events: list[Event] = []
    for step, begin in enumerate(range(0, 1000 * STEPS, 1000)):
        events.append(annotation(f"ProfilerStep#{step}", begin, 999))
        for number in range(NODES):
            tied = {"Sequence_number": 10 * step + number, "Fwd_thread_id": 0}
            view = number % 2 == 0
            events.append(
                op("aten::view" if view else "aten::relu", begin + 1 + 100 * number, STACK if view else 95, **tied)
            )
            at = begin + 401 + 100 * (NODES - 1 - number)
            tied["Fwd_thread_id"] = 1
            events += [
                op("autograd::engine::evaluate_function: Backward0", at, 98, **tied),
                op("aten::mul", at + 1, 60),
            ]
            if number < looking:
                events += [op("aten::isnan", at + 62, 10), op("aten::_is_any_true", at + 72, 18)]
                events += [op("aten::item", at + 90, 2), op("aten::_local_scalar_dense", at + 91, 1)]
            if gpu:
                call = 8 * step + 2 * number + 1
                events += [launch(at + 3, 4, call), kernel("mul", at + 10, 40, correlation=call)]
                events += [launch(at + 64, 4, call + 1), kernel("ne", at + 70, 8, correlation=call + 1)]
                events.append(op("aten::view", at + 93, VIEW))
        events.append(op("aten::ones", begin + 810, 185))
    write(folder / "traces" / "rank0.json", events)
    return advice_on(folder)


def test_looking_for_nan_is_the_first_advice(tmp_path: Path) -> None:
    first = job(tmp_path).first
    assert first.remedy.rule == "anomaly_detection"
    assert first.remedy.what.startswith(f"the backward pass looks for NaN {NODES} times a step, ")
    # A screen leaves the arguments of functions out.
    assert plain(first.remedy.what).endswith("leave torch.autograd.set_detect_anomaly off")
    assert first.gain_ns == pytest.approx(1000 * NODES * (STACK + LOOK), rel=0.02)


def test_a_look_of_the_programs_own_is_left_alone(tmp_path: Path) -> None:
    assert not list(anomaly_detection.remedies(job(tmp_path, looking=1).job))


def test_kernels_that_look_for_nan_go(tmp_path: Path) -> None:
    advised = job(tmp_path, gpu=True).job
    [remedy] = anomaly_detection.remedies(advised)
    changed = ChangedGraph.of(advised.event_graph)
    remedy.apply(changed)
    left = changed.own[advised.ranks[0].on_gpu].reshape(STEPS * NODES, 2)
    assert (left == [40_000, 0]).all()


def test_stacks_of_operators_that_launch_go(tmp_path: Path) -> None:
    """What is longer than in a view that keeps none: 58 us of views, and 93 of others. Of a look its wait stays."""
    first = job(tmp_path, gpu=True).first
    assert first.remedy.rule == "anomaly_detection"
    assert first.gain_ns == pytest.approx(1000 * (NODES // 2 * (STACK + 95 - 2 * VIEW) + NODES * LOOK), rel=0.05)
