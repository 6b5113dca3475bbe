"""Of what a replayed step is made: host time, what inferred edges hand on, what it inherits."""

from pathlib import Path

import numpy as np
import pytest

from lumos_df.corpus.catalog import connect
from lumos_df.graph import run
from lumos_df.graph.job import Job, groups, load
from lumos_df.graph.path_ways import WalkedGraph, Ways, last_members
from lumos_df.graph.path_ways import path_shares as shares_of
from lumos_df.graph.replayed_tables import path_columns
from lumos_df.graph.simulate import forward, path_shares
from lumos_df.schema.codes import (
    END_END,
    END_START,
    HANDOFF,
    HOST_PIECE,
    LAUNCH,
    NONE,
    SYNC_EDGE,
    SYNC_PIECE,
    TRANSFER_PIECE,
)
from lumos_df.trace.ingest import ingest
from tests.graph.paths import critical_paths, walked_back
from tests.graph.rounds import ROUND_US, ROUNDS, round_at, step
from tests.trace.literal import Event, Row, annotation, kernel, launch, op, rows, stated, write


def replayed(folder: Path, events: list[Event]) -> list[Row]:
    corpus = folder / "corpus"
    assert not ingest([write(folder / "rank0.json", events)], corpus, workers=1).failed
    run.replay(corpus)
    with connect(corpus) as connection:
        return rows(connection, "FROM replay_error ORDER BY step")


@pytest.mark.parametrize(("stream", "handed_on_us"), [(7, 0), (20, 300)])
def test_the_path_is_what_the_host_took_and_what_a_guessed_wait_hands_on(
    tmp_path: Path, stream: int, handed_on_us: int
) -> None:
    """The second kernel follows the first on its stream, which is recorded, or waits for another stream, a guess."""
    rounds = (round_at(100 + number * ROUND_US, number, stream) for number in range(ROUNDS))
    (found,) = replayed(tmp_path, step(1, 0, 0, rounds))
    assert (found["recorded_ns"], found["error_pct"], found["carried_ns"]) == (5_000_000, 0, 0)
    assert found["host_share_pct"] == pytest.approx(100 * (ROUND_US - 359) / ROUND_US)
    assert found["inferred_share_pct"] == pytest.approx(100 * handed_on_us / ROUND_US)


def test_what_a_step_inherits_is_told_apart_from_its_own_error(tmp_path: Path) -> None:
    """A kernel of the second step is late by 200 us, which nothing explains: the third step begins earlier by them."""
    late = np.zeros(3 * ROUNDS)
    late[ROUNDS + 2] = 200
    begin = np.arange(3 * ROUNDS) * ROUND_US + np.cumsum(late) - late
    events: list[Event] = []
    for number in range(3):
        of_step = range(number * ROUNDS, (number + 1) * ROUNDS)
        rounds = (round_at(float(begin[place]) + 100, place, late=float(late[place])) for place in of_step)
        events += step(number + 1, float(begin[of_step[0]]), float(late[of_step].sum()), rounds)
    found = replayed(tmp_path, events)
    assert [row["replayed_ns"] - row["recorded_ns"] for row in found] == [0, -200_000, 0]
    assert [row["carried_ns"] for row in found] == [0, 0, -200_000]


def test_the_host_time_is_that_of_the_critical_path_on_whatever_rank(generated: Job) -> None:
    played = generated.replay()
    paths = critical_paths(generated, played)
    host = [[int(path.dur[path.kind == HOST_PIECE].sum()) for path in of_rank] for of_rank in paths]
    assert min(map(min, host)) > 0
    assert [columns["host_ns"].tolist() for columns in path_columns(generated, played)] == host


def test_paths_put_together_from_ways_are_those_of_a_walk_over_the_whole_job(tmp_path: Path, generated: Job) -> None:
    for job in (generated, unheld_host(tmp_path, 10)):
        played = job.replay()
        base = played.event_graph.base
        for of_rank, walks in zip(critical_paths(job, played), walked_back(job, played), strict=True):
            for path, walk in zip(of_rank, walks, strict=True):
                columns = (base[path.trace] + path.row, path.kind, path.begin, path.dur)
                assert [list(column) for column in zip(*walk, strict=True)] == [column.tolist() for column in columns]


