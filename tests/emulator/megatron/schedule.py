"""The 1F1B schedule, from its definition.

A stage runs as many forward passes ahead as there are stages behind it, then one forward and one backward pass in
turns, then the backward passes that are left (Narayanan et al., PipeDream-2BW, 2021; Megatron-LM, 2021).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass of a micro-batch."""

    backward: bool
    micro_batch: int


@dataclass(frozen=True, slots=True)
class Exchange:
    """What a stage sends and receives at once, before it goes on."""

    parts: tuple[Literal["send next", "receive next", "send previous", "receive previous"], ...]


def one_forward_one_backward(stage: int, stages: int, micro_batches: int) -> Iterator[Pass | Exchange]:
    """Give what a stage does in a step."""
    ahead = min(stages - stage - 1, micro_batches)
    for number in range(ahead):
        yield Exchange(("receive previous",))
        yield Pass(backward=False, micro_batch=number)
        yield Exchange(("send next",))
    paired = micro_batches - ahead
    if paired:
        yield Exchange(("receive previous",))
    for number in range(paired):
        yield Pass(backward=False, micro_batch=ahead + number)
        yield Exchange(("send next", "receive next"))
        yield Pass(backward=True, micro_batch=number)
        last = number == paired - 1
        yield Exchange(("send previous",) if last else ("send previous", "receive previous"))
    for number in range(ahead):
        yield Exchange(("receive next",))
        yield Pass(backward=True, micro_batch=paired + number)
        yield Exchange(("send previous",))
