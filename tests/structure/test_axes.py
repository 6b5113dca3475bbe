"""Batch and sequence in recorded shapes, of traces whose sizes are alike on purpose."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from lumos_df.graph.job import groups
from lumos_df.schema.codes import FORWARD, OPTIMIZER
from lumos_df.structure import labelled_rows
from lumos_df.structure.axes import follow
from lumos_df.structure.axis_labels import (
    BATCH,
    CONSTANT,
    MIXED,
    PICKED_ONE,
    SEQUENCE,
    Labels,
    cut,
    holds_one_number,
    swapped,
)
from lumos_df.structure.picked_rows import takes_from_table
from lumos_df.trace.ingest import ingest

Call = tuple[str, list[object]]


def followed(
    folder: Path,
    calls: list[Call],
    batch: int,
    sequence: int | None,
    inside: int = 0,
    update: str = "",
    outer: int = 0,
) -> dict[str, tuple[Labels, ...]]:
    """Return the labels of each call's tensors, by what it reads, of calls one after the other on a thread.

    As many as `inside` run in the one at `outer`; those named `update` are the optimizer's.
    """
    events = [
        {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 10 * place}
        | {"dur": 10 * inside + 9 if place == outer else 5, "args": {"Input Dims": dims}}
        for place, (name, dims) in enumerate(calls)
    ]
    folder.mkdir(exist_ok=True)
    file = folder / "rank0.json.gz"
    file.write_bytes(gzip.compress(json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()))
    ingest([str(file)], folder / "corpus")
    trace = labelled_rows.load(folder / "corpus", groups(folder / "corpus")[0][0])
    rows = trace.rows
    phase = np.where(rows.named(lambda name: name == update), OPTIMIZER, FORWARD).astype(np.int8)
    axes = follow(trace, phase, batch, sequence)
    return {f"{rows.names[rows.name[row]]}": axes.labels(row) for row in np.flatnonzero(axes.kind >= 0).tolist()}


def kinds(labels: Labels) -> list[str]:
    return ["".join(kind for kind, _ in label or ()) for label in labels]


def test_channels_as_many_as_samples_are_no_batch(tmp_path: Path) -> None:
    calls: list[Call] = [
        ("aten::conv2d", [[64, 64, 8, 8], [64, 64, 3, 3], [64]]),
        ("aten::batch_norm", [[64, 64, 8, 8], [64], [64], [64], [64]]),
        ("aten::relu", [[64, 64, 8, 8]]),
    ]
    known = followed(tmp_path, calls, 64, None)
    assert [kinds(labels) for labels in known["aten::conv2d"]] == [[BATCH, "", "", ""], ["", "", MIXED, MIXED], [""]]
    assert kinds(known["aten::relu"][0]) == [BATCH, CONSTANT, CONSTANT, CONSTANT]


def test_parameters_of_a_linear_layer_as_many_as_tokens_are_no_tokens(tmp_path: Path) -> None:
    """Four times 1,024 tokens, and 4,096 neurons: by its shape the weight is the layer's input, laid flat."""
    calls: list[Call] = [
        ("aten::linear", [[4, 1024, 1024], [4096, 1024], [4096]]),
        ("aten::view", [[4, 1024, 1024], []]),
        ("aten::t", [[4096, 1024]]),
        ("aten::addmm", [[4096], [4096, 1024], [1024, 4096], [], []]),
    ]
    known = followed(tmp_path, calls, 4, 1024, inside=3)
    assert [kinds(labels) for labels in known["aten::addmm"]] == [[""], [BATCH + SEQUENCE, ""], ["", ""]]


def test_what_tokens_are_mixed_to_is_no_width(tmp_path: Path) -> None:
    """Patches of an image, 64 of width 128, through twice as many and back: 128 is also what that layer leads to."""
    calls: list[Call] = [
        ("aten::layer_norm", [[8, 64, 128], [], [128], [128]]),
        ("aten::transpose", [[8, 64, 128], [], []]),
        ("aten::linear", [[8, 128, 64], [128, 64], [128]]),
        ("aten::gelu", [[8, 128, 128]]),
        ("aten::linear", [[8, 128, 128], [64, 128], [64]]),
    ]
    known = followed(tmp_path / "into", calls[:4], 8, 64)
    assert [kinds(labels) for labels in known["aten::linear"][1:]] == [[MIXED, MIXED], [MIXED]]
    assert kinds(known["aten::gelu"][0]) == [BATCH, CONSTANT, MIXED]
    assert kinds(followed(tmp_path / "out", calls, 8, 64)["aten::linear"][1]) == [MIXED, MIXED]


