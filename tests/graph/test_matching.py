"""Who waits for whom, on small jobs written out here: what `collectives` and the views over it say."""

import json
import resource
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from lumos_df.calibrate.nearest_shapes import estimate_kernels
from lumos_df.corpus.catalog import connect
from lumos_df.corpus.staging import Staging
from lumos_df.graph import run, switches
from lumos_df.graph.matching import MatchedJob, match_collectives
from lumos_df.page.write import collect
from lumos_df.trace.ingest import ingest
from tests.conftest import Run, command
from tests.trace.literal import Event, annotation, kernel, rows, write

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def reduce(ts: float, dur: float, elements: int | None = 1000, **more: Any) -> Event:
    """Return an all-reduce of float32 in a group of four; times in microseconds."""
    size = {} if elements is None else {"In_msg_nelems": elements, "Out_msg_nelems": elements}
    told = {"Collective_name": "allreduce", "dtype": "Float", "Group_size": 4, "Process_Group_Name": "dp"}
    return kernel(REDUCE, ts, dur, **told, **size, **more)


def job(folder: Path, ranks: Mapping[int, Sequence[Event]], world: int = 4) -> Path:
    """Ingest a job of which some ranks were recorded and return its corpus."""
    for rank, events in ranks.items():
        about = {"rank": rank, "world_size": world, "backend": "nccl"}
        write(
            folder / "job" / f"rank{rank}.json", [annotation("ProfilerStep#1", 0, 2000), *events], distributedInfo=about
        )
    done = ingest([folder / "job"], folder / "corpus", workers=1)
    assert not done.failed, done.failed
    return folder / "corpus"


def ask(corpus: Path, query: str) -> list[tuple[Any, ...]]:
    with connect(corpus) as connection:
        return [tuple(row.values()) for row in rows(connection, query)]


def sleeper(rank: int) -> list[Event]:
    """Return the part of one rank in two all-reduces, for the second of which rank 2 comes 600 us late."""
    late = 600 if rank == 2 else 0
    return [reduce(100, 50), reduce(300 + late, 640 - late)]


def test_a_sleeping_rank_is_named_with_what_the_others_waited(tmp_path: Path) -> None:
    corpus = job(tmp_path, {rank: sleeper(rank) for rank in range(4)})
    assert match_collectives(corpus) == [MatchedJob("job", (0, 1, 2, 3), 2, 2)]
    assert ask(corpus, "SELECT rank, times_last, waiting_ns, made_others_wait_ns FROM straggler WHERE rank > 0") == [
        (1, 0, 600_000, 0),
        (2, 1, 0, 1_800_000),
        (3, 0, 600_000, 0),
    ]
    assert ask(
        corpus,
        "SELECT rank, members, last_rank, arrival_ns, waiting_ns, waiting_unseen_ns, transfer_ns "
        "FROM collectives WHERE instance_id = 1 ORDER BY rank",
    ) == [(rank, 4, 2, 600_000 * (rank == 2), 600_000 * (rank != 2), 0, 40_000) for rank in range(4)]


def test_ranks_with_unequal_counts_in_a_step(tmp_path: Path) -> None:
    """Rank 1 lacks the first collective of the step, and every rank waits for it at the second all the same."""
    ranks = {rank: sleeper(rank) for rank in range(4)}
    ranks[1] = ranks[1][1:]
    corpus = job(tmp_path, ranks)
    assert match_collectives(corpus) == [MatchedJob("job", (0, 1, 2, 3), 2, 2)]
    found = ask(corpus, "SELECT rank, collectives, waiting_ns, made_others_wait_ns FROM straggler ORDER BY rank")
    assert found == [(0, 2, 600_000, 0), (1, 1, 600_000, 0), (2, 2, 0, 1_800_000), (3, 2, 600_000, 0)]


