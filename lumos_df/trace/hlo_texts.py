"""What the text of an HLO instruction says: its name, collective, sizes and replica groups."""

import math
import re
from typing import Final, NamedTuple

from lumos_df.schema.dtypes import element_type

_INSTRUCTION: Final = re.compile(
    r"%?(?P<name>[\w.-]+) = (?P<result>.*?) (?P<opcode>[a-z][a-z0-9-]*)\((?P<operands>.*)", re.DOTALL
)
_SHAPE: Final = re.compile(r"\b(pred|[a-z]+[0-9]+\w*)\[([0-9,]*)\]")
_GROUPS: Final = re.compile(
    r"(?:replica_groups|source_target_pairs)=(\{\{.*?\}\}|\[[0-9,]+\]<=\[[0-9,]+\](?:T\([0-9,]+\))?)"
)
_COLLECTIVE: Final = re.compile(
    r"(all-reduce|all-gather|reduce-scatter|all-to-all|ragged-all-to-all|collective-broadcast|collective-permute|send|recv)"
    r"(?:-start|-done)?$"
)
_WORDS: Final = {
    "collective-broadcast": "broadcast",
    "collective-permute": "send_recv",
    "ragged-all-to-all": "all_to_all",
}


class HloInstruction(NamedTuple):
    """What is known of an instruction."""

    name: str
    """`all-reduce.3`"""
    collective: str | None = None
    """One of `schema.COLLECTIVES`."""
    dtype: str | None = None
    """Element type of the operands."""
    elements_in: int | None = None
    elements_out: int | None = None
    groups: str | None = None
    """Replica groups as written."""
    group_size: int | None = None


def instruction(text: str, category: str | None) -> HloInstruction:
    """Return what the text of an instruction says; a text of another kind is a name.

    Args:
        text: as XLA writes it, or its name alone.
        category: what the profiler says that it is (`hlo_category`), where the text does not.
    """
    match = _INSTRUCTION.match(text)
    opcode = match["opcode"] if match else category or ""
    kind = _COLLECTIVE.match(category or "") or _COLLECTIVE.match(opcode)
    name = match["name"] if match else text
    if kind is None:
        return HloInstruction(name)
    word = _WORDS.get(kind[1], kind[1].replace("-", "_"))
    if match is None:
        return HloInstruction(name, word)
    operands, _, attributes = match["operands"].partition("), ")
    given, got = _SHAPE.findall(operands), _SHAPE.findall(match["result"])
    groups = _GROUPS.search(attributes)
    dtype = element_type(_ELEMENT.get(given[0][0], given[0][0])) if given else None
    return HloInstruction(
        name,
        word,
        dtype.name if dtype else None,
        sum(map(_elements, given)) or None,
        sum(map(_elements, got)) or None,
        groups[1] if groups else None,
        _size(groups[1]) if groups else None,
    )


_ELEMENT: Final = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "s64": "int64",
    "s32": "int32",
    "s8": "int8",
    "u8": "uint8",
    "pred": "bool",
}
"""XLA's words for element types."""


def _elements(shape: tuple[str, str]) -> int:
    return math.prod(int(size) for size in shape[1].split(",") if size)


def _size(groups: str) -> int | None:
    """Return the ranks in a group: `{{0,1},{2,3}}` lists them, `[2,4]<=[8]` counts groups and members."""
    if groups.startswith("["):
        return int(groups[1 : groups.index("]")].rsplit(",", maxsplit=1)[-1])
    first = groups[2 : groups.index("}")]
    return first.count(",") + 1 if first else None
