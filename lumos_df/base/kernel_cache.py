"""Where compiled kernels, and the catalogue's bound views, are kept; without numba, so that asking costs nothing."""

import contextlib
import hashlib
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parent.parent

KERNEL_FOLDERS: Final = ("**/kernels", "graph/simulate", "model/pipeline")
"""Folders of the package that hold what numba compiles, and its constants, and nothing else."""

SOURCES: Final = (
    "base/jit.py",
    "base/compiling.py",
    "base/stored_kernels.py",
    "schema/*.py",
    "trace/json/keys.py",
    "trace/json/scanned.py",
    "trace/json/strings.py",
    *(f"{folder}/*.py" for folder in KERNEL_FOLDERS),
)
"""Files of the package that kernels are made of: their own, and those whose constants they read."""

STORED: Final = ".kernel"
"""Ends the names of files that hold a compiled kernel."""

COMPILING: Final = "compiling kernels, once, about 20 s"
"""What a user is told while that lasts, after an installation or an upgrade."""

_UNUSED_DAYS: Final = 1.0
"""Days since a process last began to use a folder of other sources, after which it goes.

Processes of these sources may still run. One that runs for longer keeps its kernels in memory and compiles again what
else it needs: numba makes the folder anew.
"""


@cache
def folder() -> Path:
    """Return a folder for compiled kernels: NUMBA_CACHE_DIR, with the package, the user's cache, or a temporary one.

    numba looks only at a kernel's own file to see whether its cache is stale, and a kernel inlines those of other
    files. So the folder's name says what all of their sources were; what was compiled of other sources is removed.
    """
    name = f"kernels-{_place_of_package()}-{digest()}"
    for place in _places():
        cache_folder = place / name
        try:
            cache_folder.mkdir(parents=True, exist_ok=True)
            os.utime(cache_folder)
        except OSError:
            continue
        if os.access(cache_folder, os.W_OK):
            _remove_stale(cache_folder)
            return cache_folder
    return Path(tempfile.mkdtemp(prefix="lumos-df-"))


def digest() -> str:
    """Return the digest of the sources: 12 hex digits."""
    hasher = hashlib.sha256()
    for file in sorted({file for pattern in SOURCES for file in PACKAGE.glob(pattern)}):
        hasher.update(file.name.encode() + b"\0" + file.read_bytes())
    return hasher.hexdigest()[:12]


def compiled() -> bool:
    """Return whether the cache holds kernels, so that workers can load them instead of each compiling its own."""
    return any(folder().glob(f"*{STORED}"))


def _place_of_package() -> str:
    """Return a name of this installation, as several may share a cache: 6 hex digits."""
    return hashlib.sha256(str(PACKAGE).encode()).hexdigest()[:6]


def _places() -> Iterator[Path]:
    if named := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(named)
    yield PACKAGE / "__pycache__"
    yield from user_places()


def user_places() -> Iterator[Path]:
    """Give the folders where this user's caches may lie, the best first: the user's cache, a private temporary one."""
    # A user whom the system does not know, as in containers, has no home.
    with contextlib.suppress(RuntimeError):
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lumos-df"
    shared = Path(tempfile.gettempdir()) / f"lumos-df-{os.getuid()}"
    if _is_private(shared):
        yield shared


def _is_private(path: Path) -> bool:
    """Return whether a folder, made if it is not there, is this user's alone: what numba loads from it is pickled."""
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def _remove_stale(current: Path) -> None:
    """Remove what this installation compiled of other sources and nobody has used for a day."""
    for cache_folder in current.parent.glob(f"kernels-{_place_of_package()}-*"):
        # Another process may remove it just now.
        with contextlib.suppress(OSError):
            if cache_folder != current and time.time() - cache_folder.stat().st_mtime > _UNUSED_DAYS * 86400:
                shutil.rmtree(cache_folder, ignore_errors=True)


@cache
def tell_compiling() -> None:
    """Say once, on a terminal, why nothing happens for a while."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{COMPILING}\n")
