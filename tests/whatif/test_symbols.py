"""What the axes of recorded shapes become: the shapes of real traces before and after, as they were recorded."""

from dataclasses import replace

import pytest

from lumos_df.structure.axis_labels import MIXED, Labels
from lumos_df.structure.shapes import Shape
from lumos_df.whatif.durations.symbols import Symbols
from lumos_df.whatif.durations.widths import INTO_MLP, MLP, MODEL, OUT_OF_MLP
from lumos_df.whatif.job.settings import Sizes

# The transformer of transformer_batch_sweep at batch 32, and at batch 128.
SMALL = Sizes(8, 128, 512, 8, 8, 16, 71, 32, 1, None, 1, 1, 1)
LARGE = replace(SMALL, seq=128, micro_batch=128)


@pytest.mark.parametrize(
    ("small", "large"),
    [
        ((71, 32, 128), (128, 128, 128)),
        ((256, 71, 71), (1024, 128, 128)),
        ((2272, 128), (16384, 128)),
        ((32, 64, 1, 2556), (128, 64, 1, 8256)),
        ((3, 71, 32, 128), (3, 128, 128, 128)),
        ((72, 32, 128), (129, 128, 128)),
        ((32, 8, 1, 72), (128, 8, 1, 129)),
        ((128, 384), (128, 384)),
        ((512,), (512,)),
        ((64, 64, 1), (64, 64, 1)),
    ],
)
def test_shapes_of_one_batch_size_become_those_recorded_at_another(small: Shape, large: Shape) -> None:
    assert Symbols(SMALL, LARGE).rescaled(small) == large


def test_what_tokens_are_mixed_to_stays_though_it_is_as_many_as_the_width() -> None:
    wider = Symbols(SMALL, replace(SMALL, hidden=256))
    known: Labels = (((MIXED, 128),), ((MIXED, 71),))
    assert wider.rescaled((128, 71), labels=known) == (128, 71)
    assert wider.rescaled((128, 71)) == (256, 71)


def test_sides_of_images_that_are_as_long_as_the_net_is_wide_stay() -> None:
    net = Sizes(None, 32, None, None, None, None, None, 9, 1, None, 1, 1, 1)
    wider = Symbols(net, replace(net, hidden=48))
    assert wider.rescaled((9, 3, 32, 32)) == (9, 3, 32, 32)
    assert wider.rescaled((9, 32, 32, 32)) == (9, 48, 32, 32)
    assert wider.rescaled((9, 4, 8, 32)) == (9, 4, 8, 48)


def test_a_size_that_is_everything_at_once_is_told_by_the_tensor() -> None:
    back = Symbols(LARGE, SMALL)  # sequence, micro-batch and hidden are all 128
    assert sorted(back.rescaled((128, 128, 128))) == [32, 71, 128]
    assert sorted(back.rescaled((128, 8, 128, 128))) == [8, 32, 71, 71]
    assert back.rescaled((1024, 128, 16)) == (256, 71, 16)
    assert back.rescaled((128, 128)) == (128, 128)


def test_tensor_parallelism_cuts_heads_ffn_and_vocabulary() -> None:
    old = Sizes(40, 4096, 16384, 64, 64, 64, 2048, 4, 1, 51200, 8, 1, 1)
    cut = Symbols(old, replace(old, tp=4))
    assert cut.rescaled((4096, 2048)) == (4096, 4096)
    assert cut.rescaled((8192, 1536)) == (8192, 3072)
    assert cut.rescaled((6400, 4096)) == (12800, 4096)
    assert cut.rescaled((32, 2048, 2048)) == (64, 2048, 2048)


def test_the_order_of_a_layer_tells_the_width_of_the_mlp_from_that_of_the_model() -> None:
    # A rank's share of the MLP is as wide as the model: 12288 over 2 is 6144.
    old = Sizes(48, 6144, 12288, 48, 48, 128, 2048, 1, 4, 51200, 2, 4, 2)
    wider = Symbols(old, replace(old, ffn=24576))
    assert wider.rescaled((2048, 1, 6144), MODEL) == (2048, 1, 6144)
    assert wider.rescaled((2048, 1, 6144), MLP) == (2048, 1, 12288)
    assert wider.rescaled((2048, 1, 6144)) == (2048, 1, 6144)
    assert wider.operands(((2048, 6144), (6144, 6144)), INTO_MLP) == ((2048, 6144), (6144, 12288))
    assert wider.operands(((2048, 6144), (6144, 6144)), OUT_OF_MLP) == ((2048, 12288), (12288, 6144))
    assert wider.operands(((6144, 2048), (2048, 6144)), INTO_MLP) == ((6144, 2048), (2048, 12288))
    assert wider.operands(((6144, 2048), (2048, 6144)), OUT_OF_MLP) == ((12288, 2048), (2048, 6144))
    assert sorted(wider.rescaled((6144, 6144))) == [6144, 12288]