def test_of_a_rank_by_itself_the_least_over_like_collectives_is_the_transfer(tmp_path: Path) -> None:
    corpus = job(tmp_path, {1: [reduce(100, 90), reduce(300, 50), reduce(500, 70, 8000), reduce(700, 200)]})
    assert match_collectives(corpus) == [MatchedJob("job", (1,), 4, 0)]
    assert ask(
        corpus,
        "SELECT members, last_rank, waiting_ns, waiting_unseen_ns, transfer_ns FROM collectives ORDER BY op_id",
    ) == [
        (1, None, 0, 40_000, 50_000),
        (1, None, 0, 0, 50_000),
        (1, None, 0, 0, 70_000),
        (1, None, 0, 150_000, 50_000),
    ]
    assert ask(corpus, "FROM straggler") == []


@pytest.mark.parametrize("selector", ["family=communication", "kind=gpu", "rank=1"])
@pytest.mark.parametrize("factor", [0.5, 3])
def test_of_a_rank_by_itself_transfers_scale_and_what_it_waits_stays(
    tmp_path: Path, selector: str, factor: float
) -> None:
    corpus = job(tmp_path, {1: [reduce(100, 90), reduce(300, 50), reduce(500, 70, 8000), reduce(700, 200)]})
    replayed = run.changed_replays(corpus, [switches.scale(f"{selector}:{factor}")])
    lasted = sorted(row["dur"] for row in replayed.to_pylist() if row["dur"] < 1_000_000)
    transfers = (50_000, 50_000, 70_000, 50_000)
    assert lasted == sorted(
        round(factor * ns) + rest for ns, rest in zip(transfers, (40_000, 0, 0, 150_000), strict=True)
    )
    dropped = run.changed_replays(corpus, [switches.drop(selector)])
    assert max(row["dur"] for row in dropped.to_pylist() if row["dur"] < 1_000_000) == 0


def test_two_ranks_of_four_wait_for_one_another_and_for_those_unseen(tmp_path: Path) -> None:
    corpus = job(tmp_path, {0: [reduce(100, 90), reduce(300, 50)], 3: [reduce(120, 70), reduce(300, 50)]})
    match_collectives(corpus)
    assert ask(
        corpus,
        "SELECT rank, waiting_ns, waiting_unseen_ns, transfer_ns FROM collectives ORDER BY instance_id, rank",
    ) == [(0, 20_000, 20_000, 50_000), (3, 0, 20_000, 50_000), (0, 0, 0, 50_000), (3, 0, 0, 50_000)]


def test_without_bytes_nothing_tells_the_transfer_of_a_rank_by_itself(tmp_path: Path) -> None:
    corpus = job(tmp_path, {0: [reduce(100, 90, None), reduce(300, 50, None)]})
    match_collectives(corpus)
    assert ask(corpus, "SELECT waiting_ns, waiting_unseen_ns, transfer_ns FROM collectives") == [(0, None, None)] * 2
    assert ask(corpus, "SELECT waiting_ns, transfer_ns, busbw_gbps FROM collective_summary") == [(None, None, None)]


def test_without_bytes_what_recorded_ranks_wait_for_one_another_is_told(tmp_path: Path) -> None:
    corpus = job(tmp_path, {0: [reduce(100, 90, None)], 3: [reduce(120, 70, None)]})
    match_collectives(corpus)
    told = "SELECT rank, waiting_recorded_ns, waiting_ns, transfer_ns FROM collective_summary ORDER BY rank"
    assert ask(corpus, told) == [(0, 20_000, None, None), (3, 0, None, None)]


def test_several_runs_of_one_rank_are_not_matched_with_each_other(tmp_path: Path) -> None:
    corpus = job(tmp_path, {rank: sleeper(rank) for rank in range(2)}, world=2)
    write(tmp_path / "again.json", sleeper(1))
    assert not ingest([tmp_path / "again.json"], corpus, rank=1, job="job", workers=1).failed
    assert [found.matched for found in match_collectives(corpus)] == [0, 0, 0]
    assert ask(corpus, "FROM straggler") == []


