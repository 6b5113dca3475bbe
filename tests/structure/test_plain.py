"""Nets recorded with shapes alone, without a GPU and without modules, written down operator by operator.

Which of them have layers follows from what they are: blocks that are alike in every shape, and nothing else.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from lumos_df.base.errors import QueryError
from lumos_df.graph.job import groups
from lumos_df.schema.codes import CPU_OP
from lumos_df.structure import labelled_rows
from lumos_df.structure.axes import follow
from lumos_df.structure.describe import Description, of_traces
from lumos_df.trace.ingest import ingest
from lumos_df.whatif.durations.symbols import Symbols
from lumos_df.whatif.job.changed_sizes import check_told
from lumos_df.whatif.job.settings import Sizes, parse

Operator = tuple[str, tuple[tuple[int, ...], ...]]

BATCH, PATCHES, WIDTH = 10, 49, 96
COPIED = 1_000_000
"""Sequence numbers of copies come behind those of all other operators."""


def linear(rows: int, inner: int, columns: int) -> Operator:
    return "aten::addmm", ((columns,), (rows, inner), (inner, columns))


def convolution(width: int, side: int, inputs: int | None = None) -> Operator:
    return "aten::convolution", ((BATCH, inputs or width, side, side), (width, inputs or width, 3, 3))


def relu(width: int, side: int) -> Operator:
    return "aten::relu", ((BATCH, width, side, side),)


def mixing(width: int = WIDTH) -> list[Operator]:
    hidden = (BATCH, PATCHES, width)
    return [
        ("aten::layer_norm", (hidden, (width,))),
        linear(BATCH * width, PATCHES, 64),
        linear(BATCH * width, 64, PATCHES),
        ("aten::add", (hidden, hidden)),
        ("aten::layer_norm", (hidden, (width,))),
        linear(BATCH * PATCHES, width, 4 * width),
        linear(BATCH * PATCHES, 4 * width, width),
        ("aten::add", (hidden, hidden)),
    ]


def residual(width: int, side: int) -> list[Operator]:
    map_ = (BATCH, width, side, side)
    inner = [convolution(width, side), relu(width, side)]
    return [*inner, convolution(width, side), ("aten::add", (map_, map_)), relu(width, side)]


def bottleneck(width: int, side: int) -> list[Operator]:
    inner, map_ = width // 4, (BATCH, width, side, side)
    narrow = ("aten::convolution", (map_, (inner, width, 1, 1)))
    wide = ("aten::convolution", ((BATCH, inner, side, side), (width, inner, 1, 1)))
    inside = [narrow, relu(inner, side), convolution(inner, side), relu(inner, side), wide]
    return [*inside, ("aten::add", (map_, map_)), relu(width, side)]


@dataclass
class Plain:
    """A net's forward operators, and how it is trained."""

    forward: Sequence[Operator]
    backward: bool = True
    micro_batches: int = 1
    marks: bool = True
    blocks: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Forward operators, from and to, of each module that has a number."""
    lasts: dict[Operator, int] = field(default_factory=dict)
    """us of forward operators that last otherwise than 8, and of their backward ones."""
    copies: tuple[int, ...] = ()
    """Forward operators that copy what they read, as it lies otherwise in memory."""
    owns: tuple[int, ...] = ()
    """Forward operators whose parameters' gradients are added up behind their backward."""
    checkpoints: tuple[tuple[int, int], ...] = ()
    """Forward operators, from and to, of each checkpoint with reentry."""

    def events(self) -> list[dict[str, Any]]:
        """Return the events of three steps."""
        rows: list[dict[str, Any]] = []
        now, sequence = 100, 0

        def add(category: str, name: str, begin: int, end: int, **args: object) -> None:
            rows.append({"ph": "X", "pid": 1, "tid": 1, "cat": category, "name": name, "ts": begin, "dur": end - begin})
            rows[-1]["args"] = args

        for step in range(3):
            begin = now
            now += 5
            for _ in range(self.micro_batches):
                starts: list[int] = []
                downs: list[int] = []
                first = sequence
                for place, (name, dims) in enumerate(self.forward):
                    us = self.lasts.get((name, dims), 8)
                    sequence += 1
                    starts.append(now)
                    node = {"Sequence number": sequence, "Fwd thread id": 0}
                    shapes = {"Input Dims": dims, "Input type": ["float"] * len(dims)}
                    add("cpu_op", name, now, now + us, **shapes, **node)
                    if place in self.copies:
                        copied = {"Sequence number": first + place + COPIED, "Fwd thread id": 0}
                        add("cpu_op", "aten::contiguous", now + 1, now + 5, **shapes)
                        add("cpu_op", "aten::clone", now + 2, now + 4, **shapes, **copied)
                    now += us + 2
                for turn, (name, dims) in enumerate(reversed(self.forward) if self.backward else ()):
                    us, place = self.lasts.get((name, dims), 8), len(self.forward) - 1 - turn
                    node = {"Sequence number": sequence - turn, "Fwd thread id": 1}
                    shapes = {"Input Dims": dims, "Input type": ["float"] * len(dims)}
                    add("cpu_op", f"autograd::engine::evaluate_function: {name}", now, now + us, **node)
                    add("cpu_op", name, now + 1, now + us - 1, **shapes)
                    downs.insert(0, now)
                    now += us + 2
                    for behind, node in self._behind(place, first):
                        add("cpu_op", f"autograd::engine::evaluate_function: {behind}", now, now + 8, **node)
                        now += 10
                for category, name, low, high in self._around(starts, downs):
                    add(category, name, low, high)
            if self.marks:
                add("user_annotation", f"ProfilerStep#{step}", begin, now)
            now += 5
        return rows

    def _around(self, starts: Sequence[int], downs: Sequence[int]) -> Iterator[tuple[str, str, int, int]]:
        for number, (first, last) in self.blocks.items():
            yield "python_function", f"nn.Module: Block_{number}", starts[first] - 1, starts[last - 1] + 9
        for first, last in self.checkpoints:
            yield "cpu_op", "CheckpointFunction", starts[first] - 1, starts[last - 1] + 9
            node = "autograd::engine::evaluate_function: CheckpointFunctionBackward"
            yield "cpu_op", node, downs[last - 1] - 1, downs[first] + 9

    def _behind(self, place: int, first: int) -> Iterator[tuple[str, dict[str, int]]]:
        if place in self.owns:
            yield "torch::autograd::AccumulateGrad", {}
        if place in self.copies:
            yield "CloneBackward0", {"Sequence number": first + place + COPIED, "Fwd thread id": 1}


