"""Changes and statements that cannot be: refused at once, with the reason and the nearest that can."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lumos_df.base.errors import QueryError
from lumos_df.graph.job import groups
from lumos_df.schema.codes import BACKWARD, FORWARD, NONE
from lumos_df.structure.describe import describe
from lumos_df.whatif.durations.draft_job import DraftJob
from lumos_df.whatif.durations.operator_times import plan
from lumos_df.whatif.estimate import estimates
from lumos_df.whatif.job.changed_sizes import changed_sizes, check_passes
from lumos_df.whatif.job.extent import MOST_OPERATORS, check, operators
from lumos_df.whatif.job.recorded_job import RecordedJob, load
from lumos_df.whatif.job.settings import Sizes, parse
from lumos_df.whatif.rewrite.blocks import check_apart, check_batches_apart
from lumos_df.whatif.rewrite.rebuilt_job import rebuilt


@pytest.mark.parametrize(
    ("change", "within"), [(("layers=12",), 0.02), (("layers=9", "batch=3"), 0.02), (("pp=2",), 0.2)]
)
def test_the_size_of_a_graph_is_known_before_it_is_built(
    emulated: Path, change: tuple[str, ...], within: float
) -> None:
    (made,) = estimates(emulated, parse([*change]), None, None, {}, ())
    built = sum(len(graph.rows) for graph in made.job.graphs)
    assert operators(made.anchor, made.plan.new) == pytest.approx(built, rel=within)


def resized(anchor: RecordedJob, name: str, number: int) -> Sizes:
    sizes: dict[str, Any] = {name: number}
    return replace(anchor.sizes, **sizes)


@pytest.mark.parametrize("name", ["layers", "batch"])
def test_what_does_not_fit_is_refused_at_once_with_the_largest_that_does(emulated: Path, name: str) -> None:
    anchor = load(emulated, groups(emulated)[0], {})
    began = time.perf_counter()
    with pytest.raises(QueryError, match=f"the largest that fits is {name}=") as refused:
        check(anchor, resized(anchor, name, 10**9))
    assert time.perf_counter() - began < 1
    fits = int(str(refused.value).split(f"fits is {name}=")[1].split(",")[0])
    assert operators(anchor, resized(anchor, name, fits)) <= MOST_OPERATORS
    assert operators(anchor, resized(anchor, name, fits + 1)) > MOST_OPERATORS


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        ("transformer", "gradient_accumulation=2", "the job has no backward pass"),
        ("transformer", "batch=2", None),
        ("none", "batch=2", "nothing in the trace is told to be a pass"),
    ],
)
def test_micro_batches_are_of_passes_and_gradients_of_backward_ones(
    emulated: Path, kind: str, text: str, says: str | None
) -> None:
    about = load(emulated, groups(emulated)[0], {}).about
    check_passes(about, parse([text.replace("batch", "gradient_accumulation")]))
    ranks = []
    for rank in about.ranks:
        phase = np.where(rank.structure.phase == BACKWARD, np.int8(FORWARD), rank.structure.phase)
        ranks.append(replace(rank, structure=replace(rank.structure, phase=phase, kind=kind)))
    if says is None:
        check_passes(replace(about, ranks=ranks), parse([text]))
        return
    with pytest.raises(QueryError, match=says):
        check_passes(replace(about, ranks=ranks), parse([text]))


@pytest.mark.parametrize(
    "text", ["seq=2147483647", "hidden=2147483584", "micro_batch=2147483647,seq=1048576", "batch_scale=1e17"]
)
def test_a_kernel_that_no_trace_says_anything_of_is_refused(emulated: Path, text: str) -> None:
    with pytest.raises(QueryError, match=r"as large as measured.*the largest that fits is"):
        estimates(emulated, parse(text.split(",")), None, None, {}, ())


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"tp": 1000}, r"tp=1000 \(given\) x dp=4 .* is 4000, and the ranks are world=4"),
        ({"dp": 2}, r"dp=2 \(given\) x pp=1 .* is 2, and the ranks are world=4"),
        ({"world": 3}, r"world=3 \(given\), but there is a trace of rank 3"),
        ({"tp": 4, "dp": 1, "heads": 6}, r"tp=4 \(given\) does not divide heads=6 \(given\)"),
        (
            {"pp": 4, "dp": 1, "layers": 3},
            r"pp=4 \(given\) stages need as many layers, and there are layers=3 \(given\)",
        ),
        ({"ep": 3}, r"ep=3 \(given\) does not divide world=4"),
    ],
)
def test_a_statement_that_contradicts_the_ranks_or_another_is_refused(
    emulated: Path, given: dict[str, int], says: str
) -> None:
    for refuses in (
        lambda: describe(emulated, overrides=given),
        lambda: estimates(emulated, parse([]), None, None, given, ()),
    ):
        with pytest.raises(QueryError, match=says):
            refuses()


def test_degrees_that_follow_from_what_is_said_follow_it(emulated: Path) -> None:
    facts = describe(emulated, overrides={"tp": 2, "dp": 4, "world": 8}).to_pylist()
    values = {fact["name"]: fact["value"] for fact in facts}
    assert (values["world"], values["tp"], values["dp"], values["heads"]) == (8, 2, 4, 32)
    describe(emulated)


@pytest.mark.parametrize("name", ["layers", "hidden", "heads", "ffn", "sequence", "micro_batch", "vocabulary", "ep"])
def test_every_dimension_can_be_said(emulated: Path, name: str) -> None:
    # Blocks are seen to repeat: what is said of layers must be what the trace shows.
    said = 6 if name == "layers" else 4
    facts = describe(emulated, overrides={name: said}).to_pylist()
    assert [(fact["value"], fact["evidence"]) for fact in facts if fact["name"] == name] == [(said, "override")]
    describe(emulated)


def test_layers_that_one_call_launches_cannot_be_parted(emulated: Path) -> None:
    """As in a CUDA graph of all layers: each copy of a layer would launch the whole graph again."""
    anchor = load(emulated, groups(emulated)[0], {})
    graph, structure = anchor.job.graphs[0], anchor.about.ranks[0].structure
    check_apart("job", graph, structure, "layers")
    called = graph.gpu.call >= 0
    at_once = replace(graph, gpu=replace(graph.gpu, call=np.where(called, graph.gpu.call[called][0], NONE)))
    with pytest.raises(
        QueryError, match=r"pp cannot change, because 8\d% of the layers' GPU time of rank 0 was launched"
    ):
        check_apart("job", at_once, structure, "pp")
    # The first half of the layers as one micro-batch, the others as another one.
    halves = replace(structure, micro_batch=np.where(structure.layer >= 0, structure.layer // 3, NONE).astype(np.int32))
    check_batches_apart("job", graph, halves)
    with pytest.raises(
        QueryError, match=r"batch cannot change, because \d\d % of the micro-batches' GPU time of rank 0 was launched"
    ):
        check_batches_apart("job", at_once, halves)
    # Of what one call launches, the last kernel is of no layer, and still there are layers.
    settings = parse(["layers=2"])
    change = plan(anchor, changed_sizes("job", anchor.sizes, settings), settings)
    job = replace(anchor.job, graphs=[at_once])
    draft = DraftJob(
        anchor=anchor,
        change=change,
        base=job,
        job=job,
        times=[],
        transfer_error=np.empty(0),
        sources=[],
        makers=[],
        again=[],
        warnings=[],
    )
    with pytest.raises(QueryError, match=r"layers cannot change, because 8\d% .* in one CUDA graph"):
        rebuilt(draft)