def test_tokens_that_a_convolution_mixes_are_no_channels(tmp_path: Path) -> None:
    norm: Call = ("aten::layer_norm", [[8, 64, 128], [], [128], [128]])
    known = followed(tmp_path, [norm, ("aten::conv1d", [[8, 64, 128], [128, 64, 1], [128]])], 8, 64)
    assert [kinds(labels) for labels in known["aten::conv1d"][1:]] == [[MIXED, MIXED, ""], [MIXED]]


def test_tokens_as_many_as_a_width_are_mixed_where_they_were_turned_to_the_last_axis(tmp_path: Path) -> None:
    calls: list[Call] = [
        ("aten::layer_norm", [[8, 64, 64], [], [64], [64]]),
        ("aten::transpose", [[8, 64, 64], [], []]),
        ("aten::linear", [[8, 64, 64], [128, 64], [128]]),
        ("aten::gelu", [[8, 64, 128]]),
    ]
    known = followed(tmp_path, calls, 8, 64)
    assert [kinds(labels) for labels in known["aten::linear"][1:]] == [[MIXED, MIXED], [MIXED]]
    assert kinds(known["aten::gelu"][0]) == [BATCH, "", MIXED]


def test_tokens_as_many_as_a_width_that_a_convolution_mixes_are_no_channels(tmp_path: Path) -> None:
    """Also inside of it, where one along an axis is one of maps a row high."""
    calls: list[Call] = [
        ("aten::layer_norm", [[8, 96, 96], [], [96], [96]]),
        ("aten::conv1d", [[8, 96, 96], [96, 96, 1], [96]]),
        ("aten::unsqueeze", [[8, 96, 96], []]),
        ("aten::thnn_conv2d", [[8, 96, 1, 96], [96, 96, 1, 1], [], [96]]),
    ]
    known = followed(tmp_path, calls, 8, 96)
    assert [kinds(labels) for labels in known["aten::conv1d"]] == [[BATCH, SEQUENCE, ""], [MIXED, MIXED, ""], [MIXED]]
    assert kinds(known["aten::thnn_conv2d"][1]) == [MIXED, MIXED, "", ""]


@pytest.mark.parametrize(("shape", "sequence"), [([8, 128, 64], 128), ([8, 64, 64], 64), ([8, 2, 128, 64], 64)])
def test_a_layer_that_does_not_surely_read_tokens_has_a_width(
    tmp_path: Path, shape: list[object], sequence: int
) -> None:
    known = followed(tmp_path, [("aten::linear", [shape, [128, 64], [128]])], 8, sequence)
    assert [kinds(labels) for labels in known["aten::linear"][1:]] == [["", ""], [""]]


def test_a_norm_written_in_elements_has_weights_as_many_as_tokens_that_are_no_tokens(tmp_path: Path) -> None:
    """Twice 1,024 tokens, 2,048 wide, behind a loss that read a target for each token."""
    calls: list[Call] = [
        ("aten::nll_loss_forward", [[2048, 512], [2048], [], [], []]),
        ("aten::embedding", [[512, 2048], [2, 1024], [], [], []]),
        ("triton_red_fused_add_mean_mul_pow_rsqrt_0", [[2, 1024, 2048], [2048], [], []]),
    ]
    known = followed(tmp_path, calls, 2, 1024)
    assert kinds(known["aten::nll_loss_forward"][1]) == [SEQUENCE + BATCH]
    norm = known["triton_red_fused_add_mean_mul_pow_rsqrt_0"]
    assert [kinds(labels) for labels in norm] == [[BATCH, SEQUENCE, CONSTANT], [CONSTANT]]


