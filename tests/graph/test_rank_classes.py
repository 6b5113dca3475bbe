"""Of ranks that do the same in the same time one is replayed for all: who is alike, and what error that makes."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from lumos_df import connect
from lumos_df.base.runner import Engine, map_items
from lumos_df.cli.app import app
from lumos_df.graph.job import groups
from lumos_df.graph.rank_classes import RankProfile, classes, profile
from lumos_df.graph.replay_by_rank import replay_by_rank
from lumos_df.trace.ingest import ingest
from tests.emulator import Job, Profiler, simulate, write
from tests.emulator.megatron import Megatron
from tests.emulator.megatron import simulate as simulate_megatron

HERE = partial(map_items, engine=Engine.SERIAL)
STATED = re.compile(r"by up to ([0-9.]+)%")
Steps = dict[tuple[int, int], dict[str, Any]]


def steps_of(corpus: Path, ids: list[str]) -> Steps:
    """Return what is stored of the replayed steps, by rank and number."""
    columns = "rank, step, replayed_ns, host_ns, inferred_ns, operators, warnings"
    query = f"SELECT {columns} FROM replay_steps WHERE trace_id IN (SELECT unnest($1))"
    with connect(corpus) as connection:
        rows = connection.execute(query, [ids]).fetchall()
    return {(row[0], row[1]): dict(zip(columns.split(", ")[2:], row[2:], strict=True)) for row in rows}


def both(corpus: Path, ids: list[str]) -> tuple[Steps, Steps, list[int]]:
    """Replay a job with all of its ranks, and by classes; also return which place is replayed for each."""
    replay_by_rank(corpus, ids, HERE)
    every = steps_of(corpus, ids)
    replay_by_rank(corpus, ids, HERE, by_class=True)
    stands_for = classes([profile(corpus, trace_id) for trace_id in ids]).stands_for
    return every, steps_of(corpus, ids), stands_for.tolist()


def worst_pct(every: Steps, chosen: Steps, ranks: list[int], stands_for: list[int]) -> float:
    """Return how far the step that stands for each step of each rank is from its own replay at most, percent."""
    of_rank = dict(zip(ranks, (ranks[place] for place in stands_for), strict=True))
    return max(
        100 * abs(float(chosen[of_rank[rank], step]["replayed_ns"] / own["replayed_ns"]) - 1)
        for (rank, step), own in every.items()
    )


def emulated(traces: Path, corpus: Path) -> list[str]:
    assert not ingest(traces, corpus, workers=1).failed
    (ids,) = groups(corpus)
    return ids


def test_stages_of_a_pipeline_are_replayed_once_and_nothing_else_changes(tmp_path: Path) -> None:
    """Ranks of a stage do the same to the nanosecond: so do paths through the ranks that nobody replays."""
    job = Megatron(tp=2, pp=2, dp=2, layers=2, hidden=256)
    clocks = Profiler(memory=False, stacks=False, clock_offsets_ns=(0, 7_000_000, -4_000_000, 0, 0, 9_000_000))
    write(simulate_megatron(job), clocks, tmp_path / "traces")
    ids = emulated(tmp_path / "traces", tmp_path / "corpus")
    every, chosen, stands_for = both(tmp_path / "corpus", ids)
    assert stands_for == [0, 0, 0, 0, 4, 4, 4, 4]
    assert {rank for rank, _ in chosen} == {0, 4}
    for step, rows in chosen.items():
        note, *others = rows.pop("warnings")
        assert re.fullmatch(
            r"replayed for 3 ranks alike too: their steps as recorded differ from this one's by up to 0\.\d%, their "
            r"compute kernels by 0\.0%",
            note,
        )
        assert others == every[step].pop("warnings")
        assert rows == every[step]
    assert worst_pct(every, chosen, list(range(8)), stands_for) == 0
    with connect(tmp_path / "corpus") as connection:
        tables = {
            table: {rank for (rank,) in connection.execute(f"SELECT DISTINCT rank FROM {table}").fetchall()}
            for table in ("edges", "replays", "replay_steps", "collectives", "clocks")
        }
    everyone = set(range(8))
    assert tables == {
        "edges": {0, 4},
        "replays": {0, 4},
        "replay_steps": {0, 4},
        "collectives": everyone,
        "clocks": everyone,
    }


@pytest.mark.parametrize("late", [None, 4])
def test_a_rank_that_comes_late_is_replayed_by_itself(late: int | None, tmp_path: Path) -> None:
    job = Job(ranks=6, layers=2, steps=3, seed=0, sleep_rank=late, sleep_ns=0 if late is None else 300_000)
    write(simulate(job), Profiler(memory=False, stacks=False), tmp_path / "traces")
    ids = emulated(tmp_path / "traces", tmp_path / "corpus")
    every, chosen, stands_for = both(tmp_path / "corpus", ids)
    assert stands_for == [0, 0, 0, 0, late or 0, 0]
    # Kernels of one kind vary by some percent: the error is what one rank's differ from those of another.
    assert worst_pct(every, chosen, list(range(6)), stands_for) < 1.5


@pytest.mark.parametrize("name", ["real_corpus", "later_corpus"])
def test_the_error_of_every_real_job(name: str, request: pytest.FixtureRequest) -> None:
    corpus = request.getfixturevalue(name)
    alike = 0
    for ids in (ids for ids in groups(corpus) if len(ids) > 1):
        every, chosen, stands_for = both(corpus, ids)
        ranks = list(dict.fromkeys(rank for rank, _ in sorted(every)))
        notes = [row["warnings"][0] for row in chosen.values() if row["warnings"] and "alike too" in row["warnings"][0]]
        stated = max((float(match[1]) for note in notes if (match := STATED.search(note))), default=0)
        assert worst_pct(every, chosen, ranks, stands_for) < stated + 0.5
        alike += len(ids) - len(set(stands_for))
    assert alike > 0


def work(shape: bytes, mean: list[float], deviation: list[float]) -> RankProfile:
    """Return the profile of a rank with ten calls of a kernel, two of a collective and one of an operator."""
    return RankProfile(
        shape=shape,
        part=np.array([0, 1, 2], np.int8),
        calls=np.array([10, 2, 1]),
        mean=np.array(mean),
        deviation=np.array(deviation),
        step=np.array([1000]),
    )


@pytest.mark.parametrize(
    ("shape", "mean", "alike"),
    [
        (b"a", [102.0, 50.0, 9.0], True),
        (b"a", [102.1, 50.0, 9.0], False),
        (b"a", [98.0, 45.0, 10.0], True),
        (b"a", [98.0, 44.9, 10.0], False),
        (b"a", [100.0, 50.0, 10.5], False),
        (b"b", [100.0, 50.0, 9.0], False),
    ],
)
def test_ranks_are_alike_within_the_spread_of_calls_in_every_part(
    shape: bytes, mean: list[float], *, alike: bool
) -> None:
    found = classes([work(b"a", [100.0, 50.0, 9.0], [2.0, 5.0, 1.0]), work(shape, mean, [9.0, 9.0, 9.0])])
    assert found.stands_for.tolist() == [0, 0 if alike else 1]
    assert bool(found.notes[0]) == alike
    assert not found.notes[1]


def test_changes_are_simulated_with_every_rank(tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["replay", "--rank-classes", "--scale", "kind=host:0.5", "--corpus", str(tmp_path)])
    assert told.exit_code == 2
    assert "not with --scale, --drop or --no-wait" in told.output
