"""The first plans of a sweep, rebuilt as graphs of the recorded job."""

import json
from pathlib import Path

import polars as pl
import pytest

from lumos_df.base.errors import QueryError
from lumos_df.calibrate.corpus_machine import on_corpus_machine
from lumos_df.corpus.catalog import connect
from lumos_df.estimate.grid import Grid
from lumos_df.estimate.search import Search
from lumos_df.whatif.estimate import estimate
from lumos_df.whatif.job.settings import parse
from lumos_df.whatif.rebuilt_plans import anchor_of, hardware_of, model_of, rebuilt
from tests.conftest import ROOT, Run
from tests.emulator import Job, Profiler, simulate, write
from tests.whatif.conftest import ingested

PLANS = "dp=4|8,pp=1,micro_batches=1|2,mbs=4"


def off_pct(corpus: Path, *plans: str) -> dict[tuple[int, int], float]:
    """By how much the rows of a sweep on a corpus's machine differ from the rebuilt graphs, per cent, by tp and dp."""
    ran = anchor_of(corpus, None)
    grid, unfitted = on_corpus_machine(Grid.make([model_of(ran)], [hardware_of(ran)], [*plans]), corpus)
    assert not unfitted
    best = Search(grid, "true", top=len(plans)).run().best
    rows = rebuilt(best, grid, corpus, None, len(plans), None).rows(named=True)
    return {(row["tp"], row["dp"]): float(100 * (row["iteration_time_s"] / row["rebuilt_s"] - 1)) for row in rows}


@pytest.fixture(scope="module")
def grid(emulated: Path) -> Grid:
    ran = anchor_of(emulated, None)
    return Grid.make(
        [model_of(ran)],
        [hardware_of(ran)],
        [PLANS, "tp=2,dp=4,batch=16,mbs=4,zero=1,sp", "dp=4,batch=16,mbs=4,recompute=full"],
    )


def test_the_model_and_gpu_of_a_sweep_are_the_recorded_ones(grid: Grid) -> None:
    (model,) = grid.models
    assert (model.layers, model.hidden, model.ffn, model.heads, model.vocab, model.seq) == (
        6,
        1024,
        4096,
        16,
        8192,
        512,
    )
    assert not model.gated


def test_a_plan_takes_what_the_same_change_of_the_recorded_job_takes(
    emulated: Path, grid: Grid, tmp_path: Path
) -> None:
    best = Search(grid, "true", top=10).run().best
    plans = rebuilt(best, grid, emulated, None, len(best), tmp_path / "made")
    assert plans.drop("rebuilt", "rebuilt_s", "rebuilt_low_s", "rebuilt_high_s").equals(best)
    assert len(plans) == 6
    for row in plans.iter_rows(named=True):
        batch = row["batch"] // row["dp"] // 4
        texts = [f"tp={row['tp']}"] * (row["tp"] != 1) + [f"dp={row['dp']}"] * (row["dp"] != 4)
        texts += [f"batch={batch}"] * (batch != 1) + ["recompute=full"] * (row["recompute"] == "full")
        texts += [f"zero={row['zero']}"] * (row["zero"] > 0) + ["sp=on"] * row["sequence_parallel"]
        again = pl.DataFrame(estimate(emulated, parse(texts)))
        steps = again.group_by("step").agg(pl.max("iteration_time_s"))["iteration_time_s"].sort()
        assert row["rebuilt_s"] == steps[(len(steps) - 1) // 2]
        assert row["rebuilt_low_s"] <= row["rebuilt_s"] <= row["rebuilt_high_s"]
        assert row["rebuilt"] == (f"four: {','.join(texts)}" if texts else "four, unchanged")
    with connect(tmp_path / "made") as connection:
        jobs = connection.execute("SELECT DISTINCT job FROM traces ORDER BY job").fetchall()
    changes = ("batch=2", "dp=8", "dp=8,batch=2", "recompute=full", "tp=2,zero=1,sp=on", "unchanged")
    assert jobs == [(f"four: {change}",) for change in changes]


def test_a_sweep_says_of_the_recorded_plan_what_was_recorded(emulated: Path, tmp_path: Path) -> None:
    assert abs(off_pct(emulated, "dp=4,batch=16,mbs=4")[1, 4]) < 1
    # One of its ranks is slow on the host, and the others wait for it.
    sleeper = ingested(tmp_path / "corpus", ROOT / "data" / "traces" / "gpu_generated")
    assert abs(off_pct(sleeper, "dp=4,batch=16,mbs=4")[1, 4]) < 1


def test_a_sweep_says_of_other_plans_about_what_their_graphs_do(emulated: Path) -> None:
    off = off_pct(emulated, "dp=8,batch=32,mbs=4", "dp=4,batch=32,mbs=4")
    assert abs(off[1, 8]) < 6
    assert abs(off[1, 4]) < 6


def test_of_several_jobs_one_must_be_named(tmp_path: Path) -> None:
    for layers, name in enumerate(("one", "two"), 1):
        write(simulate(Job(ranks=1, layers=layers)), Profiler(memory=False, stacks=False), tmp_path / name)
    corpus = ingested(tmp_path / "corpus", tmp_path / "one", tmp_path / "two")
    with pytest.raises(QueryError, match="2 jobs to rebuild plans from; name one with --job NAME"):
        anchor_of(corpus, None)
    assert anchor_of(corpus, "two").about.job == "two"
    write(simulate(Job(ranks=1, layers=3)), Profiler(memory=False, stacks=False), tmp_path / "again" / "two")
    ingested(corpus, tmp_path / "again" / "two")
    with pytest.raises(QueryError, match="'two' is several runs of one rank"):
        anchor_of(corpus, "two")


def test_the_command_rebuilds_the_first_few(emulated: Path, lumos: Run, tmp_path: Path) -> None:
    sweep = ("sweep", "--corpus", emulated, "--plan", PLANS, "--format", "json")
    done = lumos(*sweep, "--rebuild", "1", "--output", tmp_path / "found")
    assert done.returncode == 0, done.stderr
    kept = pl.read_csv(tmp_path / "found" / "rebuilt.csv")["rebuilt_s"].to_list()
    assert [float(f"{value:.12g}") for value in kept] == [json.loads(done.stdout)[0]["rebuilt_s"]]
    assert [row["rebuilt"] is not None for row in json.loads(done.stdout)] == [True, False, False, False]
    assert "rebuilt" not in json.loads(lumos(*sweep, "--rebuild", "0").stdout)[0]
    wrong = lumos("sweep", "--model", "llama-3-8b", "--hardware", "h100", "--plan", PLANS, "--rebuild", "1")
    assert wrong.returncode == 2
    assert "go with --corpus" in wrong.stderr
