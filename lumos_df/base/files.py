"""Files and folders that appear whole: written aside, then put in their place by one rename.

A reader sees what was there before or all of what is new, and a writer that dies leaves at most a hidden file.
"""

import errno
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def unwritable(folder: Path, error: OSError) -> str:
    """Return the line that tells a user why nothing can be written to a folder."""
    return f"{folder}: cannot be written ({error.strerror or error}); give a folder that you may write to"


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """Give a hidden path next to `path` to write to; it becomes `path` when the block ends well, else it is removed.

    Raises `OSError` where it cannot be put in its place.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def publish_file(path: Path, content: bytes) -> None:
    """Write a file whole. Raises `OSError` where it cannot be written."""
    with draft_of(path) as draft:
        draft.write_bytes(content)


def publish_folder(draft: Path, folder: Path) -> bool:
    """Rename a folder that is complete; return False where another, with something in it, has the name already.

    Raises `OSError` where it cannot be renamed for another reason.
    """
    try:
        draft.rename(folder)
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
            return False
        raise
    return True