def test_a_job_that_grew_before_its_ingest_was_killed_has_no_old_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = job(tmp_path, {rank: sleeper(rank) for rank in range(2)}, world=3)
    run.replay(corpus)
    assert {rank for (rank,) in ask(corpus, "SELECT rank FROM replay_steps")} == {0, 1}
    publish = Staging.publish

    def killed(staging: Staging, trace_id: str) -> bool:
        publish(staging, trace_id)
        raise KeyboardInterrupt

    monkeypatch.setattr(Staging, "publish", killed)
    write(tmp_path / "job" / "rank2.json", sleeper(2), distributedInfo={"rank": 2, "world_size": 3, "backend": "nccl"})
    with pytest.raises(KeyboardInterrupt):
        ingest([tmp_path / "job" / "rank2.json"], corpus, workers=1)
    assert ask(corpus, "SELECT rank FROM traces ORDER BY rank") == [(0,), (1,), (2,)]
    assert ask(corpus, "SELECT rank FROM replay_steps") == []


def test_bandwidth_is_that_of_the_transfer(tmp_path: Path) -> None:
    """Two collectives move 4000 bytes in 50 and 40 us: 8000 / 90,000 GB/s, times 1.5 among four ranks."""
    corpus = job(tmp_path, {rank: sleeper(rank) for rank in range(4)})
    match_collectives(corpus)
    found = ask(corpus, "SELECT rank, total_ns, waiting_ns, transfer_ns, busbw_gbps FROM collective_summary")
    assert sorted(found) == [
        (rank, 90_000 + 600_000 * (rank != 2), 600_000 * (rank != 2), 90_000, 0.133) for rank in range(4)
    ]


def test_the_page_tells_waiting_from_transfer(tmp_path: Path) -> None:
    corpus = job(tmp_path, {rank: sleeper(rank) for rank in range(4)})
    match_collectives(corpus)
    with connect(corpus) as connection:
        (found,) = collect(connection, "corpus")["jobs"]
    sections = found["sections"]
    steps = sections["breakdown"]["data"]["steps"]
    assert sorted(zip(steps["exposed_waiting_ns"], steps["exposed_transfer_ns"], strict=True)) == [
        (0, 90_000),
        *[(600_000, 90_000)] * 3,
    ]
    assert sections["stragglers"]["note"].endswith("2 of 2 collectives matched.")


def test_the_waits_stay_when_the_job_is_replayed(tmp_path: Path) -> None:
    corpus = job(tmp_path, {rank: sleeper(rank) for rank in range(4)})
    match_collectives(corpus)
    query = "SELECT * EXCLUDE (waiting_replayed_ns, replayed_end) FROM collectives ORDER BY ALL"
    before = ask(corpus, query)
    assert ask(corpus, "SELECT count(waiting_replayed_ns), count(replayed_end) FROM collectives") == [(0, 0)]
    run.replay(corpus)
    assert ask(corpus, query) == before
    assert ask(corpus, "SELECT count(waiting_replayed_ns), count(replayed_end) FROM collectives") == [(8, 8)]
    assert match_collectives(corpus) == []


def test_what_only_waits_is_told_of_the_recording_the_replay_and_a_change(lumos: Run, tmp_path: Path) -> None:
    corpus = job(tmp_path, {rank: sleeper(rank) for rank in range(4)})
    run.replay(corpus)
    expected = [(rank, 600_000 * (rank != 2)) for rank in range(4)]
    assert ask(corpus, "SELECT rank, exposed_waiting_ns FROM breakdown ORDER BY rank") == expected
    for when in ("recorded", "replayed"):
        assert ask(corpus, f"SELECT rank, exposed_waiting_ns_{when} FROM replay_error ORDER BY rank") == expected
    changed = lumos("replay", "--corpus", corpus, "--scale", "family=communication:0.5", "--format", "json")
    found = [
        (row["exposed_waiting_ns_replayed"], row["exposed_waiting_ns_changed"]) for row in json.loads(changed.stdout)
    ]
    assert found == [(0, 0) if rank == 2 else (600_000, 600_000) for rank in range(4)]


