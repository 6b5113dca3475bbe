"""Recorded jobs regrouped into pipelines: their steps against the schedules' own arithmetic, and what is refused."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lumos_df
from lumos_df.base.errors import LumosError
from lumos_df.graph.job import groups
from lumos_df.graph.job import load as load_job
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema import FAMILIES, PHASES
from lumos_df.schema.codes import KERNEL, THREAD
from lumos_df.schema.plan_words import DUALPIPE, GPIPE, INTERLEAVED, ONE_F_ONE_B, ZB_H1
from lumos_df.whatif.answer.estimated_traces import write
from lumos_df.whatif.changed_job import ChangedJob
from lumos_df.whatif.estimate import estimate, estimates
from lumos_df.whatif.job.recorded_job import load
from lumos_df.whatif.job.settings import parse
from lumos_df.whatif.pipeline.weight_gradients import of_weights
from tests.conftest import Run
from tests.emulator import Job
from tests.real import REAL
from tests.structure.made import Made
from tests.whatif import ideal
from tests.whatif.conftest import emulate, ingested

_OPTIMIZER = "multi_tensor_apply_kernel<AdamFunctor>"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight layers, two micro-batches, on one rank."""
    return ideal.corpus(tmp_path_factory.mktemp("whole"), Made(layers=8, micro_batches=2))


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first and the last of four stages, both tensor-parallel ranks of each, over two steps."""
    job = Made(layers=2, pp=4, tp=2, micro_batches=4, steps=2)
    return ideal.corpus(tmp_path_factory.mktemp("ends"), job, (0, 1, 6, 7))


@pytest.fixture(scope="module")
def host_bound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model so small that the GPU waits for the host."""
    job = Job(ranks=1, layers=8, steps=1, hidden=128, heads=4, sequence=64, batch=1, vocabulary=512)
    return emulate(tmp_path_factory.mktemp("small"), job)


def changed(corpus: Path, text: str) -> ChangedJob:
    (made,) = estimates(corpus, parse(text.split()), None, None, {}, ())
    return made


PIPELINES = [
    ("pp=2 batch=2", ONE_F_ONE_B, 2, 2, [4, 4]),
    ("pp=4 batch=8", ONE_F_ONE_B, 4, 8, [2, 2, 2, 2]),
    ("pp=3 batch=5", ONE_F_ONE_B, 3, 5, [2, 3, 3]),
    ("pp=8 batch=3", ONE_F_ONE_B, 8, 3, [1] * 8),
    ("pp=4 batch=8 schedule=gpipe", GPIPE, 4, 8, [2, 2, 2, 2]),
    ("pp=2 vp=2 batch=4", INTERLEAVED, 2, 4, [2, 2, 2, 2]),
    ("pp=2 vp=4 batch=6", INTERLEAVED, 2, 6, [1] * 8),
    ("pp=4 vp=2 batch=8", INTERLEAVED, 4, 8, [1] * 8),
    ("pp=3 vp=2 batch=6", INTERLEAVED, 3, 6, [1, 2, 2, 1, 1, 1]),
    ("pp=4 vp=3 batch=4 layers=12", INTERLEAVED, 4, 4, [1] * 12),
    ("pp=2 batch=4 schedule=zb-h1", ZB_H1, 2, 4, [4, 4]),
    ("pp=4 batch=8 schedule=zb-h1", ZB_H1, 4, 8, [2, 2, 2, 2]),
    ("pp=3 batch=7 schedule=zb-h1", ZB_H1, 3, 7, [2, 3, 3]),
    ("pp=2 batch=4 schedule=dualpipe", DUALPIPE, 2, 4, [4, 4]),
    ("pp=4 batch=10 schedule=dualpipe", DUALPIPE, 4, 10, [2, 2, 2, 2]),
    ("pp=6 batch=12 layers=12 schedule=dualpipe", DUALPIPE, 6, 12, [2] * 6),
]


@pytest.mark.parametrize(("text", "schedule", "pp", "batches", "layers"), PIPELINES)
def test_a_rebuilt_pipeline_takes_what_its_schedule_takes(
    whole: Path, text: str, schedule: int, pp: int, batches: int, layers: list[int]
) -> None:
    rebuilt = ideal.on_links(whole, text)
    assert len(rebuilt.job.graphs) == pp
    expected = ideal.arithmetic_us(schedule, pp, batches, layers, ideal.NEAR_US)
    assert ideal.span_us(rebuilt) == pytest.approx(expected, rel=1e-3)
    for graph in rebuilt.job.graphs:
        assert not graph.dropped


