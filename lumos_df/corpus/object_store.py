"""A corpus on an object store: worked on in a copy on this machine, which goes back whole.

The copy lies in the user's cache. Before a command what has another ETag or size on the store is fetched, afterwards
what is new here is stored. Of a trace its row of `traces` is stored last, of a corpus the manifest, and what is
replaced is removed before: whoever reads meanwhile, or after a writer that died, finds whole traces and nothing old
beside new. Commands on one store need not know of one another, as on one folder.
"""

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from lumos_df.base import locks
from lumos_df.base.errors import CorpusError, LumosError
from lumos_df.base.files import full, publish_file, publish_over, reason
from lumos_df.base.kernel_cache import user_places
from lumos_df.base.location import check_name, file_system, is_url
from lumos_df.base.units import format_bytes
from lumos_df.corpus.folder import lock_of
from lumos_df.corpus.layout import MANIFEST, STAGING

MOST_BYTES: Final = 64 << 30
"""Bytes of all copies in a user's cache. The corpora that were used longest ago make room; a larger one is refused."""

_STATE: Final = ".store.json"
"""File of a copy: what of each of its files was alike here and there."""
_STORED: Final = re.compile(r"trace_id=[^/\0]+/\w+\.parquet")
_LAST: Final = ("traces.parquet", "estimates.parquet")
"""Files of a trace or an estimate without which it is not there."""
_TAGS: Final = ("ETag", "etag", "LastModified", "updated", "created", "mtime")
"""How file systems of fsspec call what changes with an object, the best first."""

_urls: Final[dict[str, str]] = {}
"""URLs of the copies that this process has opened."""


class _Version(NamedTuple):
    """What an object and its copy looked like when they were alike."""

    tag: str
    size: int
    mtime_ns: int = 0
    """Of the copy."""


@contextmanager
def stored(place: str | os.PathLike[str]) -> Iterator[Path]:
    """Give the folder of a corpus; what the block changes in the copy of one on a store is stored when it ends.

    Raises `CorpusError` where the store cannot be read or written.
    """
    yield opened(place)
    if is_url(os.fspath(place)):
        _Copy(os.fspath(place)).store()


def opened(place: str | os.PathLike[str]) -> Path:
    """Return the folder of a corpus: of a URL that of its copy, brought up to date.

    Raises `CorpusError` where the store cannot be read, has no such bucket, or holds more than a cache may, and
    `LumosError` for a URL that lost a slash.
    """
    text = os.fspath(place)
    if not is_url(text):
        check_name(text)
        return Path(place)
    copy = _Copy(text)
    if str(copy.folder) not in _urls:
        # Until this process ends, the copy does not make room for another.
        locks.hold(_used(copy.folder), shared=True)
        _urls[str(copy.folder)] = copy.url
    copy.fetch()
    return copy.folder


def as_named(text: str) -> str:
    """Return a text for a user with the URLs of corpora in place of their copies."""
    for folder, url in _urls.items():
        text = text.replace(folder, url)
    return text


