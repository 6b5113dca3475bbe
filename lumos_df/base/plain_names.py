"""Names of kernels and functions without what many of them have in common: namespaces, arguments, sizes, lambdas."""

import re
from typing import Final

_BUILT_IN: Final = re.compile(r"<built-in (?:function|method) ([^ >]+)[^>]*>")
"""How Python writes a function of its own."""
_UNNAMED: Final = re.compile(r"\((?:anonymous namespace)\)::|\bvoid (?=[\w(])")
_SIGNATURE: Final = re.compile(r"\w<|[\w>]\((?!\d+\))")
"""Brackets right behind a name: C++. A number alone is a line of a Python file."""
_QUALIFIED: Final = re.compile(r"(?:\w+::){2,}\w+")
"""A name in a namespace of a namespace; operators have one at most."""
_PARAMETERS: Final = re.compile(r"(?:(?<! )|(?<=[,<(] ))\((?!\d+\))[^()]*\)")
_CUT_PARAMETERS: Final = re.compile(r"(?<=[\w>\u27e9])\((?!\d+\)).*$")
"""Where a long name lost its end."""
_LAMBDA: Final = re.compile(r"(?:::)?\{[^{}]*\}(?:::operator)?(?: const)?|::operator(?=[ ,>&:]|$)(?: const)?")
_NAMESPACES: Final = re.compile(r"(?<![\w>\u27e9:])(?:::)?(?:[A-Za-z_]\w*::)+(?=[A-Za-z_])")
_ARGUMENTS: Final = re.compile(r"(?<=\w)<([^<>]*)>")
_NOISE: Final = re.compile(
    r"(?:\(\w*\))?-?\d\w*|true|false|bool|int|long|short|char|void|\w*size_t|u?int\d+_t|(?:unsigned|decltype|nullptr)\b.*"
    r"|[aA]rray\b.*|.*[*&]|"
)
"""Template arguments that tell kernels apart for compilers alone: sizes, flags, integers, pointers."""


def plain(name: str) -> str:
    """Return the name of a kernel or function, or a text with such a name in it, as one says it.

    What is no C++ signature keeps all of its name: `aten::mm`, `Memset (Device)`, `train.py(31): step`.
    """
    name = _UNNAMED.sub("", _BUILT_IN.sub(r"\1()", name))
    if not (_SIGNATURE.search(name.replace("()", "")) or _QUALIFIED.fullmatch(name)):
        return name
    name = _CUT_PARAMETERS.sub("", _without_nested(_PARAMETERS, name))
    name = _NAMESPACES.sub("", _without_nested(_LAMBDA, name))
    while (shorter := _ARGUMENTS.sub(_telling, name)) != name:
        name = shorter
    return name.translate(_BRACKETS).strip()


_BRACKETS: Final = str.maketrans("\u27e8\u27e9", "<>")
"""Arguments that are done stand in these while those around them are looked at."""


def _telling(match: re.Match[str]) -> str:
    """Return template arguments without noise, each once."""
    arguments = (argument.strip().removesuffix(" const").strip() for argument in match[1].split(","))
    telling = dict.fromkeys(argument for argument in arguments if not _NOISE.fullmatch(argument))
    return f"\u27e8{', '.join(telling)}\u27e9" if telling else ""


def _without_nested(pattern: re.Pattern[str], text: str) -> str:
    """Return a text without what matches, the innermost first."""
    while (shorter := pattern.sub("", text)) != text:
        text = shorter
    return text