@pytest.mark.parametrize(
    ("text", "schedule", "pp", "batches", "layers"),
    [
        ("pp=2", ONE_F_ONE_B, 2, 4, [4, 4]),
        ("pp=4 vp=2 batch=8", INTERLEAVED, 4, 8, [1] * 8),
        ("pp=4 batch=8 schedule=zb-h1", ZB_H1, 4, 8, [2, 2, 2, 2]),
        ("pp=4 batch=8 schedule=dualpipe", DUALPIPE, 4, 8, [2, 2, 2, 2]),
    ],
)
def test_a_pipeline_becomes_another_one(
    ends: Path, text: str, schedule: int, pp: int, batches: int, layers: list[int]
) -> None:
    rebuilt = ideal.on_links(ends, text)
    assert len(rebuilt.job.graphs) == 2 * pp
    # The two ranks of a stage are a pair, so stages are apart.
    expected = 2 * ideal.arithmetic_us(schedule, pp, batches, layers, ideal.FAR_US)
    # The first stage begins first and ends last, so steps add up.
    assert ideal.span_us(rebuilt) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("text", "known", "us"),
    [
        ("pp=2", {}, ideal.NEAR_US),
        # Twice the bytes: of an element, of sequences, of tokens, of a token.
        ("pp=2 dtype=float32", {}, 2 * ideal.NEAR_US),
        ("pp=2 micro_batch=4", {}, 2 * ideal.NEAR_US),
        ("pp=2 seq=128", {}, 2 * ideal.NEAR_US),
        ("pp=2 hidden=512", {}, 2 * ideal.NEAR_US),
        # The next stage is tp * dp ranks on, and two of them are a pair.
        ("pp=2", {"dp": 2, "world": 2}, ideal.FAR_US),
        ("pp=2", {"tp": 2, "dp": 1, "world": 2}, ideal.FAR_US),
        ("pp=4 dp=1", {"dp": 2, "world": 2}, ideal.NEAR_US),
        # 65,536 bytes at 32.768 MB/s; the same from pair to pair.
        ("pp=2 network=32.768e6", {}, 2000),
        ("pp=2 network=32.768e6", {"dp": 2, "world": 2}, 2000),
    ],
)
def test_a_send_takes_its_bytes_over_the_links_between_stages(
    whole: Path, text: str, known: dict[str, int], us: float
) -> None:
    sends = ideal.sends_us(ideal.on_links(whole, text, known))
    # One or two microseconds start it.
    assert [min(sends), max(sends)] == pytest.approx([us, us], abs=3)


def test_the_screen_says_on_how_many_gpus_other_stages_run(whole: Path, lumos: Run) -> None:
    done = lumos("estimate", "--corpus", whole, "--set", "pp=2", COLUMNS="100")
    assert done.returncode == 0, done.stderr
    assert "\n  2 GPUs " in done.stdout


def test_sends_that_were_recorded_take_what_they_took(tmp_path: Path) -> None:
    job = Made(layers=4, pp=2, micro_batches=4, routes=True)
    rebuilt = ideal.on_links(ideal.corpus(tmp_path, job, (0, 1)), "batch=6")
    assert ideal.sends_us(rebuilt) == [ideal.SENT_US] * (2 * 2 * 6)
    expected = ideal.arithmetic_us(ONE_F_ONE_B, 2, 6, [4, 4], ideal.SENT_US)
    assert ideal.span_us(rebuilt) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("batch", [1, 4])
def test_first_and_last_stage_make_one_that_has_all(ends: Path, batch: int) -> None:
    rebuilt = changed(ends, f"pp=1 batch={batch}")
    assert rebuilt.makers == [(0, 2), (1, 3)]
    each = 8 * (ideal.FORWARD_US + ideal.INPUT_US + ideal.WEIGHT_US)
    assert ideal.span_us(rebuilt) == pytest.approx(2 * batch * each, rel=2e-3)
    for graph, source in zip(rebuilt.job.graphs, rebuilt.sources, strict=True):
        names = Counter(graph.rows.names[graph.rows.name[row]] for row in graph.gpu.row.tolist())
        assert names["indexSelectLargeIndex"] == names["cunn_SoftMaxForward"] == 2 * batch
        assert names[_OPTIMIZER] == 2 * 3
        assert (source >= 0).all()


