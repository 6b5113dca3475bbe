"""Changes to emulated jobs, held against the emulator's own run of the changed job."""

import gzip
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lumos_df.corpus.catalog import connect
from lumos_df.corpus.layout import STAGING
from lumos_df.graph import switches
from lumos_df.graph.job import groups
from lumos_df.schema.codes import NONE
from lumos_df.whatif.estimate import estimate
from lumos_df.whatif.job.recorded_job import load
from lumos_df.whatif.job.settings import parse
from lumos_df.whatif.rewrite.blocks import blocks
from tests.bench.paper import record
from tests.conftest import Run, full_disk
from tests.emulator import Job
from tests.emulator.megatron import Megatron
from tests.whatif.conftest import emulate, ingested

_PARTS = ("exposed_compute_ns", "overlapped_ns", "exposed_communication_ns", "other_ns")


def answers(corpus: Path, *texts: str, **more: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = estimate(corpus, parse([*texts]), **more).to_pylist()
    return rows


@pytest.mark.parametrize(
    ("change", "truth", "within"),
    [
        (("dp=8",), Job(ranks=8, layers=6), 0.02),
        (("layers=12",), Job(ranks=4, layers=12), 0.03),
        (("layers=3",), Job(ranks=4, layers=3), 0.03),
        (("dp=8", "layers=12"), Job(ranks=8, layers=12), 0.03),
        (("heads=8",), Job(ranks=4, layers=6, heads=8), 0.03),
        (("micro_batch=8",), Job(ranks=4, layers=6, batch=8), 0.08),
    ],
)
def test_a_changed_job_takes_what_it_takes_when_it_runs(
    emulated: Path, tmp_path: Path, change: tuple[str, ...], truth: Job, within: float
) -> None:
    estimated, ran = (
        [row for row in rows if row["rank"] == 0]
        for rows in (answers(emulated, *change), answers(emulate(tmp_path, truth)))
    )
    for row, other in zip(estimated, ran, strict=True):
        assert row["step_ns"] == pytest.approx(other["step_ns"], rel=within)
        assert sum(row[part] for part in _PARTS) == row["step_ns"]
    step = sum(row["step_ns"] for row in ran)
    for part in _PARTS:
        # Who waits for whom differs from step to step, so parts are compared over all of them.
        apart = sum(row[part] for row in estimated) - sum(row[part] for row in ran)
        assert abs(apart) < max(0.04, within) * step, part


def test_a_job_of_one_sample_grows_with_its_batch(tmp_path: Path) -> None:
    base, other = (Job(ranks=1, layers=4, batch=batch) for batch in (1, 2))
    row, ran = answers(emulate(tmp_path / "one", base), "micro_batch=2")[-1], answers(emulate(tmp_path, other))[-1]
    assert row["step_ns"] == pytest.approx(ran["step_ns"], rel=0.03)
    assert row["gpu_busy_ns"] == pytest.approx(ran["gpu_busy_ns"], rel=0.08)


@pytest.mark.parametrize(("change", "truth"), [("seq=1024", {"sequence": 1024}), ("micro_batch=8", {"batch": 8})])
def test_scores_without_recorded_views_have_both_sequences_and_the_batch(
    tmp_path: Path, change: str, truth: dict[str, Any]
) -> None:
    """64 heads of all samples are as many as a head is wide; taken for a width: 13 and 17 % too short."""
    base = Job(ranks=1, layers=2, steps=1, unfused_attention=True)
    row = answers(emulate(tmp_path / "base", base), change)[0]
    ran = answers(emulate(tmp_path / "other", replace(base, **truth)))[0]
    for part in ("step_ns", "gpu_busy_ns"):
        assert row[part] == pytest.approx(ran[part], rel=0.07), part


def test_a_sequence_as_long_as_the_model_is_wide_grows_alone(tmp_path: Path) -> None:
    """Products inside Megatron's linear layers, whose matrices may be as high as there are tokens: 33 % too long."""
    base = Megatron(layers=2, hidden=1024, ffn=4096, heads=8, sequence=1024, micro_batches=1)
    row = answers(record(base, tmp_path / "base"), "seq=2048")[0]
    ran = answers(record(replace(base, sequence=2048), tmp_path / "other"))[0]
    for part in ("step_ns", "gpu_busy_ns"):
        assert row[part] == pytest.approx(ran[part], rel=0.05), part


def test_kernels_beside_attention_grow_as_the_sequence_does_and_not_as_its_square(tmp_path: Path) -> None:
    """They sum up or convert the gradients: 4 times too long at 4 times the sequence, which is the model's width."""
    job = Job(ranks=1, layers=2, steps=1, sequence=1024, batch=2)
    answers(emulate(tmp_path / "base", job), "seq=4096", into=tmp_path / "changed")
    took = []
    for corpus in (tmp_path / "base" / "corpus", tmp_path / "changed"):
        with connect(corpus) as connection:
            query = "SELECT name, sum(dur) FROM kernel WHERE name LIKE '%flash_bwd_%' GROUP BY 1"
            rows = connection.sql(query).fetchall()
        took.append({re.findall(r"flash_bwd_(\w+)", name)[0]: dur for name, dur in rows})
    grown = {name: took[1][name] / dur for name, dur in took[0].items()}
    assert grown.pop("dq_dk_dv_loop_seqk_parallel_kernel") == pytest.approx(16, rel=0.05)
    assert len(grown) == 2
    assert max(grown.values()) < 4.1, grown


def test_the_one_micro_batch_that_a_pipeline_is_left_reduces_its_gradients(tmp_path: Path) -> None:
    base = Megatron(pp=2, dp=2, layers=6, hidden=1024, ffn=4096, heads=8, micro_batches=3)
    rows = answers(record(base, tmp_path / "base"), "batch=1")
    ran = answers(record(replace(base, micro_batches=1), tmp_path / "other"))
    for part in ("step_ns", "gpu_busy_ns"):
        assert max(row[part] for row in rows) == pytest.approx(max(row[part] for row in ran), rel=0.05), part


def test_a_head_that_is_most_of_a_model_keeps_no_layer_from_changing(tmp_path: Path) -> None:
    base = Job(ranks=1, layers=2, steps=1, hidden=256, heads=4, vocabulary=131_072)
    row, ran = (
        answers(emulate(tmp_path / str(job.layers), job), *texts)[0]
        for job, texts in ((base, ("layers=4",)), (replace(base, layers=4), ()))
    )
    assert row["step_ns"] == pytest.approx(ran["step_ns"], rel=0.03)


def cleared_ns(corpus: Path) -> float:
    """What the GPU takes to clear memory, gradients above all."""
    with connect(corpus) as connection:
        (row,) = connection.sql("SELECT sum(dur)::DOUBLE FROM operators WHERE kind = 'memset'").fetchall()
    return float(row[0])


def test_what_clears_all_gradients_grows_with_the_parameters(tmp_path: Path) -> None:
    answers(emulate(tmp_path, Job(ranks=1, layers=6)), "layers=12", into=tmp_path / "changed")
    ran = emulate(tmp_path / "twice", Job(ranks=1, layers=12))
    assert cleared_ns(tmp_path / "changed") == pytest.approx(cleared_ns(ran), rel=0.1)


@pytest.mark.parametrize(("layers", "wanted"), [(2, 6), (6, 2)])
def test_an_optimizer_of_many_kernels_follows_the_layers(tmp_path: Path, layers: int, wanted: int) -> None:
    base, other = (Job(ranks=1, layers=each, steps=1, unfused_optimizer=True) for each in (layers, wanted))
    (row,), (ran,) = answers(emulate(tmp_path / "base", base), f"layers={wanted}"), answers(emulate(tmp_path, other))
    assert row["step_ns"] == pytest.approx(ran["step_ns"], rel=0.03)
    assert row["optimizer_s"] == pytest.approx(ran["optimizer_s"], rel=0.03)


def test_a_stage_updates_its_own_layers(tmp_path: Path) -> None:
    corpus = emulate(tmp_path, Job(ranks=1, layers=4, steps=1, unfused_optimizer=True))
    (whole,), stages = answers(corpus), answers(corpus, "pp=2", "batch=4")
    for stage in stages:
        # Half of the layers, and what every stage has: the tables of the vocabulary are as large as five layers.
        assert stage["optimizer_s"] < 0.8 * whole["optimizer_s"]


def test_more_micro_batches_are_more_of_the_same_and_one_reduction(emulated: Path) -> None:
    once, twice = answers(emulated), answers(emulated, "batch=2")
    for row, other in zip(once, twice, strict=True):
        assert 1.5 < other["gpu_busy_ns"] / row["gpu_busy_ns"] < 2.01
        reduced = [each["overlapped_ns"] + each["exposed_communication_ns"] for each in (row, other)]
        assert reduced[1] < 1.3 * reduced[0]


@pytest.mark.parametrize("batch", [1, 2])
def test_the_last_micro_batch_that_is_left_reduces_and_the_first_clears(tmp_path: Path, batch: int) -> None:
    job = Megatron(dp=2, layers=3, hidden=1024, ffn=4096, heads=8, micro_batches=4)
    row, ran = (
        answers(record(each, tmp_path / str(each.micro_batches)), *texts)[0]
        for each, texts in ((job, (f"batch={batch}",)), (replace(job, micro_batches=batch), ()))
    )
    for part in ("step_ns", "gpu_busy_ns", "exposed_communication_ns", "overlapped_ns"):
        assert abs(row[part] - ran[part]) < 0.02 * ran["step_ns"], part
    assert row["low_s"] < ran["iteration_time_s"] < row["high_s"]


def test_a_job_changes_alike_however_many_steps_it_ran_before(emulated: Path, tmp_path: Path) -> None:
    later = 3_000_000
    for file in (emulated.parent / "four").glob("*.gz"):
        text = gzip.decompress(file.read_bytes()).decode()
        text = re.sub(r"ProfilerStep#(\d+)", lambda step: f"ProfilerStep#{int(step[1]) + later}", text)
        (tmp_path / file.name).write_bytes(gzip.compress(text.encode()))
    corpus = ingested(tmp_path / "corpus", *sorted(tmp_path.glob("*.gz")))
    (job,) = groups(corpus)
    anchor = load(corpus, job, {})
    for graph, rank in zip(anchor.job.graphs, anchor.about.ranks, strict=True):
        cut = blocks(graph, rank.structure)
        assert {*cut.step.tolist()} - {NONE} == {*graph.rows.step.tolist()} - {NONE}
    change = ("layers=3", "batch=2")
    for row, renumbered in zip(answers(emulated, *change), answers(corpus, *change), strict=True):
        assert renumbered["step"] == row["step"] + later
        assert [renumbered[part] for part in ("step_ns", *_PARTS)] == [row[part] for part in ("step_ns", *_PARTS)]


def test_gradients_that_wait_for_the_backward_pass_overlap_nothing(emulated: Path) -> None:
    for before, off in zip(answers(emulated), answers(emulated, "overlap=off"), strict=True):
        assert off["overlapped_ns"] < 0.2 * before["overlapped_ns"]
        assert off["step_ns"] > before["step_ns"]
        assert off["gpu_busy_ns"] == pytest.approx(before["gpu_busy_ns"] + before["overlapped_ns"], rel=0.05)


def test_the_optimizer_of_more_layers_updates_both_tables_as_before(tmp_path: Path) -> None:
    job = Job(ranks=1, layers=3, steps=2, vocabulary=32_768)
    row = answers(emulate(tmp_path / "three", job), "layers=12")[0]
    ran = answers(emulate(tmp_path / "twelve", replace(job, layers=12)))[0]
    assert row["optimizer_s"] == pytest.approx(ran["optimizer_s"], rel=0.03)


def test_gradients_that_are_ready_early_are_reduced_no_later_with_overlap(tmp_path: Path) -> None:
    """The head's are most of all, and ready before a tenth of the backward pass: i of n parts would be later."""
    corpus = emulate(tmp_path, Job(ranks=2, layers=4, vocabulary=65_536))
    slow = "network=20e9"
    for row, on in zip(answers(corpus, slow), answers(corpus, slow, "overlap=on"), strict=True):
        assert on["step_ns"] == pytest.approx(row["step_ns"], rel=0.001)


def test_one_replica_of_several_waits_for_none(tmp_path: Path) -> None:
    late = Job(ranks=2, layers=2, steps=1, sleep_rank=1, sleep_ns=5_000_000)
    row = answers(emulate(tmp_path / "two", late), "dp=1")[0]
    (ran,) = answers(emulate(tmp_path / "one", Job(ranks=1, layers=2, steps=1)))
    assert row["step_ns"] == pytest.approx(ran["step_ns"], rel=0.03)
    assert row["exposed_communication_ns"] == 0


def test_switches_of_replay_go_with_changes(emulated: Path) -> None:
    half = switches.scale("family=gemm:0.5")
    only, both = answers(emulated, switches=[half]), answers(emulated, "layers=12", switches=[half])
    for row, other in zip(only, both, strict=True):
        assert row["step_ns"] < row["original_step_ns"]
        assert 1.6 < other["step_ns"] / row["step_ns"] < 2.1


def test_stages_of_a_trained_job_hide_and_wait(emulated: Path) -> None:
    rows = answers(emulated, "pp=2", "batch=4", step=3)
    assert len(rows) == 8
    whole = answers(emulated, step=3)[0]["gpu_busy_ns"]
    for row in rows:
        # Four micro-batches over two stages: at least (4 + 1) / 2 of one whole pass, less what is done once a step.
        assert 1.5 * whole < row["step_ns"] < 4 * whole
        assert row["modelled_pct"] > 0


def test_a_wider_network_shortens_the_reduction(emulated: Path) -> None:
    slow, fast = answers(emulated, "network=20e9"), answers(emulated, "network=900e9")
    for row, other in zip(slow, fast, strict=True):
        assert row["step_ns"] > other["step_ns"]


def test_the_command_writes_one_row_a_rank_and_step(emulated: Path, lumos: Run, tmp_path: Path) -> None:
    done = lumos("estimate", "--corpus", emulated, "--set", "layers=12", "--step", "3", "--format", "csv")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 5
    stored = lumos("estimate", "--corpus", emulated, "--set", "layers=12", "--into", tmp_path / "made")
    assert stored.returncode == 0, stored.stderr
    query = "SELECT provenance, count(*) FROM operator_sources GROUP BY 1 ORDER BY 1"
    assert "measured" in lumos("sql", query, "--corpus", tmp_path / "made").stdout
    assert lumos("critical-path", "--corpus", tmp_path / "made").returncode == 0


def test_an_estimate_that_does_not_fit_on_the_disk_leaves_the_corpus_as_it_was(
    tmp_path: Path, emulated: Path, lumos: Run
) -> None:
    corpus = shutil.copytree(emulated, tmp_path / "corpus")
    before = sorted(corpus.glob("trace_id=*"))
    command = ("estimate", "--corpus", corpus, "--set", "network=20e9", "--into", corpus)
    for limit in (4000, 20_000, 40_000):
        with full_disk(limit):
            done = lumos(*command)
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1].startswith(f"lumos-df: {corpus}: cannot be written (File too large)")
        assert sorted(corpus.glob("trace_id=*")) == before
        assert not list((corpus / STAGING).iterdir())
    assert lumos(*command).returncode == 0
    assert lumos("sql", "SELECT count(DISTINCT trace_id) FROM operators", "--corpus", corpus).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(("--set", "layer=3"), 1), (("--set", "tp=3"), 1), (("--scale", "family=gemm"), 2), (("--step", "77"), 1)],
)
def test_bad_input_is_one_line(emulated: Path, lumos: Run, arguments: tuple[str, ...], status: int) -> None:
    done = lumos("estimate", "--corpus", emulated, *arguments)
    assert done.returncode == status
    assert "Traceback" not in done.stderr
    if status == 1:
        assert len(done.stderr.strip().splitlines()) == 1
