"""A profiler's file as bytes: what it holds, unpacked where it is gzipped, and the digest of what is stored."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import xxhash
from isal import isal_zlib

from lumos_df.base.errors import TraceError
from lumos_df.base.units import format_bytes

_BLOCK: Final = 1 << 20
"""Bytes of what is drained, or copied, at a time."""
_STEP: Final = 1 << 14
"""Bytes of a packed file unpacked at a time, and at most to as many: a stream that is broken loses its last step."""
_GZIP: Final = b"\x1f\x8b"
MOST_COPIED: Final = 32 << 30
"""Bytes of an unpacked copy in the folder of temporary files."""
MOST_IN_MEMORY: Final = 4 << 30
"""Bytes of a file whose format is read as a whole into memory, where it takes several times as many."""


def _unpacker() -> Any:
    return isal_zlib.decompressobj(isal_zlib.MAX_WBITS | 16)


class Readable(Protocol):
    """A binary stream."""

    def read(self, size: int = -1, /) -> bytes:
        """Return at most `size` bytes, none at the end."""
        ...

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fill `buffer` from its start; return the bytes read, 0 at the end."""
        ...


class Hasher(Protocol):
    """A digest in the making, as hashlib's."""

    def update(self, data: memoryview, /) -> None:
        """Add bytes."""
        ...

    def hexdigest(self) -> str:
        """Return the digest of what was added, in hex."""
        ...


