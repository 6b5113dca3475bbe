from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumos_df import units
from lumos_df.errors import LumosError


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
        (units.format_ns, 5 * 3600 * 10**9, "5.00 h"),
        (units.format_bytes, 1023, "1023 B"),
        (units.format_bytes, 80 * 2**30, "80.0 GiB"),
        (units.format_flop, 312 * 10**12, "312 TFLOP"),
    ],
)
def test_format(show: Callable[[int], str], amount: int, text: str) -> None:
    assert show(amount) == text


@pytest.mark.parametrize(
    ("read", "text", "amount"),
    [
        (units.parse_ns, "20us", 20_000),
        (units.parse_ns, " 1.5 ms ", 1_500_000),
        (units.parse_ns, "1.5 \N{MICRO SIGN}s", 1_500),
        (units.parse_ns, "-3", -3),
        (units.parse_ns, "0.4999 ns", 0),
        (units.parse_bytes, "80 GiB", 80 * 2**30),
        (units.parse_bytes, "80gb", 80 * 10**9),
        (units.parse_flop, "0.312 PFLOP", 312 * 10**12),
    ],
)
def test_parse(read: Callable[[str], int], text: str, amount: int) -> None:
    assert read(text) == amount


@pytest.mark.parametrize("text", ["", "ms", "1.5 parsecs", "1e3 ns", "1.5 GiB", "1.2.3 s"])
def test_what_is_no_time_is_refused_with_the_units_that_are(text: str) -> None:
    with pytest.raises(LumosError, match=rf"time '{text}': write a number and one of ns, us, ms, s, min, h"):
        units.parse_ns(text)


@given(st.integers(-(10**18), 10**18))
def test_a_shown_time_reads_back_to_three_digits(ns: int) -> None:
    assert units.parse_ns(units.format_ns(ns)) == pytest.approx(ns, rel=5.01e-3)


@given(st.integers(0, 10**18))
def test_a_time_written_out_in_seconds_reads_back_exactly(ns: int) -> None:
    assert units.parse_ns(f"{ns // 10**9}.{ns % 10**9:09d} s") == ns


def test_counts() -> None:
    assert [units.format_count(number, "trace") for number in (0, 1, 2000)] == ["0 traces", "1 trace", "2,000 traces"]
