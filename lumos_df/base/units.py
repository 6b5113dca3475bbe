"""Write times (ns), sizes (bytes) and counts as people do: `1.50 ms`, `80.0 GiB`, `2,000 traces`."""

from collections.abc import Mapping
from typing import Final

_TIMES: Final = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
_SIZES: Final = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}


def format_ns(ns: int) -> str:
    """Return a duration with three digits and a unit that fits: `1.50 ms`."""
    return _format(ns, _TIMES)


def format_bytes(size: int) -> str:
    """Return a size in binary units: `1.50 GiB`."""
    return _format(size, _SIZES)


def format_count(number: int, noun: str) -> str:
    """Return how many there are of something: `1 trace`, `2,000 traces`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _format(amount: int, units: Mapping[str, int]) -> str:
    # 999.5 us shows as 1.00 ms, not as 1000 us.
    unit, size = [(unit, size) for unit, size in units.items() if size * 9995 <= max(abs(amount), 1) * 10000][-1]
    if size == 1:
        return f"{amount} {unit}"
    value = amount / size
    digits = max(0, 3 - len(str(int(abs(value)))))
    return f"{value:.{digits}f} {unit}"
