"""Changes to real traces, held against what was recorded."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lumos_df.base.errors import QueryError
from lumos_df.graph.event_graph import event_graph
from lumos_df.graph.job import Job, groups, load
from lumos_df.structure import labelled_rows as structure_rows
from lumos_df.structure.layers import understand
from lumos_df.whatif.answer.estimated_traces import write
from lumos_df.whatif.changed_job import ChangedJob
from lumos_df.whatif.estimate import estimate, estimates
from lumos_df.whatif.job.settings import parse
from lumos_df.whatif.rewrite.blocks import blocks
from lumos_df.whatif.rewrite.rewritten_graph import rewritten
from tests.real import REAL, SETS
from tests.whatif.conftest import ingested

SWEEP = {"bs8": (43, 8), "bs32": (71, 32), "bs128": (128, 128)}
"""Sequence and batch of transformer_batch_sweep."""
_NUMBERS = ("step_ns", "gpu_busy_ns", "exposed_compute_ns", "overlapped_ns", "exposed_communication_ns", "other_ns")


def answers(corpus: Path, *texts: str, **more: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = estimate(corpus, parse([*texts]), **more).to_pylist()
    return rows


def test_without_a_change_the_estimate_is_the_replay(real_corpus: Path) -> None:
    rows = answers(real_corpus)
    assert len(rows) > 70
    for row in rows:
        assert [row[name] for name in _NUMBERS] == [row[f"original_{name}"] for name in _NUMBERS], row["job"]
        assert row["measured_pct"] == 100 or row["gpu_busy_ns"] == 0
        assert row["low_s"] <= row["iteration_time_s"] <= row["high_s"]


def test_the_same_blocks_in_the_same_order_are_the_same_graph(real_corpus: Path) -> None:
    for ids in groups(real_corpus):
        job = load(real_corpus, ids)
        for graph in job.graphs:
            cut = blocks(graph, understand(structure_rows.extend(real_corpus, graph.rows)))
            again = rewritten(graph, cut, np.arange(len(cut)))
            assert again.graph.dropped == graph.dropped
            alone = [Job([single], None, event_graph([single])).replay().replays[0] for single in (graph, again.graph)]
            assert np.array_equal(alone[0].start[again.source], alone[1].start), graph.rows.path
            assert np.array_equal(alone[0].end[again.source], alone[1].end), graph.rows.path


@pytest.fixture(scope="module")
def megatron(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ingested(tmp_path_factory.mktemp("megatron") / "corpus", REAL / "megatron_tp8_forward")


@pytest.fixture(scope="module")
def half(megatron: Path) -> ChangedJob:
    # What is compared is the recording itself, stalls and all.
    return estimates(megatron, replace(parse(["layers=20"]), keep_stalls=True), None, None, {}, ())[0]


def test_half_the_layers_take_what_the_first_ones_and_their_surroundings_took(half: ChangedJob) -> None:
    for place, rank in enumerate(half.anchor.about.ranks):
        graph = half.anchor.job.graphs[place]
        cut = blocks(graph, rank.structure)
        row = graph.gpu.row
        end = [int(graph.rows.end[row[cut.layer[cut.of_row[row]] == layer]].max()) for layer in (19, 39)]
        recorded = int(graph.rows.end[row].max()) - (end[1] - end[0])
        began = int(graph.rows.ts[row].min())
        estimated = int(half.after.replays[place].end[half.job.graphs[place].gpu.row].max())
        # Rank 6 stalls for 14 ms at the end of its last layer, which the others call part of the head.
        allowed = 0.02 if graph.rows.rank != 6 else 0.05
        assert estimated - began == pytest.approx(recorded - began, rel=allowed), graph.rows.rank


def test_twice_the_layers_of_half_the_layers_take_what_was_recorded(megatron: Path, tmp_path: Path) -> None:
    recorded = [row["step_ns"] for row in answers(megatron)]
    answers(megatron, "layers=20", into=tmp_path / "half")
    again = answers(tmp_path / "half", "layers=40")
    assert np.mean([row["step_ns"] for row in again]) == pytest.approx(np.mean(recorded), rel=0.03)
    assert again[0]["job"] == "megatron_tp8_forward: layers=20"


def test_a_stored_estimate_replays_as_it_was_estimated(megatron: Path, tmp_path: Path) -> None:
    (made,) = estimates(megatron, parse(["layers=8"]), None, None, {}, ())
    write(made, megatron, tmp_path / "made", "layers=8")
    (again,) = estimates(tmp_path / "made", parse([]), None, None, {}, ())
    for before, after in zip(made.after.replays, again.after.replays, strict=True):
        rows, others = before.graph.gpu.row, after.graph.gpu.row
        assert len(rows) == len(others)
        lasted = int(before.end[rows].max() - before.start[rows].min())
        assert after.end[others].max() - after.start[others].min() == pytest.approx(lasted, rel=0.005)
    assert again.anchor.sizes.layers == 8


def test_fewer_ranks_of_tensor_parallelism_compute_more_each(megatron: Path) -> None:
    whole = answers(megatron)
    cut = answers(megatron, "tp=4")
    for row, other in zip(whole, cut, strict=True):
        assert 1.7 < other["exposed_compute_ns"] / row["exposed_compute_ns"] < 2.0
        assert other["rescaled_pct"] > 20


@pytest.mark.parametrize(("members", "measured_ms"), [(4, (0.544, 0.574)), (2, (0.392, 0.405))])
def test_an_all_reduce_among_fewer_takes_what_nccl_tests_measured(
    megatron: Path, members: int, measured_ms: tuple[float, float]
) -> None:
    """64 MiB on A100 SXM, as 16-bit and as 8-bit elements (ai-dynamo/aiconfigurator 095f58a, Apache-2.0)."""
    (changed,) = estimates(megatron, parse([f"tp={members}"]), None, None, {}, ())
    assert changed.job.instances is not None
    typical = float(np.median(changed.job.instances.transfer)) / 1e6
    assert 0.9 * measured_ms[0] < typical < 1.1 * measured_ms[1]


def test_stages_share_the_layers_and_send(megatron: Path) -> None:
    changed = estimates(megatron, parse(["pp=4", "batch=8"]), None, None, {}, ())[0]
    assert len(changed.job.graphs) == 32
    layers = [
        int(np.count_nonzero(graph.rows.names[name].startswith("send")))
        for graph in changed.job.graphs[:1]
        for name in np.unique(graph.rows.name)
    ]
    assert sum(layers) == 1  # a forward-only job sends forward
    one_layer = 558e6 / 40
    rows = answers(megatron, "pp=4", "batch=8")
    assert max(row["step_ns"] for row in rows) == pytest.approx((8 + 3) * 10 * one_layer, rel=0.1)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sweep")


@pytest.mark.parametrize(
    ("known", "wanted", "within"),
    [
        (("bs8",), "bs128", 0.13),
        (("bs32",), "bs128", 0.12),
        (("bs8", "bs32"), "bs128", 0.06),
        (("bs128",), "bs32", 0.06),
        (("bs8", "bs128"), "bs32", 0.08),
    ],
)
def test_one_batch_size_tells_another(sweep: Path, known: tuple[str, ...], wanted: str, within: float) -> None:
    files = {name: REAL / "transformer_batch_sweep" / f"{name}.json.gz" for name in SWEEP}
    truth = answers(_corpus(sweep, files, (wanted,)))[0]
    seq, batch = SWEEP[wanted]
    for row in answers(_corpus(sweep, files, known), f"seq={seq}", f"micro_batch={batch}"):
        assert row["gpu_busy_ns"] == pytest.approx(truth["gpu_busy_ns"], rel=within)
        # All of these are bound by the host: the step is its time.
        assert row["step_ns"] == pytest.approx(truth["step_ns"], rel=0.1)


def _corpus(folder: Path, files: dict[str, Path], names: tuple[str, ...]) -> Path:
    corpus = folder / "-".join(names)
    return corpus if corpus.exists() else ingested(corpus, *(files[name] for name in names))


def test_a_faster_gpu_keeps_the_host(megatron: Path) -> None:
    before, after = answers(megatron)[0], answers(megatron, "hardware=h200-sxm")[0]
    assert after["exposed_compute_ns"] < 0.5 * before["exposed_compute_ns"]
    assert after["step_ns"] == pytest.approx(before["step_ns"], rel=0.05)


def test_what_a_trace_cannot_support_is_refused(real_corpus: Path) -> None:
    with pytest.raises(QueryError, match="no job 'resnet'"):
        answers(real_corpus, job="resnet")
    with pytest.raises(QueryError, match="layers cannot change"):
        answers(real_corpus, "layers=8", job="resnet50_ddp")
    with pytest.raises(QueryError, match="rank 0 has no backward pass, so overlap changes nothing"):
        answers(real_corpus, "overlap=off", job="megatron_tp8_forward")


def test_a_batch_without_shapes_grows_and_says_so(real_corpus: Path) -> None:
    with pytest.raises(QueryError, match="could not be rescaled, because no shapes are recorded"):
        answers(real_corpus, "batch_scale=2", job="resnet50_ddp")
    rows = answers(real_corpus, "batch_scale=2", job="resnet50_ddp", force=True)
    assert all(row["gpu_busy_ns"] > 1.4 * row["original_gpu_busy_ns"] for row in rows)
    assert any("records no shapes" in text for text in rows[0]["warnings"])


def test_channels_of_a_net_on_a_gpu_are_not_changed(real_corpus: Path) -> None:
    """Twice as many made kernels 1.6 times as long, by their bytes, where they multiply four times as much."""
    with pytest.raises(QueryError, match="hidden cannot change, because nothing tells how long a convolution of other"):
        answers(real_corpus, "hidden=128", job="resnet50_2021")


def test_layers_that_are_a_small_part_of_a_model_are_not_changed(tmp_path: Path) -> None:
    """Seven layers of 256 are what decodes a mask; the encoder, which one CUDA graph launches, has 1280."""
    corpus = ingested(tmp_path / "corpus", SETS[-1] / "sam_graph1_a100")
    refused = r"hidden cannot change, because the layers that were found \(7\) have 23% of .* holds nothing of it"
    with pytest.raises(QueryError, match=refused):
        answers(corpus, "hidden=512")
    (row,) = answers(corpus, "hidden=512", force=True)
    (said,) = (text for text in row["warnings"] if "layers that were found (7) have 23%" in text)
    assert said.endswith("the interval holds nothing of it")
