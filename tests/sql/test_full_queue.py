"""Time blocked on a full launch queue, of emulated jobs whose hosts had to wait for room."""

from pathlib import Path

import pytest

import lumos_df
from lumos_df.graph import run
from lumos_df.trace.ingest import ingest
from tests.emulator import Job, Profiler, simulate, write


@pytest.mark.parametrize("queue_depth", [300, 0])
def test_calls_that_lasted_long_beside_a_full_queue_were_blocked(tmp_path: Path, queue_depth: int) -> None:
    job = Job(ranks=1, steps=2, batch=32, layers=8, queue_depth=queue_depth)
    write(simulate(job), Profiler(stacks=False, memory=False), tmp_path / "traces")
    corpus = tmp_path / "corpus"
    assert not ingest([tmp_path / "traces"], corpus, workers=1).failed
    ask = lumos_df.connect(corpus).sql
    assert ask("FROM full_queue").fetchall() == []
    run.replay(corpus)
    ((blocked,),) = ask("SELECT coalesce(sum(blocked_ns), 0)::BIGINT FROM full_queue").fetchall()
    ((long,),) = ask(
        "SELECT sum(greatest(0, dur - usual))::BIGINT "
        "FROM (SELECT dur, median(dur) OVER () AS usual FROM operators WHERE name ILIKE '%LaunchKernel%')"
    ).fetchall()
    if queue_depth:
        assert blocked > 0
        assert blocked == pytest.approx(long, rel=0.05)
    else:
        assert blocked == 0
