"""A job replayed rank by rank stores what it stores replayed at once, paths and gains too, to the nanosecond."""

import gzip
import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lumos_df.base.outcome import Outcome
from lumos_df.base.runner import Engine, map_items
from lumos_df.corpus.catalog import connect
from lumos_df.corpus.layout import STAGING, trace_folder
from lumos_df.graph import run
from lumos_df.graph.job import groups
from lumos_df.graph.replay_by_rank import replay_by_rank
from lumos_df.schema import CLOCKS, COLLECTIVE_MEMBERS, CRITICAL_PATH, EDGES, GAINS, REPLAY_STEPS, REPLAYS
from lumos_df.trace.ingest import ingest
from tests.emulator import Job, Profiler, simulate, write
from tests.emulator.megatron import Megatron
from tests.emulator.megatron import simulate as simulate_megatron
from tests.trace.corpora import unread_dictionaries

TABLES = (EDGES, COLLECTIVE_MEMBERS, REPLAYS, REPLAY_STEPS, CLOCKS, CRITICAL_PATH, GAINS)
HERE = partial(map_items, engine=Engine.SERIAL)


def stored(corpus: Path) -> dict[tuple[str, str], Any]:
    """Return what replays stored, and take it away."""
    found = {}
    for trace_id in (trace_id for ids in groups(corpus) for trace_id in ids):
        for table in TABLES:
            file = trace_folder(corpus, trace_id) / f"{table.name}.parquet"
            found[trace_id, table.name] = pq.read_table(file, partitioning=None).to_pydict() if file.exists() else None
            file.unlink(missing_ok=True)
    return found


def both(corpus: Path) -> int:
    """Replay each job of several ranks in both ways, and return how many there are."""
    jobs = [ids for ids in groups(corpus) if len(ids) > 1]
    stored(corpus)
    for ids in jobs:
        run.replay(corpus, ids[0], path=True, gains=True)
        assert not unread_dictionaries(corpus)
        at_once = stored(corpus)
        steps = replay_by_rank(corpus, ids, HERE, path=True, gains=True)
        by_rank = stored(corpus)
        assert by_rank == at_once
        assert all(at_once[trace_id, table.name] for trace_id in ids for table in (EDGES, CRITICAL_PATH, GAINS))
        told = [at_once[trace_id, REPLAY_STEPS.name]["step"] for trace_id in ids]
        assert steps == {-1 if step is None else step for of_trace in told for step in of_trace}
    assert not any((corpus / STAGING).iterdir())
    return len(jobs)


