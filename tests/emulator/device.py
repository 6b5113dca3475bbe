"""What a profiler says of a GPU."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Device:
    """The GPU that a rank runs on, as the profiler describes it."""

    name: str
    memory_bytes: int
    capability: tuple[int, int]
    multiprocessors: int
