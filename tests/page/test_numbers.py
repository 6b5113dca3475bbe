"""The numbers of a page are those that SQL gives."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lumos_df.corpus.catalog import connect
from lumos_df.page.write import write
from tests.page.browser import data_of, job_of

GPU_JOB = "gpu_generated"


@pytest.fixture(scope="module")
def page(played_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "page.html"
    write(played_corpus, file)
    return file


def ask(corpus: Path, query: str) -> list[tuple[Any, ...]]:
    with connect(corpus) as connection:
        rows: list[tuple[Any, ...]] = connection.execute(query).fetchall()
    return rows


def rows_of(table: dict[str, list[Any]], *columns: str) -> list[tuple[Any, ...]]:
    return list(zip(*(table[column] for column in columns), strict=True))


def test_every_job_has_its_summary(page: Path, played_corpus: Path) -> None:
    with connect(played_corpus) as connection:
        expected = connection.sql("FROM corpus_summary ORDER BY gpu_rows DESC").pl().to_dicts()
    assert data_of(page)["summaries"] == expected
    assert [job["summary"] for job in data_of(page)["jobs"]] == expected


@pytest.mark.parametrize("job", ["cpu_ddp", GPU_JOB])
def test_the_bars_are_the_breakdown(page: Path, played_corpus: Path, job: str) -> None:
    found = job_of(page, job)
    steps = found["sections"]["breakdown"]["data"]["steps"]
    steps["rank"] = [found["traces"]["rank"][place] for place in steps["place"]]
    parts = (
        *("step_ns", "exposed_compute_ns", "overlapped_ns", "exposed_communication_ns", "other_ns", "memory_ns"),
        *("exposed_waiting_ns", "exposed_transfer_ns"),
    )
    expected = ask(
        played_corpus,
        f"SELECT rank, step, {', '.join(parts)}, idle_ns FROM breakdown WHERE job = '{job}' ORDER BY step, rank",
    )
    assert rows_of(steps, "rank", "step", *parts, "idle_ns") == expected


def test_the_heat_map_is_the_view_straggler(page: Path, played_corpus: Path) -> None:
    found = job_of(page, GPU_JOB)["sections"]["stragglers"]
    columns = ("rank", "step", "collectives", "times_last", "waiting_ns", "made_others_wait_ns")
    expected = ask(
        played_corpus, f"SELECT {', '.join(columns)} FROM straggler WHERE job = '{GPU_JOB}' ORDER BY step, rank"
    )
    assert rows_of(found["data"]["stragglers"], *columns) == expected
    assert found["title"].startswith("Rank 2 made the others wait")


def test_kernels_are_added_up_over_ranks(page: Path, played_corpus: Path) -> None:
    shown = job_of(page, GPU_JOB)["sections"]["kernels"]["data"]["kernels"]
    expected = ask(
        played_corpus,
        """
        SELECT name, count(*), sum(dur)::BIGINT, min(dur), max(dur), count(DISTINCT rank)
        FROM operators
        WHERE kind IN ('kernel', 'memcpy', 'memset')
        GROUP BY name
        """,
    )
    assert sorted(rows_of(shown, "name", "calls", "total_ns", "min_ns", "max_ns", "ranks")) == sorted(expected)
    assert shown["total_ns"] == sorted(shown["total_ns"], reverse=True)
    assert sum(shown["gpu_pct"]) == pytest.approx(100, abs=0.1)


def test_bandwidths_are_those_of_the_view(page: Path, played_corpus: Path) -> None:
    shown = job_of(page, GPU_JOB)["sections"]["collectives"]["data"]["collectives"]
    expected = ask(
        played_corpus,
        "SELECT collective, in_bytes, sum(calls)::BIGINT, min(busbw_gbps), max(busbw_gbps) FROM collective_summary "
        "GROUP BY ALL",
    )
    columns = ("collective", "size_bytes", "calls", "min_busbw_gbps", "max_busbw_gbps")
    assert sorted(rows_of(shown, *columns)) == sorted(expected)
    assert all(low <= middle <= high for low, middle, high in rows_of(shown, *columns[3:4], "busbw_gbps", *columns[4:]))


def test_busy_shares_are_those_of_the_view(page: Path, played_corpus: Path) -> None:
    found = job_of(page, GPU_JOB)
    busy = found["sections"]["busy"]["data"]["busy"]
    mean = {found["traces"]["rank"][place]: share for place, share in rows_of(busy, "place", "mean_pct")}
    milliseconds = ask(played_corpus, "SELECT rank, busy_pct FROM sm_utilization ORDER BY rank, ts")
    for place, width, shares in rows_of(busy, "place", "width_ns", "busy_pct"):
        rank = found["traces"]["rank"][place]
        expected = [share for other, share in milliseconds if other == rank]
        assert mean[rank] == pytest.approx(sum(expected) / len(expected), abs=0.01)
        assert width == 1_000_000
        assert shares == pytest.approx(expected, abs=0.051)


def test_memory_peaks_are_those_of_the_view(page: Path, played_corpus: Path) -> None:
    found = job_of(page, GPU_JOB)
    memory = found["sections"]["memory"]["data"]["memory"]
    expected = ask(
        played_corpus,
        "SELECT rank, max(allocated_bytes), max(reserved_bytes) FROM memory_timeline "
        f"WHERE job = '{GPU_JOB}' AND device_type = 'gpu' GROUP BY rank ORDER BY rank",
    )
    ranks = [found["traces"]["rank"][place] for place in memory["place"]]
    assert list(zip(ranks, memory["peak_bytes"], memory["reserved_bytes"], strict=True)) == expected
    assert [max(line) for line in memory["allocated_bytes"]] == memory["peak_bytes"]


def test_the_timeline_holds_all_gpu_time_of_every_step(page: Path, played_corpus: Path) -> None:
    found = job_of(page, GPU_JOB)
    data = found["sections"]["timeline"]["data"]
    names, slices = data["slices"]["names"], data["slices"]
    ranks = rows_of(data["ranks"], "step", "place", "start_ns", "step_ns")
    busy: Counter[tuple[int, int]] = Counter()
    for number, kind, time in rows_of(slices, "number", "class", "busy_ns"):
        if names[kind] == "communication":
            step, place, *_ = ranks[number]
            busy[step, found["traces"]["rank"][place]] += time
    expected = ask(
        played_corpus,
        """
        SELECT s.step, o.rank, sum(least(o.ts + o.dur, s.ts + s.dur) - greatest(o.ts, s.ts))::BIGINT
        FROM operators o
        JOIN step s ON s.trace_id = o.trace_id AND o.ts < s.ts + s.dur AND o.ts + o.dur > s.ts
        WHERE o.family = 'communication'
        GROUP BY s.step, o.rank
        """,
    )
    assert busy == {(step, rank): time for step, rank, time in expected}
    assert {step for step, *_ in ranks} == {2, 3, 4}
    for number, start, length, rows, time in rows_of(slices, "number", "start_ns", "dur_ns", "rows", "busy_ns"):
        _, _, begin, step_ns = ranks[number]
        assert begin <= start
        assert start + length <= begin + step_ns
        assert rows > 1 or time == length


def longest(found: dict[str, Any]) -> list[tuple[int, int, int]]:
    """Return number, step and trace of the ranks whose critical path the timeline draws."""
    ranks = found["sections"]["timeline"]["data"]["ranks"]
    rows = enumerate(rows_of(ranks, "step", "place", "has_path"))
    return [(number, step, found["traces"]["trace_id"][place]) for number, (step, place, has_path) in rows if has_path]


def test_the_paths_of_the_timeline_are_the_longest_ranks(page: Path, played_corpus: Path) -> None:
    found = job_of(page, GPU_JOB)
    path = found["sections"]["timeline"]["data"]["path"]
    assert len(longest(found)) == 3
    for number, step, trace_id in longest(found):
        expected = ask(
            played_corpus,
            f"SELECT kind, sum(dur)::BIGINT FROM critical_path WHERE dur > 0 AND step = {step} "
            f"AND trace_id = '{trace_id}' GROUP BY kind",
        )
        times: Counter[str] = Counter()
        for of, kind, time in rows_of(path, "number", "kind", "time_ns"):
            if of == number:
                times[path["names"][kind]] += time
        assert times == dict(expected)


def test_slices_on_the_path_are_marked_on_every_rank(page: Path, played_corpus: Path) -> None:
    found = job_of(page, GPU_JOB)
    data = found["sections"]["timeline"]["data"]
    ranks = rows_of(data["ranks"], "step", "place", "bin_ns", "typical")
    ((step, bin_ns, trace_id),) = [(ranks[k][0], ranks[k][2], trace) for k, _, trace in longest(found) if ranks[k][3]]
    # Kernels that are drawn alone; the path goes through rank 2, for which the others wait.
    expected = ask(
        played_corpus,
        f"""
        SELECT DISTINCT p.on_rank, o.name, o.dur
        FROM critical_path p
        JOIN operators o ON o.trace_id = p.on_trace_id AND o.op_id = p.op_id
        WHERE p.step = {step} AND p.trace_id = '{trace_id}' AND o.kind = 'kernel'
          AND p.kind NOT IN ('gap', 'launch') AND o.dur >= {bin_ns}
        """,
    )
    columns = ("number", "name", "dur_ns", "rows", "critical", "class")
    names = data["slices"]["names"]
    marked = {
        (found["traces"]["rank"][ranks[number][1]], names[name], time)
        for number, name, time, rows, critical, kind in rows_of(data["slices"], *columns)
        if critical and rows == 1 and names[kind] != "host" and ranks[number][0] == step
    }
    assert {rank for rank, *_ in expected} > {2}
    assert set(expected) <= marked
    assert any(critical for *_, critical, kind in rows_of(data["slices"], *columns) if names[kind] == "host")


def test_replays_paths_and_gains_are_those_of_the_views(page: Path, played_corpus: Path) -> None:
    sections = job_of(page, GPU_JOB)["sections"]
    replays = sections["path"]["data"]["replays"]
    columns = ("step", "recorded_ns", "replayed_ns", "error_pct", "unexplained_ns")
    expected = ask(
        played_corpus,
        f"SELECT {', '.join(columns)} FROM replay_error WHERE job = '{GPU_JOB}'",
    )
    assert sorted(rows_of(replays, *columns)) == sorted(expected)
    kinds = sections["path"]["data"]["kinds"]
    steps = len(replays["recorded_ns"])
    assert sum(kinds["mean_ns"]) == pytest.approx(sum(replays["recorded_ns"]) / steps, abs=len(kinds["kind"]))
    shown = rows_of(sections["path"]["data"]["gains"], "what", "value", "mean_ns", "mean_gain_ns", "mean_half_gain_ns")
    of_steps = ", ".join(f"round(sum({name}) / {steps})::BIGINT" for name in ("total_ns", "gain_ns", "half_gain_ns"))
    expected = ask(
        played_corpus, f"SELECT what, value, {of_steps} FROM gain WHERE job = '{GPU_JOB}' GROUP BY what, value"
    )
    assert set(shown) <= set(expected)
    gains = [gain for *_, gain, _ in shown]
    assert gains == sorted((gain for *_, gain, _ in expected), reverse=True)[: len(gains)]


def test_the_headline_names_the_largest_shares(page: Path) -> None:
    summary = job_of(page, GPU_JOB)["summary"]
    parts = ("exposed_compute", "overlapped", "exposed_waiting", "exposed_transfer", "other")
    shares = sorted(summary[f"{part}_pct"] for part in parts)
    headline = job_of(page, GPU_JOB)["headline"]
    assert f"compute {shares[-1]:.0f}%" in headline
    assert f"waiting for other ranks {shares[-2]:.0f}%" in headline
    assert "on 4 ranks" in headline
