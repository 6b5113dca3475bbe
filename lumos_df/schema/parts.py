"""The four parts of a step: each nanosecond is of the one that says what ran on the GPU then, so they add up to it."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class StepPart:
    """One part of a step."""

    name: str
    """How its columns are called, before `_ns`, `_s` or `_pct`."""
    label: str
    """How a legend calls it."""
    simulated: str
    """What it is of a step that was recorded or replayed: what the kernels of its graph did."""
    modelled: str
    """What it is of an estimate from figures alone, which has no kernels in time but sums."""


STEP_PARTS: Final = (
    StepPart(
        "exposed_compute",
        "compute",
        "Compute ran and no communication did",
        "Compute and optimizer while nothing communicates",
    ),
    StepPart(
        "overlapped",
        "overlapped",
        "Compute and communication ran at once",
        "Compute while something communicates",
    ),
    StepPart(
        "exposed_communication",
        "exposed communication",
        "Communication ran and no compute did",
        "Communication that nothing hides",
    ),
    StepPart(
        "other",
        "other",
        "No kernel ran",
        "Pipeline bubble and waiting for the host; the four add up to the step",
    ),
)
"""In the order in which a bar shows them."""

ON_GPU: Final = STEP_PARTS[:3]
"""Those in which a kernel ran: a job without a GPU has none of them."""
