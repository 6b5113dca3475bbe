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
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
