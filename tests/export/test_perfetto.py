"""The timelines in Perfetto's own trace processor: nothing is lost, nothing is wrong."""

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

import lumos_df
from lumos_df.export import ExportKind
from lumos_df.export.job_ranks import HIDDEN_KINDS
from lumos_df.export.timeline import export
from lumos_df.graph import run
from lumos_df.schema import GPU_KINDS
from lumos_df.trace.ingest import ingest
from tests.conftest import SAMPLES
from tests.export.perfetto import MISSING, query
from tests.real import ABSENT, REAL

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {MISSING}")

ERRORS = "SELECT name, value FROM stats WHERE severity = 'error' AND value > 0"
SLICES = """
SELECT p.pid, t.tid, s.ts, s.dur, s.name FROM slice s
JOIN thread_track tt ON tt.id = s.track_id JOIN thread t USING (utid) JOIN process p USING (upid)
"""
FLOWS = """
SELECT a.ts <= b.ts, extract_arg(a.arg_set_id, 'args.op_id'), extract_arg(b.arg_set_id, 'args.op_id')
FROM flow JOIN slice a ON a.id = slice_out JOIN slice b ON b.id = slice_in
"""
LAUNCHES = f"""
SELECT p.op_id, o.op_id FROM operators o JOIN operators p ON p.trace_id = o.trace_id AND p.op_id = o.parent_id
WHERE o.kind IN {GPU_KINDS} AND p.kind NOT IN {HIDDEN_KINDS} AND p.ts <= o.ts
"""
COUNTERS = """
SELECT p.pid, k.name, c.ts, c.value FROM counter c JOIN process_counter_track k ON k.id = c.track_id
JOIN process p USING (upid)
"""


@pytest.fixture(scope="module")
def corpus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job, replayed with its critical path."""
    source = SAMPLES / request.param
    if not source.is_dir():
        if not REAL.is_dir():
            pytest.skip(ABSENT)
        source = REAL / request.param
    corpus = tmp_path_factory.mktemp(request.param) / "corpus"
    assert not ingest([source], corpus, workers=1).failed
    run.replay(corpus, path=True)
    return corpus


@pytest.mark.parametrize(
    ("corpus", "what"),
    [
        ("gpu_generated", ExportKind.PERFETTO),
        ("gpu_generated", ExportKind.CRITICAL_PATH),
        ("cpu_ddp", ExportKind.CRITICAL_PATH),
        ("megatron_tp8_forward", ExportKind.PERFETTO),
        ("megatron_tp8_forward", ExportKind.CRITICAL_PATH),
    ],
    indirect=["corpus"],
)
def test_perfetto_shows_what_was_written(corpus: Path, what: ExportKind) -> None:
    file = corpus.parent / f"{what}.json"
    export(corpus, what, file)
    events = json.loads(file.read_text())["traceEvents"]
    errors, slices, flows, counters = query(file.read_bytes(), ERRORS, SLICES, FLOWS, COUNTERS)
    assert errors == []
    written: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        written[event["ph"]].append(event)

    def ns(microseconds: float) -> int:
        return round(microseconds * 1000)

    assert Counter(slices) == Counter((e["pid"], e["tid"], ns(e["ts"]), ns(e["dur"]), e["name"]) for e in written["X"])
    # Perfetto's reader of numbers may miss the last digit.
    assert Counter((pid, name, ts, round(float(value or 0), 6)) for pid, name, ts, value in counters) == Counter(
        (e["pid"], f"{e['name']} {series}", ns(e["ts"]), round(value, 6))
        for e in written["C"]
        for series, value in e["args"].items()
    )
    assert len(flows) == len(written["s"])
    assert all(forward for forward, _, _ in flows)
    if what is ExportKind.PERFETTO:
        assert Counter((src, dst) for _, src, dst in flows) == Counter(
            lumos_df.connect(corpus).sql(LAUNCHES).fetchall()
        )