@pytest.fixture(scope="module")
def three_dimensions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job of several groups, with sends and receives between its stages, whose ranks come late in turn."""
    folder = tmp_path_factory.mktemp("three")
    job = Megatron(tp=2, pp=2, dp=2, layers=2, hidden=256)
    write(simulate_megatron(job), Profiler(memory=False, stacks=False), folder / "traces")
    return folder / "traces"


def taken_in(traces: Path, corpus: Path) -> Path:
    assert not ingest(traces, corpus, workers=1).failed
    return corpus


def test_a_job_of_several_groups_with_sends_and_receives(three_dimensions: Path, tmp_path: Path) -> None:
    assert both(taken_in(three_dimensions, tmp_path / "corpus")) == 1


def test_a_job_that_lacks_ranks_and_kernels_of_some(three_dimensions: Path, tmp_path: Path) -> None:
    """One rank is missing, and of another one the last third: its collectives are fewer than those of the others."""
    traces = tmp_path / "traces"
    shutil.copytree(three_dimensions, traces)
    files = sorted(traces.iterdir())
    files[3].unlink()
    document = json.loads(gzip.decompress(files[5].read_bytes()))
    times = sorted(event["ts"] for event in document["traceEvents"] if event.get("ph") == "X")
    document["traceEvents"] = [
        event for event in document["traceEvents"] if event.get("ts", 0) < times[2 * len(times) // 3]
    ]
    files[5].write_bytes(gzip.compress(json.dumps(document).encode()))
    assert both(taken_in(traces, tmp_path / "corpus")) == 1


@pytest.mark.parametrize("seed", [0, 1])
def test_a_job_whose_ranks_sleep_and_whose_steps_nobody_marked(seed: int, tmp_path: Path) -> None:
    job = Job(ranks=3, layers=2, steps=2, sleep_rank=seed, sleep_ns=300_000, seed=seed)
    write(simulate(job), Profiler(memory=False, stacks=False), tmp_path / "traces")
    if seed:
        for file in (tmp_path / "traces").iterdir():
            text = gzip.decompress(file.read_bytes()).replace(b"ProfilerStep#", b"round ")
            file.write_bytes(gzip.compress(text))
    assert both(taken_in(tmp_path / "traces", tmp_path / "corpus")) == 1


def test_a_job_of_which_the_gpus_alone_were_recorded(tmp_path: Path) -> None:
    """Its steps, which nobody marked, begin and end with rows of the GPU."""
    job = Job(ranks=2, layers=2, steps=2)
    write(simulate(job), Profiler(memory=False, stacks=False), tmp_path / "traces")
    for file in (tmp_path / "traces").iterdir():
        document = json.loads(gzip.decompress(file.read_bytes()))
        host = ("cpu_op", "cuda_runtime", "user_annotation", "python_function")
        document["traceEvents"] = [event for event in document["traceEvents"] if event.get("cat") not in host]
        file.write_bytes(gzip.compress(json.dumps(document).encode()))
    corpus = taken_in(tmp_path / "traces", tmp_path / "corpus")
    assert both(corpus) == 1
    (ids,) = groups(corpus)
    replay_by_rank(corpus, ids, HERE, gains=True)
    with connect(corpus) as connection:
        most = connection.execute("SELECT max(gain_ns) FROM gains").fetchone()
    assert most is not None
    assert most[0] > 0


def test_a_job_whose_gpus_fall_behind_their_hosts(tmp_path: Path) -> None:
    """Its steps end with rows of the GPU, and paths and gains are of these."""
    job = Job(ranks=2, layers=2, steps=3, hidden=2048, batch=16)
    write(simulate(job), Profiler(memory=False, stacks=False), tmp_path / "traces")
    corpus = taken_in(tmp_path / "traces", tmp_path / "corpus")
    assert both(corpus) == 1
    with connect(corpus) as connection:
        told = connection.execute("SELECT warnings FROM replay_error").fetchall()
        steps = connection.execute(
            "SELECT sum(dur), any_value(recorded_ns), sum(dur) FILTER (kind = 'host') FROM critical_path "
            "JOIN replay_steps USING (trace_id, step) GROUP BY trace_id, step"
        ).fetchall()
    assert all(any(text.startswith("the host ran ahead") for text in warnings) for (warnings,) in told)
    assert [length for length, _, _ in steps] == [recorded for _, recorded, _ in steps]
    assert all((host or 0) < 0.1 * length for length, _, host in steps)


@pytest.mark.parametrize("name", ["real_corpus", "later_corpus"])
def test_every_real_job(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    corpus = request.getfixturevalue(name)
    shutil.copytree(corpus, tmp_path / "corpus")
    assert both(tmp_path / "corpus") > 1


def test_a_job_of_many_operators_goes_rank_by_rank_by_itself(
    sample_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = tmp_path / "corpus"
    shutil.copytree(sample_corpus, corpus)
    (ids,) = [ids for ids in groups(corpus) if len(ids) == 4]
    run.replay(corpus, ids[0], path=True)
    path = trace_folder(corpus, ids[0]) / f"{CRITICAL_PATH.name}.parquet"
    assert path.exists()
    ranks: list[int] = []

    def here(function: Callable[[Any], Any], items: list[Any], **_: object) -> Iterator[Outcome[Any]]:
        ranks.append(len(items))
        return HERE(function, items)

    monkeypatch.setattr(run, "_AT_ONCE", 1)
    monkeypatch.setattr(run, "map_items", here)
    assert run.replay(corpus, ids[0]) == ids
    # No job at once, and two visits of each rank.
    assert ranks == [0, 4, 4]
    # What did not change lets the paths stand.
    assert path.exists()
    ranks.clear()
    run.replay(corpus, ids[0], path=True)
    # One more to store the paths of each, after one of those over which the paths of others lead.
    assert ranks[:3] + ranks[4:] == [0, 4, 4, 4]
    assert 0 < ranks[3] < 4


@pytest.mark.parametrize("seed", range(4))
def test_a_path_over_many_ranks_is_the_same_row_by_row(seed: int, tmp_path: Path) -> None:
    """Ranks that come late in turn, and whose kernels vary, so that paths go from rank to rank and meet."""
    job = Job(ranks=2 + seed, layers=3, steps=3, sleep_rank=seed, sleep_ns=200_000 * seed, seed=seed)
    write(simulate(job), Profiler(memory=False, stacks=seed % 2 == 1), tmp_path / "traces")
    corpus = taken_in(tmp_path / "traces", tmp_path / "corpus")
    assert both(corpus) == 1
    (ids,) = groups(corpus)
    replay_by_rank(corpus, ids, HERE, path=True)
    with connect(corpus) as connection:
        foreign = connection.execute("SELECT count(*) FROM critical_path WHERE on_rank != rank").fetchone()
        lengths = connection.execute(
            "SELECT sum(dur), any_value(recorded_ns) FROM critical_path JOIN replay_steps USING (trace_id, step) "
            "GROUP BY trace_id, step"
        ).fetchall()
    assert foreign is not None
    assert foreign[0] > 0
    assert len(lengths) == 3 * job.ranks
    assert all(length == recorded for length, recorded in lengths)
