"""`lumos-df estimate` and `lumos-df sweep` from the shell."""

import csv
import io
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from lumos_df import connect
from lumos_df.corpus.layout import EMPTY_PARTITION
from lumos_df.estimate import store
from lumos_df.estimate.configuration import estimate
from lumos_df.model.library import data_folder
from tests.conftest import SAMPLES, Run

JOB = ("--model", "llama-3-8b", "--hardware", "h100-sxm")
PLAN = ("--plan", "tp=2,pp=2,dp=2,batch=32")


def test_an_estimate_is_one_object(lumos: Run) -> None:
    done = lumos("estimate", *JOB, *PLAN, "--format", "json")
    assert done.returncode == 0
    assert done.stderr == ""
    expected = estimate("llama-3-8b", "h100-sxm", PLAN[1]).to_dict()
    assert json.loads(done.stdout) == with_twelve_digits(expected)


@pytest.mark.parametrize(
    ("gpu", "precision", "said"),
    [
        ("h200-sxm", "bf16", "fitted to measurements of h200-sxm, but its own gemm"),
        ("h200-sxm", "fp32", "fitted to measurements of h200-sxm, products in single precision of h100-sxm"),
        ("h100-sxm", "fp32", "fitted to measurements of h100-sxm"),
        ("v100-sxm2-32", "fp32", "those of a100-sxm-80, products in single precision of h100-sxm: none of this arch"),
    ],
)
def test_an_estimate_says_whose_products_it_has(gpu: str, precision: str, said: str) -> None:
    told = estimate("gpt3-125m", gpu, f"batch=8,precision={precision}").to_dict()["provenance"]
    assert told["kernels and collectives"].startswith(said)
    assert ("gemm" in told["kernels and collectives"]) is (precision == "bf16")


def with_twelve_digits(value: Any) -> Any:
    """Return a JSON value as it is printed."""
    if isinstance(value, dict):
        return {key: with_twelve_digits(inner) for key, inner in value.items()}
    return float(f"{value:.12g}") if isinstance(value, float) else value


def test_an_estimate_is_a_row_a_table_or_one_screen(lumos: Run, tmp_path: Path) -> None:
    expected = estimate("llama-3-8b", "h100-sxm", PLAN[1]).answers
    assert lumos("estimate", *JOB, *PLAN, "--output", "row.csv").returncode == 0
    (row,) = csv.DictReader((tmp_path / "row.csv").read_text().splitlines())
    assert float(row["iteration_time_s"]) == expected["iteration_time_s"]
    assert (row["model"], row["tp"], row["schedule"]) == ("llama-3-8b", "2", "1f1b")
    table = lumos("estimate", *JOB, *PLAN, "--format", "table").stdout
    assert f"{expected['iteration_time_s']:.6g}" in table
    screen = lumos("estimate", *JOB, *PLAN).stdout
    assert screen.startswith(f"{expected['iteration_time_s']:.2f} s a step (")
    assert f"MFU {expected['mfu_pct']:.0f}%" in screen


def test_an_estimate_lands_beside_what_was_measured(lumos: Run) -> None:
    lumos("ingest", SAMPLES / "gpu_generated", "--corpus", "c", "--job", "mine", "--workers", 1)
    for job in (["--job", "mine"], []):
        done = lumos("estimate", *JOB, *PLAN, "--corpus", "c", *job, "--format", "json")
        assert done.returncode == 0
        assert done.stderr.startswith("c: stored as estimate-")
        assert json.loads(done.stdout)["gpus"] == 8
    query = "SELECT count(*) AS many, count(DISTINCT trace_id) AS ids, any_value(job) AS job FROM estimates"
    assert json.loads(lumos("sql", query, "--corpus", "c", "--format", "json").stdout) == [
        {"many": 2, "ids": 2, "job": "mine"}
    ]
    beside = json.loads(lumos("sql", "FROM estimate_vs_measured", "--corpus", "c", "--format", "json").stdout)
    assert [(row["job"], row["steps"] > 0) for row in beside] == [("mine", True)]
    # The corpus is as good as before: the same trace is still in, and replays.
    assert "skipped 4 files" in lumos("ingest", SAMPLES / "gpu_generated", "--corpus", "c", "--workers", 1).stdout
    assert lumos("replay", "--corpus", "c", "--format", "json").returncode == 0


def test_an_estimate_says_where_its_memory_differs_from_a_snapshot(lumos: Run, tmp_path: Path) -> None:
    held = {"action": "alloc", "addr": 0, "size": 40_000_000_000, "stream": 0, "time_us": 1, "frames": []}
    block = {"address": 0, "size": 40_000_000_000, "requested_size": 40_000_000_000, "state": "active_allocated"}
    segment = {"device": 0, "address": 0, "total_size": 40_000_000_000, "stream": 0, "segment_type": "large"}
    snapshot = {"segments": [{**segment, "blocks": [block]}], "device_traces": [[held]]}
    (tmp_path / "rank0.pickle").write_bytes(pickle.dumps(snapshot))
    assert lumos("ingest", "rank0.pickle", "--corpus", "c", "--job", "one").returncode == 0
    screen = lumos("estimate", *JOB, *PLAN, "--corpus", "c", "--job", "one").stdout
    assert " snapshot: 40.0 GB held at the peak; the estimate without libraries has " in screen
    assert "optimizer +" in screen.partition("snapshot: ")[2]


def test_an_estimate_that_was_killed_early_leaves_a_folder_that_becomes_a_corpus(tmp_path: Path) -> None:
    (tmp_path / "c" / EMPTY_PARTITION).mkdir(parents=True)
    store.write(tmp_path / "c", estimate("llama-3-8b", "h100-sxm", "dp=8,batch=8"))
    with connect(tmp_path / "c") as corpus:
        assert corpus.execute("SELECT count(*) FROM estimates").fetchall() == [(1,)]


