"""Changes to a job that ran without a GPU, whose every time follows from shapes: so the truth is known."""

import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lumos_df.base.errors import LumosError, QueryError
from lumos_df.graph import switches
from lumos_df.graph.host_spread import works_between
from lumos_df.graph.job import groups
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.whatif.durations import new_pages
from lumos_df.whatif.estimate import estimate, estimated
from lumos_df.whatif.job.recorded_job import load
from lumos_df.whatif.job.settings import parse
from tests.conftest import ROOT
from tests.whatif.conftest import ingested
from tests.whatif.hosted import HostJob, write

JOB = HostJob()
CACHED = HostJob(cached=True)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hosted")
    return ingested(folder / "corpus", write(JOB, folder / "job"))


@pytest.fixture(scope="module")
def cached(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The job on a core whose own cache holds the less, the more a step touches."""
    folder = tmp_path_factory.mktemp("cached")
    return ingested(folder / "corpus", write(CACHED, folder / "job"))


def answers(corpus: Path, *texts: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = estimate(corpus, parse([*texts])).to_pylist()
    return rows


def test_without_a_change_it_takes_what_it_took(corpus: Path) -> None:
    for row in answers(corpus):
        assert row["step_ns"] == row["original_step_ns"] == pytest.approx(1000 * JOB.step_us(), rel=1e-3)
        assert row["measured_pct"] == 100


CHANGES: list[tuple[tuple[str, ...], dict[str, Any], float]] = [
    (("layers=6",), {"layers": 6}, 5e-3),
    (("layers=1",), {"layers": 1}, 5e-3),
    (("batch=3",), {"micro_batches": 3}, 1e-3),
    (("hidden=256", "ffn=1024", "heads=16"), {"hidden": 256}, 0.02),
    (("micro_batch=6",), {"batch": 6}, 0.02),
    (("seq=192",), {"sequence": 192}, 0.02),
    (("layers=4", "micro_batch=6", "batch=2"), {"layers": 4, "batch": 6, "micro_batches": 2}, 0.02),
]


@pytest.mark.parametrize(("change", "truth", "within"), CHANGES)
def test_a_changed_job_takes_what_it_takes_when_it_runs(
    cached: Path, change: tuple[str, ...], truth: dict[str, Any], within: float
) -> None:
    wanted = 1000 * replace(CACHED, **truth).step_us()
    for row in answers(cached, *change):
        assert row["step_ns"] == pytest.approx(wanted, rel=within)
        assert row["low_s"] <= row["iteration_time_s"] <= row["high_s"]
        assert row["gpu_busy_ns"] == 0


@pytest.mark.parametrize(("change", "truth", "_"), CHANGES)
def test_the_interval_also_holds_a_machine_whose_caches_never_matter(
    corpus: Path, change: tuple[str, ...], truth: dict[str, Any], _: float
) -> None:
    wanted = 1e-6 * replace(JOB, **truth).step_us()
    for row in answers(corpus, *change):
        assert row["low_s"] <= wanted <= row["high_s"]
        assert row["iteration_time_s"] == pytest.approx(wanted, rel=0.04)


def between_ns(graph: TraceGraph) -> float:
    """Return for how long the host works between operators."""
    return float(graph.edges.lag[works_between(graph)].sum())


@pytest.mark.parametrize(("before", "after"), [(3, 12), (12, 3)])
@pytest.mark.parametrize("tokens", [96, 4], ids=["large tensors", "small ones too"])
def test_between_operators_the_host_works_longer_the_more_these_touch(
    tmp_path: Path, before: int, after: int, tokens: int
) -> None:
    jobs = []
    for batch in (before, after):
        job = replace(CACHED, sequence=tokens, batch=batch)
        corpus = ingested(tmp_path / f"corpus{batch}", write(job, tmp_path / f"job{batch}"))
        jobs.append(load(corpus, groups(corpus)[0], {}))
    changed = estimated(jobs[0], parse([f"micro_batch={after}"]))
    assert between_ns(changed.job.graphs[0]) == pytest.approx(between_ns(jobs[1].job.graphs[0]), rel=0.05)
    (row,) = answers(tmp_path / f"corpus{before}", f"micro_batch={after}")[:1]
    # It may also be that they stay; of small tensors the system takes nothing back.
    assert any(cause.startswith("gaps between operators") for cause in row["causes"]) == (tokens == 96)


def test_results_that_come_to_lie_in_new_pages_may_take_longer(tmp_path: Path) -> None:
    """Of 192 samples an activation has 9 MiB, of 96 half of that."""
    folder = write(JOB, tmp_path / "job")
    for file in folder.glob("**/*.gz"):
        text = gzip.decompress(file.read_bytes()).decode()
        file.write_bytes(gzip.compress(text.replace("aten::native_layer_norm", "aten::mul").encode()))
    corpus = ingested(tmp_path / "corpus", folder)
    errors = []
    for batch in (96, 192):
        changed = estimated(load(corpus, groups(corpus)[0], {}), parse([f"micro_batch={batch}"]))
        rows = changed.job.graphs[0].rows
        errors.append(float(changed.times[0].error[rows.named(lambda name: name == "aten::mul")].max()))
    assert errors[1] > errors[0] + 0.5


def test_what_writes_into_what_it_reads_needs_no_new_pages() -> None:
    small, large = ((1024, 1024),), ((4096, 1024),)
    assert new_pages.seconds("aten::mul", small, large) == pytest.approx(4096 * 1024 * 4 * 3.6e-10)
    assert new_pages.seconds("aten::mul", large, small) > 0
    for name in ("aten::mul_", "aten::_log_softmax", "aten::embedding_dense_backward", "aten::sum"):
        assert not new_pages.seconds(name, small, large)
    assert not new_pages.seconds("aten::mul", large, large)


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_layers_without_modules_are_those_that_repeat(tmp_path: Path, micro_batches: int) -> None:
    job = replace(CACHED, layers=3, named=False, micro_batches=micro_batches)
    plain = ingested(tmp_path / "corpus", write(job, tmp_path / "job"))
    for change, layers in (("layers=6", 6), ("layers=2", 2)):
        wanted = 1000 * replace(job, layers=layers).step_us()
        for row in answers(plain, change):
            assert row["step_ns"] == pytest.approx(wanted, rel=5e-3)


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("decodes", [False, True])
def test_every_stack_has_as_many_layers_and_each_sweep_of_an_optimizer_goes_through_them(
    tmp_path: Path,
    at_once: bool,  # noqa: FBT001 - a parameter of the test
    decodes: bool,  # noqa: FBT001 - as above
) -> None:
    job = replace(CACHED, layers=3, named=False, decodes=decodes, at_once=at_once)
    plain = ingested(tmp_path / "corpus", write(job, tmp_path / "job"))
    for layers in (6, 2):
        wanted = 1000 * replace(job, layers=layers).step_us()
        for row in answers(plain, f"layers={layers}"):
            assert row["step_ns"] == pytest.approx(wanted, rel=5e-3)


def test_products_behind_layers_are_no_loop_over_parameters(tmp_path: Path) -> None:
    """Many answers of one net are about as many products as the net has parameters: other layers change none."""
    job = HostJob(layers=2, fused=True, answers=12)
    corpus = ingested(tmp_path / "corpus", write(job, tmp_path / "job"))
    for row in answers(corpus, "layers=4"):
        assert row["step_ns"] == pytest.approx(1000 * replace(job, layers=4).step_us(), rel=0.01)


@pytest.mark.parametrize(
    ("change", "truth"),
    [
        (("layers=6",), {"layers": 6}),
        (("layers=2",), {"layers": 2}),
        (("hidden=256", "ffn=1024", "heads=16"), {"hidden": 256}),
    ],
)
def test_one_operator_that_updates_all_parameters_grows_as_their_gradients(
    tmp_path: Path, change: tuple[str, ...], truth: dict[str, Any]
) -> None:
    job = HostJob(layers=3, fused=True, named=False)
    corpus = ingested(tmp_path / "corpus", write(job, tmp_path / "job"))
    (anchor,) = [load(corpus, ids, {}) for ids in groups(corpus)]
    rows = estimated(anchor, parse([*change])).job.graphs[0]
    own = rows.own[rows.rows.named(lambda name: "fused" in name)].tolist()
    wanted = dict(replace(job, **truth).operators())["aten::_fused_adamw_"]
    assert own == pytest.approx([1000 * wanted] * 3, rel=0.2)


def test_stages_of_a_pipeline_share_out_one_stack(tmp_path: Path) -> None:
    job = replace(JOB, named=False, decodes=True)
    plain = ingested(tmp_path / "corpus", write(job, tmp_path / "job"))
    with pytest.raises(QueryError, match="pp cannot change, because its layers come in 2 stacks"):
        answers(plain, "pp=2")


def test_tables_that_an_optimizer_goes_through_are_no_layers(tmp_path: Path) -> None:
    # Twice eight tables are more operators of the optimizer than twice a layer.
    job = replace(CACHED, tables=16)
    plain = ingested(tmp_path / "corpus", write(job, tmp_path / "job"))
    for row in answers(plain, "layers=6"):
        assert row["step_ns"] == pytest.approx(1000 * replace(job, layers=6).step_us(), rel=5e-3)


@pytest.mark.parametrize("change", ["hardware=h100-sxm", "dtype=bf16", "pp=2", "cp=2"])
def test_what_a_job_without_a_gpu_cannot_tell_is_refused(corpus: Path, change: str) -> None:
    with pytest.raises(QueryError, match="cannot change, because the job ran on no GPU"):
        answers(corpus, change)


def test_nobody_is_asked_for_the_gpu_of_a_job_that_ran_on_none(corpus: Path) -> None:
    said = answers(corpus, "layers=3")[0]["warnings"]
    assert "MFU, energy and what fits are unknown, as no GPU ran" in said
    assert not any("--known hardware" in text for text in said)


def test_a_job_whose_steps_nobody_marked_says_that_it_counts_as_one(corpus: Path, tmp_path: Path) -> None:
    folder = write(JOB, tmp_path / "job")
    for file in folder.iterdir():
        marked = gzip.decompress(file.read_bytes())
        file.write_bytes(gzip.compress(marked.replace(b"ProfilerStep#", b"part ")))
    said = "no step is marked: all that was recorded counts as one; ingest --step-from NAME tells its steps"
    assert said in answers(ingested(tmp_path / "corpus", folder), "layers=3")[0]["warnings"]
    assert said not in answers(corpus, "layers=3")[0]["warnings"]


def test_operators_of_a_job_without_a_gpu_are_nodes_of_its_graph(corpus: Path) -> None:
    products = sum(us for name, us in JOB.operators() if name == "aten::mm")
    for row in estimate(corpus, parse([]), switches=(switches.scale("name=aten::mm:0.5"),)).to_pylist():
        assert row["original_step_ns"] - row["step_ns"] == pytest.approx(500 * products, rel=1e-3)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample trace of two ranks that communicate by gloo; its vocabulary is as large as its FFN."""
    return ingested(tmp_path_factory.mktemp("sample") / "corpus", ROOT / "data" / "traces" / "cpu_ddp")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("dp=4", "dp=4 changes nothing, because the job communicates on the host"),
        ("network=1e9", "network=1e9 changes nothing, because the job communicates on the host"),
        ("vocab=4096", "vocab=4096 changes nothing, because nothing in the trace is told to depend on it"),
    ],
)
def test_what_a_change_does_not_reach_is_refused(sample: Path, change: str, says: str) -> None:
    with pytest.raises(LumosError, match=says):
        estimate(sample, parse([change]))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("hidden=4096", "of the host's time is operators"),
        ("batch=4", "batch=4 is 4 micro-batches a step, one after another, where one was recorded"),
    ],
)
def test_what_a_change_does_not_reach_is_said(sample: Path, change: str, says: str) -> None:
    warnings = estimate(sample, parse([change]))["warnings"][0].as_py()
    assert any(says in warning for warning in warnings), warnings
    assert not any(says in warning for warning in estimate(sample, parse(["layers=3"]))["warnings"][0].as_py())


def test_overlap_of_what_the_host_communicates_is_refused(sample: Path) -> None:
    with pytest.raises(LumosError, match="communicates on the host"):
        estimate(sample, parse(["overlap=off"]))
