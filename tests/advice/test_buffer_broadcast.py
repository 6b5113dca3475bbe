"""Buffers that go to all ranks before each forward pass; the gain is that of the job in which they stay."""

from pathlib import Path

import pytest

from lumos_df.advice.advised_job import ChangedGraph
from lumos_df.advice.rules import buffer_broadcast
from tests.advice.emulated import Advised, advice_on
from tests.trace.literal import Event, annotation, kernel, launch, op, stated, write, x

STEPS = 4
RANK = {"backend": "gloo", "rank": 0, "world_size": 2}
FORWARD = "DistributedDataParallel.forward"


def of_gloo(*, behind: bool = False, alone: bool = False, stacks: bool = False) -> list[Event]:
    """Return steps of 1000 us; each sends buffers for 300 of them, `behind` an operator of the model, or `alone`."""
    events: list[Event] = []
    for step, at in enumerate(range(0, 1000 * STEPS, 1000)):
        events += [annotation(f"ProfilerStep#{step}", at, 999)]
        events += [annotation(FORWARD, at + 1, 600)] if not alone else []
        events += [x("_sync_buffers", "python_function", at + 5, 310, Python_id=step)] if stacks else []
        events += [op("aten::linear", at + 2, 8)] if behind else []
        events += [op("aten::flatten_dense_tensors", at + 10, 40), op("aten::cat", at + 12, 36)]
        events += [op("c10d::broadcast_", at + 50, 4), annotation("gloo:broadcast", at + 52, 198, tid=2)]
        events += [op("aten::unflatten_dense_tensors", at + 254, 6), op("aten::copy_", at + 265, 45)]
        events += [op("aten::linear", at + 310, 290), op("aten::mm", at + 612, 380)]
    return events


def said_of(folder: Path, events: list[Event]) -> Advised:
    """Return what is said of rank 0 of two."""
    write(folder / "traces" / "rank0.json", events, distributedInfo=RANK)
    return advice_on(folder)


@pytest.mark.parametrize("stacks", [False, True])
def test_a_broadcast_before_each_forward_pass_is_the_first_advice(tmp_path: Path, *, stacks: bool) -> None:
    first = said_of(tmp_path, of_gloo(stacks=stacks)).first
    assert first.remedy.rule == "buffer_broadcast"
    assert first.remedy.what.startswith("buffers go to all ranks before each forward pass, which takes 300 us a step: ")
    assert first.remedy.rests_on == f"{STEPS} broadcasts"
    assert first.gain_ns == pytest.approx(300_000, rel=0.05)


@pytest.mark.parametrize("events", [of_gloo(behind=True), of_gloo(alone=True)], ids=["in the model", "by the program"])
def test_other_broadcasts_are_left_alone(tmp_path: Path, events: list[Event]) -> None:
    assert not said_of(tmp_path, events).of_rule("buffer_broadcast")


def test_kernels_of_nccl_go_with_the_copies_around_them(tmp_path: Path) -> None:
    events: list[Event] = []
    for step, at in enumerate(range(0, 2000 * STEPS, 2000)):
        events += [annotation(f"ProfilerStep#{step}", at, 1999), annotation(FORWARD, at + 1, 300)]
        events += [op("aten::flatten_dense_tensors", at + 10, 20), op("c10d::broadcast_", at + 40, 20)]
        events.append(op("record_param_comms", at + 62, 5))
        events += [op("aten::unflatten_dense_tensors", at + 70, 4), op("aten::copy_", at + 80, 20)]
        events.append(op("aten::linear", at + 110, 20))
        sent = stated("broadcast", 1 << 20, 1 << 20)
        for number, (called, name, dur, given) in enumerate(
            [
                (12, "cat", 100, {}),
                (42, "ncclDevKernel_Broadcast_RING_LL", 300, sent),
                (82, "copy", 50, {}),
                (112, "gemm", 500, {}),
            ]
        ):
            call = 4 * step + number + 1
            events.append(launch(at + called, 3, call))
            events.append(kernel(name, at + (20, 130, 440, 500)[number], dur, correlation=call, **given))
        events.append(launch(at + 1100, 280, 0) | {"name": "cudaDeviceSynchronize"})
    job = said_of(tmp_path, events).job
    [remedy] = buffer_broadcast.remedies(job)
    changed = ChangedGraph.of(job.event_graph)
    remedy.apply(changed)
    left = changed.own[job.ranks[0].on_gpu].reshape(STEPS, 4)
    assert (left == [0, 0, 0, 500_000]).all()


def test_a_host_that_takes_long_to_unpack_is_spared_that(tmp_path: Path) -> None:
    events: list[Event] = []
    for step, at in enumerate(range(0, 1000 * STEPS, 1000)):
        events += [annotation(f"ProfilerStep#{step}", at, 999), annotation(FORWARD, at + 1, 900)]
        events += [op("aten::flatten_dense_tensors", at + 10, 20), op("c10d::broadcast_", at + 32, 20)]
        events += [op("aten::unflatten_dense_tensors", at + 54, 400), op("aten::view", at + 60, 390)]
        given = stated("broadcast", 1 << 20, 1 << 20)
        events += [launch(at + 34, 3, 100 * step + 99)]
        events += [kernel("ncclDevKernel_Broadcast_RING_LL", at + 40, 5, correlation=100 * step + 99, **given)]
        for number in range(20):
            call = 100 * step + number + 1
            events += [op("aten::linear", at + 460 + 20 * number, 18), launch(at + 465 + 20 * number, 3, call)]
            events.append(kernel("gemm", at + 470 + 20 * number, 5, correlation=call))
        events.append(launch(at + 870, 100, 0) | {"name": "cudaDeviceSynchronize"})
    [advice] = said_of(tmp_path, events).of_rule("buffer_broadcast")
    assert advice.gain_ns == pytest.approx(440_000, rel=0.03)
