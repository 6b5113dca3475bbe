"""How kernels are compiled: numba, cached on disk, without the interpreter lock."""

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numba

Kernel = Callable[..., Any]
"""A compiled function: numba infers its types from what it is called with."""

_OPTIONS: Final[dict[str, Any]] = {"cache": True, "nogil": True, "error_model": "numpy"}


def kernel(function: Kernel) -> Kernel:
    """Compile `function` on first call; later processes load it from the cache."""
    return _compiled(function)


def lean_kernel(function: Kernel) -> Kernel:
    """Compile `function`, which allocates nothing, without reference counts on the arrays it passes around.

    For loops that call small functions with many arrays: the scanner ran at 73 MB/s with the counts and runs at
    several hundred without.
    """
    return _compiled(function, _nrt=False, forceinline=False)


def inlined_kernel(function: Kernel) -> Kernel:
    """Compile `function` as `lean_kernel` does, into the body of every kernel that calls it.

    LLVM decides by size: with one rare path more it left the scanner's inner loop outside, at 400 MB/s instead of 670.
    """
    return _compiled(function, _nrt=False, forceinline=True)


def _compiled(function: Kernel, **more: bool) -> Kernel:
    options: dict[str, Any] = {**_OPTIONS, **more}
    compiled: Kernel = numba.njit(**options)(function)
    return compiled


def _cache_folder() -> Path:
    """Return a folder for compiled kernels: with the package, else the user's cache, else a temporary one.

    numba looks only at a kernel's own file to see whether its cache is stale, and a kernel inlines those of other
    files. So the folder's name says what all of the package's sources were.
    """
    package = Path(__file__).parent
    stamps = "".join(
        f"{file.name}{(stat := file.stat()).st_mtime_ns}{stat.st_size};" for file in sorted(package.rglob("*.py"))
    )
    name = f"kernels-{hashlib.sha256(stamps.encode()).hexdigest()[:12]}"
    for place in _places(package):
        folder = place / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    return Path(tempfile.mkdtemp(prefix="lumos-df-"))


def _places(package: Path) -> Iterator[Path]:
    yield package / "__pycache__"
    yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lumos-df"
    yield Path(tempfile.gettempdir()) / f"lumos-df-{os.getuid()}"


def compiled() -> bool:
    """Return whether the cache holds kernels, so that workers can load them instead of each compiling its own."""
    return any(Path(vars(numba.config)["CACHE_DIR"]).rglob("*.nbc"))


if not os.environ.get("NUMBA_CACHE_DIR"):
    vars(numba.config)["CACHE_DIR"] = str(_cache_folder())
