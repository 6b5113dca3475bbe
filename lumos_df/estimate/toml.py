"""Figures as the text of a TOML file."""

from collections.abc import Iterator, Mapping
from typing import Any


def dump(figures: Mapping[str, Any]) -> str:
    """Return nested mappings of texts, numbers and flags as TOML; empty tables are left out."""
    return "\n".join(_lines("", figures)) + "\n"


def _lines(path: str, figures: Mapping[str, Any]) -> Iterator[str]:
    for key, value in figures.items():
        if not isinstance(value, Mapping):
            yield f"{key} = {_value(value)}"
    for key, value in figures.items():
        if isinstance(value, Mapping) and value:
            below = f"{path}.{key}" if path else key
            if not all(isinstance(each, Mapping) for each in value.values()):
                yield f"\n[{below}]"
            yield from _lines(below, value)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'
    return repr(value)
