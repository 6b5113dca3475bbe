"""What a user names on the command line, as trace files: folders, globs, URLs and standard input."""

import glob
import io
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from threading import Timer
from typing import Any, Final, cast

from lumos_df.base.errors import LumosError, TraceError
from lumos_df.base.location import file_system, is_url
from lumos_df.corpus.layout import EMPTY_PARTITION
from lumos_df.trace.formats import endings, is_one_trace
from lumos_df.trace.stored_file import Readable

STDIN: Final = "-"
STDIN_NAME: Final = "<stdin>"
_WAITING_S: Final = 2.0
"""Seconds after which it is said that a pipe has no writer yet."""
_DIGITS: Final = re.compile(r"([0-9]+)")
_MAGIC: Final = re.compile(r"[*?\[]")
_RANK: Final = re.compile(r"[0-9]{1,9}")
_OF_PATH: Final = "path:"
"""How a rule begins that takes the rank from a file's path."""


def expand(paths: Iterable[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the trace files that `paths` name, each once, in an order that does not change between runs.

    A folder gives every file below it that ends as traces do (`formats.endings`), but nothing of a corpus; a pattern
    gives what it matches; anything else is taken as a file, so that a name that does not exist is reported by whoever
    opens it. The second list holds the paths that give no file, each with one line that says why.
    """
    files: dict[str, None] = {}
    bad: list[tuple[str, str]] = []
    for path in paths:
        unread: list[tuple[str, str]] = []
        try:
            named = [path] if path == STDIN else _expand_url(path) if is_url(path) else _expand_local(path, unread)
        except (LumosError, OSError) as error:
            known = isinstance(error, LumosError)
            bad.append((path, str(error) if known else f"{path}: cannot be listed ({error}); check its permissions"))
            continue
        bad += unread
        if not named and not unread:
            bad.append((path, f"{path}: no trace files here; traces end in {' or '.join(endings())}"))
        files.update(dict.fromkeys(named))
    return list(files), bad


def _expand_local(path: str, bad: list[tuple[str, str]]) -> list[str]:
    """Return the files that a local path names; what of a folder cannot be read is added to `bad`."""
    if Path(path).is_dir():
        if _is_one_trace(Path(path)):
            return [path]
        return natural_order(_files_below(path, bad))
    if _MAGIC.search(path) and not Path(path).exists():
        matches = glob.glob(path, recursive=True)  # noqa: PTH207  # the pattern may be absolute
        below = [file for match in matches if Path(match).is_dir() for file in _expand_local(match, bad)]
        return natural_order([match for match in matches if not Path(match).is_dir()] + below)
    return [path]


def _is_one_trace(folder: Path) -> bool:
    return is_one_trace(file.name for file in folder.iterdir())


def _files_below(path: str, bad: list[tuple[str, str]]) -> Iterator[str]:
    def unlisted(error: OSError) -> None:
        bad.append((error.filename, f"{error.filename}: cannot be listed ({error.strerror}); check its permissions"))

    for folder, inside, names in os.walk(path, onerror=unlisted):
        if EMPTY_PARTITION in inside:
            inside.clear()
            continue
        if is_one_trace(names):
            inside.clear()
            yield folder
            continue
        for name in names:
            file = Path(folder, name)
            if not name.endswith(endings()):
                continue
            if file.is_file():
                yield str(file)
            elif not file.exists():
                bad.append((str(file), f"{file}: a link to what is not there; mend the link or remove it"))
            else:
                bad.append((str(file), f"{file}: no regular file; name it itself to read it"))


def is_stream(path: str) -> bool:
    """Return whether a file can be read once only: standard input, a pipe, a process's output."""
    return path == STDIN or (
        not is_url(path) and Path(path).exists() and not Path(path).is_file() | Path(path).is_dir()
    )


def _expand_url(path: str) -> list[str]:
    files, inner = file_system(path)
    try:
        if _MAGIC.search(path) and not is_web(path) and not files.exists(inner):
            matches = files.glob(inner)
        elif not is_web(path) and files.isdir(inner):
            found = files.find(inner)
            inside = f"/{EMPTY_PARTITION}/"
            corpora = tuple({f"{file.partition(inside)[0]}/" for file in found if inside in file})
            matches = [file for file in found if file.endswith(endings()) and not file.startswith(corpora)]
        else:
            return [path]
        return natural_order(files.unstrip_protocol(match) for match in matches)
    except Exception as error:  # noqa: BLE001  # every fsspec back end has exceptions of its own
        raise TraceError(f"{path}: cannot be listed ({error}); check the URL and your credentials") from None


def is_web(path: str) -> bool:
    """Return whether a URL is of the web, where nothing can be listed and a question mark is no pattern."""
    return path.startswith(("http://", "https://"))


def natural_order(files: Iterable[str]) -> list[str]:
    """Return names sorted as a person would: rank2 before rank10."""
    return sorted(files, key=lambda name: [int(part) if part.isdecimal() else part for part in _DIGITS.split(name)])


def open_source(path: str) -> AbstractContextManager[Readable]:
    """Open a trace file for reading bytes.

    Raises:
        TraceError: it does not exist or may not be read.
    """
    try:
        if path == STDIN:
            return nullcontext(cast("Readable", sys.stdin.buffer))
        if is_url(path):
            files, inner = file_system(path)
            opened: AbstractContextManager[Readable] = files.open(inner, "rb")
            return opened
        if Path(path).is_dir() and _is_one_trace(Path(path)):
            return JoinedFiles(sorted(file for file in Path(path).iterdir() if file.is_file()))
        return _open_file(Path(path))
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file; check the path") from None
    except IsADirectoryError:
        raise TraceError(f"{path}: a folder, not a file") from None
    except LumosError:
        raise
    except Exception as error:  # noqa: BLE001  # every fsspec back end has exceptions of its own
        raise TraceError(f"{path}: cannot be opened ({error}); check the path and your permissions") from None


def _open_file(path: Path) -> io.FileIO:
    """Open a file; of a pipe that nobody writes to yet, say what is waited for."""
    if not path.is_fifo():
        return path.open("rb", buffering=0)
    said = f"{path}: a pipe; waiting for what writes to it, Ctrl-C ends this\n"
    waiting = Timer(_WAITING_S, sys.stderr.write, [said])
    waiting.daemon = True
    waiting.start()
    try:
        return path.open("rb", buffering=0)
    finally:
        waiting.cancel()


class JoinedFiles(io.RawIOBase):
    """The bytes of files, one after another."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._left = list(files)
        self._open: io.FileIO | None = None

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fill `buffer` from its start; return the bytes read, 0 at the end."""
        while self._open is not None or self._left:
            self._open = self._open or io.FileIO(self._left.pop(0))
            if size := self._open.readinto(buffer):
                return size
            self._open.close()
            self._open = None
        return 0

    def close(self) -> None:
        """Close what is open."""
        if self._open is not None:
            self._open.close()
        super().close()


def job_of(path: str) -> str:
    """Return the job a file belongs to when none is given: the name of its folder."""
    if path == STDIN:
        return "stdin"
    parent = path.rsplit("/", 2)[-2] if is_url(path) else Path(path).absolute().parent.name
    return parent or "root"


def path_pattern(rank_from: str | None) -> re.Pattern[str] | None:
    """Return the regular expression of `path:REGEX`, whose one group is the rank in a path; None for another rule.

    Raises `LumosError` where it is none, or has not one group.
    """
    if rank_from is None or not rank_from.startswith(_OF_PATH):
        return None
    try:
        pattern = re.compile(rank_from.removeprefix(_OF_PATH))
    except re.error as error:
        raise LumosError(f"--rank-from {rank_from!r}: no regular expression ({error})") from None
    if pattern.groups != 1:
        raise LumosError(f"--rank-from {rank_from!r}: put one pair of parentheses, around the rank")
    return pattern


def rank_of(path: str, pattern: re.Pattern[str]) -> int:
    """Return the rank that the last match of `path_pattern` in a path says. Raise `TraceError` where it says none."""
    found = pattern.findall(STDIN_NAME if path == STDIN else path)
    if not found or not _RANK.fullmatch(found[-1]):
        said = f"'{found[-1]}' is no rank" if found else "it does not match"
        raise TraceError(f"{path}: --rank-from '{_OF_PATH}{pattern.pattern}': {said}; give a pattern of every path")
    return int(found[-1])
