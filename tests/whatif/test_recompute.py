"""Activations kept or computed again, against the emulator's own run of the other job."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from lumos_df.base.errors import QueryError
from lumos_df.graph.job import groups
from lumos_df.schema.codes import FORWARD
from lumos_df.whatif.estimate import estimated
from lumos_df.whatif.job.recorded_job import load
from lumos_df.whatif.job.settings import parse
from lumos_df.whatif.rewrite import recomputed_layers
from tests.emulator import Job
from tests.trace.literal import annotation, op, write
from tests.whatif.conftest import emulate, ingested
from tests.whatif.test_emulated import answers


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of two ranks that keep all activations of six layers."""
    return emulate(tmp_path_factory.mktemp("kept"), Job(ranks=2, layers=6))


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same job, of which each layer runs again in the backward pass."""
    return emulate(tmp_path_factory.mktemp("again"), Job(ranks=2, layers=6, recompute="full"))


@pytest.mark.parametrize("fused", [True, False])
def test_attention_computed_again_takes_what_it_takes_when_it_runs(tmp_path: Path, *, fused: bool) -> None:
    base = Job(ranks=1, layers=3, steps=1, unfused_attention=not fused)
    ran = answers(emulate(tmp_path / "selective", replace(base, recompute="selective")))[0]
    for recorded in ("none", "full"):
        corpus = emulate(tmp_path / recorded, replace(base, recompute=recorded))
        row = answers(corpus, "recompute=selective")[0]
        assert row["step_ns"] == pytest.approx(ran["step_ns"], rel=0.02)
        assert row["gpu_busy_ns"] == pytest.approx(ran["gpu_busy_ns"], rel=0.02)
        without = answers(corpus, "recompute=none")[0] if recorded == "full" else answers(corpus)[0]
        assert row["recompute_s"] == pytest.approx((row["gpu_busy_ns"] - without["gpu_busy_ns"]) * 1e-9, rel=0.05)
        assert row["hfu_pct"] >= row["mfu_pct"]


def test_of_a_layer_only_its_attention_runs_twice(kept: Path) -> None:
    (ids,) = groups(kept)
    job = estimated(load(kept, ids, {}), parse(["recompute=selective"]))
    rows = job.job.graphs[0].rows
    again = job.again[0] & rows.on_gpu
    assert {rows.names[name] for name in rows.name[again].tolist()} == {"void pytorch_flash::flash_fwd_kernel"}
    # Of six layers, in three steps.
    assert again.sum() == 6 * 3


@pytest.mark.parametrize("change", ["recompute=full", "recompute=none"])
def test_a_job_with_other_recomputation_takes_what_it_takes_when_it_runs(kept: Path, again: Path, change: str) -> None:
    base, other = (kept, again) if change == "recompute=full" else (again, kept)
    for row, ran in zip(answers(base, change), answers(other), strict=True):
        assert row["step_ns"] == pytest.approx(ran["step_ns"], rel=0.02)
        assert row["gpu_busy_ns"] == pytest.approx(ran["gpu_busy_ns"], rel=0.03)
        assert row["recompute_s"] == pytest.approx(ran["recompute_s"], rel=0.05)
        assert any("ahead of time" in said for said in row["warnings"]) == (change == "recompute=full")
        assert row["memory_gb"] == pytest.approx(ran["memory_gb"])
        # What is computed again does not count as work that was asked for.
        assert row["mfu_pct"] / ran["mfu_pct"] == pytest.approx(ran["step_ns"] / row["step_ns"], rel=0.04)
        assert row["hfu_pct"] / ran["hfu_pct"] == pytest.approx(ran["step_ns"] / row["step_ns"], rel=0.04)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_what_a_recording_computes_again_is_told(
    tmp_path: Path, recompute: Literal["none", "selective", "full"]
) -> None:
    corpus = emulate(tmp_path, Job(ranks=1, layers=2, steps=1, recompute=recompute))
    (rank,) = load(corpus, groups(corpus)[0], {}).about.ranks
    assert recomputed_layers.recorded(rank) == recompute


def test_each_kernel_of_a_layers_forward_pass_runs_twice(kept: Path) -> None:
    (ids,) = groups(kept)
    anchor = load(kept, ids, {})
    job = estimated(anchor, parse(["recompute=full"]))
    structure, source = anchor.about.ranks[0].structure, job.sources[0]
    forward = job.job.graphs[0].rows.on_gpu & (structure.phase[source] == FORWARD) & (structure.layer[source] >= 0)
    assert {*np.bincount(source[forward])[np.unique(source[forward])].tolist()} == {2}
    assert (job.again[0] & forward).sum() * 2 == forward.sum()


def test_recomputation_goes_with_other_layers_and_micro_batches(kept: Path, again: Path) -> None:
    for change, base, other in (("recompute=full", kept, again), ("recompute=none", again, kept)):
        for row, ran in zip(answers(base, change, "layers=3"), answers(other, "layers=3"), strict=True):
            assert row["step_ns"] == pytest.approx(ran["step_ns"], rel=0.05)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("recompute=none",), "computes nothing again, so recompute=none changes nothing"),
        (("recompute=full", "pp=2"), "no change of a pipeline"),
        (("recompute=selective", "pp=2"), "no change of a pipeline"),
        (("recompute=some",), "recompute=none, recompute=selective, recompute=full"),
    ],
)
def test_recomputation_that_cannot_be_is_refused(kept: Path, change: tuple[str, ...], says: str) -> None:
    with pytest.raises(QueryError, match=says):
        answers(kept, *change)


def products(folder: Path, passes: int) -> Path:
    """Return a corpus of products on the host, forward and perhaps backward, no two alike: nothing tells a layer."""
    events = []
    for place in range(4):
        for back in range(passes):
            at = 1000 * (7 - place if back else place)
            node = {"Sequence number": place + 1, "Fwd thread id": back}
            around = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": at, "dur": 900, "args": node}
            name = "autograd::engine::evaluate_function: MmBackward0" if back else "aten::matmul"
            dims = {"Input Dims": [[8, 16 << place], [16 << place, 32 << place]], "Input type": ["float"] * 2}
            events += [around | {"name": name}, around | {"name": "aten::mm", "ts": at + 10, "dur": 800, "args": dims}]
    folder.mkdir()
    (folder / "trace.json").write_text(json.dumps({"traceEvents": events}))
    return ingested(folder / "corpus", folder / "trace.json")


@pytest.mark.parametrize(
    ("passes", "says"),
    [
        pytest.param(2, "nearest is --scale kind=host:1.33, by which the forward pass", id="training"),
        pytest.param(1, "no backward pass that anything would be computed again for; record training$", id="not"),
    ],
)
def test_without_layers_the_refusal_names_what_is_near(tmp_path: Path, passes: int, says: str) -> None:
    with pytest.raises(QueryError, match=says):
        answers(products(tmp_path / "job", passes), "recompute=full")


def checkpointed(folder: Path, *, again: bool) -> Path:
    """Return a corpus of a host that goes up and down three layers in 3 ms, and perhaps up again before each down."""
    events, begin = [], 0
    sizes: dict[str, Any] = {"Input_Dims": [[256, 64], [64, 64]], "Input_type": ["float"] * 2}
    for step in range(3):
        at = begin + 10
        for layer in range(3):
            node = {"Sequence_number": 10 * step + layer, "Fwd_thread_id": 0}
            events.append(op("aten::mm", at, 290, **sizes, **node))
            at += 300
        for layer in reversed(range(3)):
            node = {"Sequence_number": 10 * step + layer, "Fwd_thread_id": 1}
            lasts = 690 + 300 * again
            events.append(op("autograd::engine::evaluate_function: MmBackward0", at, lasts, **node))
            events.append(op("MmBackward0", at + 1, lasts - 2, **node))
            if again:
                grown = {"Sequence_number": 10 * step + layer + 1000, "Fwd_thread_id": 0}
                events.append(op("aten::mm", at + 2, 290, **sizes, **grown))
                at += 300
            events.append(op("aten::mm", at + 2, 680, **sizes))
            at += 700
        events.append(annotation(f"ProfilerStep#{step}", begin, at - begin))
        begin = at
    return ingested(folder / "corpus", write(folder / "rank0.json", events))


def test_without_a_gpu_what_is_computed_again_takes_no_time_when_it_is_kept(tmp_path: Path) -> None:
    kept, again = checkpointed(tmp_path / "kept", again=False), checkpointed(tmp_path / "again", again=True)
    ran, told = answers(kept)[1], answers(again, "recompute=none")[1]
    assert told["original_step_ns"] == pytest.approx(ran["original_step_ns"] + 3 * 300_000, rel=0.01)
    assert told["step_ns"] == pytest.approx(ran["step_ns"], rel=0.02)
    with pytest.raises(QueryError, match="computes nothing again, so recompute=none changes nothing"):
        answers(kept, "recompute=none")
    with pytest.raises(QueryError, match=r"its attention is not known apart; nearest is recompute=none"):
        answers(again, "recompute=selective")


def test_what_runs_again_does_not_run_a_third_time(again: Path) -> None:
    with pytest.raises(QueryError, match="as much again already"):
        answers(again, "recompute=full")