def test_where_a_model_is_as_wide_as_a_sequence_is_long_attention_has_the_sequence(tmp_path: Path) -> None:
    calls: list[Call] = [
        ("aten::embedding", [[512, 1024], [2, 1024], [], [], []]),
        ("aten::addmm", [[3072], [2048, 1024], [1024, 3072], [], []]),
        ("aten::_flash_attention_forward", [[2, 16, 1024, 64], [2, 16, 1024, 64], [2, 16, 1024, 64]]),
        ("aten::addmm", [[1024], [2048, 1024], [1024, 1024], [], []]),
        ("aten::gelu", [[2, 1024, 4096]]),
    ]
    known = followed(tmp_path, calls, 2, 1024)
    assert kinds(known["aten::_flash_attention_forward"][1]) == [BATCH, "", SEQUENCE, ""]
    assert kinds(known["aten::gelu"][0]) == [BATCH, SEQUENCE, ""]


def test_a_head_as_wide_as_a_sequence_is_long_is_no_sequence(tmp_path: Path) -> None:
    heads: list[object] = [[2, 4, 64, 64]] * 3
    calls: list[Call] = [
        ("aten::_flash_attention_forward", heads),
        ("aten::_flash_attention_backward", [*heads, [2, 4, 64, 64], [2, 4, 64, 64]]),
    ]
    known = followed(tmp_path, calls, 2, 64)
    forward, backward = (known[name] for name, _ in calls)
    assert [kinds(labels) for labels in (*forward, *backward)] == [[BATCH, "", SEQUENCE, ""]] * 8


@pytest.mark.parametrize(("shape", "told"), [([128, 64], MIXED), ([256, 128], ""), ([128], "")])
def test_the_optimizer_updates_what_mixes_tokens_as_it_is_read(tmp_path: Path, shape: list[object], told: str) -> None:
    """Of a mixer 128 wide; where a shape is one of a width as well, it is that."""
    calls: list[Call] = [
        ("aten::layer_norm", [[8, 64, 128], [], [128], [128]]),
        ("aten::transpose", [[8, 64, 128], [], []]),
        ("aten::linear", [[8, 128, 64], [128, 64], [128]]),
        ("aten::linear", [[8, 64, 128], [256, 128], [256]]),
        ("aten::lerp_", [shape, shape]),
    ]
    known = followed(tmp_path, calls, 8, 64, update="aten::lerp_")
    assert {kind for labels in known["aten::lerp_"] for kind in kinds(labels)} == {told}


def test_scores_hold_the_sequence_both_ways_where_a_head_is_as_wide_as_it_is_long(tmp_path: Path) -> None:
    """Two samples of four heads, 32 tokens, 32 wide: of the three sizes that a product runs over two are tokens."""
    calls: list[Call] = [
        ("aten::view", [[2, 32, 128], []]),
        ("aten::transpose", [[2, 32, 4, 32], [], []]),
        ("aten::bmm", [[8, 32, 32], [8, 32, 32]]),
        ("aten::_softmax", [[2, 4, 32, 32], [], []]),
        ("aten::dropout", [[2, 4, 32, 32], [], []]),
    ]
    known = followed(tmp_path, calls, 2, 32)
    assert [kinds(labels) for labels in known["aten::bmm"]] == [[BATCH, SEQUENCE, ""], [BATCH, "", SEQUENCE]]
    assert [kinds(known[name][0]) for name, _ in calls[3:]] == [[BATCH, "", SEQUENCE, SEQUENCE]] * 2


def test_queries_and_keys_have_tokens_also_where_their_axes_were_cut_otherwise(tmp_path: Path) -> None:
    """Eight samples of eight heads are as many as the 64 tokens, and those as the width."""
    calls: list[Call] = [
        ("aten::relu", [[64, 8, 64]]),
        ("aten::view", [[64, 8, 64], []]),
        ("aten::transpose", [[64, 64, 8], [], []]),
        ("aten::bmm", [[64, 64, 8], [64, 8, 64]]),
    ]
    known = followed(tmp_path, calls, 8, 64)
    assert [kinds(labels)[1:] for labels in known["aten::bmm"]] == [[SEQUENCE, ""], ["", SEQUENCE]]


