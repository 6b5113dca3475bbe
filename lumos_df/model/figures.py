"""Whether figures of a model, a GPU, a plan or a software can be: complaints with field, reason and nearest value."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from lumos_df.base.errors import LumosError, nearest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

LARGEST: Final = 2**31 - 1
"""The largest whole number that a figure may be: products of a few stay within what records hold."""

_Input = TypeVar("_Input", bound="DataclassInstance")


class Complaint(NamedTuple):
    """One field that cannot be as it is."""

    field: str
    why: str
    """Reads on after the field: `= 0: must be at least 1; nearest is 1`."""


def refuse(error: type[LumosError], what: str, complaints: Iterable[Complaint]) -> None:
    """Raise `error` with every complaint in one line, or return when there is none."""
    told = [f"{complaint.field} {complaint.why}" for complaint in complaints]
    if told:
        raise error(f"{what}: {'; '.join(told)}")


def whole(values: dict[str, Any], least: int, *names: str) -> Iterator[Complaint]:
    """Complain of the named values that are no whole numbers of at least `least` and at most `LARGEST`."""
    for name in names:
        value = values[name]
        if type(value) is not int:
            yield Complaint(name, f"= {value!r}: must be a whole number of at least {least}")
        elif value < least:
            yield Complaint(name, f"= {value}: must be at least {least}; nearest is {least}")
        elif value > LARGEST:
            yield Complaint(name, f"= {value}: must be at most {LARGEST}; nearest is {LARGEST}")


def real(values: dict[str, Any], least: float, *names: str, above: bool = False) -> Iterator[Complaint]:
    """Complain of the named values that are no finite numbers of at least `least` (`above`: more than it)."""
    bound = f"{'above' if above else 'at least'} {least:g}"
    for name in names:
        value = values[name]
        fits = type(value) in {int, float} and (value > least if above else value >= least) and value < float("inf")
        if not fits:
            yield Complaint(name, f"= {value!r}: must be a number {bound}")


def share(values: dict[str, Any], *names: str) -> Iterator[Complaint]:
    """Complain of the named numbers that are more than 1, the whole."""
    for name in names:
        if type(values[name]) in {int, float} and values[name] > 1:
            yield Complaint(name, f"= {values[name]!r}: must be at most 1")


def flag(values: dict[str, Any], *names: str) -> Iterator[Complaint]:
    """Complain of the named values that are neither true nor false."""
    for name in names:
        if type(values[name]) is not bool:
            yield Complaint(name, f"= {values[name]!r}: must be true or false")


def text(values: dict[str, Any], *names: str) -> Iterator[Complaint]:
    """Complain of the named values that are no text."""
    for name in names:
        if type(values[name]) is not str:
            yield Complaint(name, f"= {values[name]!r}: must be a text")


def closest(value: int, legal: Iterable[int]) -> int:
    """Return the nearest of the legal values; of two as near, the smaller."""
    return min(legal, key=lambda other: (abs(other - value), other))


def make(cls: type[_Input], figures: Mapping[str, Any], what: str, error: type[LumosError]) -> _Input:
    """Return the dataclass made of figures; raise `error` for a key that it does not have and for a missing one."""
    known = {field.name: field for field in fields(cls)}
    for name in figures:
        if name not in known:
            raise error(f"{what}: there is no figure '{name}'{nearest(name, list(known))}")
    for name, field in known.items():
        if name not in figures and field.default is MISSING and field.default_factory is MISSING:
            raise error(f"{what}: needs the figure '{name}'")
    return cls(**figures)


def word(values: dict[str, Any], name: str, choices: tuple[str, ...]) -> Iterator[Complaint]:
    """Complain of a value that is none of `choices`."""
    value = values[name]
    if value not in choices:
        yield Complaint(name, f"= {value!r}: must be one of {', '.join(choices)}{nearest(str(value), list(choices))}")


def words(values: dict[str, Any], name: str, choices: tuple[str, ...]) -> Iterator[Complaint]:
    """Complain of a value that is no list of different words out of `choices`."""
    value = values[name]
    if type(value) is not tuple or not set(value) <= set(choices) or len(set(value)) < len(value):
        yield Complaint(name, f"= {value!r}: must be a list of some of {', '.join(choices)}")
