"""The errors a user can meet: one base class, one line each."""

import errno
from difflib import get_close_matches
from typing import Final

_ENDS: Final = frozenset({errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE})
"""What the system says where a process may have no more memory, processes or open files."""
_NO_ROOM: Final = (
    "can't start new thread",
    "Failed to launch worker thread",
    "failed to map segment from shared object",
    "cannot allocate memory",
    "Out of Memory Error",
    "Too many open files",
)
"""What libraries say then, in exceptions of many kinds: Python, pyarrow, the system's loader, DuckDB."""
ROOM: Final = "free memory, or raise this process's limits (ulimit -a)"
"""The remedy for what `shortage` names."""


class LumosError(Exception):
    """Bad input. The message is one line: what is wrong, where, and the remedy or the nearest valid choice."""


class TraceError(LumosError):
    """A trace file that cannot be read."""


class CorpusError(LumosError):
    """A corpus that cannot be opened or written."""


class UnwritableError(CorpusError):
    """A corpus that can be read and not written."""


class QueryError(LumosError):
    """A query, view or option that the corpus does not have."""


class ModelError(LumosError):
    """A model that cannot be: an unknown name, a file that does not read, a figure that does not fit."""


class HardwareError(LumosError):
    """A GPU that cannot be: an unknown name, a file that does not read, a missing figure."""


class PlanError(LumosError):
    """A plan that cannot be, or not with this model on this hardware."""


class SoftwareError(LumosError):
    """A software profile that cannot be: an unknown name, a file that does not read, a missing figure."""


class TruthError(LumosError):
    """A table of measured runs that cannot be read: an unknown set, a missing file or column."""


class CaptureError(LumosError):
    """A recording or a measurement that cannot be made: no torch, no device, a folder that cannot be written."""


def nearest(word: str, choices: list[str]) -> str:
    """Return `"; did you mean 'x'?"` for the choice most like `word`, or `""` when none is close."""
    match = get_close_matches(word, choices, n=1)
    return f"; did you mean '{match[0]}'?" if match else ""


def shortage(error: BaseException) -> str | None:
    """Return what a process ran short of, memory, threads or files, where an error says so; None of any other error."""
    what = " ".join(str(error).partition("\n")[0].split())
    if isinstance(error, MemoryError):
        return f"out of memory ({what})" if what else "out of memory"
    if isinstance(error, OSError) and error.errno in _ENDS:
        return (error.strerror or what).lower()
    if any(said.lower() in what.lower() for said in _NO_ROOM):
        return f"out of memory, threads or files ({what})"
    before = error.__cause__ or error.__context__  # llvmlite says of it only that it cannot load a file
    return None if before is None else shortage(before)
