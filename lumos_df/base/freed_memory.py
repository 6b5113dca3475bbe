"""Memory that was given back: when it is looked for, and what is kept of it for the next arrays."""

import ctypes
import gc
import os
from contextlib import suppress
from typing import Final

_MOST: Final = (1 << 31) - 1
"""Bytes. No more than this is kept: the most that the parameter can say."""
_OBJECTS: Final = 200_000
"""New objects after which Python looks for those that only name one another; what is imported are as many."""
# The parameters' numbers in malloc.h.
_TRIM_THRESHOLD: Final = -1
_MMAP_MAX: Final = -4
_ARENA_MAX: Final = -8


def keep() -> None:
    """Let glibc keep what is freed until the process ends; another C library does as it does.

    A graph is built of hundreds of arrays as long as its trace. Given back one by one, each next one begins with pages
    of the system, cleared and mapped when they are first touched, which took a tenth of the time. So no array is mapped
    by itself: those above 32 MiB always were, and took a third of the time of ten million operators. And pyarrow, which
    brings allocators of its own, is told to take glibc's too, unless the user names one. Threads share as many arenas
    as there are CPUs: of its own, glibc lays out 64 MiB of addresses for each thread, which `ulimit -v` counts.
    """
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_MAX, 0)
        library.mallopt(_TRIM_THRESHOLD, _MOST)
        library.mallopt(_ARENA_MAX, max(os.cpu_count() or 1, 2))
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def collect_rarely() -> None:
    """Let Python look for circles of objects rarely, in a process that is ours alone.

    What is imported stays to the end, and arrays are in no circle. To look through it again and again, as Python does
    by default, took 25 ms of a command's start.
    """
    gc.set_threshold(_OBJECTS)