@pytest.mark.parametrize(
    ("wait_recorded", "numbered", "inferred"),
    [(True, True, 0), (True, False, 30), (False, True, 34), (False, False, 34)],
)
def test_a_path_through_a_collective_of_two_ranks(wait_recorded: bool, numbered: bool, inferred: int) -> None:  # noqa: FBT001  # cases
    """A call (0) waits 4 ns more for a member (1) whose collective takes 30 from the other one (2) on, which a call (3)
    launches that follows another thread's (4)."""
    src, dst, lag = np.array([1, 3, 4], np.int32), np.array([0, 2, 3], np.int32), np.array([4, 20, 20])
    binds = np.array([END_END, END_START, END_START], np.int8)
    instance = np.array([NONE, 0, 0, NONE, NONE], np.int32)
    pointer, edge = forward.forward_star(src, 5)
    played = forward.simulate(
        np.array([4, 3, 2, 1, 0], np.int32),
        pointer,
        edge,
        dst,
        binds,
        lag,
        np.array([5, 9, 9, 20, 10]),
        np.array([20, 10, forward.UNSET, forward.UNSET, 0]),
        instance,
        np.array([2], np.int32),
        np.array([30]),
    )
    low, high = np.array([0, 110, forward.UNSET]), np.array([110, 120, played[0][2]])
    # From the end of the call, of nothing, and from the start of the member that comes last.
    bounds, moment, host_stretch, guessed, kept, owner, kind, stop, onto = path_shares.ways(
        np.array([0, NONE, 2]),
        np.array([True, True, False]),
        low,
        high,
        src,
        binds,
        np.array([SYNC_EDGE, LAUNCH, HANDOFF], np.int8),
        np.zeros(5, np.int64),
        np.array([wait_recorded, True, True]),
        np.array([True, False, False, True, True]),
        np.array([HOST_PIECE, TRANSFER_PIECE, TRANSFER_PIECE, HOST_PIECE, HOST_PIECE], np.int8),
        np.full(5, numbered),
        instance,
        *played,
    )
    assert stop.tolist() == [0, NONE, NONE]
    first = slice(*bounds[:2].tolist())
    assert list(zip(owner[first].tolist(), kind[first].tolist(), moment[first].tolist(), strict=True)) == [
        (0, HOST_PIECE, 104),
        (0, SYNC_PIECE, 100),
        (2, TRANSFER_PIECE, 70),
    ]
    host, handed_on, unknown = path_shares.shares(
        low[:2], high[:2], np.array([2]), bounds, moment, host_stretch, guessed, kept, stop, onto
    )
    assert host.tolist() == [6 + 20 + 20 + 10, 0]
    assert handed_on.tolist() == [inferred, 0]
    assert unknown.tolist() == [0, 10]


def unheld_host(folder: Path, steps: int) -> Job:
    """Two ranks whose hosts wait for nothing: of each collective the way back is along a thread, however long."""
    events: list[Event] = []
    for place in range(10 * steps):
        at = 100 + 100 * place
        events += [op("all_reduce", at, 80), launch(at + 10, 5, place), op("add", at + 85, 5)]
        args = stated("allreduce", 500, 500) | {"Group_size": 2, "Process_Group_Ranks": "[0, 1]"}
        events.append(kernel("ncclDevKernel_AllReduce", at + 20, 5, correlation=place, **args))
    events += [annotation(f"ProfilerStep#{number}", 100 + 1000 * number, 1000) for number in range(steps)]
    files = [
        write(folder / f"rank{rank}.json", events, distributedInfo={"rank": rank, "world_size": 2}) for rank in (0, 1)
    ]
    assert not ingest(files, folder / "corpus", workers=1).failed
    (ids,) = groups(folder / "corpus")
    return load(folder / "corpus", ids)


def ways_of(job: Job) -> tuple[Ways, Ways, Ways]:
    """Return the ways of the steps, those of the collectives, and the same each by itself, which meet no other."""
    played = job.replay()
    walked = WalkedGraph.of(played.event_graph, played.run, job.graphs)
    of_steps = Ways.joined([walked.of_steps(replay, k) for k, replay in enumerate(played.replays)])
    last = last_members(played.event_graph, played.run)
    each = [walked.from_members(last[k : k + 1]) for k in range(len(last))]
    return of_steps, walked.from_members(last), Ways.joined(each)


def test_a_way_that_meets_another_one_goes_on_with_it(tmp_path: Path, generated: Job) -> None:
    unheld = [unheld_host(tmp_path / str(steps), steps) for steps in (10, 40)]
    stretches = []
    for job in (generated, *unheld):
        of_steps, together, apart = ways_of(job)
        of_each = np.arange(len(together.stop))
        for shares, as_far_as_known in zip(
            shares_of(of_steps, together, of_each), shares_of(of_steps, apart, of_each), strict=True
        ):
            assert shares.tolist() == as_far_as_known.tolist()
        assert (apart.onto == NONE).all()
        stretches.append((len(together.moment), len(apart.moment)))
    _, (few, _), (many, apart_from_others) = stretches
    assert many < 5 * few
    assert apart_from_others > 10 * many
