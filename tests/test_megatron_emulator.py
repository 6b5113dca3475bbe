"""The emulated Megatron job: its schedule, who waits for whom, and what communication takes from kernels."""

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.emulator.engine import Engine, Process
from tests.emulator.megatron import Megatron, Outcome, simulate
from tests.emulator.megatron.costs import all_reduce_ns, gemm_ns
from tests.emulator.megatron.schedule import Pass, one_forward_one_backward
from tests.emulator.processors import Processors

JOB = Megatron(tp=2, pp=2, dp=2, layers=4, hidden=1024, ffn=4096, heads=8, vocabulary=8192)


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return simulate(JOB)


@pytest.mark.parametrize(
    ("stage", "order"), [(0, "F0 F1 F2 B0 F3 B1 B2 B3"), (1, "F0 F1 B0 F2 B1 F3 B2 B3"), (2, "F0 B0 F1 B1 F2 B2 F3 B3")]
)
def test_passes_of_three_stages_and_four_micro_batches(stage: int, order: str) -> None:
    passes = [one for one in one_forward_one_backward(stage, 3, 4) if isinstance(one, Pass)]
    assert " ".join(f"{'B' if one.backward else 'F'}{one.micro_batch}" for one in passes) == order


def test_one_replica_takes_what_all_take(outcome: Outcome) -> None:
    alone = simulate(replace(JOB, one_replica=True))
    every = {step.rank: step for step in outcome.steps}
    assert len(every) == 8
    assert len(alone.steps) == 4
    assert all(every[step.rank] == step for step in alone.steps)


def test_members_of_a_collective_end_together_and_none_before_the_last_has_begun(outcome: Outcome) -> None:
    found = defaultdict(list)
    for recording in outcome.recordings:
        for row in recording.gpu:
            if row.collective:
                found[row.collective.key].append(row)
    sizes = {len(rows) for rows in found.values()}
    assert sizes == {2, 4}, "tp, dp, and sends have two members, the norm has four"
    for rows in found.values():
        assert len({row.end for row in rows}) == 1
        assert max(row.start for row in rows) < rows[0].end


def test_rows_of_a_stream_do_not_overlap(outcome: Outcome) -> None:
    for recording in outcome.recordings:
        streams = defaultdict(list)
        for row in recording.gpu:
            streams[row.stream].append(row)
        assert len(streams) == 6
        for rows in streams.values():
            assert all(one.end < other.start for one, other in pairwise(rows))


def test_communication_slows_the_kernel_beside_it() -> None:
    engine = Engine()
    processors = Processors(engine, 100)
    ended = []

    def compute() -> Process:
        yield processors.work(1000)
        ended.append(engine.now)

    def communicate() -> Process:
        yield 200
        processors.take(50)
        yield 400
        processors.take(-50)

    engine.start(compute())
    engine.start(communicate())
    engine.run()
    assert ended == [1200]


def test_noise_follows_the_seed() -> None:
    small = replace(JOB, layers=2, noise=True)
    one, same, other = (simulate(job) for job in (small, small, replace(small, seed=1)))
    assert one.steps == same.steps
    assert one.steps != other.steps
    with pytest.raises(ValueError, match="replicas differ"):
        replace(small, one_replica=True)


def test_large_products_reach_more_of_the_peak() -> None:
    rates = [size**3 / gemm_ns(size, size, size)[0] for size in (512, 2048, 8192)]
    assert 4 * rates[0] < rates[1] < rates[2] < 989_000 / 2 * 0.8


def test_nodes_apart_reduce_more_slowly() -> None:
    near, apart = all_reduce_ns(1 << 30, tuple(range(8))), all_reduce_ns(1 << 30, tuple(range(0, 64, 8)))
    assert 5 < apart / near < 15


def test_what_does_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="cut into 3"):
        Megatron(pp=3)