def test_the_matrix_that_tokens_are_multiplied_by_holds_none_also_outside_of_a_linear_layer(tmp_path: Path) -> None:
    """As a compiler calls it, where the model is as wide as a micro-batch has tokens."""
    calls: list[Call] = [
        ("aten::embedding", [[512, 2048], [2, 1024], [], [], []]),
        ("aten::gelu", [[2, 1024, 2048]]),
        ("aten::mm", [[2048, 2048], [2048, 2048]]),
    ]
    left, right = followed(tmp_path, calls, 2, 1024)["aten::mm"]
    assert sorted(kinds(left)[0]) == sorted(BATCH + SEQUENCE)
    assert [kinds(left)[1], *kinds(right)] == ["", "", ""]


@pytest.mark.parametrize("adds_up", ["torch::autograd::AccumulateGrad", "torch::distributed::reducer::mul_out"])
def test_gradients_of_parameters_as_many_as_tokens_are_no_tokens(tmp_path: Path, adds_up: str) -> None:
    calls: list[Call] = [(adds_up, [[5632, 2048]]), ("aten::mul", [[5632, 2048], []])]
    known = followed(tmp_path, calls, 2, 1024, inside=1)
    assert [kinds(known[name][0]) for name in (adds_up, "aten::mul")] == [["", ""]] * 2


def test_tokens_that_are_looked_up_are_a_sequence_also_where_a_row_of_constants_was_as_long(tmp_path: Path) -> None:
    """As BERT's token types, which begin as a row of its own, and then are as large as the tokens."""
    calls: list[Call] = [
        ("aten::slice", [[1, 1024], [], [], [], []]),
        ("aten::expand", [[1, 256], [], []]),
        ("aten::embedding", [[30522, 768], [32, 256], [], [], []]),
        ("aten::native_layer_norm", [[32, 256, 768], [], [768], [768], []]),
    ]
    known = followed(tmp_path, calls, 32, 256)
    assert kinds(known["aten::embedding"][1]) == [BATCH, SEQUENCE]
    assert kinds(known["aten::native_layer_norm"][0]) == [BATCH, SEQUENCE, CONSTANT]


def test_a_batch_put_together_with_heads_grows_with_the_batch_alone(tmp_path: Path) -> None:
    calls: list[Call] = [
        ("aten::conv1d", [[32, 4, 32], [4, 4, 1]]),
        ("aten::view", [[32, 4, 32], []]),
        ("aten::mul", [[128, 32], []]),
    ]
    known = followed(tmp_path, calls, 32, None)
    assert known["aten::mul"][0] == (((BATCH, 32), (CONSTANT, 4)), ((CONSTANT, 32),))


def test_a_product_reads_two_tensors_of_as_many_elements_that_nothing_read_before(tmp_path: Path) -> None:
    # Three batches of four heads: queries, and keys which are turned.
    queries, keys = [3, 4, 50, 8], [3, 4, 8, 50]
    moves = ("aten::expand", "aten::reshape", "aten::clone", "aten::_unsafe_view")
    calls: list[Call] = [("aten::matmul", [queries, keys])]
    calls += [(name, [shape, []]) for shape in (queries, keys) for name in moves]
    calls += [("aten::bmm", [[12, 50, 8], [12, 8, 50]])]
    left, right = followed(tmp_path, calls, 3, 50)["aten::bmm"]
    assert (kinds(left), kinds(right)) == ([BATCH, SEQUENCE, ""], [BATCH, "", SEQUENCE])


def test_a_product_inside_another_reads_what_that_does_also_where_nothing_tells_how_long_a_sequence_is(
    tmp_path: Path,
) -> None:
    # Four windows of each of three images, and four heads: keys have as many elements as queries, cut otherwise.
    queries, keys = [12, 4, 49, 8], [12, 4, 8, 49]
    moves = ("aten::expand", "aten::reshape", "aten::clone", "aten::_unsafe_view")
    calls: list[Call] = [
        ("aten::linear", [[3, 196, 32], [32, 32], [32]]),
        ("aten::view", [[3, 196, 32], []]),
        ("aten::transpose", [[12, 49, 4, 8], [], []]),
        ("aten::transpose", [queries, [], []]),
        ("aten::matmul", [queries, keys]),
    ]
    calls += [(name, [shape, []]) for shape in (queries, keys) for name in moves]
    calls += [("aten::bmm", [[48, 49, 8], [48, 8, 49]])]
    left, right = followed(tmp_path, calls, 3, None, inside=9, outer=4)["aten::bmm"]
    assert (left[0], right[0]) == 2 * (((BATCH, 3), (CONSTANT, 16)),)


