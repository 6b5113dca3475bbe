"""Figures as the text of a TOML file."""

from collections.abc import Iterator, Mapping
from typing import Any


def dump(figures: Mapping[str, Any], digits: int | None = None) -> str:
    """Return nested mappings of texts, numbers, flags and tuples of them as TOML; empty tables are left out.

    Args:
        figures: what to write.
        digits: significant digits of fractions; None: as many as tell them apart.
    """
    return "\n".join(_lines("", figures, digits)) + "\n"


def _lines(path: str, figures: Mapping[str, Any], digits: int | None) -> Iterator[str]:
    for key, value in figures.items():
        if not isinstance(value, Mapping):
            yield f"{key} = {_value(value, digits)}"
    for key, value in figures.items():
        if isinstance(value, Mapping) and value:
            below = f"{path}.{key}" if path else key
            if not all(isinstance(entry, Mapping) for entry in value.values()):
                yield f"\n[{below}]"
            yield from _lines(below, value, digits)


def _value(value: object, digits: int | None) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'
    if isinstance(value, tuple):
        return f"[{', '.join(_value(each, digits) for each in value)}]"
    return f"{value:.{digits}g}" if digits and isinstance(value, float) else repr(value)
