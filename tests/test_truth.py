"""lumos-df's answers about an emulated job are the truth about it, to the nanosecond."""

from collections import Counter
from dataclasses import astuple

import pytest

from lumos_df.corpus.catalog import connect
from lumos_df.graph.matching import match_collectives
from lumos_df.trace.ingest import ingest
from tests.connection import Connection
from tests.emulator import Job, Outcome, Profiler, simulate, write

JOB = Job(ranks=3, layers=2, steps=2, sleep_rank=1, sleep_ns=1_500_000)


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return simulate(JOB)


@pytest.fixture(
    scope="module",
    params=[Profiler(), Profiler(memory=False, stacks=False, collective_args=False, clock_offsets_ns=(0, 7_654_321))],
    ids=["all that a profiler records", "the least, and a clock that is off"],
)
def corpus(request: pytest.FixtureRequest, outcome: Outcome, tmp_path_factory: pytest.TempPathFactory) -> Connection:
    folder = tmp_path_factory.mktemp("truth")
    write(outcome, request.param, folder / "job")
    done = ingest([str(folder / "job")], folder / "corpus", workers=1)
    assert not done.failed
    match_collectives(folder / "corpus")
    return connect(folder / "corpus")


def test_gpu_time(corpus: Connection, outcome: Outcome) -> None:
    found = corpus.execute("SELECT * EXCLUDE (job, trace_id) FROM gpu_time ORDER BY rank").fetchall()
    assert found == [astuple(truth) for truth in outcome.truth.gpus]


def test_breakdown(corpus: Connection, outcome: Outcome) -> None:
    found = corpus.execute(
        "SELECT rank, step, step_ns, exposed_compute_ns, exposed_communication_ns, overlapped_ns, memory_ns, idle_ns"
        " FROM breakdown ORDER BY rank, step"
    ).fetchall()
    assert found == [
        (
            truth.rank,
            truth.step,
            truth.step_ns,
            truth.exposed_compute_ns,
            truth.exposed_communication_ns,
            truth.overlapped_ns,
            truth.memory_ns,
            truth.idle_ns,
        )
        for truth in outcome.truth.steps
    ]


def test_straggler(corpus: Connection, outcome: Outcome) -> None:
    last: Counter[tuple[int, int]] = Counter()
    waited: Counter[tuple[int, int]] = Counter()
    for collective in outcome.truth.collectives:
        last[collective.step, collective.last_rank] += 1
        for rank in range(JOB.ranks):
            waited[collective.step, rank] += collective.waited_ns(rank)
    found = corpus.execute("SELECT step, rank, times_last, waiting_ns FROM straggler ORDER BY step, rank").fetchall()
    assert found == [(step, rank, last[step, rank], waited_ns) for (step, rank), waited_ns in sorted(waited.items())]
