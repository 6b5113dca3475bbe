"""Time that nothing recorded explains: the same in a replay's figures, in critical paths and on screens."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from lumos_df.corpus.catalog import connect
from lumos_df.graph import run
from lumos_df.trace.ingest import ingest
from tests.conftest import Run
from tests.emulator import Job as Emulated
from tests.emulator import simulate, write
from tests.graph.test_truth import BRIEF
from tests.trace.literal import Event, corpus_of, kernel, launch, rows, x

AHEAD = Emulated(ranks=1, steps=1, batch=32)
"""The host issues a step in a tenth of the time that the GPU takes for it."""
MISSED_US = 1_000
"""The recording begins so late in the step."""


def figures(corpus: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the only replayed step, and what its critical path is made of, ns."""
    run.replay(corpus, path=True)
    with connect(corpus) as connection:
        (step,) = rows(connection, "FROM replay_error")
        pieces = rows(connection, "SELECT kind, total_ns FROM critical_path_summary")
    return step, {kind: sum(row["total_ns"] for row in pieces if row["kind"] == kind) for kind in KINDS}


KINDS = ("unknown", "unexplained")


def test_a_recording_that_begins_while_the_gpu_works(lumos: Run, tmp_path: Path) -> None:
    (file,) = write(simulate(AHEAD), BRIEF, tmp_path / "traces")
    trace = json.loads(gzip.decompress(file.read_bytes()))
    timed = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    begin = min(event["ts"] for event in timed) + MISSED_US
    calls = [event for event in timed if event["cat"] == "cuda_runtime"]
    seen = {event["args"]["correlation"] for event in calls if event["ts"] >= begin}
    on_gpu = ("kernel", "gpu_memcpy", "gpu_memset")
    kept = [
        event
        for event in timed
        if (event["args"]["correlation"] in seen if event["cat"] in on_gpu else event["ts"] >= begin)
        and not event["name"].startswith("ProfilerStep#")
    ]
    corpus = tmp_path / "corpus"
    (tmp_path / "rank0.json").write_text(json.dumps(trace | {"traceEvents": kept}))
    assert not ingest([tmp_path / "rank0.json"], corpus, workers=1).failed
    late = min(e["ts"] for e in kept if e["cat"] in on_gpu) - min(e["ts"] for e in kept if e["cat"] != "overhead")
    step, pieces = figures(corpus)
    assert pieces["unknown"] == pytest.approx(1000 * late, abs=1000)
    assert step["unknown_share_pct"] == pytest.approx(100 * pieces["unknown"] / step["replayed_ns"], abs=1e-3)
    assert step["unknown_share_pct"] > 10
    assert abs(step["error_pct"]) < 1
    told = f"nothing recorded explains {step['unknown_share_pct']:.0f}% of the critical path of "
    assert told in " ".join(lumos("replay", "--corpus", corpus).stdout.split())
    assert "unknown: nothing recorded, before" in " ".join(lumos("critical-path", "--corpus", corpus).stdout.split())


def test_gaps_between_kernels_whose_launches_are_not_recorded(tmp_path: Path) -> None:
    """Ten kernels of 100 us begin every 150 us, and nothing says why."""
    corpus_of(tmp_path, [kernel("gemm", 150 * number, 100) for number in range(10)])
    step, pieces = figures(tmp_path / "corpus")
    assert pieces == {"unknown": 9 * 50_000, "unexplained": 0}
    assert step["unknown_share_pct"] == pytest.approx(100 * 450 / 1450, abs=1e-3)
    assert step["unexplained_ns"] == 0


def test_what_a_launch_explains_is_not_unknown(tmp_path: Path) -> None:
    events: list[Event] = [launch(10, 5, 1), kernel("gemm", 20, 100, correlation=1)]
    corpus_of(tmp_path, events)
    step, pieces = figures(tmp_path / "corpus")
    assert (pieces["unknown"], step["unknown_share_pct"]) == (0, 0)


def test_what_the_host_did_before_the_first_call_that_copies_is_known(tmp_path: Path) -> None:
    """The first copy begins later in its call than the others; seconds before that call are the host's all the same."""
    begins = [(2_000_000 + 1_000 * number, 60 if number == 0 else 40) for number in range(8)]
    events = [x("cudaEventCreate", "cuda_runtime", 0, 5, correlation=99)]
    for number, (at, later) in enumerate(begins):
        events += [
            x("cudaMemcpyAsync", "cuda_runtime", at, 500, correlation=number + 1),
            x("Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", at + later, 430, 7, correlation=number + 1,
              device=0, stream=7, bytes=64),
        ]  # fmt: skip
    corpus_of(tmp_path, events)
    step, pieces = figures(tmp_path / "corpus")
    assert pieces["unknown"] == 0
    assert step["unknown_share_pct"] == 0
    assert step["replayed_ns"] == pytest.approx(step["recorded_ns"], abs=20_000)
    run.replay(tmp_path / "corpus", path=True)
    with connect(tmp_path / "corpus") as connection:
        (longest,) = rows(connection, "FROM critical_path ORDER BY dur DESC LIMIT 1")
    assert (longest["kind"], longest["dur"]) == ("host", 1_999_995_000)