@pytest.mark.parametrize("elements", [1000, None])
def test_what_a_rank_by_itself_waits_for_others_stays_in_its_replay(tmp_path: Path, elements: int | None) -> None:
    corpus = job(tmp_path, {0: [reduce(100, 90, elements), reduce(300, 50, elements)]})
    run.replay(corpus)
    query = "SELECT exposed_waiting_ns_recorded, exposed_waiting_ns_replayed, exposed_waiting_ns FROM replay_error"
    waiting = 40_000 if elements else None
    assert ask(corpus, f"{query} JOIN breakdown USING (trace_id)") == [(waiting, waiting, waiting)]


def test_a_rank_that_comes_later_is_matched_with_the_others(tmp_path: Path) -> None:
    ranks = {rank: sleeper(rank) for rank in range(4)}
    corpus = job(tmp_path, {rank: events for rank, events in ranks.items() if rank != 2})
    assert match_collectives(corpus) == [MatchedJob("job", (0, 1, 3), 2, 2)]
    job(tmp_path, ranks)
    assert match_collectives(corpus) == [MatchedJob("job", (0, 1, 2, 3), 2, 2)]
    assert ask(corpus, "SELECT rank, made_others_wait_ns FROM straggler WHERE made_others_wait_ns > 0") == [
        (2, 1_800_000)
    ]


@pytest.mark.parametrize("period_us", [500, 10_000, 100_000])
def test_clocks_that_drift_hide_no_collective(tmp_path: Path, period_us: int) -> None:
    """For up to 10 s both ranks come at once; the clock of the second one is 50 ppm too fast."""
    ranks = {
        rank: [reduce((100 + period_us * number) * (1 + 5e-5 * rank), 50) for number in range(100)] for rank in range(2)
    }
    corpus = job(tmp_path, ranks, world=2)
    assert match_collectives(corpus) == [MatchedJob("job", (0, 1), 100, 100)]
    assert ask(corpus, "SELECT round(drift_ppm, 1), residual_ns < 10 FROM clocks ORDER BY rank") == [
        (0, True),
        (50, True),
    ]
    assert ask(corpus, "SELECT max(arrival_ns) < 10 FROM collectives") == [(True,)]


def test_a_rank_that_lacks_a_collective_does_not_seem_to_drift(tmp_path: Path) -> None:
    ends = [100 + 1000 * number + 7 * number**2 for number in range(100)]
    corpus = job(
        tmp_path, {0: [reduce(at, 50) for at in ends], 1: [reduce(at, 50) for at in ends if at != ends[40]]}, 2
    )
    assert match_collectives(corpus) == [MatchedJob("job", (0, 1), 100, 99)]
    assert ask(corpus, "SELECT DISTINCT offset_ns, drift_ppm FROM clocks") == [(0, 0)]


def test_nothing_that_was_replayed_without_a_rank_outlives_its_coming(tmp_path: Path) -> None:
    ranks = {rank: sleeper(rank) for rank in range(4)}
    corpus = job(tmp_path, {rank: events for rank, events in ranks.items() if rank != 2})
    run.replay(corpus, path=True, gains=True)
    job(tmp_path, ranks)
    tables = ("clocks", "collectives", "edges", "replays", "replay_steps", "critical_path", "gains")
    assert {table: ask(corpus, f"FROM {table}") for table in tables} == {table: [] for table in tables}


def test_what_another_job_was_found_to_do_stays_when_a_rank_comes(tmp_path: Path) -> None:
    corpus = job(tmp_path, {rank: sleeper(rank) for rank in range(4)})
    run.replay(corpus)
    before = ask(corpus, "FROM replay_steps ORDER BY ALL")
    write(tmp_path / "other.json", sleeper(1))
    assert not ingest([tmp_path / "other.json"], corpus, rank=1, job="another", workers=1).failed
    assert before
    assert ask(corpus, "FROM replay_steps ORDER BY ALL") == before