@pytest.mark.parametrize(
    ("shape", "wide"),
    [
        ((3, 4, 71, 32), (3, 8, 71, 32)),
        ((3, 71, 4, 32), (3, 71, 8, 32)),
        ((3, 4, 71, 71), (3, 8, 71, 71)),
        # As many are a convolution's sides, or how many experts a token may go to.
        ((128, 3, 4, 4), (256, 3, 4, 4)),
        ((213, 4), (213, 4)),
    ],
)
def test_few_heads_are_heads_beside_their_width_or_two_sequences(shape: Shape, wide: Shape) -> None:
    old = Sizes(8, 128, 512, 4, 4, 32, 71, 3, 1, None, 1, 1, 1)
    assert Symbols(old, replace(old, hidden=256, ffn=1024, heads=8, kv_heads=8)).rescaled(shape) == wide


@pytest.mark.parametrize(
    ("one", "labels", "three"),
    [
        ((1, 71, 128), ((), (("s", 71),), (("", 128),)), (3, 71, 128)),
        ((71, 1, 128), ((("s", 71),), (), (("", 128),)), (71, 3, 128)),
        ((71, 128), ((("s", 71),), (("", 128),)), (213, 128)),
        ((128, 71), ((("", 128),), (("s", 71),)), (128, 213)),
        ((8, 71, 16), ((("", 8),), (("s", 71),), (("", 16),)), (24, 71, 16)),
        ((71, 128), (), (213, 128)),
        ((1, 512), ((), (("", 512),)), (3, 512)),
        ((128, 384), ((("", 128),), (("", 384),)), (128, 384)),
        ((64, 128, 1), ((("", 64),), (("", 128),), ()), (64, 128, 1)),
        ((512,), (), (512,)),
    ],
)
def test_a_batch_of_one_grows_where_a_tensor_holds_tokens_or_one_sample(
    one: Shape, labels: Labels, three: Shape
) -> None:
    single = replace(SMALL, micro_batch=1)
    assert Symbols(single, replace(single, micro_batch=3)).rescaled(one, labels=labels) == three
    # Of another model nothing but the axis of one sample tells.
    maps = Symbols(single, single, (1, 3))
    assert maps.rescaled((1, 64, 7, 7)) == (3, 64, 7, 7)
    assert maps.rescaled((64, 32, 7, 7)) == (64, 32, 7, 7)


def test_another_model_grows_in_its_leading_dimension_alone() -> None:
    unknown = Sizes(None, None, None, None, None, None, None, 16, 1, None, 1, 1, 1)
    twice = Symbols(unknown, unknown, (16, 32))
    assert twice.rescaled((16, 3, 224, 224)) == (32, 3, 224, 224)
    assert twice.rescaled((784, 256)) == (1568, 256)
    assert twice.rescaled((64,)) == (64,)
    assert twice.rescaled((7, 3, 3, 3)) == (7, 3, 3, 3)


@pytest.mark.parametrize(
    ("shape", "labels", "twice"),
    [
        ((64, 32, 64, 64), ((("b", 64),), (("", 32),), (("b", 64),), (("b", 64),)), (128, 32, 64, 64)),
        ((64, 4096, 32), ((("", 64),), (("b", 64), ("b", 64)), (("", 32),)), (64, 8192, 32)),
        ((4096, 64, 32), ((("bs", 4096),), (("b", 64),), (("", 32),)), (8192, 64, 32)),
    ],
)
def test_no_tensor_holds_a_number_for_each_two_samples(shape: Shape, labels: Labels, twice: Shape) -> None:
    """Images of 64 by 64 at a batch of 64: told by their sizes three axes would hold it."""
    many = replace(SMALL, micro_batch=64)
    assert Symbols(many, replace(many, micro_batch=128)).rescaled(shape, labels=labels) == twice
