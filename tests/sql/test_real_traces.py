"""The views on real traces: the reference's figures to the nanosecond, and what must hold for any trace."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lumos_df.corpus.catalog import connect
from lumos_df.trace.ingest import ingest
from tests.real import REAL, SETS, jobs

REFERENCE = REAL.parent / "reference" / "gpu_time.json"

Ask = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def ask(real_corpus: Path) -> Iterator[Ask]:
    with connect(real_corpus) as connection:
        yield lambda sql: connection.execute(sql).fetchall()


@pytest.mark.skipif(not REFERENCE.exists(), reason=f"no reference figures at {REFERENCE}")
def test_gpu_time_is_that_of_the_reference(ask: Ask) -> None:
    reference = json.loads(REFERENCE.read_text("utf-8"))["files"]
    found = gpu_time(ask, REAL)
    for file, ranks in reference.items():
        assert found.get(file, []) == [ranks[rank] for rank in sorted(ranks, key=int)], file


@pytest.mark.parametrize("job", [job for folder in SETS[1:] for job in jobs(folder)], ids=lambda job: job.name)
def test_gpu_time_of_a_job_of_another_set_is_that_of_its_reference(tmp_path: Path, job: Path) -> None:
    suffix = job.parent.name.removeprefix(REAL.name)
    reference = job.parent.parent / "reference" / f"gpu_time{suffix}.json"
    if not reference.exists():
        pytest.skip(f"no reference figures at {reference}")
    files = json.loads(reference.read_text("utf-8"))["files"]
    assert not ingest([job], tmp_path / "corpus", workers=1).failed
    with connect(tmp_path / "corpus") as connection:
        found = gpu_time(lambda sql: connection.execute(sql).fetchall(), job.parent)
    assert found == {
        file: [ranks[rank] for rank in sorted(ranks, key=int)]
        for file, ranks in files.items()
        if file.startswith(f"{job.name}/")
    }


def gpu_time(ask: Ask, folder: Path) -> dict[str, list[dict[str, int]]]:
    """Return the figures of `gpu_time` of each file, by its place in `folder` without suffixes; one dict a rank."""
    names = [name for name, *_ in ask("DESCRIBE gpu_time")][3:]
    found: dict[str, list[dict[str, int]]] = {}
    for path, *values in ask(
        "SELECT path, gpu_time.* EXCLUDE (job, trace_id, rank) "
        "FROM gpu_time JOIN traces USING (trace_id) ORDER BY traces.rank"
    ):
        file = Path(path).relative_to(folder)
        found.setdefault(f"{file.parent}/{file.name.split('.')[0]}", []).append(dict(zip(names, values, strict=True)))
    return found


HOLDS = {
    "the four parts of a step add up": """
        FROM breakdown
        WHERE step_ns <> exposed_compute_ns + exposed_communication_ns + overlapped_ns + other_ns
           OR other_ns <> memory_ns + idle_ns
           OR least(exposed_compute_ns, exposed_communication_ns, overlapped_ns, memory_ns, idle_ns) < 0
    """,
    "idle time by step and cause is the idle time": """
        FROM (
          SELECT trace_id, sum(idle_ns) AS by_step_ns, sum(host_wait_ns + kernel_wait_ns + other_ns) AS by_cause_ns
          FROM idle GROUP BY trace_id
        ) RIGHT JOIN gpu_time USING (trace_id)
        WHERE coalesce(by_step_ns, 0) <> idle_ns OR coalesce(by_cause_ns, 0) <> idle_ns
    """,
    "gaps are the idle time of the streams": """
        FROM (SELECT trace_id, device, stream, sum(dur) AS gap_ns FROM gap GROUP BY ALL)
        RIGHT JOIN stream_summary USING (trace_id, device, stream)
        WHERE coalesce(gap_ns, 0) <> idle_ns
    """,
    "every millisecond's kernel time is the kernel time": """
        FROM (SELECT trace_id, sum(busy_ns) AS kernel_ns FROM sm_utilization GROUP BY trace_id)
        JOIN gpu_time USING (trace_id)
        WHERE kernel_ns <> compute_ns + communication_ns - overlap_ns
    """,
    "own time is not negative, and within the whole": "FROM operator_summary WHERE self_ns NOT BETWEEN 0 AND total_ns",
    "time alone is within the time of all": "FROM annotation_summary WHERE alone_ns NOT BETWEEN 0 AND gpu_ns",
    "runs of kernels come again and again": "FROM kernel_sequence WHERE calls < 2 OR kernels NOT BETWEEN 2 AND 5",
    "queues are not negative and end empty": """
        FROM (
          SELECT min(depth) AS lowest, arg_max(depth, ts) AS last
          FROM queue_depth GROUP BY trace_id, device, stream
        ) WHERE lowest < 0 OR last <> 0
    """,
    "who waits is waited for": """
        FROM (
          SELECT
            sum(waiting_ns) AS waiting_ns,
            sum(made_others_wait_ns) AS made_others_wait_ns,
            sum(times_last) AS times_last,
            sum(collectives) AS members
          FROM straggler GROUP BY job
        ) WHERE waiting_ns <> made_others_wait_ns OR times_last NOT BETWEEN 1 AND members / 2
    """,
}


@pytest.mark.parametrize("broken", HOLDS.values(), ids=HOLDS.keys())
def test_what_holds_for_any_trace(ask: Ask, broken: str) -> None:
    assert ask(f"SELECT * {broken}") == []


COUNTS = {
    "every GPU row is summed once": (
        "SELECT sum(kernels + memcpys + memsets) FROM traces",
        [
            "SELECT sum(gpu_rows) FROM gpu_time",
            "SELECT sum(gpu_rows) FROM stream_summary",
            "SELECT sum(calls) FROM kernel_summary",
        ],
    ),
    "every kernel is a row of kernel": ("SELECT sum(kernels) FROM traces", ["SELECT count(*) FROM kernel"]),
    "every launched row is a row of launch": (
        """
        SELECT count(*)
        FROM operators AS gpu
        JOIN operators AS call ON call.trace_id = gpu.trace_id AND call.op_id = gpu.parent_id
        WHERE call.kind = 'runtime' AND gpu.kind IN ('kernel', 'memcpy', 'memset')
        """,
        ["SELECT count(*) FROM launch"],
    ),
    "every allocation is a row of the timeline": (
        "SELECT count(*) FROM memory_events",
        ["SELECT count(*) FROM memory_timeline"],
    ),
}


@pytest.mark.parametrize(("whole", "parts"), COUNTS.values(), ids=COUNTS.keys())
def test_nothing_is_lost(ask: Ask, whole: str, parts: list[str]) -> None:
    assert [ask(part) for part in parts] == [ask(whole)] * len(parts)


def test_stragglers_by_hand(ask: Ask) -> None:
    """Step 5 of dlrm_4gpu has four all-reduces on each rank.

    Durations in microseconds, rank by rank: 310, 5020, 6266, 4888; 10716, 8762, 932, 8780; 9870, 8263, 878, 8127;
    9286, 7532, 1166, 7557. Rank 0 is last at the first, rank 2 at the others.
    """
    found = ask(
        "SELECT rank, count(*), count(*) FILTER (rank = last_rank), sum(waiting_ns)::BIGINT // 1000 "
        "FROM collectives JOIN operators USING (trace_id, rank, op_id) JOIN traces USING (trace_id, rank) "
        "WHERE job = 'dlrm_4gpu' AND step = 5 AND collective = 'all_reduce' AND members > 1 GROUP BY rank ORDER BY rank"
    )
    assert found == [
        (0, 4, 1, 9784 + 8992 + 8120),
        (1, 4, 0, 4710 + 7830 + 7385 + 6366),
        (2, 4, 3, 5956),
        (3, 4, 0, 4578 + 7848 + 7249 + 6391),
    ]
    made = ask("SELECT sum(made_others_wait_ns)::BIGINT FROM straggler WHERE job = 'dlrm_4gpu'")
    assert made == ask(
        "SELECT sum(waiting_ns)::BIGINT FROM collectives JOIN traces USING (trace_id) WHERE job = 'dlrm_4gpu'"
    )
