"""The page as a file: whole, self-contained, safe with any text, and there whatever lacks."""

import base64
import hashlib
import itertools
import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from duckdb import DuckDBPyConnection

from lumos_df.advice.on_demand import prepare_page
from lumos_df.corpus import table_files
from lumos_df.corpus.catalog import connect
from lumos_df.corpus.layout import trace_folder, write_manifest
from lumos_df.estimate.grid import Grid
from lumos_df.estimate.ranking import pareto_front
from lumos_df.estimate.search import Search
from lumos_df.graph.run import replay
from lumos_df.page.document import embedded, render
from lumos_df.page.write import collect, write
from lumos_df.schema import CRITICAL_PATH
from lumos_df.schema.codes import LATEST
from lumos_df.trace.ingest import ingest
from tests.conftest import SAMPLES, Run
from tests.page.browser import data_of, job_of
from tests.trace.literal import annotation, corpus_of, kernel, launch, op
from tests.trace.literal import write as write_trace
from tests.trace.test_memory_snapshot import write as write_snapshot

MAX_BYTES = 5_000_000

NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)><!-- \u2028 & \"' {{script}}"


def page_of(folder: Path, events: list[dict[str, Any]]) -> Path:
    corpus_of(folder, events).close()  # type: ignore[attr-defined]  # the protocol has only what tests ask with
    write(folder / "corpus", folder / "page.html")
    return folder / "page.html"


def test_the_commands_of_a_job_of_several_are_about_it(played_corpus: Path, tmp_path: Path) -> None:
    write(played_corpus, tmp_path / "page.html")
    for job in ("gpu_generated", "cpu_ddp"):
        note = job_of(tmp_path / "page.html", job)["sections"]["timeline"]["note"]
        assert f"lumos-df export --corpus {played_corpus} --job {job} --output" in note


def test_the_timeline_of_a_gpu_that_falls_behind_has_its_steps(tmp_path: Path) -> None:
    """Three steps of 1 ms on the host, each of ten kernels of 200 us."""
    events = []
    for place in range(30):
        at = 100 * place
        events += [
            op("aten::mm", at, 90),
            launch(at, 5, place),
            kernel("gemm", 8 + 200 * place, 200, correlation=place),
        ]
    marks = [annotation(f"ProfilerStep#{step}", 1000 * step, 1000) for step in range(3)]
    corpus_of(tmp_path, [*marks, *events], distributedInfo={"rank": 0, "world_size": 1})
    replay(tmp_path / "corpus", path=True)
    write(tmp_path / "corpus", tmp_path / "page.html")
    (job,) = data_of(tmp_path / "page.html")["jobs"]
    data = job["sections"]["timeline"]["data"]
    assert data["ranks"]["step_ns"] == [2_008_000, 2_000_000, 2_000_000]
    # All of the path but the first launch lies in kernels that are drawn.
    assert (
        sum(
            data["slices"]["busy_ns"][k]
            for k, kind in enumerate(data["slices"]["class"])
            if data["slices"]["names"][kind] != "host"
        )
        == 6_000_000
    )
    assert sum(data["path"]["time_ns"]) == 6_008_000


def titles(page: Path) -> dict[str, str]:
    (job,) = data_of(page)["jobs"]
    return {name: section["title"] for name, section in job["sections"].items()}