def test_figures_of_kernels_do_not_depend_on_who_asked_for_waits_before(tmp_path: Path) -> None:
    asked = pl.DataFrame({"family": ["communication"], "operator": ["all_reduce"], "bytes": [4000], "ranks": [4]})
    fresh, matched = (job(tmp_path / name, {rank: sleeper(rank) for rank in range(4)}) for name in ("fresh", "matched"))
    match_collectives(matched)
    assert estimate_kernels(fresh, asked).equals(estimate_kernels(matched, asked))


def test_a_command_that_reads_waits_finds_them_out_once_and_says_so(lumos: Run, tmp_path: Path) -> None:
    corpus = job(tmp_path, {rank: sleeper(rank) for rank in range(4)})
    said = "matched 2 of 2 collectives of job job on 4 ranks\n"
    asked = ("sql", "SELECT sum(waiting_ns) AS waiting_ns FROM straggler", "--corpus", corpus, "--format", "csv")
    assert lumos("sql", "SELECT count(*) FROM gap", "--corpus", corpus).stderr == ""
    for expected in (said, ""):
        done = lumos(*asked)
        assert (done.returncode, done.stdout, done.stderr) == (0, "waiting_ns\n1800000\n", expected)


@pytest.mark.parametrize("options", [[], ["--view", "straggler"], ["--html", "page.html"], ["--output", "views"]])
def test_reports_find_out_who_waits(lumos: Run, tmp_path: Path, options: list[str]) -> None:
    corpus = job(tmp_path, {rank: sleeper(rank) for rank in range(4)})
    done = lumos("report", *options, "--corpus", corpus)
    assert done.returncode == 0
    assert done.stderr.startswith("matched 2 of 2 collectives of job job on 4 ranks\n")


def test_a_rank_by_itself_is_told(lumos: Run, tmp_path: Path) -> None:
    corpus = job(tmp_path, {0: sleeper(0)})
    done = lumos("sql", "FROM collective_summary", "--corpus", corpus)
    assert done.stderr == "job: rank 0 by itself; what a collective takes longer than the shortest alike is waiting\n"


def test_where_nothing_can_be_written_the_answer_comes_without_waits(tmp_path: Path) -> None:
    corpus = job(tmp_path, {rank: sleeper(rank) for rank in range(4)})
    done = subprocess.run(
        command("sql", "SELECT rank, transfer_ns FROM collective_summary", "--corpus", corpus, "--format", "csv"),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
    )
    assert (done.returncode, sorted(done.stdout.split())) == (0, ["0,", "1,", "2,", "3,", "rank,transfer_ns"])
    assert done.stderr.startswith("collectives are not matched and waiting is unknown, because ")
    assert f"{corpus}: cannot be written" in done.stderr
    assert done.stderr.count("\n") == 1


def test_what_waits_for_a_rank_whose_recording_ended_is_no_transfer(tmp_path: Path) -> None:
    # Rank 3 is always last, by 100 us; its recording ends after the third of six reductions of 10 us.
    late, early = ([float(300 * k + wait) for k in range(6)] for wait in (100, 0))
    ranks = {rank: [reduce(ts, 110.0) for ts in early] for rank in range(3)}
    ranks[3] = [reduce(ts, 10.0) for ts in late[:3]]
    corpus = job(tmp_path, ranks)
    match_collectives(corpus)
    with connect(corpus) as connection:
        told = connection.sql(
            "SELECT members, waiting_ns, waiting_unseen_ns, transfer_ns FROM collectives WHERE rank = 0 ORDER BY op_id"
        ).fetchall()
    assert told[:3] == [(4, 100_000, 0, 10_000)] * 3
    assert told[3:] == [(3, 0, 100_000, 10_000)] * 3
