"""A rank without a GPU that the other waits for in gloo; the gain is that of the job in which it is as quick."""

from pathlib import Path

import pytest

from tests.advice.emulated import Advised, advice_on
from tests.trace.literal import Event, annotation, op, write

STEPS = 4


def job(folder: Path, sleeps: int = 0, more_work: int = 0, *, every: int = 1, steps: int = STEPS) -> Advised:
    """Return what is said of two ranks; rank 1 is late by what it sleeps, or by more products than rank 0 has, us.

    `every`: in which of its steps.
    """
    of_rank = [(sleeps + more_work, 0, 0), (0, sleeps, more_work)]
    for rank, late in enumerate(of_rank):
        events = _rank(*late, every=every, steps=steps)
        write(folder / "traces" / f"rank{rank}.json", events, distributedInfo=_distributed(rank))
    return advice_on(folder)


def _distributed(rank: int) -> dict[str, object]:
    return {"backend": "gloo", "rank": rank, "world_size": 2}


def _rank(waits: int, sleeps: int, more_work: int, *, every: int = 1, steps: int = STEPS) -> list[Event]:
    events, at, late = [], 0, (waits, sleeps, more_work)
    for step in range(steps):
        begin = at
        waits, sleeps, more_work = late if step % every == every - 1 else (0, 0, 0)
        at += sleeps + 10
        for _ in range(5):
            events.append(op("aten::mm", at, 190))
            at += 200
        for _ in range(more_work // 100):
            events.append(op("aten::bmm", at, 99))
            at += 100
        events.append(annotation("gloo:all_reduce", at, waits + 95, tid=2))
        at += waits + 100
        events += [op("aten::add_", at, 100), annotation(f"ProfilerStep#{step}", begin, at + 105 - begin)]
        at += 110
    return events


def test_a_rank_that_sleeps_is_the_first_advice(tmp_path: Path) -> None:
    first = job(tmp_path, sleeps=3000).first
    assert first.remedy.rule == "late_host"
    assert first.remedy.what.startswith("rank 1 is waited for in collectives of the host, ")
    assert first.remedy.what.endswith(": nothing recorded, before aten::mm")
    # Of the first step nothing tells how long before its first row it began.
    assert first.gain_ns == pytest.approx(3_000_000, rel=0.15)
    assert first.low_ns <= 3_000_000 <= first.high_ns


def test_a_rank_with_more_work_is_told_so(tmp_path: Path) -> None:
    first = job(tmp_path, more_work=3000).first
    assert first.remedy.rule == "late_host"
    assert first.remedy.what.endswith(": work that the others do not have")
    assert first.gain_ns == pytest.approx(3_000_000, rel=0.05)


def test_a_rank_with_more_samples_is_told_by_how_much(tmp_path: Path) -> None:
    for rank, (samples, waits) in enumerate([(20, 300), (26, 0)]):
        events, at = [], 0
        for step in range(STEPS):
            begin = at
            sizes = [[samples, 64], [64, 64]]
            for _ in range(5):
                events.append(op("aten::mm", at + 5, 10 * samples, Input_Dims=sizes))
                at += 10 * samples + 10
            events += [annotation("gloo:all_reduce", at, waits + 95, tid=2), op("aten::add_", at + waits + 100, 100)]
            at += waits + 210
            events.append(annotation(f"ProfilerStep#{step}", begin, at - begin))
        write(tmp_path / "traces" / f"rank{rank}.json", events, distributedInfo=_distributed(rank))
    first = advice_on(tmp_path).first
    assert first.remedy.rule == "late_host"
    larger = (26 * 64 + 64 * 64) / (20 * 64 + 64 * 64) - 1
    assert first.remedy.what.endswith(
        f": tensors {larger:.0%} larger than those of others: even out samples, or tokens"
    )
    # Evened out, rank 0 gets half of what rank 1 has more.
    assert first.gain_ns == pytest.approx(150_000, rel=0.05)


def test_a_wait_for_another_rank_is_no_silence(tmp_path: Path) -> None:
    write(tmp_path / "traces" / "rank0.json", _rank(3000, 0, 0), distributedInfo=_distributed(0))
    assert not advice_on(tmp_path).of_rule("host_silence")


def test_a_wait_for_a_collective_in_a_queue_is_no_silence(tmp_path: Path) -> None:
    """Its row begins only when a thread of gloo takes it; whoever goes on after it has waited all the while."""
    events = []
    for step, at in enumerate(range(0, 4260 * STEPS, 4260)):
        events += [op("aten::mm", at + 1, 900), annotation("gloo:all_reduce", at + 4000, 90, tid=2)]
        events += [op("aten::add_", at + 4100, 145), annotation(f"ProfilerStep#{step}", at, 4250)]
    write(tmp_path / "traces" / "rank0.json", events, distributedInfo=_distributed(0))
    assert not advice_on(tmp_path).of_rule("host_silence")


def test_a_stage_that_receives_waits_for_no_like_row(tmp_path: Path) -> None:
    """The first stage waits for gradients, the second one for what the first put out: both rows are called alike."""
    for rank, waits in enumerate([3000, 300]):
        events = []
        for step, at in enumerate(range(0, 5000 * STEPS, 5000)):
            events += [op("aten::mm", at + 1, 4900 - waits), annotation("gloo:recv", at + 4905 - waits, waits, tid=2)]
            events += [op("aten::add_", at + 4910, 80), annotation(f"ProfilerStep#{step}", at, 4995)]
        write(tmp_path / "traces" / f"rank{rank}.json", events, distributedInfo=_distributed(rank))
    assert not advice_on(tmp_path).of_rule("late_host")


def test_ranks_that_are_alike_are_not_blamed(tmp_path: Path) -> None:
    assert not job(tmp_path).of_rule("late_host")


def test_who_is_late_by_chance_is_not_blamed(tmp_path: Path) -> None:
    """Each rank is late in every other step, one of them by more than the other one."""
    for rank in range(2):
        events, at = [], 0
        for step in range(STEPS):
            begin = at
            waits = (400, 0) if step % 2 else (0, 300)
            events.append(op("aten::mm", at + 5, 3000 + waits[1 - rank]))
            at += 3010 + waits[1 - rank]
            events += [
                annotation("gloo:all_reduce", at, waits[rank] + 95, tid=2),
                op("aten::add_", at + waits[rank] + 100, 100),
            ]
            at += waits[rank] + 210
            events.append(annotation(f"ProfilerStep#{step}", begin, at - begin))
        write(tmp_path / "traces" / f"rank{rank}.json", events, distributedInfo=_distributed(rank))
    assert not advice_on(tmp_path).of_rule("late_host")


def test_a_rank_that_sleeps_in_each_third_step_is_told_with_those_that_wait(tmp_path: Path) -> None:
    said = job(tmp_path, sleeps=3000, every=3, steps=9)
    assert not said.of_rule("late_host")
    assert said.first.remedy.rule == "occasional_silence"
    assert ", in 3 of 9 steps on rank 1: look for garbage collection, checkpoints, " in said.first.remedy.what
    assert said.first.gain_ns == pytest.approx(1_000_000, rel=0.02)