def test_the_file_fetches_nothing_and_runs_only_its_own_script(sample_corpus: Path, tmp_path: Path) -> None:
    write(sample_corpus, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text("utf-8")
    assert not re.findall(
        r"""(?:src|href)\s*=\s*["']|url\(|@import|https?://|\bfetch\(|XMLHttpRequest|innerHTML""", text
    )
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert policy
    assert len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert "default-src &#x27;none&#x27;" in policy[1]
    assert f"script-src &#x27;sha256-{digest}&#x27;" in policy[1]


def test_texts_cannot_leave_the_data(tmp_path: Path) -> None:
    page = page_of(tmp_path, [op(NASTY, 0, 90), launch(10, 5, 1), kernel(NASTY, 20, 30, correlation=1)])
    text = page.read_text("utf-8")
    assert text.count("<script") == 2
    assert "<img" not in text
    assert job_of(page, tmp_path.name)["sections"]["kernels"]["data"]["kernels"]["name"] == [NASTY]


@pytest.mark.parametrize("text", [NASTY, "<!--<script>", "]]>", "\x00\x1f", "\ud800"])
def test_json_is_text_to_any_parser(text: str) -> None:
    shown = embedded({"text": text})
    assert not re.search("[<>&\u2028\u2029]", shown)
    assert render({"corpus": text, "jobs": []}).count("<script") == 2


def test_a_long_name_is_cut(tmp_path: Path) -> None:
    page = page_of(tmp_path, [op("aten::mm", 0, 90), launch(10, 5, 1), kernel("x" * 5000, 20, 30, correlation=1)])
    (name,) = job_of(page, tmp_path.name)["sections"]["kernels"]["data"]["kernels"]["name"]
    assert name == "x" * 1000


def test_an_empty_corpus_has_a_page(tmp_path: Path) -> None:
    write_manifest(tmp_path)
    write(tmp_path, tmp_path / "page.html")
    assert data_of(tmp_path / "page.html")["jobs"] == []


def test_what_lacks_is_said_with_the_remedy(tmp_path: Path) -> None:
    page = page_of(tmp_path, [op("aten::mm", 0, 90), op("aten::add", 100, 20)])
    (job,) = data_of(page)["jobs"]
    notes = {name: section["note"] for name, section in job["sections"].items()}
    assert "nothing on a GPU was recorded" in job["headline"]
    assert "ProfilerActivity.CUDA" in notes["kernels"]
    assert "profile_memory=True" in notes["memory"]
    assert notes["stragglers"] == "One rank has nobody to wait for."
    assert notes["path"] == f"Run: `lumos-df critical-path --corpus {tmp_path / 'corpus'}`"
    assert f"lumos-df critical-path --corpus {tmp_path / 'corpus'}" in notes["timeline"]
    drawn = {name for name, section in job["sections"].items() if section["data"]}
    assert drawn == {"breakdown", "timeline"}


def test_commands_are_ready_for_a_shell(empty_database: DuckDBPyConnection) -> None:
    assert collect(empty_database, "my corpus")["option"] == "--corpus 'my corpus'"


def test_one_rank_without_steps_or_collectives(tmp_path: Path) -> None:
    page = page_of(tmp_path, [op("aten::mm", 0, 90), launch(10, 5, 1), kernel("gemm", 20, 3000, correlation=1)])
    found = titles(page)
    assert found["breakdown"] == "One step of one rank: 3.02 ms"
    assert found["timeline"] == "The whole trace: 3.02 ms"
    assert found["busy"].startswith("A kernel runs")


def allocation(ts: int, **args: int) -> dict[str, Any]:
    return {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": ts, "args": args}


def test_allocations_without_a_size_are_left_out_of_the_page(tmp_path: Path) -> None:
    work = op("aten::mm", 0, 90)
    assert titles(page_of(tmp_path / "none", [work, allocation(1)]))["memory"] == "Memory was not recorded"
    page = page_of(tmp_path / "some", [work, allocation(1), allocation(2, Bytes=4096), allocation(3, Addr=7)])
    memory = job_of(page, "some")["sections"]["memory"]
    assert memory["title"] == "Memory peaks at 4.00 KiB, on rank 0"
    assert memory["data"]["memory"]["peak_bytes"] == [4096]
    assert memory["data"]["memory"]["allocated_bytes"] == [[4096, 4096]]


def test_simulated_times_beyond_any_recording_are_no_error(tmp_path: Path) -> None:
    """Of a damaged file calls may last centuries: replayed, a step begins after them, and is off by as much again."""
    corpus_of(tmp_path, [op("aten::mm", 0, 90), launch(10, 5, 1), kernel("gemm", 20, 3000, correlation=1)]).close()  # type: ignore[attr-defined]  # as above
    corpus = tmp_path / "corpus"
    (trace_id,) = replay(corpus, path=True)
    file = trace_folder(corpus, trace_id) / f"{CRITICAL_PATH.name}.parquet"
    pieces = pq.ParquetFile(file).read().to_pydict()
    pieces["ts"][-1] = pieces["dur"][-1] = LATEST
    table_files.write(corpus, trace_id, CRITICAL_PATH, pieces)
    write(corpus, tmp_path / "page.html")
    assert titles(tmp_path / "page.html")["timeline"].startswith("The whole trace")


def test_the_typical_step_is_drawn(tmp_path: Path) -> None:
    marks = [
        annotation(f"ProfilerStep#{number}", 1000 * number, length) for number, length in enumerate([900, 100, 500])
    ]
    page = page_of(tmp_path, [*marks, op("aten::mm", 2010, 90), op("aten::add", 10, 20), op("aten::sub", 1010, 20)])
    assert titles(page)["timeline"] == "Step 2, the median of them: 500 us"


def test_two_runs_of_one_rank_are_told_apart(tmp_path: Path) -> None:
    corpus_of(tmp_path, [op("aten::mm", 0, 90)], "rank0.json")
    corpus_of(tmp_path, [op("aten::mm", 0, 80)], "again_rank0.json")
    write(tmp_path / "corpus", tmp_path / "page.html")
    labels = job_of(tmp_path / "page.html", tmp_path.name)["traces"]["label"]
    assert len(set(labels)) == 2
    assert all(re.fullmatch(r"0 \([0-9a-f]{6}\)", label) for label in labels)


def test_hundreds_of_ranks_and_steps_fit(empty_database: DuckDBPyConnection) -> None:
    empty_database.execute(
        """
        INSERT INTO traces BY NAME
        SELECT 't' || rank AS trace_id, 'big' AS job, rank, 0 AS clock_origin_ns, 1000 AS operators, 900 AS kernels,
          0 AS memcpys, 0 AS memsets, []::VARCHAR[] AS warnings
        FROM (SELECT unnest(range(512))::INTEGER AS rank)
        """
    )
    # 60 steps of 20 ms on 512 ranks; each with 3 kernels on each of two streams.
    empty_database.execute(
        """
        INSERT INTO operators BY NAME
        WITH ranks AS (SELECT unnest(range(512))::INTEGER AS rank),
        steps AS (SELECT rank, unnest(range(60))::INTEGER AS step FROM ranks)
        SELECT 't' || rank AS trace_id, rank, (1_000_000 + step)::INTEGER AS op_id, 'annotation' AS kind,
          'ProfilerStep#' || step AS name, step * 20_000_000 AS ts, 19_000_000 AS dur, NULL AS step
        FROM steps
        UNION ALL BY NAME
        SELECT 't' || rank AS trace_id, rank, (step * 6 + nth)::INTEGER AS op_id, 'kernel' AS kind,
          CASE WHEN nth % 2 = 0 THEN 'gemm' ELSE 'ncclDevKernel_AllReduce' END AS name,
          CASE WHEN nth % 2 = 0 THEN 'gemm' ELSE 'communication' END AS family,
          CASE WHEN nth % 2 = 1 THEN 'all_reduce' END AS collective,
          step * 20_000_000 + nth * 2_800_000 + rank * 10 AS ts, 2_400_000 AS dur, step, 0 AS device,
          7 + nth % 2 AS stream, nth AS seq, 'recorded' AS seq_evidence
        FROM (SELECT *, unnest(range(6)) AS nth FROM steps)
        """
    )
    data = collect(empty_database, "big")
    (job,) = data["jobs"]
    assert len(render(data).encode()) < MAX_BYTES
    shown = job["sections"]["breakdown"]
    assert shown["note"].endswith("The last 19 of 60 steps are shown.")
    assert set(shown["data"]["steps"]["step"]) == set(range(41, 60))
    drawn = Counter(job["sections"]["timeline"]["data"]["ranks"]["step"])
    assert set(drawn.values()) == {8}
    assert f"{len(drawn)} of 60 steps can be chosen." in job["sections"]["timeline"]["note"]
    assert len(job["sections"]["busy"]["data"]["busy"]["place"]) == 512


def test_of_many_jobs_the_largest_are_shown(empty_database: DuckDBPyConnection) -> None:
    empty_database.execute(
        "INSERT INTO traces BY NAME SELECT 't' || n AS trace_id, 'job' || n AS job, 0 AS rank, n AS operators, "
        "n AS kernels, 0 AS memcpys, 0 AS memsets, []::VARCHAR[] AS warnings FROM (SELECT unnest(range(14)) AS n)"
    )
    data = collect(empty_database, "many")
    assert len(data["summaries"]) == 14
    assert {job["summary"]["job"] for job in data["jobs"]} == {f"job{number}" for number in range(2, 14)}


ESTIMATES = """
    CREATE OR REPLACE TABLE estimates AS
    SELECT
      'estimate-' || nth AS trace_id, 'gpt' AS model, 'h100' AS hardware, gpus, tp, 1 AS pp, 1 AS vp, gpus // tp AS dp,
      1 AS cp, 1 AS ep, false AS sequence_parallel, 1 AS micro_batch, 64 AS batch, 1 AS zero, 'none' AS recompute,
      '1f1b' AS schedule, step_ns,
      step_ns - 5 AS low_ns, step_ns + 5 AS high_ns, 40.0::DOUBLE AS mfu_pct, memory_bytes,
      80 - memory_bytes AS memory_margin_bytes, memory_bytes <= 80 AS fits
    FROM (VALUES (0, 8, 1, 100, 90), (1, 8, 2, 120, 70), (2, 8, 4, 150, 40), (3, 8, 8, 160, 45), (4, 16, 8, 80, 50))
      AS plan(nth, gpus, tp, step_ns, memory_bytes)
"""


def test_estimates_are_ranked_with_their_front(empty_database: DuckDBPyConnection) -> None:
    empty_database.execute(ESTIMATES)
    section = collect(empty_database, "plans")["plans"]
    shown = section["data"]["plans"]
    assert shown["step_ns"] == [80, 120, 150, 160, 100]
    assert shown["on_front"] == [True, True, True, False, False]
    assert shown["fits"] == [True, True, True, True, False]
    assert shown["low_ns"] == [75, 115, 145, 155, 95]
    assert section["title"].startswith(
        "80 ns a step of gpt on 16 x h100: tp=8, pp=1, dp=2, micro_batch=1, batch=64, zero=1 is the fastest that fits"
    )


def test_a_stored_sweep_is_ranked(empty_database: DuckDBPyConnection, tmp_path: Path) -> None:
    folder = tmp_path / "it's"
    grid = Grid.make(["llama-3-8b"], ["h100-sxm"], ["tp=1|2|4|8,pp=1|2,gpus=16|32,batch=64,mbs=1|2,zero=1"])
    stored = Search(grid, where="true", top=len(grid), folder=folder).run().best
    shown = collect(empty_database, "plans", folder)["plans"]["data"]["plans"]
    ranked = stored.sort("fits", "iteration_time_s", "memory_gb", descending=[True, False, False])
    assert shown["fits"] == ranked["fits"].to_list()
    for name, column in (("iteration_time_s", "step_ns"), ("low_s", "low_ns"), ("memory_gb", "memory_bytes")):
        assert shown[column] == pytest.approx((1e9 * ranked[name]).to_list(), abs=1)
    front = pareto_front(stored.filter("fits"))
    on_front = set(itertools.compress(zip(shown["step_ns"], shown["gpus"], strict=True), shown["on_front"]))
    assert on_front == {(round(1e9 * time), gpus) for time, gpus in front.select("iteration_time_s", "gpus").rows()}


def test_the_front_says_what_changes(empty_database: DuckDBPyConnection) -> None:
    empty_database.execute(ESTIMATES)
    data = collect(empty_database, "plans")["plans"]["data"]
    assert data["front"] == {
        "row": [0, 1, 2],
        "label": ["gpus16 tp8 dp2", "gpus8 tp2 dp4", "gpus8 tp4 dp2"],
        "changes": ["", "gpus 16 \u2192 8, tp 8 \u2192 2, dp 2 \u2192 4", "tp 2 \u2192 4, dp 4 \u2192 2"],
        "step_change_ns": [None, 40, 30],
        "memory_change_bytes": [None, 20, -30],
    }
    assert data["limits"] == {"hardware": ["h100"], "bytes": [80]}


SWEEP = ("sweep", "--model", "llama-3-8b", "--hardware", "h100-sxm", "--gpus", "8", "--batch", "64")


def test_a_sweep_has_a_page_without_a_corpus(lumos: Run, tmp_path: Path) -> None:
    done = lumos(*SWEEP, "--html", "sweep.html", "--format", "json", "--top", "3")
    assert done.returncode == 0
    data = data_of(tmp_path / "sweep.html")
    plans = data["plans"]["data"]["plans"]
    fastest = json.loads(done.stdout)
    assert len(fastest) == 3
    # A half may be rounded either way.
    assert plans["step_ns"][:3] == pytest.approx([1e9 * plan["iteration_time_s"] for plan in fastest], abs=1)
    assert plans["high_ns"][:3] == pytest.approx([1e9 * plan["high_s"] for plan in fastest], abs=1)
    assert len(plans["plan"]) > 3
    assert data["lead"] in done.stderr
    # The front is that of all plans, the leanest among them, however slow.
    front = lumos(*SWEEP, "--pareto", "--format", "json")
    shown = [plans["memory_bytes"][row] for row in data["plans"]["data"]["front"]["row"]]
    assert sorted(shown) == sorted(round(1e9 * plan["memory_gb"]) for plan in json.loads(front.stdout))


def test_a_sweep_of_nothing_has_a_page(lumos: Run, tmp_path: Path) -> None:
    assert lumos(*SWEEP, "--where", "false", "--html", "sweep.html").returncode == 0
    data = data_of(tmp_path / "sweep.html")
    assert (data["verdict"], data["plans"]) == ("No plan meets the condition", None)


def test_without_estimates_there_is_no_section(sample_corpus: Path) -> None:
    with connect(sample_corpus) as connection:
        assert collect(connection, "c")["plans"] is None


def test_what_cannot_be_said_of_a_job_stands_above_it(tmp_path: Path) -> None:
    """One rank of four; the other job of the corpus has all that it ran with, but nothing of a GPU."""
    ingest([SAMPLES / "gpu_generated" / "rank0.json.gz", SAMPLES / "cpu_ddp"], tmp_path / "corpus", workers=1)
    prepare_page(tmp_path / "corpus", lambda _: None)
    write(tmp_path / "corpus", tmp_path / "page.html")
    (of_ranks,) = job_of(tmp_path / "page.html", "gpu_generated")["limits"]
    assert of_ranks.startswith("1 of 4 ranks is here: ")
    assert job_of(tmp_path / "page.html", "cpu_ddp")["limits"] == ["only the host is known: no GPU row was recorded"]


def test_the_command_writes_the_page(lumos: Run, sample_corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(sample_corpus, tmp_path / "corpus")
    done = lumos("report", "--corpus", "corpus", "--html", "deep/page.html")
    assert (done.returncode, done.stdout) == (0, "")
    assert re.search(r"^deep/page.html: \S+ KiB; open it in a browser\n", done.stderr, re.MULTILINE)
    page = tmp_path / "deep" / "page.html"
    assert len(data_of(page)["jobs"]) == 2
    # What nobody had asked for before is found for the page.
    for job in data_of(page)["jobs"]:
        assert job["accuracy"]
        assert {"kinds", "gains", "replays"} <= set(job["sections"]["path"]["data"])
    assert job_of(page, "gpu_generated")["sections"]["advice"]["data"]
    assert page.stat().st_size < MAX_BYTES


def test_bad_input_is_one_line(lumos: Run, played_corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "a_file").touch()
    for arguments, complaint in (
        (["--corpus", "nowhere"], "nowhere: no corpus here"),
        (["--corpus", played_corpus, "--html", tmp_path], "a folder; name a file in it"),
        (["--corpus", played_corpus, "--html", "a_file/page.html"], "a_file"),
        (["--corpus", played_corpus, "--plans", "nowhere"], "nowhere: no sweep is stored here"),
    ):
        done = lumos("report", *(["--html", "page.html"] if "--html" not in arguments else []), *arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert re.fullmatch(rf"lumos-df: .*{complaint}.*\n", done.stderr)


def test_the_page_takes_no_other_option(lumos: Run) -> None:
    done = lumos("report", "--html", "page.html", "--view", "step")
    assert done.returncode == 2
    assert "leave out --view" in done.stderr


def test_a_memory_snapshot_says_what_is_held_and_what_is_stuck(tmp_path: Path) -> None:
    """Beside a trace of its job and by itself: 1,612 bytes at the peak, 1,012 of them older than any event."""
    (tmp_path / "job").mkdir()
    snapshot = write_snapshot(tmp_path / "job" / "rank0.pickle")
    trace = write_trace(tmp_path / "job" / "rank0.json", [op("aten::mm", 0, 90)])
    for name, files in (("alone", [snapshot]), ("beside", [snapshot, trace])):
        assert not ingest(files, tmp_path / name, workers=1).failed
        told: list[str] = []
        prepare_page(tmp_path / name, told.append)
        prepare_page(tmp_path / name, told.append)
        assert len(told) == (name == "beside")  # what was replayed by the way, once
        write(tmp_path / name, tmp_path / f"{name}.html")
        shown = job_of(tmp_path / f"{name}.html", "job")
        held = shown["sections"]["held"]
        assert (shown["headline"] == held["title"]) == (name == "alone")
        peak, stuck = held["title"].split("; ")
        assert peak == "The allocator held 1.57 KiB at its peak, 100% of it activations"
        assert stuck == "512 B of 2.00 KiB reserved are stuck (25%)"
        assert held["data"]["stacks"]["stack"] == ["linear (functional.py:3), in forward (model.py:7)"]
        assert held["data"]["pools"]["stuck_bytes"] == [512]
    lone = page_of(tmp_path / "no", [op("aten::mm", 0, 90)])
    assert "held" not in job_of(lone, "no")["sections"]