@pytest.fixture
def described(tmp_path: Path) -> Callable[..., Description]:
    """What describes a net, with what is known of it."""

    def describe(net: Plain, **known: int) -> Description:
        folder = tmp_path / "traces"
        folder.mkdir()
        (folder / "rank0.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": net.events()}))
        assert not ingest([folder], tmp_path / "corpus", workers=1).failed
        (ids,) = groups(tmp_path / "corpus")
        return of_traces([labelled_rows.load(tmp_path / "corpus", ids[0])], known)

    return describe


STEM: list[Operator] = [linear(BATCH * PATCHES, 48, WIDTH)]
HEAD: list[Operator] = [linear(BATCH, WIDTH, 7)]
STAGE = [convolution(24, 16, 3), relu(24, 16), *residual(24, 16) * 4, linear(BATCH, 24, 7)]
STAGES = [
    *(convolution(16, 32, 3), *residual(16, 32) * 2, convolution(32, 16, 16), *residual(32, 16) * 2),
    *(convolution(64, 8, 32), *residual(64, 8) * 2, linear(BATCH, 64, 7)),
]
FEATURES = [linear(BATCH, 13, 64), linear(BATCH, 64, 32), linear(BATCH, 201, 512)]
DEEP = [*FEATURES, relu(512, 1), *[linear(BATCH, 512, 512), relu(512, 1)] * 2, linear(BATCH, 512, 2)]
TOKENS = 40
TOWER = [linear(BATCH, wide, wide // 2) for wide in (512, 256, 128, 64)]


def test_a_bottleneck_is_as_wide_as_what_goes_around_it_and_its_inside_grows_along(
    described: Callable[..., Description],
) -> None:
    # Three convolutions have 16 channels, and only two have 64.
    job = described(Plain([convolution(64, 8, 3), *bottleneck(64, 8) * 4, linear(BATCH, 64, 7)]))
    assert (job.facts["model"].value, job.facts["layers"].value, job.facts["hidden"].value) == ("convolutional", 4, 64)
    sizes = Sizes.of(job)
    wider = Symbols(sizes, replace(sizes, hidden=128))
    assert wider.rescaled((64, 16, 1, 1)) == (128, 32, 1, 1)
    assert wider.rescaled((64, 3, 3, 3)) == (128, 3, 3, 3)


@pytest.mark.parametrize("net", [{}, {"backward": False}, {"micro_batches": 3}], ids=["plain", "inference", "batches"])
def test_a_mixer_has_the_layers_that_repeat_and_its_sizes(described: Callable[..., Description], net: Any) -> None:
    job = described(Plain([*STEM, *mixing() * 4, *HEAD], **net))
    told = {name: job.facts[name].value for name in ("layers", "hidden", "ffn", "sequence", "micro_batch")}
    assert told == {"layers": 4, "hidden": WIDTH, "ffn": 4 * WIDTH, "sequence": PATCHES, "micro_batch": BATCH}
    assert job.facts["layers"].evidence == "repetition"
    assert job.facts["micro_batches"].value == net.get("micro_batches", 1)
    assert job.facts["heads"].value is None


def test_checkpoints_hold_the_layers_that_they_compute_again(described: Callable[..., Description]) -> None:
    layers = tuple((8 * layer, 8 * layer + 8) for layer in range(4))
    found = described(Plain([*mixing() * 4, *HEAD], checkpoints=layers)).ranks[0].structure
    assert (found.layers, found.forward.layers, found.backward.layers) == (4, 4, 4)
    assert (len(found.forward.block), len(found.backward.block)) == (8, 8)


def test_every_operator_is_in_its_layer_up_and_down(described: Callable[..., Description]) -> None:
    block = mixing()
    (rank,) = described(Plain([*STEM, *block * 3, *HEAD])).ranks
    rows = rank.trace.rows
    outermost = [row for row in range(len(rows)) if rows.kind[row] == CPU_OP and rows.kind[rows.parent[row]] != CPU_OP]
    up = [-1, *(layer for layer in range(3) for _ in block), -1]
    assert rank.structure.layer[outermost].tolist() == (up + up[::-1]) * 3


NARROW = [linear(BATCH * PATCHES, WIDTH, 5), linear(BATCH * PATCHES, 5, WIDTH)]
OTHER = [linear(BATCH * PATCHES, WIDTH, 2 * WIDTH), relu(2 * WIDTH, 1), linear(BATCH * PATCHES, 2 * WIDTH, WIDTH)]


@pytest.mark.parametrize("block", [OTHER, mixing()], ids=["of another block", "of the same"])
def test_as_many_layers_behind_something_else_are_another_stack_of_the_same_pass(
    described: Callable[..., Description], block: list[Operator]
) -> None:
    job = described(Plain([*STEM, *mixing() * 3, *NARROW, *block * 3, *HEAD]))
    (rank,) = job.ranks
    assert (job.facts["layers"].value, rank.structure.stacks, job.facts["micro_batches"].value) == (3, 2, 1)
    assert "2 stacks" in job.facts["layers"].reason
    rows = rank.trace.rows
    outermost = [row for row in range(len(rows)) if rows.kind[row] == CPU_OP and rows.kind[rows.parent[row]] != CPU_OP]
    first, second = ([layer for layer in range(3) for _ in each] for each in (mixing(), block))
    up = [-1, *first, -1, -1, *second, -1]
    assert rank.structure.layer[outermost].tolist() == (up + up[::-1]) * 3


def test_micro_batches_that_come_up_together_are_no_stacks(described: Callable[..., Description]) -> None:
    job = described(Plain([*STEM, *mixing() * 3, *HEAD] * 2, backward=False))
    assert (job.ranks[0].structure.stacks, job.facts["micro_batches"].value) == (1, 2)


def test_stages_of_as_many_blocks_are_layers_where_that_is_known(described: Callable[..., Description]) -> None:
    job = described(Plain(STAGES), layers=2)
    assert (job.facts["layers"].value, job.ranks[0].structure.stacks) == (2, 3)


def test_stages_say_what_takes_them_as_layers(described: Callable[..., Description]) -> None:
    job = described(Plain(STAGES))
    assert "--known layers=2" in job.facts["layers"].reason
    with pytest.raises(QueryError, match="--known layers=2 takes as layers what repeats in each of 3 stages"):
        check_told(job, parse(["layers=4"]))


def test_what_comes_once_a_token_is_no_layer(described: Callable[..., Description]) -> None:
    # The gates of all tokens read the same parameters, so their gradients are added up once a layer.
    token = [linear(BATCH, WIDTH, 3 * WIDTH), ("aten::tanh", ((BATCH, WIDTH),)), ("aten::mul", ((BATCH, WIDTH),) * 2)]
    layer = [("aten::layer_norm", ((BATCH, 12, WIDTH), (WIDTH,))), linear(12 * BATCH, WIDTH, WIDTH), *token * 12]
    first = [("aten::layer_norm", ((BATCH, 12, 24), (24,))), linear(12 * BATCH, 24, WIDTH), *token * 12]
    owns = tuple(place for start in (1, 39, 77, 115) for place in (start, start + 1))
    job = described(Plain([*first, *layer * 3, *HEAD], owns=owns))
    # The first layer reads something else, which is outside of its block.
    assert (job.facts["layers"].value, job.facts["hidden"].value, job.facts["sequence"].value) == (4, WIDTH, None)


def turn(rows: int = BATCH) -> list[Operator]:
    """What a decoder does for each word: attends to all that was read, and makes a new state."""
    scores = ("aten::softmax", ((rows, 12),))
    return [linear(rows, WIDTH, WIDTH), scores, linear(rows, 2 * WIDTH, 4 * WIDTH), ("aten::tanh", ((rows, WIDTH),))]


@pytest.mark.parametrize(("owned", "layers"), [(1, None), (9, 9)])
def test_blocks_that_share_their_parameters_are_turns_of_a_loop(
    described: Callable[..., Description], owned: int, layers: int | None
) -> None:
    """Gradients of a loop are added up in its first turn, the last to come down, however few turns there are."""
    # Parameters outside make more gradients than there are turns.
    owns = (0, *(1 + 4 * number + place for number in range(owned) for place in (0, 2)), *range(37, 49))
    job = described(Plain([*STEM, *turn() * 9, *[linear(BATCH, WIDTH, 7 + more) for more in range(12)]], owns=owns))
    assert job.facts["layers"].value == layers


def test_a_layer_with_a_loop_in_it_is_no_part_of_the_loop(described: Callable[..., Description]) -> None:
    """Three turns come less often than gradients are added up, and nine do not."""
    around = [("aten::layer_norm", ((BATCH, 12, WIDTH), (WIDTH,))), linear(12 * BATCH, WIDTH, 2 * WIDTH)]
    layer = [*around, *turn() * 9, linear(12 * BATCH, 2 * WIDTH, WIDTH)]
    owns = tuple(1 + 39 * number + place for number in range(4) for place in (0, 1, 2, 4, 38))
    job = described(Plain([*STEM, *layer * 4, *HEAD], owns=owns))
    assert job.facts["layers"].value == 4


def test_what_comes_once_a_layer_goes_through_no_tokens(described: Callable[..., Description]) -> None:
    # A module numbers the only layer, so no repetition tells how often it runs.
    job = described(Plain([*STEM, *mixing(), *HEAD], blocks={0: (1, 9)}))
    assert (job.facts["layers"].value, job.facts["sequence"].value) == (1, PATCHES)


def test_as_many_products_as_tokens_in_a_layer_are_not_one_of_each(described: Callable[..., Description]) -> None:
    hidden = (BATCH, 4, WIDTH)
    gates = ("aten::relu", "aten::tanh", "aten::sigmoid", "aten::gelu")
    gated = [step for gate in gates for step in (linear(4 * BATCH, WIDTH, WIDTH), (gate, (hidden,)))]
    wide = [linear(4 * BATCH, WIDTH, 2 * WIDTH), linear(4 * BATCH, 2 * WIDTH, WIDTH)]
    layer = [("aten::layer_norm", (hidden, (WIDTH,))), *gated, *wide]
    job = described(Plain([*STEM, *layer * 4, *HEAD]))
    assert (job.facts["layers"].value, job.facts["sequence"].value) == (4, 4)


def in_parts(softmax: tuple[int, ...]) -> list[Operator]:
    rows, heads, scores = BATCH * PATCHES, (BATCH * 6, PATCHES, 16), (BATCH * 6, PATCHES, PATCHES)
    return [
        ("aten::layer_norm", ((BATCH, PATCHES, WIDTH), (WIDTH,))),
        linear(rows, WIDTH, 3 * WIDTH),
        ("aten::bmm", (heads, (BATCH * 6, 16, PATCHES))),
        ("aten::_softmax", (softmax,)),
        ("aten::bmm", (scores, heads)),
        linear(rows, WIDTH, WIDTH),
        linear(rows, WIDTH, 4 * WIDTH),
        linear(rows, 4 * WIDTH, WIDTH),
    ]


@pytest.mark.parametrize("softmax", [(BATCH, 6, PATCHES, PATCHES), (BATCH * 6, PATCHES, PATCHES)])
def test_attention_in_single_operators_makes_a_transformer(
    described: Callable[..., Description], softmax: tuple[int, ...]
) -> None:
    job = described(Plain([*STEM, *in_parts(softmax) * 4, *HEAD]))
    told = {"model": "transformer", "layers": 4, "hidden": WIDTH, "heads": 6, "head_dim": 16, "ffn": 4 * WIDTH}
    told |= {"sequence": PATCHES, "micro_batch": BATCH}
    assert {name: job.facts[name].value for name in told} == told


@pytest.mark.parametrize("softmax", [(BATCH, PATCHES, 7), (BATCH, PATCHES, PATCHES)], ids=["classes", "as many"])
def test_a_softmax_that_no_batch_of_products_leads_to_is_no_attention(
    described: Callable[..., Description], softmax: tuple[int, ...]
) -> None:
    batched = ("aten::bmm", ((BATCH, PATCHES, 7), (BATCH, 7, WIDTH)))
    job = described(Plain([*STEM, *[*mixing(), batched, ("aten::_softmax", (softmax,))] * 4, *HEAD]))
    assert (job.facts["model"].value, job.facts["heads"].value) == ("other", None)


def linear_attention(heads: int, width: int) -> list[Operator]:
    """A layer whose attention sums up keys times values, for each head of each token, and has no softmax."""
    rows, each, hidden = BATCH * PATCHES, BATCH * PATCHES * heads, heads * width
    apart = (BATCH, PATCHES, heads, width)
    return [
        ("aten::layer_norm", ((BATCH, PATCHES, hidden), (hidden,))),
        linear(rows, hidden, 3 * hidden),
        ("aten::elu", (apart,)),
        ("aten::reshape", ((*apart, 1),)),
        ("aten::bmm", ((each, width, 1), (each, 1, width))),
        ("aten::cumsum", ((*apart, width),)),
        ("aten::reshape", ((*apart, width),)),
        ("aten::bmm", ((each, 1, width), (each, width, width))),
        linear(rows, hidden, hidden),
        linear(rows, hidden, 2 * hidden),
        linear(rows, 2 * hidden, hidden),
    ]


def test_a_width_that_is_cut_for_products_at_once_has_heads_without_a_softmax(
    described: Callable[..., Description],
) -> None:
    narrow, wide = linear_attention(6, 16), linear_attention(12, 16)
    job = described(Plain([*STEM, *narrow * 4, *HEAD]))
    told = {"layers": 4, "hidden": WIDTH, "heads": 6, "kv_heads": 6, "head_dim": 16, "sequence": PATCHES}
    assert {name: job.facts[name].value for name in told} == told
    rank, sizes = job.ranks[0], Sizes.of(job)
    axes = follow(rank.trace, rank.structure.phase, sizes.micro_batch, sizes.seq)
    wider = Symbols(sizes, replace(sizes, hidden=2 * WIDTH, ffn=4 * WIDTH, heads=12, kv_heads=12))
    for (name, shapes), (_, wanted) in zip(narrow, wide, strict=True):
        labels = axes.of_text[json.dumps(shapes)]
        changed = [wider.rescaled(shape, labels=each) for shape, each in zip(shapes, labels, strict=True)]
        assert changed == [*wanted], name


def test_sides_of_filters_as_many_as_heads_stay(described: Callable[..., Description]) -> None:
    filters = ("aten::conv1d", ((BATCH, WIDTH, PATCHES), (WIDTH, 1, 6)))
    job = described(Plain([*STEM, *[*linear_attention(6, 16), filters] * 4, *HEAD]))
    rank, sizes = job.ranks[0], Sizes.of(job)
    axes = follow(rank.trace, rank.structure.phase, sizes.micro_batch, sizes.seq)
    wider = Symbols(sizes, replace(sizes, hidden=2 * WIDTH, ffn=4 * WIDTH, heads=12, kv_heads=12))
    assert wider.rescaled((WIDTH, 1, 6), labels=axes.of_text[json.dumps(filters[1])][1]) == (2 * WIDTH, 1, 6)


def attending_along_edges(heads: int, width: int) -> list[Operator]:
    """A layer whose nodes each have a number for each head, of what the width is cut into."""
    nodes, edges, hidden = 60, 210, heads * width
    apart = (nodes, heads, width)
    return [
        linear(nodes, hidden, hidden),
        ("aten::mul", (apart, (heads, width))),
        ("aten::sum", (apart,)),
        ("aten::index", ((nodes, heads),)),
        ("aten::exp", ((edges, heads),)),
        ("aten::index", (apart,)),
        ("aten::mul", ((edges, heads, width), (edges, heads, 1))),
        linear(nodes, hidden, hidden),
        ("aten::add", ((nodes, hidden), (nodes, hidden))),
        ("aten::elu", ((nodes, hidden),)),
    ]


def test_a_width_of_which_each_head_makes_a_number_is_cut_into_heads(described: Callable[..., Description]) -> None:
    narrow, wide = attending_along_edges(6, 16), attending_along_edges(12, 16)
    job = described(Plain([linear(60, 13, WIDTH), *narrow * 3, linear(60, WIDTH, 7)]))
    assert [job.facts[name].value for name in ("layers", "hidden", "heads", "head_dim")] == [3, WIDTH, 6, 16]
    rank, sizes = job.ranks[0], Sizes.of(job)
    axes = follow(rank.trace, rank.structure.phase, sizes.micro_batch, sizes.seq)
    wider = Symbols(sizes, replace(sizes, hidden=2 * WIDTH, ffn=2 * WIDTH, heads=12, kv_heads=12))
    for (name, shapes), (_, wanted) in zip(narrow, wide, strict=True):
        labels = axes.of_text[json.dumps(shapes)]
        changed = [wider.rescaled(shape, labels=each) for shape, each in zip(shapes, labels, strict=True)]
        assert changed == [*wanted], name


def test_a_width_that_is_cut_for_anything_else_has_no_heads(described: Callable[..., Description]) -> None:
    parts = [each for each in attending_along_edges(6, 16) if each[1][0] not in ((60, 6), (210, 6))]
    assert described(Plain([linear(60, 13, WIDTH), *parts * 3, linear(60, WIDTH, 7)])).facts["heads"].value is None


@pytest.mark.parametrize("layers", [1, 8])
@pytest.mark.parametrize("fused", [True, False])
def test_a_convolutional_net_may_attend_at_its_bottom(
    described: Callable[..., Description],
    layers: int,
    fused: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    heads, scores = (BATCH * 4, 64, 8), (BATCH * 4, 64, 64)
    parts: list[Operator] = [("aten::bmm", (heads, (BATCH * 4, 8, 64))), ("aten::_softmax", (scores,))]
    parts.append(("aten::bmm", (scores, heads)))
    attention: Operator = ("aten::scaled_dot_product_attention", ((BATCH, 4, 64, 8),) * 3)
    bottom = [linear(BATCH * 64, 32, 32), *([attention] if fused else parts), linear(BATCH * 64, 32, 32)]
    down = [convolution(16, 32, 3), *residual(16, 32) * layers, convolution(32, 8, 16), *residual(32, 8)]
    job = described(Plain([*down, *bottom, convolution(16, 8, 32), convolution(3, 32, 16)]))
    told = [job.facts[name].value for name in ("model", "layers", "hidden", "micro_batch", "heads")]
    assert told == ["convolutional", layers if layers > 1 else None, 16, BATCH, None]
    # What is beside the layers grows along.
    assert Sizes.of(job).channels == (32,)


def test_a_net_of_convolutions_alone_has_its_width(described: Callable[..., Description]) -> None:
    job = described(Plain([convolution(24, 16, 3), *residual(24, 16) * 4, convolution(7, 16, 24)]))
    assert [job.facts[name].value for name in ("layers", "hidden", "micro_batch")] == [4, 24, BATCH]


@pytest.mark.parametrize("layers", [3, 4])
@pytest.mark.parametrize("added", [2, 3], ids=["before its activation", "behind it"])
def test_the_halves_of_a_residual_block_are_one_layer(
    described: Callable[..., Description], layers: int, added: int
) -> None:
    map_ = (BATCH, 24, 16, 16)
    half = [convolution(24, 16), ("aten::batch_norm", (map_,)), relu(24, 16)]
    block = [*half, *half[:added], ("aten::add", (map_, map_)), *half[added:]]
    job = described(Plain([convolution(24, 16, 3), *block * layers, *HEAD]))
    assert (job.facts["layers"].value, job.ranks[0].structure.stacks) == (layers, 1)


@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("block", [residual(24, 16), [convolution(24, 16), relu(24, 16), relu(24, 16)]])
def test_batches_whose_ends_are_like_their_layers_are_no_layers(
    described: Callable[..., Description], layers: int, block: list[Operator]
) -> None:
    """A denoiser of maps begins and ends with a convolution of the same width."""
    end = [convolution(24, 16)]
    job = described(Plain([*end, *block * layers, *end], backward=False, micro_batches=layers + 1))
    found = [job.facts[name].value for name in ("layers", "micro_batches")]
    # Two blocks alone may be no layers.
    assert found in ([layers, layers + 1], *([[None, 1]] if layers == 2 else []))


@pytest.mark.parametrize("tokens", [PATCHES, 3 * WIDTH], ids=["any", "a multiple of the width"])
def test_convolutions_over_tokens_have_no_widths(described: Callable[..., Description], tokens: int) -> None:
    hidden = (BATCH, tokens, WIDTH)
    mixes = [("aten::convolution", (hidden, (4 * tokens, tokens, 1)))]
    mixes += [("aten::convolution", ((BATCH, 4 * tokens, WIDTH), (tokens, 4 * tokens, 1)))]
    norm: Operator = ("aten::layer_norm", (hidden, (WIDTH,)))
    inner = [linear(BATCH * tokens, WIDTH, 2 * WIDTH), linear(BATCH * tokens, 2 * WIDTH, WIDTH)]
    block = [norm, *mixes, ("aten::add", (hidden, hidden)), norm, *inner, ("aten::add", (hidden, hidden))]
    sizes = Sizes.of(described(Plain([linear(BATCH * tokens, 48, WIDTH), *block * 4, *HEAD])))
    assert (sizes.layers, sizes.hidden, sizes.ffn, sizes.seq, sizes.channels) == (4, WIDTH, 2 * WIDTH, tokens, ())


def test_layers_without_normalization_are_as_wide_as_what_goes_around_them(
    described: Callable[..., Description],
) -> None:
    # As many products have the width inside as have that around.
    hidden = (BATCH, PATCHES, WIDTH)
    inner = [linear(BATCH * PATCHES, WIDTH, 4 * WIDTH), linear(BATCH * PATCHES, 4 * WIDTH, WIDTH)]
    block = [linear(BATCH * WIDTH, PATCHES, PATCHES), *inner, ("aten::add", (hidden, hidden))]
    job = described(Plain([*STEM, *block * 4, *HEAD]))
    assert [job.facts[name].value for name in ("layers", "hidden", "ffn")] == [4, WIDTH, 4 * WIDTH]
    assert not job.facts["hidden"].readings


def test_what_is_added_inside_of_layers_is_not_their_width(described: Callable[..., Description]) -> None:
    # A state-space layer: more products have the width of its inside than have that around.
    rows, inside = BATCH * PATCHES, 2 * WIDTH
    hidden, wide = (BATCH, PATCHES, WIDTH), (BATCH, PATCHES, inside)
    select = [linear(rows, inside, 6 + 16), linear(rows, 6, inside), ("aten::add", (wide, wide))]
    block = [linear(rows, WIDTH, 2 * inside), *select, linear(rows, inside, WIDTH), ("aten::add", (hidden, hidden))]
    job = described(Plain([*STEM, *block * 4, *HEAD]))
    assert [job.facts[name].value for name in ("layers", "hidden", "ffn")] == [4, WIDTH, inside]


def test_sides_of_maps_that_are_as_many_as_channels_stay(described: Callable[..., Description]) -> None:
    sizes = Sizes.of(described(Plain([convolution(32, 32, 3), *residual(32, 32) * 4, linear(BATCH, 32, 7)])))
    assert (sizes.layers, sizes.hidden) == (4, 32)
    assert Symbols(sizes, replace(sizes, hidden=64)).rescaled((BATCH, 32, 32, 32)) == (BATCH, 64, 32, 32)


def test_layers_in_one_operator_of_a_recurrent_net_are_told(described: Callable[..., Description]) -> None:
    net = Plain([("aten::embedding", ((2000, 64), (BATCH, TOKENS))), *[recurrent(64), relu(64, 1)] * 3, *HEAD])
    events = net.events()
    inside = [event for event in events if event["name"] in ("aten::mkldnn_rnn_layer", "aten::relu")]
    inside = [event for event in inside if "Sequence number" in event["args"]]
    for begin, end in zip(inside[::6], inside[5::6], strict=True):
        around = {**begin, "name": "aten::lstm", "ts": begin["ts"] - 1, "args": {"Input Dims": []}}
        events.append(around | {"dur": end["ts"] + end["dur"] - begin["ts"] + 2})
    net.events = lambda: events  # type: ignore[method-assign]
    job = described(net)
    assert [job.facts[name].value for name in ("layers", "hidden", "micro_batch")] == [3, 64, BATCH]


@pytest.mark.parametrize(("states", "layers"), [(1, None), (9, 9)])
def test_turns_of_a_recurrent_net_of_one_layer_are_no_layers(
    described: Callable[..., Description], states: int, layers: int | None
) -> None:
    """Few tokens are fewer than the gradients of the net around them."""
    net = Plain([linear(BATCH, 13, 64), *[linear(BATCH, 64, 192), relu(64, 1)] * 9, *HEAD])
    events = net.events()
    inside = [event for event in events if event["name"] in ("aten::addmm", "aten::relu")]
    inside = [event for event in inside if "Sequence number" in event["args"]]
    for step in range(3):
        begin, end = inside[20 * step + 1], inside[20 * step + 18]
        shapes = [(BATCH, 9, 64), (states, BATCH, 64), [(192, 64), (192, 64)]]
        around = {**begin, "name": "aten::gru", "ts": begin["ts"] - 1, "args": {"Input Dims": shapes}}
        events.append(around | {"dur": end["ts"] + end["dur"] - begin["ts"] + 2})
    net.events = lambda: events  # type: ignore[method-assign]
    facts = described(net).facts
    assert [facts[name].value for name in ("layers", "hidden")] == [layers, 64]


def test_widths_that_linear_layers_of_convolutions_lead_to_grow_along(described: Callable[..., Description]) -> None:
    map_ = (BATCH, 32, 8, 8)
    squeezed = [linear(BATCH, 32, 8), linear(BATCH, 8, 32), ("aten::mul", (map_, (BATCH, 32, 1, 1)))]
    sizes = Sizes.of(described(Plain([convolution(32, 8, 3), *[*residual(32, 8), *squeezed] * 4, *HEAD])))
    assert (sizes.hidden, sizes.channels) == (32, (8,))


def test_filters_of_single_channels_tell_no_width(described: Callable[..., Description]) -> None:
    wide = (BATCH, 2 * WIDTH, 8, 8)
    inner = [linear(BATCH * 64, WIDTH, 2 * WIDTH), ("aten::convolution", (wide, (2 * WIDTH, 1, 3, 3)))]
    norm: Operator = ("aten::layer_norm", ((BATCH, 64, WIDTH), (WIDTH,)))
    block = [norm, *inner, linear(BATCH * 64, 2 * WIDTH, WIDTH)]
    job = described(Plain([convolution(WIDTH, 8, 3), *block * 4, *HEAD]))
    assert [job.facts[name].value for name in ("layers", "hidden", "ffn")] == [4, WIDTH, 2 * WIDTH]


@pytest.mark.parametrize("growing", [False, True], ids=["stages", "joined"])
def test_all_channels_of_a_net_without_layers_grow_but_those_of_images_and_classes(
    described: Callable[..., Description],
    growing: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    stages = [*residual(16, 32), convolution(32, 16, 16), *residual(32, 16), convolution(64, 8, 32), *residual(64, 8)]
    joined = [convolution(12, 32, 16), convolution(12, 32, 28), convolution(12, 32, 40)]
    job = described(Plain([convolution(16, 32, 3), *(joined if growing else stages), convolution(5, 8, 64)]))
    sizes = Sizes.of(job)
    assert (sizes.layers, sizes.hidden, sizes.channels) == (None, 16, (12, 28, 40, 64) if growing else (32, 64))
    wider = Symbols(sizes, replace(sizes, hidden=32))
    # Sides of maps are as many as channels.
    assert wider.rescaled((BATCH, 16, 16, 16)) == (BATCH, 32, 16, 16)
    assert wider.rescaled((5, 64, 3, 3)) == (5, 128, 3, 3)
    assert wider.rescaled((16, 3, 7, 7)) == (32, 3, 7, 7)


def test_classes_that_a_softmax_runs_over_are_no_channels_however_many(described: Callable[..., Description]) -> None:
    scores: Operator = ("aten::_log_softmax", ((BATCH, 64, 32, 32),))
    net = [*residual(16, 32), convolution(32, 32, 16), *residual(32, 32), convolution(64, 32, 32)]
    assert Sizes.of(described(Plain([convolution(16, 32, 3), *net, scores]))).channels == (32,)


def test_a_map_that_a_linear_layer_reads_in_a_row_grows_as_its_channels(described: Callable[..., Description]) -> None:
    flat = [linear(BATCH, 32 * 64, 40), linear(BATCH, 40, 32 * 64), ("aten::view", ((BATCH, 32, 8, 8),))]
    net = [*residual(16, 16), convolution(32, 8, 16), *residual(32, 8), *flat]
    sizes = Sizes.of(described(Plain([convolution(16, 16, 3), *net, convolution(3, 8, 32)])))
    assert (sizes.layers, sizes.hidden, sizes.channels) == (None, 16, (32, 2048))


def test_multiples_of_the_width_that_layers_lead_to_grow_along(described: Callable[..., Description]) -> None:
    scales = linear(BATCH, WIDTH, 6 * WIDTH)
    sizes = Sizes.of(described(Plain([*STEM, *[scales, *windowed(10, 1, (10, 16))] * 4, *HEAD])))
    wider = Symbols(sizes, replace(sizes, hidden=2 * WIDTH, ffn=8 * WIDTH))
    assert wider.rescaled((6 * WIDTH, WIDTH)) == (12 * WIDTH, 2 * WIDTH)
    # What is twice the FFN's width follows that.
    twice = replace(sizes, channels=(8 * WIDTH,))
    assert Symbols(twice, replace(twice, ffn=6 * WIDTH)).rescaled((8 * WIDTH, WIDTH)) == (12 * WIDTH, WIDTH)


def test_stages_of_filters_for_each_channel_have_one_width(described: Callable[..., Description]) -> None:
    def stage(width: int, side: int) -> list[Operator]:
        filters = ("aten::convolution", ((BATCH, width, side, side), (width, 1, 7, 7)))
        rows, norm = BATCH * side * side, ("aten::layer_norm", ((BATCH, side, side, width), (width,)))
        return [filters, norm, linear(rows, width, 4 * width), linear(rows, 4 * width, width)]

    net = Plain([convolution(24, 16, 3), *stage(24, 16) * 4, convolution(48, 8, 24), *stage(48, 8) * 4])
    plain = described(net)
    # Nobody but the user knows whether those are its layers.
    for job in (plain, of_traces([plain.ranks[0].trace], {"layers": 4})):
        assert not job.facts["hidden"].readings
        sizes = Sizes.of(job)
        wider = Symbols(sizes, replace(sizes, hidden=2 * (sizes.hidden or 0), ffn=2 * (sizes.ffn or 0) or None))
        for width in (24, 48):
            assert wider.rescaled((BATCH, width, 5, 5)) == (BATCH, 2 * width, 5, 5)
            assert wider.rescaled((width, 4 * width)) == (2 * width, 8 * width)


def test_a_stage_of_alike_convolutions_has_layers_and_channels(described: Callable[..., Description]) -> None:
    job = described(Plain(STAGE))
    assert [job.facts[name].value for name in ("layers", "hidden", "micro_batch")] == [4, 24, BATCH]


@pytest.mark.parametrize(
    "net",
    [
        Plain(STAGES),
        Plain(TOWER),
        Plain([*STEM, *mixing(96), *mixing(48), *mixing(24), *HEAD]),
        Plain(
            STAGES, blocks={number: (1 + 5 * number + number // 2, 6 + 5 * number + number // 2) for number in range(6)}
        ),
        Plain([*STEM, *HEAD] * 6, backward=False, marks=False),
    ],
    ids=["stages", "tower", "widths", "named stages", "iterations"],
)
def test_what_is_not_alike_is_no_layer(described: Callable[..., Description], net: Plain) -> None:
    fact = described(net).facts["layers"]
    assert fact.value is None
    assert "alike in their shapes" in fact.reason


def recurrent(width: int, reads: int | None = None) -> Operator:
    inputs, gates, state = (TOKENS, BATCH, reads or width), (4 * width, width), (BATCH, width)
    vectors = ((4 * width,), (4 * width,))
    return "aten::mkldnn_rnn_layer", (inputs, (4 * width, reads or width), gates, *vectors, state, state)


def test_what_takes_most_of_the_time_are_layers_however_few_of_the_products_they_are(
    described: Callable[..., Description],
) -> None:
    # Two products of six.
    job = described(Plain(DEEP, lasts={linear(BATCH, 512, 512): 100}))
    assert [job.facts[name].value for name in ("layers", "hidden")] == [2, 512]


def test_few_products_that_take_little_are_no_layers(described: Callable[..., Description]) -> None:
    assert described(Plain(DEEP)).facts["layers"].value is None


def test_a_call_that_once_took_long_makes_no_layers(described: Callable[..., Description]) -> None:
    net = Plain(DEEP)
    events = net.events()
    calls = [event for event in events if event["name"] == "aten::addmm" and event["args"]["Input Dims"][1][1] == 512]
    assert len(calls) > 2
    late = calls[0]["ts"]
    for event in events:
        event["dur"] += 5_000 * (event["ts"] <= late < event["ts"] + event["dur"])
        event["ts"] += 5_000 * (event["ts"] > late)
    net.events = lambda: events  # type: ignore[method-assign]
    assert described(net).facts["layers"].value is None


def test_recurrent_layers_are_alike_though_the_first_copies_what_it_reads(
    described: Callable[..., Description],
) -> None:
    stem: Operator = ("aten::embedding", ((2000, 64), (BATCH, TOKENS)))
    zeros: Operator = ("aten::zeros", ((1, BATCH, 64),))
    job = described(Plain([stem, *[zeros, zeros, recurrent(64)] * 2, linear(BATCH * TOKENS, 64, 2000)], copies=(3,)))
    told = {name: job.facts[name].value for name in ("model", "layers", "hidden", "micro_batch")}
    assert told == {"model": "other", "layers": 2, "hidden": 64, "micro_batch": BATCH}
    assert not job.facts["micro_batch"].choices
    # Every gate is as wide as the state.
    sizes = Sizes.of(job)
    assert Symbols(sizes, replace(sizes, hidden=128)).rescaled((256, 64)) == (512, 128)


def test_both_directions_of_a_recurrent_layer_are_read_side_by_side_and_features_keep_their_width(
    described: Callable[..., Description],
) -> None:
    features = recurrent(64, 32)
    sizes = Sizes.of(described(Plain([features, *[recurrent(64, 128)] * 8, linear(BATCH * TOKENS, 128, 2000)])))
    wider = Symbols(sizes, replace(sizes, hidden=128))
    assert [wider.rescaled(each[1][0]) for each in (recurrent(64, 128), features)] == [
        (TOKENS, BATCH, 256),
        (TOKENS, BATCH, 32),
    ]


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_directions_of_recurrent_layers_are_no_layers(described: Callable[..., Description], layers: int) -> None:
    def layer(reads: int) -> list[Operator]:
        given = (TOKENS, BATCH, 64)
        one_way = [*[("aten::select", ((8, BATCH, 64),))] * 2, recurrent(64, reads)]
        return [*one_way * 2, ("aten::cat", (given, given)), ("aten::dropout", ((TOKENS, BATCH, 128),))]

    net = [*layer(32), *layer(128) * (layers - 1)]
    job = described(Plain([*net[:-1], linear(BATCH * TOKENS, 128, 19)]))
    assert [job.facts[name].value for name in ("layers", "hidden", "micro_batch")] == [None, 64, BATCH]


@pytest.mark.parametrize(("known", "operators"), [(4, 8), (2, 16)])
def test_the_repetition_with_the_count_that_is_known_is_taken(
    described: Callable[..., Description], known: int, operators: int
) -> None:
    job = described(Plain([*STEM, *mixing() * 4, *HEAD]), layers=known)
    assert len(job.ranks[0].structure.forward.block) == operators
    assert job.ranks[0].structure.layers == job.facts["layers"].value == known


def test_a_stage_with_less_than_half_has_layers_only_where_their_count_is_known(
    described: Callable[..., Description],
) -> None:
    wider = [convolution(32, 16, 16), *residual(32, 16), convolution(64, 8, 32), *residual(64, 8)]
    net = Plain([convolution(16, 32, 3), *residual(16, 32) * 3, *wider, *TOWER])
    (rank,) = described(net).ranks
    assert rank.structure.layers == 0
    assert of_traces([rank.trace], {"layers": 3}).ranks[0].structure.layers == 3


def test_a_dimension_that_may_be_two_sizes_says_both_with_what_counts_for_each(
    described: Callable[..., Description],
) -> None:
    job = described(Plain([linear(64, 256, 128), linear(64, 128, 64), linear(64, 64, 32), linear(100, 256, 32)]))
    assert (job.facts["micro_batch"].value, job.facts["micro_batch"].choices) == (64, "64 (9 operators) or 100 (3)")
    with pytest.raises(
        QueryError, match=r"may be 64 \(9 operators\) or 100 \(3\); tell which with --known micro_batch="
    ):
        check_told(job, parse(["batch_scale=2"]))
    told = of_traces([job.ranks[0].trace], {"micro_batch": 100})
    check_told(told, parse(["batch_scale=2"]))
    assert told.facts["micro_batch"].value == 100


def attending(length: int, batch: int, convolutions: int) -> list[Operator]:
    """A layer of (length, batch, 96), whose attention says which is which; convolutions say it the other way round."""
    hidden, heads = (length, batch, WIDTH), (batch, 8, length, 12)
    return [
        ("aten::layer_norm", (hidden, (WIDTH,))),
        linear(length * batch, WIDTH, WIDTH),
        ("aten::scaled_dot_product_attention", (heads, heads, heads)),
        linear(length * batch, WIDTH, 4 * WIDTH),
        linear(length * batch, 4 * WIDTH, WIDTH),
        *[("aten::convolution", ((length, batch, WIDTH), (WIDTH, batch, 3)))] * convolutions,
    ]


@pytest.mark.parametrize(
    ("convolutions", "choices", "value"),
    [(0, "", 64), (1, "128 (12 operators) or 64 (12)", None), (2, "128 (24 operators) or 64 (12)", 128)],
)
def test_micro_batch_and_sequence_say_both_readings_and_what_is_told_settles_all(
    described: Callable[..., Description], convolutions: int, choices: str, value: int | None
) -> None:
    job = described(Plain(attending(128, 64, convolutions) * 4))
    assert (job.facts["micro_batch"].value, job.facts["micro_batch"].choices) == (value, choices)
    # What one is not, the other is.
    for known in ({"micro_batch": 64}, {"sequence": 128}):
        facts = of_traces([job.ranks[0].trace], known).facts
        told = {name: facts[name].value for name in ("micro_batch", "sequence", "heads", "head_dim")}
        assert told == {"micro_batch": 64, "sequence": 128, "heads": 8, "head_dim": 12}
        assert not facts["micro_batch"].choices


def test_layers_that_modules_number_otherwise_than_what_repeats_are_either(
    described: Callable[..., Description],
) -> None:
    net = Plain([*STEM, *mixing() * 4, *HEAD], blocks={0: (1, 17), 1: (17, 33)})
    job = described(net)
    assert job.facts["layers"].value == 2
    assert {layers for layers, _ in job.facts["layers"].readings} == {2, 4}
    with pytest.raises(QueryError, match="--known layers=2"):
        check_told(job, parse(["layers=3"]))
    for known in (2, 4):
        told = of_traces([job.ranks[0].trace], {"layers": known})
        assert told.ranks[0].structure.layers == told.ranks[0].structure.layer.max() + 1 == known
    with pytest.raises(QueryError, match=r"layers=3 \(given\), but the trace shows"):
        of_traces([job.ranks[0].trace], {"layers": 3})


def windowed(samples: int, windows: int, around: tuple[int, ...]) -> list[Operator]:
    """A layer of attention in windows of 16 tokens, behind normalizations that read `around`."""
    rows, scores = samples * windows * 16, (samples * windows * 6, 16, 16)
    inner: Operator = ("aten::view", ((samples * windows, 16, WIDTH),))
    return [
        *[("aten::layer_norm", ((*around, WIDTH), (WIDTH,)))] * 3,
        inner,
        linear(rows, WIDTH, WIDTH),
        ("aten::bmm", (scores, scores)),
        ("aten::_softmax", ((samples * windows, 6, 16, 16),)),
        ("aten::bmm", (scores, scores)),
        inner,
        linear(rows, WIDTH, 4 * WIDTH),
        linear(rows, 4 * WIDTH, WIDTH),
    ]


@pytest.mark.parametrize("around", [(5, 16, 8), (5, 128)], ids=["image", "rows"])
def test_windows_that_attention_runs_over_are_no_samples(
    described: Callable[..., Description], around: tuple[int, ...]
) -> None:
    job = described(Plain([*STEM, *windowed(5, 8, around) * 4, *HEAD]))
    told = {"micro_batch": 5, "windows": 8, "heads": 6, "head_dim": 16, "sequence": None}
    assert {name: job.facts[name].value for name in told} == told
    sizes = Sizes.of(job)
    # Heads are in each window.
    assert Symbols(sizes, replace(sizes, heads=12)).rescaled((240, 16, 16)) == (480, 16, 16)


@pytest.mark.parametrize("around", [(40, 16), (16, 40), (1, 40, 16)], ids=["as is", "tokens first", "one in front"])
def test_whole_samples_are_no_windows(described: Callable[..., Description], around: tuple[int, ...]) -> None:
    job = described(Plain([*STEM, *windowed(40, 1, around) * 4, *HEAD]))
    assert (job.facts["micro_batch"].value, job.facts["sequence"].value) == (40, 16)
    assert "windows" not in job.facts


def attends(tokens: int, keys: int) -> list[Operator]:
    """Attention by a batch of 10 without biases, whose three products into the heads are alike over as many keys."""

    def product(rows: int) -> Operator:
        return "aten::mm", ((rows, WIDTH), (WIDTH, WIDTH))

    scores = (10, 6, tokens, keys)
    into: list[Operator] = []
    for rows in (tokens, keys, keys):
        into += [product(10 * rows), ("aten::view", ((10, rows, WIDTH),)), ("aten::transpose", ((10, rows, 6, 16),))]
    return [
        ("aten::rms_norm", ((10, tokens, WIDTH), (WIDTH,))),
        *into,
        ("aten::bmm", ((60, tokens, 16), (60, 16, keys))),
        ("aten::_softmax", (scores,)),
        ("aten::bmm", ((60, tokens, keys), (60, keys, 16))),
        product(10 * tokens),
    ]


def test_products_into_the_heads_are_no_layers_where_attention_comes_in_parts(
    described: Callable[..., Description],
) -> None:
    def mlp(tokens: int) -> list[Operator]:
        return [linear(10 * tokens, WIDTH, 4 * WIDTH), linear(10 * tokens, 4 * WIDTH, WIDTH)]

    encoder, decoder = [*attends(40, 40), *mlp(40)], [*attends(20, 20), *attends(20, 40), *mlp(20)]
    job = described(Plain([*STEM, *encoder * 2, *decoder * 2, *HEAD]))
    told = {"layers": 2, "hidden": WIDTH, "ffn": 4 * WIDTH, "heads": 6, "micro_batch": 10, "micro_batches": 1}
    assert {name: job.facts[name].value for name in told} == told
    assert job.ranks[0].structure.stacks == 2


def test_all_tokens_as_one_matrix_are_no_sample(described: Callable[..., Description]) -> None:
    layer = [*windowed(40, 1, (40, 16)), ("aten::view", ((1, 640, WIDTH),))]
    job = described(Plain([*STEM, *layer * 4, *HEAD]))
    assert (job.facts["micro_batch"].value, job.facts["sequence"].value) == (40, 16)
