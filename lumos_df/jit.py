"""How kernels are compiled: numba, cached on disk, without the interpreter lock."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def kernel(function: Kernel) -> Kernel:
    """Compile `function` on first call; later processes load it from the cache."""
    return _compile(function, {})


def lean_kernel(function: Kernel) -> Kernel:
    """Compile `function`, which allocates nothing, without reference counts on the arrays it passes around.

    For loops that call small functions with many arrays: the scanner ran at 73 MB/s with the counts and runs at
    several hundred without.
    """
    return _compile(function, {"_nrt": False})


def _compile(function: Kernel, more: dict[str, Any]) -> Kernel:
    """Compile with a disk cache, wherever one can be had.

    Where neither the package nor the user's cache folder can be written (a container, a shared installation) numba
    refuses to cache at all; a folder of this user's under the system's temporary one then serves.
    """
    options: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy", **more}
    try:
        return numba.njit(**options)(function)  # type: ignore[no-any-return]  # numba publishes no types
    except RuntimeError:
        numba.config.CACHE_DIR = str(Path(tempfile.gettempdir()) / f"lumos-df-kernels-{os.getuid()}")
        return numba.njit(**options)(function)  # type: ignore[no-any-return]  # as above
