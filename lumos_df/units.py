"""Read and write times (ns), sizes (bytes), work (FLOP) and counts as people do: `1.5 ms`, `80 GiB`, `312 TFLOP`."""

import re
from collections.abc import Mapping
from typing import Final

from lumos_df.errors import LumosError

_TIMES: Final = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
_BINARY_SIZES: Final = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}
_DECIMAL_SIZES: Final = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15}
_WORK: Final = {
    "FLOP": 1,
    "kFLOP": 10**3,
    "MFLOP": 10**6,
    "GFLOP": 10**9,
    "TFLOP": 10**12,
    "PFLOP": 10**15,
    "EFLOP": 10**18,
    "ZFLOP": 10**21,
}

_QUANTITY: Final = re.compile(r"\s*([+-]?)(\d+)(?:\.(\d+))?\s*([^\W\d]*)\s*")


def format_ns(ns: int) -> str:
    """Return a duration with three digits and a unit that fits: `1.50 ms`."""
    return _format(ns, _TIMES)


def format_bytes(size: int) -> str:
    """Return a size in binary units: `1.50 GiB`."""
    return _format(size, _BINARY_SIZES)


def format_flop(work: int) -> str:
    """Return an amount of work: `312 TFLOP`."""
    return _format(work, _WORK)


def format_count(number: int, noun: str) -> str:
    """Return how many there are of something: `1 trace`, `2,000 traces`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def parse_ns(text: str) -> int:
    """Read a duration such as `1.5 ms` or `20us`; a bare number is ns. Raise `LumosError` for anything else."""
    return _parse(text, "time", _TIMES)


def parse_bytes(text: str) -> int:
    """Read a size such as `80 GiB` (binary) or `80GB` (decimal); a bare number is bytes. Raise `LumosError` else."""
    return _parse(text, "size", {**_BINARY_SIZES, **_DECIMAL_SIZES})


def parse_flop(text: str) -> int:
    """Read an amount of work such as `312 TFLOP`; a bare number is FLOP. Raise `LumosError` for anything else."""
    return _parse(text, "work", _WORK)


def _format(amount: int, units: Mapping[str, int]) -> str:
    # 999.5 us shows as 1.00 ms, not as 1000 us.
    unit, size = [(unit, size) for unit, size in units.items() if size * 9995 <= max(abs(amount), 1) * 10000][-1]
    if size == 1:
        return f"{amount} {unit}"
    value = amount / size
    digits = max(0, 3 - len(str(int(abs(value)))))
    return f"{value:.{digits}f} {unit}"


def _parse(text: str, what: str, units: Mapping[str, int]) -> int:
    found = _QUANTITY.fullmatch(text)
    spelled = {unit.casefold(): size for unit, size in units.items()}
    unit = found[4].casefold().replace("\N{GREEK SMALL LETTER MU}", "u") if found else ""
    size = spelled.get(unit) if unit else 1
    if found is None or size is None:
        raise LumosError(f"{what} '{text}': write a number and one of {', '.join(units)}")
    sign, whole, fraction = found[1], found[2], found[3] or ""
    parts: int = 10 ** len(fraction)
    rounded = (2 * int(whole + fraction) * size + parts) // (2 * parts)
    return -rounded if sign == "-" else rounded
