"""Files and folders that appear whole: written aside, then put in their place by one rename.

A reader sees what was there before or all of what is new. What is published is on the disk before it has its name. A
writer that dies leaves at most a hidden file, which the next writer of the same name removes.
"""

import errno
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Final

from lumos_df.base import locks
from lumos_df.base.errors import ROOM, shortage

_MARK: Final = 8
"""Characters that tell the drafts of one file apart."""


_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def reason(error: OSError) -> str:
    """Return why the system refused, in its own words: pyarrow puts them into a sentence of its own."""
    return os.strerror(error.errno) if error.errno else str(error)


def full(error: BaseException) -> bool:
    """Return whether a disk, or what a user may have of it, is full."""
    return isinstance(error, OSError) and error.errno in _FULL


def unwritable(folder: Path, error: OSError) -> str:
    """Return the line that tells a user why nothing can be written to a folder."""
    remedy = "make room on its disk, or give another folder" if full(error) else "give a folder that you may write to"
    if error.errno == errno.EFBIG:
        remedy = "raise the size that files may have (ulimit -f)"
    if shortage(error):
        remedy = ROOM
    return f"{folder}: cannot be written ({reason(error)}); {remedy}"


def unreadable(file: Path, error: Exception, remedy: str) -> str:
    """Return the line that tells a user why a file cannot be read: the system refuses, or else `remedy` mends it."""
    if not file.parent.exists():
        return f"{file.parent}: removed while it was read; run the command again"
    what = str(error).partition("\n")[0]
    # pyarrow's exception of no kind tells of what the system refused, such as a thread: nothing is wrong with the file.
    if shortage(error) or type(error).__name__ == "ArrowException":
        return f"{file}: cannot be read now ({what}); {ROOM}"
    refused = isinstance(error, OSError) and error.errno not in {None, errno.ENOENT, errno.ENOTDIR}
    return f"{file}: cannot be read ({what}); {'check the disk and your permissions' if refused else remedy}"


@contextmanager
def draft_of(path: Path, *, listed: bool = True) -> Iterator[Path]:
    """Give a hidden path next to `path` to write to; it becomes `path` when the block ends well, else it is removed.

    Its name is on the disk, too, unless it need not be `listed` yet.

    Raises `OSError` where it cannot be put in its place.
    """
    prefix = f".{path.name}."
    length = len(prefix) + _MARK
    with os.scandir(path.parent) as entries:
        left = [entry.path for entry in entries if entry.name.startswith(prefix) and len(entry.name) == length]
    for other in left:
        locks.remove_free(Path(other))
    draft = path.with_name(prefix + secrets.token_hex(_MARK // 2))
    lock = locks.hold(draft)
    try:
        yield draft
        flush(draft)
        draft.replace(path)
        if listed:
            flush(path.parent)
    except OSError as error:
        # What is written to an open file, and does not fit, says nothing of where; a draft's name says it to nobody.
        if error.filename in {None, str(draft)}:
            error.filename = str(path)
        raise
    finally:
        draft.unlink(missing_ok=True)
        os.close(lock)


def publish_file(path: Path, content: bytes, *, mode: int | None = None) -> None:
    """Write a file whole, with the permissions `mode`. Raises `OSError` where it cannot be written."""
    with draft_of(path) as draft:
        if mode is not None:
            draft.chmod(mode)
        draft.write_bytes(content)


def publish_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files of a folder by their names, each whole; they appear in this order once all are written.

    So the disk takes them together, and their names, in place of one after another. Raises `OSError` where one cannot
    be written.
    """
    with ExitStack() as drafts:
        for name, content in reversed([*contents.items()]):
            drafts.enter_context(draft_of(folder / name, listed=False)).write_bytes(content)
    flush(folder)


def publish_folder(draft: Path, folder: Path) -> bool:
    """Rename a folder that is complete; return False where another, with something in it, has the name already.

    Raises `OSError` where it cannot be renamed for another reason.
    """
    for file in (*draft.iterdir(), draft):
        flush(file)
    try:
        draft.rename(folder)
        flush(folder.parent)
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
            return False
        raise
    return True


def publish_over(draft: Path, folder: Path) -> None:
    """Rename a folder that is complete; where another has the name, each of its files goes in there by itself.

    Raises `OSError` where one cannot be renamed.
    """
    if not publish_folder(draft, folder):
        for file in draft.iterdir():
            file.replace(folder / file.name)
        flush(folder)


def begin_flush(path: Path) -> None:
    """Let a file's content go to the disk from now on; whoever publishes it waits for what is left of that."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        Thread(target=_flush_and_close, args=(descriptor,), name="lumos-df-flush", daemon=True).start()


def _flush_and_close(descriptor: int) -> None:
    with suppress(OSError):  # which comes again where it is published
        os.fsync(descriptor)
    os.close(descriptor)


def flush(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
