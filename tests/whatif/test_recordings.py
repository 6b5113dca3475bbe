"""Changed batches of real training on an H100 (tests/recordings), where tokens are as many as neurons of a layer."""

from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

import lumos_df
from lumos_df.base.errors import QueryError
from lumos_df.capture.publish import read_metadata
from lumos_df.graph.host_spread import host_time
from lumos_df.graph.job import groups
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.trace.ingest import ingest
from lumos_df.whatif.estimate import estimate, estimated
from lumos_df.whatif.job.recorded_job import load
from lumos_df.whatif.job.settings import Settings, parse

GRID = Path(__file__).parent.parent / "recordings" / "grid"


@pytest.mark.parametrize("model", ["l2_w1024", "l4_w2048"])
def test_gpu_time_of_four_times_the_batch(tmp_path: Path, model: str) -> None:
    small, large = (f"{model}_b{batch}_s1024_eager" for batch in (4, 16))
    assert not ingest([GRID / small, GRID / large], tmp_path / "corpus", workers=1).failed
    changed = estimate(tmp_path / "corpus", parse(["micro_batch=16"]), job=small)
    # The GPU runs behind: what was issued in the steps runs in part after them.
    issued = f"FROM _gpu JOIN traces USING (trace_id) WHERE job = '{large}' AND parent_id IS NOT NULL"
    ((truth,),) = lumos_df.connect(tmp_path / "corpus").sql(f"SELECT sum(dur) / 3 {issued}").fetchall()
    assert pc.mean(changed["gpu_busy_ns"]).as_py() == pytest.approx(truth, rel=0.1)


def test_an_optimizer_of_lists_takes_no_longer_for_more_samples(tmp_path: Path) -> None:
    """Lists of parameters are inputs without sizes: its kernels grew as the last one of the backward pass."""
    assert not ingest([GRID / "l4_w2048_b4_s1024_eager"], tmp_path / "corpus", workers=1).failed
    (before,), (after,) = (
        set(pc.round(estimate(tmp_path / "corpus", parse(texts), step=3)["optimizer_s"], 4).to_pylist())
        for texts in ([], ["micro_batch=16"])
    )
    assert before == pytest.approx(3.4e-3, rel=0.05)
    assert after == pytest.approx(before, rel=0.05)


@pytest.mark.parametrize(("one", "other"), [("l4_w2048", "l2_w1024"), ("l2_w1024", "l4_w2048")])
def test_an_optimizer_of_lists_launches_as_often_as_its_parameters_take(tmp_path: Path, one: str, other: str) -> None:
    """Of 50 million parameters each operator launches twice, of 200 million eleven times; hosts differ by 3 %."""
    names = [f"{each}_b4_s1024_eager" for each in (one, other)]
    assert not ingest([GRID / name for name in names], tmp_path / "corpus", workers=1).failed
    jobs = {job.about.job: job for job in (load(tmp_path / "corpus", ids, {}) for ids in groups(tmp_path / "corpus"))}
    before, after = (jobs[name] for name in names)
    numbers = {name: getattr(after.sizes, name) for name in ("layers", "hidden", "ffn", "heads", "kv_heads")}
    told = estimated(before, Settings(numbers=numbers)).job.graphs[0]
    recorded = after.job.graphs[0]
    assert _of_lists_ns(told) == pytest.approx(_of_lists_ns(recorded), rel=0.2)
    assert not 0.5 < _of_lists_ns(before.job.graphs[0]) / _of_lists_ns(recorded) < 2


def _of_lists_ns(graph: TraceGraph) -> float:
    """Return what the host takes for operators on lists in the last step, ns."""
    rows = graph.rows
    launches = rows.nearest(
        rows.named(lambda name: name.startswith("aten::_foreach_")), np.arange(len(rows), dtype=np.int32)
    )
    inside = (launches >= 0) & (rows.step == rows.step.max()) & ~rows.on_gpu
    return float(host_time(graph)[inside].sum())