def test_stored_rows_say_what_the_estimate_says(tmp_path: Path) -> None:
    done = estimate("mixtral-8x7b", "h200-sxm", "tp=2,pp=4,dp=8,ep=8,batch=512,sp,recompute=full")
    names = {store.write(tmp_path / "c", done), store.write(tmp_path / "c", done)}
    assert len(names) == 1
    with connect(tmp_path / "c") as connection:
        (row,) = connection.sql("FROM estimates").pl().to_dicts()
        operators = connection.sql("SELECT * EXCLUDE (trace_id) FROM estimate_operators ORDER BY op_id").pl()
        assert connection.sql("SELECT trace_id FROM traces").fetchall() == []
    assert row["trace_id"] in names
    assert (row["model"], row["ep"], row["recompute"], row["job"]) == ("mixtral-8x7b", 8, "full", None)
    assert row["step_ns"] == round(done.answers["iteration_time_s"] * 1e9)
    parts = ("exposed_compute_ns", "overlapped_ns", "exposed_communication_ns", "other_ns")
    assert sum(row[part] for part in parts) == row["step_ns"]
    assert row["memory_bytes"] == pytest.approx(done.answers["memory_gb"] * 1e9, abs=1)
    assert operators.to_dicts() == done.operators


def test_a_folder_that_is_something_else_is_left_alone(lumos: Run, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("mine")
    done = lumos("estimate", *JOB, *PLAN, "--corpus", "other")
    assert done.returncode == 1
    assert "not empty and not a corpus" in done.stderr
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["file"]


def test_a_sweep_writes_the_fastest_and_tells_what_was_refused(lumos: Run, tmp_path: Path) -> None:
    grid = ("--plan", "tp=1|2|3,pp=1|2,gpus=8,batch=32,mbs=1|2")
    done = lumos("sweep", *JOB, *grid, "--where", "true", "--top", "3", "--format", "csv", "--output", "rows")
    assert done.returncode == 0
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    times = [float(row["iteration_time_s"]) for row in rows]
    assert len(times) == 3
    assert times == sorted(times)
    *_, refused, counted = done.stderr.splitlines()
    assert refused == "refused 4 by gpus, such as llama-3-8b, gpus: no multiple of tp * pp * cp"
    assert counted.startswith("12 configurations; 8 legal and estimated; ")
    assert sorted(path.name for path in (tmp_path / "rows").iterdir()) == ["grid.json", "part-000000.parquet"]
    best = ",".join(f"{name}={rows[0][name]}" for name in ("tp", "pp", "dp", "micro_batch", "batch"))
    single = json.loads(lumos("estimate", *JOB, "--plan", best, "--format", "json").stdout)
    assert single["iteration_time_s"] == float(f"{times[0]:.12g}")
    (tmp_path / "grid.toml").write_text(
        'model = "llama-3-8b"\nhardware = "h100-sxm"\nplan = "tp=1|2|3,pp=1|2,gpus=8,batch=32,mbs=1|2"\n'
    )
    again = lumos("sweep", "grid.toml", "--where", "true", "--top", "3", "--format", "csv", "--output", "rows")
    assert again.stdout == done.stdout
    changed = lumos("sweep", "grid.toml", "--output", "rows")
    assert changed.returncode == 1
    assert "rows: holds the rows of another search (other filter)" in changed.stderr


def test_a_sweep_writes_all_that_meets_the_condition_in_a_format(lumos: Run) -> None:
    grid = ("--plan", "tp=1|2|4,pp=1|2,gpus=8,batch=32,mbs=1|2|4")
    rows = lumos("sweep", *JOB, *grid, "--where", "true", "--format", "csv").stdout.splitlines()
    assert len(rows) == 1 + 18


@pytest.mark.parametrize(
    ("arguments", "status", "why"),
    [
        (("estimate", *JOB, "--plan", "tp=3,batch=8"), 1, "tp = 3: does not divide"),
        (("estimate", *JOB[:2], "--hardware", "mine.toml", *PLAN), 1, "needs the figure 'tdp_w'"),
        (("estimate", *JOB[:2], *PLAN), 2, "--hardware"),
        (("estimate", *JOB, *PLAN, "--job", "a"), 2, "give --corpus"),
        (("sweep", *JOB), 2, "give a grid file, or all of"),
        (("sweep", "grid.toml", *JOB), 2, "give a grid file, or --model"),
        (("sweep", "grid.toml"), 1, "grid.toml: No such file"),
        (("sweep", *JOB, *PLAN, "--shard", "3/2"), 2, "part i of n"),
        (("sweep", *JOB, *PLAN, "--address", "here:1"), 2, "give --engine ray"),
    ],
)
def test_bad_input_is_one_line_and_bad_usage_is_2(
    lumos: Run, tmp_path: Path, arguments: tuple[str, ...], status: int, why: str
) -> None:
    lines = (data_folder() / "hardware" / "h100-sxm.toml").read_text("utf-8").splitlines()
    (tmp_path / "mine.toml").write_text("\n".join(line for line in lines if not line.startswith("tdp_w")))
    done = lumos(*arguments)
    assert done.returncode == status
    assert done.stdout == ""
    assert why in " ".join(done.stderr.split()).replace("│ ", "")
    if status == 1:
        assert done.stderr.count("\n") == 1


def test_a_hardware_file_that_no_command_would_read_is_not_written(tmp_path: Path, lumos: Run) -> None:
    done = lumos("calibrate", tmp_path / "runs.csv", "--hardware", "h100", "--output", tmp_path / "mine")
    assert done.returncode == 2
    assert "a hardware file's name ends in .toml" in done.stderr
    assert not (tmp_path / "mine").exists()
