"""What one kernel takes after a change, in figures: waves of blocks, bytes, and what no kernel is shorter than."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lumos_df.model.hardware import Hardware
from lumos_df.schema.codes import GEMM
from lumos_df.schema.dtypes import BF16, FP32, PRECISION_TABLE
from lumos_df.structure.shapes import Operation, Shape
from lumos_df.whatif.durations.kernel_kind import NORM, KernelKind
from lumos_df.whatif.durations.kernel_times import KernelWork, in_waves, of_fewer_blocks
from lumos_df.whatif.job.recorded_gpu import Machine

US = 1e-6


def kernel(time: float, before: float, after: float, floor: float = 5.0, least: float = 0.0) -> KernelWork:
    """Return one kernel; times in us."""
    fields: dict[str, Any] = {
        "time": time,
        "floor": floor,
        "before": before,
        "after": after,
        "linear": after,
        "size": before,
        "size_after": after,
        "least": least,
    }
    each = {name: np.array([value * US]) for name, value in fields.items()}
    return KernelWork(row=np.zeros(1, np.int32), key=np.zeros(1, np.int64), doubt=np.zeros(1), **each)


@pytest.mark.parametrize(
    ("time", "moving", "more", "takes"),
    [
        # Of 21 us a fifth of the floor is to start; three waves and one to start share 20.
        (21.0, 0.0, 2.0, 1 + 5 * (1 + 3 * 2)),
        (21.0, 0.0, 0.5, 1 + 5 * (1 + 3 / 2)),
        (21.0, 0.0, 1.0, 21.0),
        # Nothing but bytes: twice as many take twice as long, beside what it takes to start.
        (20.0, 20.0, 2.0, (40**2 + 1**2) ** 0.5),
        # 20 us of bytes beside 21 of waves are 29.
        (29.0, 20.0, 2.0, (36**2 + 40**2) ** 0.5),
        # Bytes that beat the memory's peak lie in a cache.
        (21.0, 30.0, 2.0, 36.0),
    ],
)
def test_a_kernel_of_three_waves_takes_its_waves_or_its_bytes(
    time: float, moving: float, more: float, takes: float
) -> None:
    waved = in_waves(kernel(time, moving, moving * more), np.array([3.0]), np.array([more]), 0.9)
    assert waved.rescaled()[0] / US == pytest.approx(takes, rel=1e-6)
    assert (waved.size_after / waved.size)[0] == pytest.approx(more)


def test_a_convolution_may_also_take_as_much_longer_as_it_does_more() -> None:
    waved = in_waves(kernel(25.0, 5.0, 10.0), np.array([0.2]), np.array([2.0]), 0.9)
    both = [of_fewer_blocks(waved, np.array([2.0]), np.array([convolves])) for convolves in (True, False)]
    assert [each.rescaled()[0] for each in both] == [waved.rescaled()[0]] * 2
    # Of 25 us 5 are the floor, so twice as much would take 45.
    assert waved.rescaled()[0] / US * np.exp(both[0].doubt[0]) == pytest.approx(45)
    assert both[1].doubt[0] == 0


@pytest.mark.parametrize(
    ("elements", "waves"),
    [
        # 264 blocks of 256 threads, eight at once on each of 132 multiprocessors, are a quarter of a wave.
        (264 * 256 * 4, 0.25),
        (264 * 256 * 8, 0.25),
        # In a loop, as of a batch norm or of gradients of a normalization's weights: as many blocks as would have 8.
        (264 * 256 * 16, 0.5),
        (264 * 256 * 96, 3.0),
    ],
)
def test_blocks_that_loop_over_their_elements_run_as_many_waves_as_without(elements: int, waves: float) -> None:
    shapes: tuple[Shape, ...] = ((64, elements // 64), (64,))
    operation = Operation("aten::native_batch_norm", shapes, (), 1, 0, inside=True)
    kind = KernelKind(NORM, operation, shapes, (), (), blocks=264 / 8, threads=264 * 256, wide=0, backward=False)
    gpu = Machine.of(Hardware.read("h100-sxm"), PRECISION_TABLE[BF16])
    assert kind.waves(gpu) == pytest.approx(waves)
    # A recurrent layer launches a kernel of the name for each token: all together have its elements.
    assert replace(kind, threads=96 * 264 * 256).waves(gpu) == 0.25


def test_a_kernel_without_a_grid_or_work_is_left_to_its_cost_function() -> None:
    plain = kernel(20.0, 10.0, 30.0)
    waved = in_waves(plain, np.array([np.nan]), np.array([3.0]), 0.9)
    assert waved.rescaled().tolist() == plain.rescaled().tolist()


def test_no_kernel_is_shorter_than_its_operations_at_the_peak() -> None:
    # Above its floor it seemed twice as fast as the peak allows.
    fast = kernel(10.0, 10.0, 10_000.0)
    assert fast.rescaled()[0] / US < 8_000
    assert kernel(10.0, 10.0, 10_000.0, least=8_000.0).rescaled()[0] / US == pytest.approx(8_000)


def product_s(precision: int, *shapes: Shape, gpu: str = "a100-sxm-80") -> float:
    """Return what a product of matrices takes above the floor, s."""
    operation = Operation("aten::bmm" if len(shapes[0]) == 3 else "aten::mm", shapes, (), 1, 0, inside=True)
    kind = KernelKind(GEMM, operation, shapes, (), (), blocks=0.0, threads=0.0, wide=0, backward=False)
    return kind.seconds(Machine.of(Hardware.read(gpu), PRECISION_TABLE[precision]))


@pytest.mark.parametrize(("size", "pieces"), [(71, 8), (70, 4), (68, 2), (72, 1)])
def test_products_of_16_bits_lose_what_their_rows_are_loaded_in_pieces(size: int, pieces: int) -> None:
    """As the scores of attention over 71 tokens are."""
    aligned = product_s(BF16, (512, 72, 16), (512, 16, 72))
    cut = product_s(BF16, (512, size, 16), (512, 16, size))
    assert cut / aligned == pytest.approx(pieces**0.45, rel=0.05)
    whole = product_s(FP32, (512, 72, 16), (512, 16, 72))
    assert product_s(FP32, (512, size, 16), (512, 16, size)) / whole == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize(("size", "pieces"), [(50_257, 8), (30_522, 4)])
def test_products_whose_rows_hopper_does_not_copy_run_as_on_the_gpus_before_it(size: int, pieces: int) -> None:
    """On an H200 those of vocabularies of 50,257 and 30,522 took 4.6 to 6.8 and 2.7 times as long as others."""
    whole, cut = (product_s(BF16, (2048, 768), (768, each), gpu="h200-sxm") for each in (size // 64 * 64, size))
    assert cut / whole == pytest.approx(1.6 * pieces**0.45, rel=0.05)