def test_twice_the_tokens_of_a_bert_take_over_twice_as_long(tmp_path: Path) -> None:
    """Its token types are rows of constants, as large as the tokens: nothing grew, and the answer did not say so."""
    assert not ingest([GRID.parent / "plain" / "bert--base"], tmp_path / "corpus", workers=1).failed
    changed = estimate(tmp_path / "corpus", parse(["seq=512"]))
    longer = pc.divide(changed["gpu_busy_ns"], pc.cast(changed["original_gpu_busy_ns"], "float64"))
    assert 2.0 < pc.min(longer).as_py() < 2.3


@pytest.mark.parametrize(
    ("net", "change", "recorded_ms"), [("bert", "dtype=bf16", 14.3), ("gpt2", "vocab=50257", 12.4)]
)
def test_heads_of_odd_vocabularies_in_16_bits(tmp_path: Path, net: str, change: str, recorded_ms: float) -> None:
    """Of an H200: 30,522 words are no multiple of 8. It was 11.5 and 10.1 ms, also as the gradient was taken for
    one that is summed over rows of the vocabulary."""
    assert not ingest([GRID.parent / "h200" / "nets" / f"{net}--base"], tmp_path / "corpus", workers=1).failed
    (ids,) = groups(tmp_path / "corpus")
    (graph,) = estimated(load(tmp_path / "corpus", ids, {}), parse([change])).job.graphs
    issued = graph.gpu.row[graph.gpu.call >= 0]
    assert graph.own[issued].sum() / 3e6 == pytest.approx(recorded_ms, rel=0.12)


@pytest.mark.parametrize(
    ("net", "within"), [("llama", 0.15), ("moe", 0.15), ("bert", 0.15), ("gpt2", 0.15), ("t5", 0.3)]
)
def test_memory_is_what_the_allocator_gave(tmp_path: Path, net: str, within: float) -> None:
    """Parameters of 16 bits with states alike, experts, parameters of 32 bits without autocast and with it, two stacks
    (of a T5 three layers of four are told)."""
    folder = GRID.parent / "h200" / "nets" / f"{net}--base"
    assert not ingest([folder], tmp_path / "corpus", workers=1).failed
    (row, *_) = estimate(tmp_path / "corpus", parse([])).to_pylist()
    peak = read_metadata(folder / "rank0.json.gz")["peakBytes"]
    assert 1e9 * (row["memory_gb"] - row["reserve_gb"]) == pytest.approx(peak, rel=within)


def test_memory_of_twice_the_experts(tmp_path: Path) -> None:
    """Their parameters were not counted: memory stayed. 16 bits each: weight, gradient, two means."""
    assert not ingest([GRID.parent / "h200" / "nets" / "moe--base"], tmp_path / "corpus", workers=1).failed
    (row, *_) = estimate(tmp_path / "corpus", parse(["experts=32"])).to_pylist()
    more = 8 * 4 * 16 * 3 * 1024 * 768
    assert 1e9 * (row["memory_gb"] - row["reserve_gb"]) - 1e9 * (
        row["original_memory_gb"] - row["original_reserve_gb"]
    ) == pytest.approx(more, rel=0.01)


@pytest.mark.parametrize(("job", "known"), [("plain/moe--base", []), ("captured/t5--base", ["layers=8"])])
def test_a_model_some_of_whose_layers_are_not_told_apart_is_not_cut(tmp_path: Path, job: str, known: list[str]) -> None:
    """Experts are no products of two matrices, T5's layers are unlike: 2 and 17 of their reductions were told."""
    assert not ingest([GRID.parent / job], tmp_path / "corpus", workers=1).failed
    with pytest.raises(QueryError, match="tp cannot change from 1, because the products of a layer are not told apart"):
        estimate(tmp_path / "corpus", parse(["tp=2"]), known=parse(known).numbers)