def test_what_one_operator_alone_reads_is_not_left_for_a_tensor_from_nowhere(tmp_path: Path) -> None:
    calls: list[Call] = [
        ("aten::relu", [[10, 6, 32]]),
        ("aten::reshape", [[10, 6, 32], []]),
        ("aten::view", [[10, 6, 32], []]),
        ("aten::addmm", [[64], [60, 32], [32, 64]]),
        ("aten::zero_", [[10, 2, 96]]),
    ]
    assert kinds(followed(tmp_path, calls, 6, 10)["aten::zero_"][0]) == [SEQUENCE, "", ""]


def test_parameters_as_wide_as_the_batch_hold_none(tmp_path: Path) -> None:
    calls: list[Call] = [
        ("aten::relu", [[16, 128]]),
        ("aten::linear", [[16, 128], [16, 128], [16]]),
        ("aten::sigmoid", [[16, 16]]),
    ]
    known = followed(tmp_path, calls, 16, None)
    assert [kinds(labels) for labels in known["aten::linear"]] == [[BATCH, ""], ["", ""], [""]]
    assert kinds(known["aten::sigmoid"][0]) == [BATCH, ""]


def test_what_a_lookup_takes_holds_its_batch_though_nothing_tells_how_long_a_sequence_is(tmp_path: Path) -> None:
    calls: list[Call] = [
        ("aten::embedding", [[2000, 64], [5, 40]]),
        ("aten::reshape", [[5, 40], []]),
        ("aten::index_select", [[2000, 64], [], [200]]),
        ("aten::view", [[200, 64], []]),
        ("aten::lstm", [[5, 40, 64], [256, 64], [256, 64]]),
    ]
    known = followed(tmp_path, calls, 5, None, inside=3)
    assert known["aten::view"][0] == (((BATCH, 5), (CONSTANT, 40)), ((CONSTANT, 64),))
    assert kinds(known["aten::lstm"][0]) == [BATCH, "", ""]


@pytest.mark.parametrize("batch", [16, 24])
def test_attention_tells_batch_from_sequence_of_the_same_size(tmp_path: Path, batch: int) -> None:
    """A batch of sequences is turned into sequences of a batch; 8 heads of 16."""
    rows = batch * 8
    calls: list[Call] = [
        ("aten::relu", [[batch, 3, 24]]),
        ("aten::permute", [[batch, 3, 24], []]),
        ("aten::linear", [[24, batch, 3], [128, 3], [128]]),
        ("aten::view", [[24, batch, 128], []]),
        ("aten::transpose", [[24, rows, 16], [], []]),
        ("aten::mul", [[rows, 24, 16], []]),
        ("aten::bmm", [[rows, 24, 16], [rows, 16, 24]]),
        ("aten::softmax", [[rows, 24, 24], [], []]),
    ]
    known = followed(tmp_path, calls, batch, 24)
    assert kinds(known["aten::linear"][0]) == [SEQUENCE, BATCH, ""]
    assert kinds(known["aten::softmax"][0]) == [BATCH, SEQUENCE, SEQUENCE]


B3, B6, S96 = ((BATCH, 3),), ((BATCH, 6),), ((SEQUENCE, 96),)


def wide(size: int) -> tuple[tuple[str, int], ...]:
    return ((CONSTANT, size),)


@pytest.mark.parametrize("tokens", [(*S96, *B3), (*B3, *S96)])
def test_tokens_are_cut_into_whole_sequences_whichever_was_thought_to_come_first(tokens: tuple[object, ...]) -> None:
    cut_up = cut((tokens, wide(128)), (288, 128), (3, 96, 128))  # type: ignore[arg-type]  # a label
    assert cut_up == (B3, S96, wide(128))


def test_axes_of_one_size_may_have_changed_places_before_they_are_cut() -> None:
    # Six sequences times 16 heads are as many as the 96 tokens of each.
    heads = (*B6, *wide(16))
    assert cut((S96, heads, wide(16)), (96, 96, 16), (6, 16, 96, 16)) == (B6, wide(16), S96, wide(16))


