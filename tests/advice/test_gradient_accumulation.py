"""Gradients reduced in every micro-batch; the gain is that of the job in which they are reduced in the last one."""

from pathlib import Path

import pytest

from lumos_df.advice.advised_job import ChangedGraph
from lumos_df.advice.rules import gradient_accumulation
from tests.advice.emulated import Advised, advice_on
from tests.trace.literal import Event, annotation, kernel, launch, op, stated, write

STEPS, PASSES = 4, 3
RANK = {"backend": "gloo", "rank": 0, "world_size": 2}


def of_gloo(*, reduced: tuple[int, ...] = (0, 1, 2), optimizers: int = 1) -> list[Event]:
    """Return steps of three passes of 1000 us; those that reduce wait 300 us more for it."""
    events, at = [], 0
    for step in range(STEPS):
        begin = at
        for number in range(PASSES):
            events += [annotation("DistributedDataParallel.forward", at + 1, 498), op("aten::mm", at + 2, 490)]
            events.append(op("aten::addmm", at + 500, 480))
            at += 1000
            if number in reduced:
                issue = op("c10d::allreduce_", at - 15, 4)
                events += [issue, annotation("gloo:all_reduce", at - 10, 305, tid=2), op("aten::div_", at + 296, 3)]
                at += 300
        for number in range(optimizers):
            events.append(annotation(f"Optimizer.step#SGD{number}.step", at + 1, 98))
            events.append(op("aten::add_", at + 2, 95))
            at += 100
        events.append(annotation(f"ProfilerStep#{step}", begin, at - begin))
    return events


def said_of(folder: Path, events: list[Event]) -> Advised:
    """Return what is said of rank 0 of two."""
    write(folder / "traces" / "rank0.json", events, distributedInfo=RANK)
    return advice_on(folder)


def test_a_reduction_in_every_pass_is_the_first_advice(tmp_path: Path) -> None:
    first = said_of(tmp_path, of_gloo()).first
    assert first.remedy.rule == "gradient_accumulation"
    assert first.remedy.what.startswith("gradients are reduced 3 times a step, ")
    assert first.remedy.rests_on == f"{2 * STEPS} reductions that would go"
    assert first.gain_ns == pytest.approx(2 * 300_000, rel=0.05)


@pytest.mark.parametrize(
    "events",
    [of_gloo(reduced=(2,)), of_gloo(optimizers=3)],
    ids=["the last pass reduces", "an optimizer a pass"],
)
def test_what_reduces_as_often_as_it_steps_is_left_alone(tmp_path: Path, events: list[Event]) -> None:
    assert not said_of(tmp_path, events).of_rule("gradient_accumulation")


@pytest.mark.parametrize("elements", [1 << 20, 1 << 10], ids=["the same gradients", "those of another model"])
def test_kernels_of_nccl_that_reduce_as_many_bytes_again_go(tmp_path: Path, elements: int) -> None:
    events, call = [], 0
    for step, at in enumerate(range(0, 2000 * STEPS, 2000)):
        events += [annotation(f"ProfilerStep#{step}", at, 1999), annotation("Optimizer.step#SGD.step", at + 1990, 8)]
        for number, sent in enumerate((1 << 20, elements)):
            begin = at + 900 * number
            events += [annotation("DistributedDataParallel.forward", begin + 1, 40)]
            events += [op("aten::mm", begin + 2, 10), op("c10d::allreduce_", begin + 50, 10)]
            for ts, name, dur, given in (
                (begin + 4, "gemm", 400, {}),
                (begin + 52, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 300, stated("allreduce", sent, sent)),
            ):
                call += 1
                lasts = begin + 20 if name == "gemm" else begin + 420
                events += [launch(ts, 3, call), kernel(name, lasts, dur, correlation=call, **given)]
        events.append(launch(at + 1700, 280, 0) | {"name": "cudaDeviceSynchronize"})
    job = said_of(tmp_path, events).job
    found = list(gradient_accumulation.remedies(job))
    assert [remedy.rests_on for remedy in found] == [f"{STEPS} reductions that would go"] * (elements == 1 << 20)
    for remedy in found:
        changed = ChangedGraph.of(job.event_graph)
        remedy.apply(changed)
        reduces = job.ranks[0].of_collective(("all_reduce",)) & job.ranks[0].on_gpu
        left = changed.own[reduces].reshape(STEPS, 2)
        assert (left == [0, 300_000]).all()