def test_each_chunk_is_its_own_layers_of_the_model(whole: Path) -> None:
    for text, expected in (
        ("pp=4 batch=4", [{0, 1}, {2, 3}, {4, 5}, {6, 7}]),
        ("pp=4 vp=2 batch=4", [{0, 4}, {1, 5}, {2, 6}, {3, 7}]),
        ("pp=2 batch=4 schedule=dualpipe", [set(range(8))] * 2),
    ):
        rebuilt = changed(whole, text)
        layer = np.append(rebuilt.anchor.about.ranks[0].structure.layer, -1)
        layers = [{*layer[source].tolist()} - {-1} for source in rebuilt.sources]
        assert layers == expected, text


@pytest.mark.parametrize(
    ("text", "embeds", "has_head"),
    [
        # Times a micro-batch, by stage.
        ("pp=4 batch=4", [1, 0, 0, 0], [0, 0, 0, 1]),
        ("pp=2 vp=2 batch=4", [1, 0], [0, 1]),
        # Half of the micro-batches go either way.
        ("pp=4 batch=8 schedule=dualpipe", [1 / 2, 0, 0, 1 / 2], [1 / 2, 0, 0, 1 / 2]),
        ("pp=1 batch=4", [1], [1]),
    ],
)
def test_the_first_part_of_the_model_embeds_and_the_last_has_the_head(
    whole: Path, text: str, embeds: list[float], has_head: list[float]
) -> None:
    rebuilt = changed(whole, text)
    batches = rebuilt.plan.new.batch or 0
    names = [[graph.rows.names[name] for name in graph.rows.name.tolist()] for graph in rebuilt.job.graphs]
    assert [names_of_stage.count("indexSelectLargeIndex") / batches for names_of_stage in names] == embeds
    assert [names_of_stage.count("cunn_SoftMaxForward") / batches for names_of_stage in names] == has_head


def updating_ns(graph: TraceGraph) -> int:
    return int(graph.own[graph.rows.name == graph.rows.names.index(_OPTIMIZER)].sum())


def test_the_ends_of_a_pipeline_update_a_table_of_the_vocabulary_more(whole: Path) -> None:
    spent = np.array([updating_ns(graph) for graph in changed(whole, "pp=4 batch=4").job.graphs])
    # Two layers of 12 h^2 parameters each, and embedding or logits of 5000 h.
    end = (2 * 12 * 256**2 + 5000 * 256) / (2 * 12 * 256**2)
    assert spent / spent[1] == pytest.approx([end, 1, 1, end], rel=0.01)


@pytest.mark.parametrize(
    ("text", "links"), [("pp=4 batch=8", 3), ("pp=4 vp=2 batch=8", 7), ("pp=4 batch=8 schedule=dualpipe", 3)]
)
def test_every_link_sends_each_micro_batch_each_way(whole: Path, text: str, links: int) -> None:
    rebuilt = changed(whole, text)
    names: Counter[str] = Counter()
    for graph in rebuilt.job.graphs:
        names.update(graph.rows.names[name] for name in graph.rows.name.tolist())
    sends = [names[f"{what} {way}"] for what in ("send", "receive") for way in ("forward", "backward")]
    assert sends == [8 * links] * 4
    # Each of them is one transfer of two ranks.
    assert rebuilt.job.instances is not None
    assert np.bincount(rebuilt.job.instances.instance).tolist() == [2] * (2 * 8 * links)


@pytest.mark.parametrize("sequence", [512, 256])
def test_gradients_of_weights_are_the_second_product_of_every_linear_layer(tmp_path: Path, sequence: int) -> None:
    """With 4 x 256 tokens and a width of 1024, shapes alone tell some products' gradients not apart."""
    corpus = emulate(tmp_path, Job(ranks=1, layers=2, steps=2, sequence=sequence))
    about = load(corpus, groups(corpus)[0], {}).about.ranks[0]
    rows = about.trace.rows
    weights, untold = of_weights(about.trace, about.structure.phase)
    gemm = np.flatnonzero((rows.kind == KERNEL) & (rows.family == FAMILIES.index("gemm")))
    node = rows.nearest(rows.forward >= 0, gemm.astype(np.int32))
    linear = gemm[node >= 0]
    pairs = linear[np.lexsort((rows.ts[linear], node[node >= 0]))].reshape(-1, 2)
    assert len(pairs) == 2 * (4 * 2 + 1)
    assert not weights[pairs[:, 0]].any()
    assert weights[pairs[:, 1]].all()
    assert not weights[gemm[node < 0]].any()
    assert not untold.any()


