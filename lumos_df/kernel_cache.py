"""Where compiled kernels are kept; without numba, so that asking costs nothing."""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path


@cache
def folder() -> Path:
    """Return a folder for compiled kernels: with the package, else the user's cache, else a temporary one.

    numba looks only at a kernel's own file to see whether its cache is stale, and a kernel inlines those of other
    files. So the folder's name says what all of the package's sources were.
    """
    if named := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(named)
    package = Path(__file__).parent
    stamps = "".join(
        f"{file.name}{(stat := file.stat()).st_mtime_ns}{stat.st_size};" for file in sorted(package.rglob("*.py"))
    )
    name = f"kernels-{hashlib.sha256(stamps.encode()).hexdigest()[:12]}"
    for place in _places(package):
        here = place / name
        try:
            here.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(here, os.W_OK):
            return here
    return Path(tempfile.mkdtemp(prefix="lumos-df-"))


def _places(package: Path) -> Iterator[Path]:
    yield package / "__pycache__"
    yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lumos-df"
    yield Path(tempfile.gettempdir()) / f"lumos-df-{os.getuid()}"


def compiled() -> bool:
    """Return whether the cache holds kernels, so that workers can load them instead of each compiling its own."""
    return any(folder().rglob("*.nbc"))
