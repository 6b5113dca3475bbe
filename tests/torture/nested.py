"""Lists and dictionaries that are wrong somewhere inside: values of the wrong kind, lost, or in another's place."""

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any, Final


def changed(document: Any, choose: random.Random, values: Sequence[Any], *, circular: bool = True) -> Any:
    """Return a copy of a document with some changes; where it is `circular`, something may hold itself."""
    document = copy.deepcopy(document)
    for _ in range(choose.choice((0, 1, 3, 20))):
        choose.choice(_CHANGES)(document, choose, values, circular=circular)
    return document


def _place(document: Any, choose: random.Random) -> tuple[Any, Any]:
    """Return a list or dictionary somewhere inside, and a key of it, None where it has none."""
    inside = document
    while True:
        keys = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
        if not keys:
            return inside, None
        key = choose.choice(keys)
        if not isinstance(inside[key], dict | list) or choose.random() < 0.15:
            return inside, key
        inside = inside[key]


def _value(document: Any, choose: random.Random, values: Sequence[Any], *, circular: bool) -> None:
    inside, key = _place(document, choose)
    if key is not None:
        value = choose.choice((*values, inside) if circular else values)
        # Of a list that stands in two places, or in the values themselves, a later change would be another one, too.
        inside[key] = copy.deepcopy(value) if isinstance(value, list | dict) and value is not inside else value


def _lost(document: Any, choose: random.Random, _: Sequence[Any], **__: bool) -> None:
    inside, key = _place(document, choose)
    if key is not None and inside is not document:
        del inside[key]


def _borrowed(document: Any, choose: random.Random, _: Sequence[Any], *, circular: bool) -> None:
    """Give a place what stands at another."""
    (inside, key), (other, known) = _place(document, choose), _place(document, choose)
    if key is not None and known is not None:
        inside[key] = other[known] if circular else copy.deepcopy(other[known])


_CHANGES: Final[tuple[Callable[..., None], ...]] = (*(_value, _value, _lost, _borrowed),)