class _Copy:
    """A corpus on a store, and its copy in the cache."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._files, self._root = file_system(url)
        if not self._root.strip("/"):
            raise CorpusError(f"{url}: no bucket; write its name behind ://, and a folder")
        self.folder = _cache() / hashlib.sha256(self.url.encode()).hexdigest()[:16]

    def fetch(self) -> None:
        """Make the copy what the store holds; what is new here and not stored yet stays."""
        with self._alone():
            before, there = self._known(), self._listed()
            for name in before.keys() - there.keys():
                if self._here(name) == before[name][1:]:
                    (self.folder / name).unlink()
                    with suppress(OSError):  # of others
                        (self.folder / name).parent.rmdir()
            known = {name: version for name, version in before.items() if name in there}
            missing = sorted(name for name, version in there.items() if known.get(name, ())[:2] != version[:2])
            if missing:
                self._make_room(sum(version.size for version in there.values()))
                self._get(missing)
                known |= {name: _Version(*there[name][:2], self._here(name)[1]) for name in missing}
            if known != before:
                self._keep(known)

    def store(self) -> None:
        """Make the store what the copy holds."""
        with self._alone():
            known = self._known()
            changed, gone = _unstored(self.folder, known)
            if not changed and not gone:
                return
            with self._one_line("written"):
                self._remove(gone + [name for name in changed if name in known])
                for _, names in groupby(sorted(changed, key=_turn), _turn):
                    wave = list(names)
                    self._files.put([str(self.folder / name) for name in wave], [self._object(name) for name in wave])
            there = self._listed()
            known = {name: version for name, version in known.items() if name not in gone}
            known |= {name: _Version(*there[name][:2], self._here(name)[1]) for name in changed if name in there}
            self._keep(known)

    def _listed(self) -> dict[str, _Version]:
        """Return the objects of whole traces, by name."""
        with self._one_line("read"):
            self._files.invalidate_cache()
            try:
                found = self._files.find(self._root, detail=True)
            except FileNotFoundError:
                # Some say so of a new corpus, all that know buckets of one that is not there: nothing makes that.
                if not self._files.exists(self._root.strip("/").partition("/")[0]):
                    raise
                found = {}
        prefix = self._root.rstrip("/") + "/"
        infos = {path[len(prefix) :]: info for path, info in found.items() if path.startswith(prefix)}
        whole = {name.split("/")[0] for name in infos if name.endswith(_LAST)}
        return {
            name: _Version(tag_of(info), int(info["size"]))
            for name, info in infos.items()
            if name == MANIFEST or (_STORED.fullmatch(name) and name.split("/")[0] in whole)
        }

    def _get(self, names: list[str]) -> None:
        """Fetch objects: a trace that is new here appears by one rename."""
        drafts = self.folder / STAGING / secrets.token_hex(8)
        drafts.parent.mkdir(exist_ok=True)
        lock = locks.hold(lock_of(drafts))
        try:
            for name in names:
                (drafts / name).parent.mkdir(parents=True, exist_ok=True)
            with self._one_line("read"):
                self._files.get([self._object(name) for name in names], [str(drafts / name) for name in names])
            for folder in sorted({name.split("/")[0] for name in names} - {MANIFEST}):
                publish_over(drafts / folder, self.folder / folder)
            if MANIFEST in names:
                (drafts / MANIFEST).replace(self.folder / MANIFEST)
        finally:
            shutil.rmtree(drafts, ignore_errors=True)
            lock_of(drafts).unlink(missing_ok=True)
            os.close(lock)

    def _remove(self, names: list[str]) -> None:
        for name in names:
            try:
                self._files.rm_file(self._object(name))
            except FileNotFoundError:  # somebody else was first
                continue

    def _object(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def _here(self, name: str) -> tuple[int, int]:
        return _looks(self.folder / name)

    def _known(self) -> dict[str, _Version]:
        return _known(self.folder)

    def _keep(self, known: dict[str, _Version]) -> None:
        publish_file(self.folder / _STATE, json.dumps(known).encode())

    def _make_room(self, needed: int) -> None:
        """Remove copies until this one has room. Raises `CorpusError` where it never has."""
        if needed > MOST_BYTES:
            raise CorpusError(
                f"{self.url}: {format_bytes(needed)} of tables, where a copy may have {format_bytes(MOST_BYTES)}; "
                "copy it to a disk with the store's own tool and name the folder"
            )
        others = {folder: _size(folder) for folder in self.folder.parent.iterdir() if folder.is_dir()}
        others.pop(self.folder, None)
        taken = sum(others.values())
        for folder in sorted(others, key=lambda folder: _looks(_used(folder))[1]):
            if taken + needed <= MOST_BYTES:
                return
            if not locks.is_held(_used(folder)) and not any(_unstored(folder, _known(folder))):
                shutil.rmtree(folder, ignore_errors=True)
                taken -= others[folder]

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one process at a time move files of this copy."""
        self.folder.mkdir(exist_ok=True)
        lock = locks.hold(self.folder.with_suffix(".lock"))
        try:
            _used(self.folder).touch()
            yield
        except OSError as error:
            if not full(error):
                raise
            # Not the copy itself: a user reads the URL in place of that.
            place = self.folder.parent
            raise CorpusError(
                f"{self.url}: its copy in {place} cannot be written ({reason(error)}); make room on that disk, "
                "or set XDG_CACHE_HOME to a folder on another"
            ) from None
        finally:
            os.close(lock)

    @contextmanager
    def _one_line(self, what: str) -> Iterator[None]:
        try:
            yield
        except LumosError:
            raise
        except Exception as error:
            if what == "read" and full(error):  # of this machine
                raise
            raise CorpusError(
                f"{self.url}: cannot be {what} ({' '.join(str(error).split())}); check the URL and your credentials"
            ) from None


def tag_of(info: dict[str, Any]) -> str:
    """Return what changes with an object: its ETag, else when it was written; empty where the store says neither."""
    return next((str(info[key]).strip('"') for key in _TAGS if info.get(key)), "")


def _turn(name: str) -> int:
    """Return the wave in which a file is stored: rows before what makes their trace, and the manifest at the end."""
    return 2 if name == MANIFEST else int(name.endswith(_LAST))


def _unstored(folder: Path, known: dict[str, _Version]) -> tuple[list[str], list[str]]:
    """Return the files of a copy that the store has not, and those that only the store has."""
    tables = (f"{entry.parent.name}/{entry.name}" for entry in folder.glob("trace_id=*/*.parquet"))
    here: Iterable[str] = (*tables, *([MANIFEST] if (folder / MANIFEST).exists() else []))
    looks = {name: _looks(folder / name) for name in here if not name.split("/")[-1].startswith(".")}
    changed = sorted(name for name, look in looks.items() if known.get(name, ())[1:] != look)
    return changed, sorted(known.keys() - looks.keys())


def _known(folder: Path) -> dict[str, _Version]:
    try:
        return {name: _Version(*version) for name, version in json.loads((folder / _STATE).read_text()).items()}
    except (OSError, ValueError):  # a new copy
        return {}


def _looks(path: Path) -> tuple[int, int]:
    """Return a file's size and when it was written; two numbers that no file has where there is none."""
    try:
        status = path.stat()
    except OSError:
        return (-1, -1)
    return status.st_size, status.st_mtime_ns


def _size(folder: Path) -> int:
    return sum(max(0, _looks(file)[0]) for file in folder.rglob("*"))


def _used(folder: Path) -> Path:
    """Return the file that whoever uses a copy holds; its time says when that was last."""
    return folder.with_suffix(".used")


def _cache() -> Path:
    for place in user_places():
        folder = place / "corpora"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    raise CorpusError("no folder for copies of corpora; set XDG_CACHE_HOME to one that you may write to")