def test_a_batch_in_parts_grows_in_the_outer_one() -> None:
    assert cut((((BATCH, 96),),), (96,), (3, 32)) == (B3, wide(32))


def test_an_order_of_axes_of_one_size_takes_as_few_out_of_their_row_as_can_be() -> None:
    labels, was, permuted = (B6, wide(6), S96, wide(16)), (6, 6, 96, 16), (96, 6, 6, 16)
    assert swapped(labels, was, permuted, BATCH, two=False) == (S96, B6, wide(6), wide(16))
    assert swapped(labels, was, permuted, BATCH, two=True) == (S96, wide(6), B6, wide(16))


def test_an_encoder_of_as_many_sequences_as_projections_keeps_its_axes(tmp_path: Path) -> None:
    """Of torch.nn.MultiheadAttention with the batch first, whose tokens come as sequences of a batch."""
    calls: list[Call] = [
        ("aten::embedding", [[2000, 128], [3, 96]]),
        ("aten::transpose", [[3, 96, 128], [], []]),
        ("aten::linear", [[96, 3, 128], [384, 128], [384]]),
        ("aten::view", [[288, 384], []]),
        ("aten::gelu", [[3, 96, 384]]),
    ]
    known = followed(tmp_path, calls, 3, 96)
    assert kinds(known["aten::linear"][0]) == [SEQUENCE, BATCH, ""]
    assert kinds(known["aten::gelu"][0]) == [BATCH, SEQUENCE, ""]


def expert(count: int) -> list[Call]:
    """Return the products of one expert's rows of 48 tokens, behind the operator that takes them."""
    return [
        ("aten::linear", [[count, 32], [128, 32], [128]]),
        ("aten::t", [[128, 32]]),
        ("aten::silu", [[count, 128]]),
        ("aten::linear", [[count, 128], [32, 128], [32]]),
        ("aten::index_add_", [[48, 32], [], [count], [count, 32], []]),
    ]


def taken(folder: Path, operator: Call, *counts: int) -> Labels:
    """Return the labels of the last expert's rows in its activation."""
    calls: list[Call] = [("aten::relu", [[4, 12, 32]]), ("aten::view", [[4, 12, 32], []]), ("aten::relu", [[48, 32]])]
    for count in counts:
        calls += [operator, *expert(count)]
    return followed(folder, calls, 4, 12)["aten::silu"][0]


TAKES: Call = ("aten::index", [[48, 32], []])
CUTS: Call = ("aten::slice", [[48, 32], [], [], [], []])


@pytest.mark.parametrize("counts", [(19, 7), (7, 7)])
def test_rows_that_data_picks_of_samples_grow_with_them(tmp_path: Path, counts: tuple[int, ...]) -> None:
    """Also where they are always as many, as in a job that trains on one batch again and again."""
    assert taken(tmp_path, TAKES, *counts) == ((("bs", 7),), wide(128))


def test_rows_that_a_mask_over_samples_and_tokens_picks_grow_with_both(tmp_path: Path) -> None:
    masked: list[Call] = [("aten::relu", [[4, 12, 32]]), ("aten::index", [[4, 12, 32], []]), *expert(7)]
    assert followed(tmp_path, masked, 4, 12)["aten::silu"][0] == ((("bs", 7),), wide(128))


def test_what_picks_rows_may_look_at_its_own_tensors_first(tmp_path: Path) -> None:
    looks: list[Call] = [TAKES, ("aten::select", [[48, 32], [], []]), ("aten::select", [[19, 32], [], []])]
    calls: list[Call] = [("aten::relu", [[48, 32]]), *looks, *expert(19)]
    known = followed(tmp_path, calls, 48, None, inside=2, outer=1)
    assert known["aten::silu"][0] == (((BATCH, 19),), wide(128))


def test_of_tokens_that_data_picks_always_as_many_nothing_tells_whether_they_grow(tmp_path: Path) -> None:
    reads: list[Call] = [("aten::linear", [[4, 5, 32], [128, 32], [128]]), ("aten::silu", [[4, 5, 128]])]
    calls: list[Call] = [("aten::relu", [[4, 12, 32]]), ("aten::index", [[4, 12, 32], [], []]), *reads]
    known = followed(tmp_path, calls, 4, 12)
    assert known["aten::silu"][0] == (((BATCH, 4),), ((PICKED_ONE, 5),), wide(128))
    assert holds_one_number(known["aten::silu"])
    assert not holds_one_number(known["aten::relu"])


