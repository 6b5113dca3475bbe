"""What one kernel takes after a change, in figures: waves of blocks, bytes, and what no kernel is shorter than."""

from typing import Any

import numpy as np
import pytest

from lumos_df.whatif.durations.kernel_times import KernelWork, in_waves

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


def test_a_kernel_without_a_grid_or_work_is_left_to_its_cost_function() -> None:
    plain = kernel(20.0, 10.0, 30.0)
    waved = in_waves(plain, np.array([np.nan]), np.array([3.0]), 0.9)
    assert waved.rescaled().tolist() == plain.rescaled().tolist()


def test_no_kernel_is_shorter_than_its_operations_at_the_peak() -> None:
    # Above its floor it seemed twice as fast as the peak allows.
    fast = kernel(10.0, 10.0, 10_000.0)
    assert fast.rescaled()[0] / US < 8_000
    assert kernel(10.0, 10.0, 10_000.0, least=8_000.0).rescaled()[0] / US == pytest.approx(8_000)