def test_gradients_reduced_in_the_backward_pass_wait_for_those_of_weights(emulated: Path) -> None:
    plain, apart = (changed(emulated, f"pp=2 batch=4 schedule={name}") for name in ("1f1b", "zb-h1"))
    for before, after in zip(plain.job.graphs, apart.job.graphs, strict=True):
        # The same work, in another order.
        assert sorted(before.own[before.gpu.row].tolist()) == sorted(after.own[after.gpu.row].tolist())
    spans = [ideal.span_us(rebuilt) for rebuilt in (plain, apart)]
    assert 0.75 * spans[0] < spans[1] < 0.97 * spans[0]


def test_products_without_shapes_are_told_by_autograd(tmp_path: Path) -> None:
    """A real training step: each linear layer's node launches a product for the input and then one for the weight."""
    corpus = ingested(tmp_path / "corpus", REAL / "megatron_tp2_train")
    for about in load(corpus, groups(corpus)[0], {}).about.ranks:
        rows, phase = about.trace.rows, about.structure.phase
        products = np.array([name == "aten::mm" for name in rows.names])[rows.name]
        ahead, back = (np.flatnonzero(products & (phase == PHASES.index(name))) for name in ("forward", "backward"))
        weights = np.flatnonzero(of_weights(about.trace, phase)[0])
        chosen = np.intersect1d(rows.nearest(products, weights.astype(np.int32)), back)
        assert (len(ahead), len(back)) == (9, 18)
        assert chosen.tolist() == back[1::2].tolist()


@pytest.mark.parametrize(
    "text", ["pp=2", "pp=2 vp=2", "pp=2 schedule=zb-h1", "pp=2 schedule=dualpipe", "pp=1", "layers=4"]
)
def test_a_host_that_is_behind_does_one_task_after_the_other(host_bound: Path, text: str) -> None:
    for replay in changed(host_bound, f"batch=4 {text}").after.replays:
        graph = replay.graph
        row = graph.atoms.row
        work = int(graph.own[row].sum() + graph.edges.lag[graph.edges.kind == THREAD].sum())
        assert work <= int(replay.end[row].max() - replay.start[row].min()) < 1.1 * work


@pytest.mark.parametrize(
    "text",
    ["batch=4", "pp=2 batch=4", "pp=2 vp=2 batch=4", "pp=2 batch=4 schedule=zb-h1", "pp=2 batch=4 schedule=dualpipe"],
)
def test_a_stored_job_in_other_stages_replays_as_it_was_estimated(host_bound: Path, tmp_path: Path, text: str) -> None:
    rebuilt = changed(host_bound, text)
    ids = write(rebuilt, host_bound, tmp_path / "into", text)
    again = load_job(tmp_path / "into", ids).replay()
    for before, after in zip(rebuilt.after.replays, again.replays, strict=True):
        assert (after.high - after.low).tolist() == (before.high - before.low).tolist()
        assert after.replayed.other.tolist() == before.replayed.other.tolist()


def test_two_stages_a_rank_are_twice_the_parameters(whole: Path) -> None:
    """A layer has 12 h^2 parameters; embedding or logits 5000 h."""
    spent = []
    for name in ("1f1b", "dualpipe"):
        rebuilt = changed(whole, f"pp=4 batch=8 schedule={name}")
        assert any("one after the other" in text for text in rebuilt.warnings) == (name == "dualpipe")
        spent.append(updating_ns(rebuilt.job.graphs[1]))
    layer, table = 12 * 256**2, 5000 * 256
    assert spent[1] / spent[0] == pytest.approx((4 * layer + table) / (2 * layer + table), rel=0.01)