def test_rows_that_data_picks_and_are_as_many_as_the_batch_are_the_batch(tmp_path: Path) -> None:
    # The last token of each sequence.
    calls: list[Call] = [("aten::relu", [[48, 32]]), TAKES, *expert(16)]
    assert BATCH in kinds(followed(tmp_path, calls, 16, 3)["aten::silu"][0])


def test_rows_that_are_cut_always_as_many_are_a_number_of_the_program(tmp_path: Path) -> None:
    assert taken(tmp_path, CUTS, 19, 19) == (wide(19), wide(128))


def test_rows_several_times_as_many_as_tokens_grow_with_them(tmp_path: Path) -> None:
    # Two experts of each.
    assert kinds(taken(tmp_path, TAKES, 96)) == [BATCH + SEQUENCE, CONSTANT]


@pytest.mark.parametrize("room", [24, 17])
def test_rows_that_are_picked_in_groups_grow_in_the_longer_axis(tmp_path: Path, room: int) -> None:
    # Of 48 tokens each of six experts takes as many as it has room for.
    experts: list[Call] = [("aten::bmm", [[6, room, 32], [6, 32, 64]]), ("aten::gelu", [[6, room, 64]])]
    known = followed(tmp_path, [("aten::relu", [[48, 32]]), TAKES, *experts], 48, None)
    assert [kinds(labels) for labels in known["aten::bmm"]] == [["", BATCH, ""], ["", "", ""]]
    assert kinds(known["aten::gelu"][0]) == ["", BATCH, ""]


def test_pieces_grow_where_a_tensor_is_cut_into_several(tmp_path: Path) -> None:
    assert taken(tmp_path, CUTS, 19, 7, 22) == ((("bs", 22),), wide(128))


def test_of_a_tensor_that_is_cut_once_no_part_need_grow(tmp_path: Path) -> None:
    assert taken(tmp_path, CUTS, 5, 43) == (wide(43), wide(128))


def test_parts_of_one_split_are_read_one_after_another(tmp_path: Path) -> None:
    calls: list[Call] = [("aten::relu", [[48, 32]]), ("aten::split_with_sizes", [[48, 32], [], []])]
    known = followed(tmp_path, [*calls, *expert(19), *expert(7), *expert(22)], 48, None)
    assert known["aten::silu"][0] == (((BATCH, 22),), wide(128))


def test_rows_of_a_table_are_told_by_what_data_says_alone(tmp_path: Path) -> None:
    known = followed(
        tmp_path, [("aten::relu", [[48, 32]]), TAKES, ("aten::index_select", [[64, 9], [], [48]])], 48, None
    )
    assert not takes_from_table("aten::index", known["aten::index"])
    assert not takes_from_table("aten::index_select", known["aten::index_select"])
    table = followed(tmp_path / "table", [("aten::relu", [[48, 32]]), ("aten::index", [[64, 32, 9], []])], 48, None)
    assert takes_from_table("aten::index", table["aten::index"])
    assert not takes_from_table("aten::add", table["aten::index"])
    assert not takes_from_table("aten::index", ())


def test_a_row_more_for_what_is_left_out_hides_no_batch(tmp_path: Path) -> None:
    calls: list[Call] = [
        ("aten::relu", [[48, 32]]),
        ("aten::cat", [[[48, 32], [1, 32]], []]),
        ("aten::mul", [[49, 32], []]),
    ]
    assert followed(tmp_path, calls, 48, None)["aten::mul"][0] == (((BATCH, 49),), wide(32))


def test_tensors_put_together_that_do_not_all_hold_the_batch_do_not_grow_as_it_does(tmp_path: Path) -> None:
    calls: list[Call] = [
        ("aten::relu", [[48, 32]]),
        ("aten::cat", [[[48, 32], [30, 32]], []]),
        ("aten::mul", [[78, 32], []]),
    ]
    assert followed(tmp_path, calls, 48, None)["aten::mul"][0] == (wide(78), wide(32))
