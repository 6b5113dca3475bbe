"""What becomes of an item that a worker was given."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from lumos_df.base.errors import LumosError

Result = TypeVar("Result")


class WorkerError(LumosError):
    """A worker ended before it answered: killed, out of memory, or crashed."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Result]):
    """What became of one item: its place in the list, and either its result or why there is none."""

    index: int
    value: Result | None
    error: Exception | None
