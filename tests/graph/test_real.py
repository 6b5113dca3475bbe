"""The graph of real traces: no circle, a replay close to the recording, paths that add up, and the laws of physics."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lumos_df.corpus.catalog import connect
from lumos_df.graph import critical_path as paths
from lumos_df.graph import switches
from lumos_df.graph.collective_waits import waits
from lumos_df.graph.event_graph import event_graph, run
from lumos_df.graph.job import Job, Played, groups, load
from lumos_df.graph.matching import match_collectives
from lumos_df.graph.replay import Replay
from lumos_df.graph.replayed_tables import edge_columns, step_columns
from lumos_df.graph.simulate.forward import UNSET
from lumos_df.schema.codes import HOST_PIECE, KERNEL_PIECE, MEMORY_PIECE, TRANSFER_PIECE
from lumos_df.schema.words import EDGE_KINDS
from tests.graph.circles import goes_round
from tests.graph.paths import critical_paths

EXPLAINED = {("megatron_tp2_train", 1)}
"""Ranks that docs/graph.md explains one by one: collectives hand on what rank 0 loses to another process on its GPU."""


def name_of(replay: Replay) -> tuple[str, int]:
    return replay.graph.rows.job, replay.graph.rows.rank


@pytest.fixture(scope="module")
def played(real_jobs: list[Job]) -> list[tuple[Job, Played]]:
    return [(job, job.replay()) for job in real_jobs]


def test_the_circle_finder_finds_circles() -> None:
    assert goes_round([(0, 1), (1, 2), (2, 0)])
    assert not goes_round([(0, 1), (0, 2), (1, 2)])


def test_no_trace_has_a_circle_and_no_edge_was_dropped(real_jobs: list[Job]) -> None:
    for job in real_jobs:
        # All ranks of a job at once: a collective ties them together.
        whole, found = [], waits([graph.rows for graph in job.graphs], job.instances)
        for k, graph in enumerate(job.graphs):
            columns = edge_columns(job, found, k)
            other = {one.rows.trace_id: int(job.event_graph.base[place]) for place, one in enumerate(job.graphs)}
            base = np.array([other[name] for name in columns["src_trace_id"].to_pylist()], np.int64)
            whole += list(
                zip((base + columns["src"]).tolist(), (job.event_graph.base[k] + columns["dst"]).tolist(), strict=True)
            )
            assert graph.dropped <= len(graph.edges) // 1000, graph.rows.path
        assert not goes_round(whole), job.graphs[0].rows.path


def test_every_kind_of_edge_is_found_and_says_whether_it_was_recorded(real_jobs: list[Job]) -> None:
    kinds: set[str] = set()
    for job in real_jobs:
        found = waits([graph.rows for graph in job.graphs], job.instances)
        for k in range(len(job.graphs)):
            columns = edge_columns(job, found, k)
            kinds |= set(columns["kind"].to_pylist())
            assert set(columns["evidence"].to_pylist()) <= {"recorded", "inferred"}
    assert kinds == set(EDGE_KINDS)


def test_replay_comes_close_to_every_recorded_step(played: list[tuple[Job, Played]]) -> None:
    rows = [(one, columns(one)) for _, result in played for one in result.replays]
    recorded = np.concatenate([row["recorded_ns"] for _, row in rows])
    replayed = np.concatenate([row["replayed_ns"] for _, row in rows])
    error = 100 * np.abs(replayed - recorded) / recorded
    explained = np.concatenate([np.full(len(row["recorded_ns"]), name_of(one) in EXPLAINED) for one, row in rows])
    assert error.mean() <= 0.5
    assert error[~explained].max() <= 3
    assert error.max() <= 4
    unexplained = np.concatenate([row["unexplained_ns"] for _, row in rows])
    assert (100 * unexplained / recorded).mean() <= 1
    late = np.concatenate([row["start_error_p99_ns"] for _, row in rows])
    assert (100 * late / recorded).mean() <= 1


def test_each_part_of_the_breakdown_of_a_job_is_close(played: list[tuple[Job, Played]]) -> None:
    for job, result in played:
        for one in result.replays:
            allowed = PARTS_OFF.get(job.graphs[0].rows.job, 0.03)
            assert max(off.max() for off in parts_off(one).values()) <= allowed, one.graph.rows.path


PARTS_OFF = {"megatron_tp2_train": 0.045, "torchrec_qcomm5a": 0.032}
"""Of the step. Rank 0 of the one shares its GPU with another process, which stops it at times that no edge knows, and
collectives hand that on; in the other a copy begins when a product of two waves of blocks has half of them left."""


def parts_off(replay: Replay) -> dict[str, Any]:
    """By how much each part of each step is off, as a share of the step."""
    row = columns(replay)
    return {
        part: np.abs(row[f"{part}_ns_replayed"] - row[f"{part}_ns_recorded"]) / row["recorded_ns"]
        for part in ("exposed_compute", "overlapped", "exposed_communication", "other")
    }


def columns(replay: Replay) -> dict[str, Any]:
    return step_columns(replay, [])


def test_each_part_of_the_breakdown_of_a_rank_by_itself_is_close(real_jobs: list[Job]) -> None:
    for job in real_jobs:
        for graph in job.graphs:
            (one,) = Job([graph], None, event_graph([graph])).replay().replays
            for part, off in parts_off(one).items():
                assert off.max() <= 0.03, (graph.rows.path, part)


def test_the_four_parts_add_up_to_the_step(played: list[tuple[Job, Played]]) -> None:
    for _, result in played:
        for one in result.replays:
            for of, length in (
                (one.recorded, one.steps.high - one.steps.low),
                (one.replayed, one.high - one.low),
            ):
                assert (of.exposed_compute + of.overlapped + of.exposed_communication + of.other == length).all()


WAITING_OFF = {
    "megatron_tp8_forward": 0.01,
    "dlrm_4gpu": 0.04,
    "straggler_4gpu": 0.01,
    "sst_sleep_pl_dense_after_backward_2": 0.01,
}
"""Jobs whose ranks wait long for others, and how far that may be off."""


def test_waiting_of_each_rank_is_reproduced(played: list[tuple[Job, Played]]) -> None:
    waiting = [one for one in played if one[0].graphs[0].rows.job in WAITING_OFF]
    assert len(waiting) == 2
    for job, result in waiting:
        found = job.instances
        assert found is not None
        for k, graph in enumerate(job.graphs):
            own = found.trace == k
            transfer = found.transfer[found.instance[own]]
            node = job.event_graph.base[k] + found.row[own]
            waited = graph.rows.dur[found.row[own]].sum() - transfer.sum()
            again = (result.run.end[node] - result.run.start[node]).sum() - transfer.sum()
            # Nobody waits long for the rank that sleeps, and that rank for nobody.
            assert again == pytest.approx(waited, rel=WAITING_OFF[graph.rows.job], abs=20e6), graph.rows.path


@pytest.mark.parametrize("set_", ["real_corpus", "later_corpus"])
def test_stragglers_wait_as_collectives_say_and_sleeping_ranks_are_named(
    set_: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    corpus = Path(shutil.copytree(request.getfixturevalue(set_), tmp_path / "corpus"))
    match_collectives(corpus)
    with connect(corpus) as connection:
        told = connection.execute(
            "SELECT job, rank, sum(waiting_ns), sum(made_others_wait_ns) FROM straggler GROUP BY ALL"
        ).fetchall()
        known = connection.execute(
            "SELECT traces.job, collectives.rank, sum(waiting_ns) FROM collectives JOIN traces USING (trace_id) "
            "WHERE members > 1 GROUP BY ALL"
        ).fetchall()
    assert known
    assert {(job, rank, waits) for job, rank, waits, _ in told} >= set(known)
    for sleeping in {job for job, *_ in told} & set(SLEEPING):
        assert max((others, rank) for job, rank, _, others in told if job == sleeping)[1] == SLEEPING[sleeping]


SLEEPING = {"straggler_4gpu": 2, "sst_sleep_pl_dense_after_backward_2": 2}
"""Jobs of which one rank sleeps, and which."""


def test_a_job_whose_sleeping_rank_is_awake_is_like_the_healthy_job(real_corpus: Path, later_corpus: Path) -> None:
    def job_named(corpus: Path, name: str) -> Job:
        jobs = [load(corpus, ids) for ids in groups(corpus)]
        (job,) = [job for job in jobs if job.graphs[0].rows.job == name]
        return job

    healthy = job_named(real_corpus, "dlrm_4gpu").replay().replays
    asleep = job_named(later_corpus, "straggler_4gpu")
    awake = asleep.replay(switches.changed(asleep.event_graph, asleep.graphs, [switches.no_wait("rank=2")])).replays
    for one, other in zip(awake, healthy, strict=True):
        assert (one.high - one.low).sum() == pytest.approx((other.high - other.low).sum(), rel=0.15)


def test_members_of_a_collective_end_together(played: list[tuple[Job, Played]]) -> None:
    for job, result in played:
        if job.instances is None:
            continue
        node = job.event_graph.base[job.instances.trace] + job.instances.row
        kept = node[job.event_graph.instance[node] >= 0]
        ends: dict[int, set[int]] = {}
        for one in kept.tolist():
            ends.setdefault(int(job.event_graph.instance[one]), set()).add(int(result.run.end[one]))
        assert all(len(moments) == 1 for moments in ends.values())


def test_every_critical_path_adds_up_to_its_step_exactly(played: list[tuple[Job, Played]]) -> None:
    for job, result in played:
        for own, one in zip(critical_paths(job, result), result.replays, strict=True):
            for step, path in enumerate(own):
                assert path.dur.sum() == one.high[step] - one.low[step]
                assert (path.begin[1:] == path.begin[:-1] + path.dur[:-1]).all()
                assert (path.dur > 0).all()


def test_nothing_could_start_earlier_than_it_may_start_later(played: list[tuple[Job, Played]]) -> None:
    for job, result in played:
        room = paths.slack(result.event_graph, result.run, job.graphs, result.replays)
        assert (room[room != UNSET] >= 0).all(), job.graphs[0].rows.path


def test_longer_work_never_ends_anything_earlier(played: list[tuple[Job, Played]]) -> None:
    for job, result in played:
        for text in ("kind=gpu:1.3", "kind=host:1.3", "family=gemm:2"):
            slower = run(switches.changed(job.event_graph, job.graphs, [switches.scale(text)]))
            assert (slower.end[job.event_graph.order] >= result.run.end[job.event_graph.order]).all()


def test_scaling_every_duration_by_two_scales_every_moment_by_two(played: list[tuple[Job, Played]]) -> None:
    for job, result in played:
        once = job.event_graph
        floor = np.where(once.floor == UNSET, once.floor, 2 * once.floor)
        twice = run(replace(once, own=2 * once.own, lag=2 * once.lag, transfer=2 * once.transfer, floor=floor))
        assert (twice.end[once.order] == 2 * result.run.end[once.order]).all()


def test_without_gpu_time_the_host_is_what_is_left_and_the_other_way_round(played: list[tuple[Job, Played]]) -> None:
    for job, _ in played:
        for text, gone in (
            ("kind=gpu:0", (KERNEL_PIECE, TRANSFER_PIECE, MEMORY_PIECE)),
            ("kind=host:0", (HOST_PIECE,)),
        ):
            # Waiting for ranks that nobody recorded would stay.
            seen = replace(
                job.event_graph,
                waited=np.zeros_like(job.event_graph.waited),
                unseen=np.zeros_like(job.event_graph.unseen),
            )
            changed = switches.changed(seen, job.graphs, [switches.scale(text)])
            again = job.replay(changed)
            for own in critical_paths(job, again):
                for path in own:
                    # The last piece is the host's way from the last call to the end of the mark.
                    left = path.dur[:-1][np.isin(path.kind[:-1], gone)].sum()
                    assert left == 0, (job.graphs[0].rows.path, text)
