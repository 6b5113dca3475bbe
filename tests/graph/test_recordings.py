"""Real training on an H100 (tests/recordings), which no rule was made for before it was recorded."""

from pathlib import Path

import pytest

import lumos_df
from lumos_df.graph import run
from lumos_df.trace.ingest import ingest

RECORDINGS = Path(__file__).parent.parent / "recordings"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recordings") / "corpus"
    assert not ingest([RECORDINGS / kind for kind in ("grid", "plain", "captured")], folder, workers=1).failed
    run.replay(folder)
    return folder


def test_every_replay_is_within_a_percent(corpus: Path) -> None:
    errors = lumos_df.connect(corpus).sql("SELECT abs(error_pct) FROM replay_error WHERE step IS NOT NULL").fetchall()
    assert len(errors) == 13 * 3
    assert max(error for (error,) in errors) < 1


def test_the_host_of_a_job_that_its_gpu_bounds_only_waits_for_room_in_the_queue(corpus: Path) -> None:
    """The GPU of this BERT in float32 is busy all the time."""
    ask = lumos_df.connect(corpus).sql
    bert = "(SELECT trace_id FROM traces WHERE path LIKE '%plain/bert%')"
    ((blocked,),) = ask(f"SELECT sum(blocked_ns) FROM full_queue WHERE trace_id = {bert}").fetchall()
    ((host,),) = ask(f"SELECT sum(dur) FROM step WHERE trace_id = {bert} AND step IS NOT NULL").fetchall()
    assert blocked > 0.4 * host