def test_one_chunk_a_stage_is_no_change(whole: Path) -> None:
    with pytest.raises(LumosError, match="vp=1 changes nothing, because it was 1 already"):
        estimate(whole, parse(["vp=1"]))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "pp=4 schedule=interleave",
            r"schedule=interleave is not for traces; did you mean 'interleaved'\?; one of 1f1b, interleaved, zb-h1, ",
        ),
        ("schedule=fsdp", "schedule=fsdp is not for traces; one of 1f1b, interleaved, zb-h1, dualpipe, gpipe$"),
        ("vp=2", "schedule = interleaved: 'interleaved' needs a pipeline, and pp is 1; nearest is 1f1b"),
        ("pp=4 schedule=interleaved batch=4", "vp = 1: schedule 'interleaved' needs two chunks a stage or more"),
        ("pp=4 vp=2 batch=6", "pp = 4: schedule 'interleaved' needs micro-batches .* in multiples of it; nearest is 3"),
        ("pp=4 vp=3 batch=4", "8 layers are fewer than pp \\* vp = 4 \\* 3 chunks; nearest is 2"),
        ("pp=4 vp=2 schedule=1f1b", "vp = 2: schedule '1f1b' has one chunk a stage; .*; nearest is 1"),
        ("pp=4 batch=6 schedule=dualpipe", "batch = 6: schedule 'dualpipe' needs an even number .*; nearest is 8"),
        ("pp=3 batch=8 schedule=dualpipe", "pp = 3: schedule 'dualpipe' needs an even number of stages; nearest is"),
    ],
)
def test_a_pipeline_that_cannot_be_is_refused_with_the_nearest_that_can(whole: Path, text: str, says: str) -> None:
    with pytest.raises(LumosError, match=says):
        changed(whole, text)


@pytest.mark.parametrize("schedule", ["zb-h1", "dualpipe"])
def test_a_trace_that_does_not_tell_gradients_apart_is_refused(tmp_path: Path, schedule: str) -> None:
    corpus = ideal.corpus(tmp_path, Made(layers=2, links=False))
    with pytest.raises(LumosError, match=r"does not tell gradients of weights .* record_shapes=True"):
        changed(corpus, f"pp=2 batch=4 schedule={schedule}")


def test_what_is_not_told_stays_and_is_said(tmp_path: Path) -> None:
    """Where a layer is computed again inside a node, that node has lost its link: one product of four."""
    corpus = ideal.corpus(tmp_path, Made(layers=8, micro_batches=1, recompute=True))
    rebuilt = changed(corpus, "pp=2 batch=4 schedule=zb-h1")
    assert any("25% of the time of the backward pass's products" in text for text in rebuilt.warnings)
    plain = ideal.span_us(changed(corpus, "pp=2 batch=4 schedule=1f1b"))
    assert ideal.span_us(rebuilt) < plain


def test_stages_recorded_over_other_steps_are_not_joined(tmp_path: Path) -> None:
    first, last = (Made(layers=2, pp=2, micro_batches=2, steps=steps) for steps in (1, 2))
    ideal.traces(tmp_path / "job", first, (0,))
    ideal.traces(tmp_path / "job", last, (1,))
    with pytest.raises(LumosError, match="ranks 0 and 1 were not recorded over the same steps"):
        changed(ingested(tmp_path / "corpus", tmp_path / "job"), "pp=1")


def test_the_command_takes_chunks_and_stores_what_it_inserts(whole: Path, lumos: Run, tmp_path: Path) -> None:
    arguments = ("--set", "pp=4", "--set", "vp=2", "--set", "batch=8")
    done = lumos("estimate", "--corpus", whole, *arguments, "--into", tmp_path / "made", "--format", "csv")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1 + 4
    counts = "provenance, count(*) AS n, count(source_op_id) AS known"
    query = f"SELECT {counts} FROM operator_sources GROUP BY 1 ORDER BY 1"
    stored: list[tuple[Any, ...]] = lumos_df.connect(tmp_path / "made").sql(query).fetchall()
    assert [row for row in stored if row[0] == "modelled"] == [("modelled", 4 * 7 * 8, 0)]
    assert all(known == operators for kind, operators, known in stored if kind != "modelled")
    refused = lumos("estimate", "--corpus", whole, "--set", "pp=4", "--set", "vp=2", "--set", "batch=6")
    assert refused.returncode == 1
    assert len(refused.stderr.strip().splitlines()) == 1
