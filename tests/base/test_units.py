from collections.abc import Callable

import pytest

from lumos_df.base import units


@pytest.mark.parametrize(
    ("show", "amount", "text"),
    [
        (units.format_ns, 0, "0 ns"),
        (units.format_ns, 999, "999 ns"),
        (units.format_ns, 1_000, "1.00 us"),
        (units.format_ns, -1_500, "-1.50 us"),
        (units.format_ns, 12_345_678, "12.3 ms"),
        (units.format_ns, 999_499, "999 us"),
        (units.format_ns, 999_500, "1.00 ms"),
        (units.format_ns, 90 * 10**9, "1.50 min"),
        (units.format_ns, 5 * 3600 * 10**9, "5.00 h"),
        (units.format_bytes, 1023, "1023 B"),
        (units.format_bytes, 80 * 2**30, "80.0 GiB"),
    ],
)
def test_format(show: Callable[[int], str], amount: int, text: str) -> None:
    assert show(amount) == text


def test_counts() -> None:
    assert [units.format_count(number, "trace") for number in (0, 1, 2000)] == ["0 traces", "1 trace", "2,000 traces"]
