"""Texts of traces and files as a terminal may have them: what would steer it is written out."""

from typing import Final

_STEERS: Final = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Control characters, ends of lines, and what turns the direction of a text."""
_NAMED: Final = {"\n": r"\n", "\t": r"\t", "\r": r"\r", "\x1b": r"\e"}
_WRITTEN: Final = {code: _NAMED.get(chr(code), rf"\u{code:04x}") for code in _STEERS}


def printable(text: str) -> str:
    r"""Return a text in which such characters are escapes, as DuckDB writes them: `\n`, `\e`, `\u202e`."""
    return text if text.isprintable() else text.translate(_WRITTEN)
