"""Locks that the system holds for a process and lets go when it ends, however it ends.

A process id says less: in containers that share a volume, two processes of one host's name have the same.
"""

import fcntl
import os
from pathlib import Path


def hold(path: Path, *, shared: bool = False) -> int:
    """Make the file `path` and lock it until the returned descriptor is closed or the process ends.

    Those who share it hold it together, and wait for one who does not.
    Where the file system knows no locks, the file alone is there, and nobody finds it free. Raises `OSError` where it
    cannot be made.
    """
    while True:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        except OSError:
            return descriptor
        # Between the two calls somebody may have found it free, and removed it.
        if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Return whether a process holds the file `path`, or nobody can know; not where there is no such file."""
    try:
        descriptor = _taken(path)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    os.close(descriptor)
    return False


def remove_free(path: Path) -> None:
    """Remove the file `path` unless a process holds it, or nobody can know.

    It is held meanwhile: who was about to hold it waits, finds it gone, and makes another. Asked with `is_held` first,
    a file could be removed that was taken in between.
    """
    try:
        descriptor = _taken(path)
    except OSError:
        return
    try:
        path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _taken(path: Path) -> int:
    """Return a descriptor that holds the file `path`. Raise `OSError` where another one does, or there is none."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