class StoredFile:
    """One pass over a stream: each byte is read once, counted and digested, then unpacked where the stream is gzipped.

    It is unpacked only as far as somebody has room for it: a megabyte may unpack to a thousand.

    A format that has to seek reads `on_disk`.
    """

    def __init__(self, stream: Readable, name: str, hasher: Hasher | None = None) -> None:
        self._stream = stream
        self._hasher: Hasher = hasher or xxhash.xxh3_128()
        self._unpack: Any = None
        self._block = memoryview(bytearray(_BLOCK))
        self._first = memoryview(b"")
        """Packed bytes that were read before it was known that they are packed, and are not unpacked yet."""
        self._left = b""
        """Packed bytes of this step that are not unpacked yet."""
        self._data = memoryview(b"")
        """Unpacked bytes of this step that are not given yet."""
        self._peeked = b""
        """Unpacked bytes that `head` has shown and `fill` has not given yet."""
        self.name = name
        """Path or URL, `<stdin>` for standard input."""
        self.size_bytes = 0
        """Stored bytes read so far."""
        self.taken_bytes = 0
        """Unpacked bytes that `fill` has given so far; whoever reads ahead says in the end how many were used."""
        self.damage = ""
        """What is wrong with the packed stream, in one clause; empty where nothing is."""
        self._copy: Any = None
        """The unpacked bytes in a temporary file, once a format has asked for them."""

    @property
    def digest(self) -> str:
        """Return the digest of the stored bytes read so far, in hex."""
        return self._hasher.hexdigest()

    @property
    def content_bytes(self) -> int:
        """Return the size of the whole content once the file is drained; of a packed one that of what was used."""
        return self.size_bytes if self._unpack is None else self.taken_bytes

    def head(self, size: int) -> bytes:
        """Return the next `size` unpacked bytes, fewer where the file ends before; `fill` gives them again.

        Once the file was copied they are its first.
        """
        if self._copy is not None:
            self._copy.seek(0)
            return bytes(self._copy.read(size))
        if len(self._peeked) < size:
            more = memoryview(bytearray(size - len(self._peeked)))
            self._peeked += bytes(more[: self._next(more)])
        return self._peeked[:size]

    def fill(self, target: memoryview) -> int:
        """Fill `target` from its start with unpacked bytes; return how many, fewer than asked only at the end.

        Raises:
            TraceError: the stream cannot be read.
        """
        size = min(len(self._peeked), len(target))
        target[:size] = self._peeked[:size]
        self._peeked = self._peeked[size:]
        size += self._next(target[size:])
        self.taken_bytes += size
        return size

    @contextmanager
    def on_disk(self, *, in_memory: bool = False) -> Iterator[str]:
        """Give the path of a file with the unpacked bytes: `name` itself, or a copy that lasts as long as this object.

        `fill` gives nothing after a copy has been made.

        Args:
            in_memory: it will be read as a whole.

        Raises:
            TraceError: the copy has more than `MOST_COPIED` bytes, what will be read as a whole more than
                `MOST_IN_MEMORY`, or the copy cannot be written.
        """
        self.head(len(_GZIP))
        if self._unpack is None and Path(self.name).is_file():
            self._bound(Path(self.name).stat().st_size if in_memory else 0, in_memory=in_memory)
            yield self.name
            return
        if self._copy is None:
            copy = tempfile.NamedTemporaryFile(prefix="lumos-df-")  # noqa: SIM115  # it lasts as long as this
            self._copy_to(copy, in_memory=in_memory)
            self._copy = copy
        yield self._copy.name

    def _copy_to(self, copy: Any, *, in_memory: bool) -> None:
        """Write the unpacked bytes to a temporary file. Raises `TraceError` as `on_disk`."""
        block = memoryview(bytearray(_BLOCK))
        try:
            while size := self.fill(block):
                self._bound(self.taken_bytes, in_memory=in_memory)
                copy.write(block[:size])
            copy.flush()
        except OSError as error:
            where = f"{Path(copy.name).parent} ({error.strerror or error})"
            raise TraceError(
                f"{self.name}: cannot be unpacked to {where}; unpack it yourself, or set TMPDIR to a larger disk"
            ) from None

    def _bound(self, size: int, *, in_memory: bool) -> None:
        most = MOST_IN_MEMORY if in_memory else MOST_COPIED
        if size > most:
            why = "its format is read as a whole" if in_memory else "its format is read from an unpacked copy"
            remedy = "record less" if in_memory else "unpack it yourself, or record less"
            raise TraceError(f"{self.name}: more than {format_bytes(most)}, and {why}; {remedy}")

    def drain(self) -> None:
        """Read what is left, so that the digest and the size are those of the whole file."""
        while self._stored(self._block):
            pass

    def _next(self, target: memoryview) -> int:
        done = 0
        while done < len(target):
            size = self._stored(target[done:]) if self._unpack is None else self._unpacked(target[done:])
            if size == 0:
                break
            if self._unpack is None and self.size_bytes == size and bytes(target[:2]) == _GZIP:  # the first bytes
                self._unpack = _unpacker()
                self._first = memoryview(bytes(target[:size]))
                continue
            done += size
        return done

    def _stored(self, target: memoryview) -> int:
        """Read stored bytes into `target`; return how many, 0 at the end."""
        try:
            size = self._stream.readinto(target) or 0
        except OSError as error:
            where = f"cannot be read at byte {self.size_bytes} ({error.strerror or error})"
            raise TraceError(f"{self.name}: {where}; check the file and its disk") from None
        self._hasher.update(target[:size])
        self.size_bytes += size
        return size

    def _unpacked(self, target: memoryview) -> int:
        """Unpack into `target`; return how many bytes, 0 at the end.

        Gzip files may be joined, and zeros may pad them.
        """
        while not self._data and not self.damage:
            if not self._left:
                self._left, self._first = bytes(self._first[:_STEP]), self._first[_STEP:]
            if not self._left:
                self._left = bytes(self._block[: self._stored(self._block[:_STEP])])
            is_last = not self._left
            if self._unpack.eof and is_last:
                break
            if self._unpack.eof:
                self._left = self._left.lstrip(b"\0")
                if self._left:
                    self._unpack = _unpacker()
                continue
            try:
                self._data = memoryview(self._unpack.decompress(self._left, _STEP))
            except isal_zlib.error as error:  # type: ignore[misc]  # its types call the class an instance
                self.damage = f"the gzip stream is broken near byte {self.size_bytes} ({error})"
                break
            self._left = self._unpack.unconsumed_tail or self._unpack.unused_data
            if is_last and not self._data and not self._unpack.eof:
                self.damage = "the gzip stream ends in the middle"
        size = min(len(target), len(self._data))
        target[:size], self._data = self._data[:size], self._data[size:]
        return size
