"""The file of a corpus's catalogue: where the corpus's folder stands in it, who signed it, and one made without DuckDB.

To load DuckDB, and to let it open and write a database, took a fifth of what a small trace takes to ingest. Catalogues
of new corpora differ in one text alone, so one is kept that has a mark in its place, and others are copies of it.

Blocks and their checksums are those of single_file_block_manager.cpp and checksum.cpp in duckdb/duckdb. Who keeps a
catalogue tries whether DuckDB reads what is made of it.
"""

import glob
import hashlib
import hmac
import secrets
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from lumos_df.base.files import publish_file, publish_files
from lumos_df.base.kernel_cache import folder as cache_folder
from lumos_df.corpus.layout import CATALOG, SIGNATURE
from lumos_df.corpus.sql_folder import sql_folder

MARK: Final = "/" * 512
"""What stands in a kept catalogue where others have their corpus's folder, which may be no longer."""
_KEY_BYTES: Final = 32

# A file of DuckDB: headers, then blocks, each of which begins with the checksum of its other words.
_HEADERS_BYTES, _BLOCK_BYTES, _WORD_BYTES = 3 * 4096, 1 << 18, 8
_FACTOR: Final = 0xBF58476D1CE4E5B9
"""What a word is multiplied by before they are added bit by bit."""


def folder_of(corpus: Path) -> str:
    """Return the folder of a corpus as the beginning of a glob."""
    return glob.escape(f"{corpus.resolve()}/")


def partitioned(corpus: Path) -> bool:
    """Whether DuckDB may take `trace_id` from the path, and skip files by it, also in a join.

    It would take `rank=0` in the path of the corpus itself for a column, too.
    """
    return "=" not in folder_of(corpus)


def digest_of(statements: Iterable[str]) -> str:
    """Return the digest of the statements that define a catalogue but for its folder."""
    return _digest("\0".join(statements).encode())


def signature(corpus: Path, digest: str, content: bytes) -> bytes:
    """Return this user's signature under a catalogue: its folder, the digest of what defines it, and its bytes."""
    return hmac.new(signing_key(), f"{digest}{folder_of(corpus)}\0".encode() + content, "sha256").hexdigest().encode()


def publish(corpus: Path, digest: str, content: bytes) -> None:
    """Write a catalogue and its signature. Raises `OSError` where that cannot be."""
    publish_files(corpus, {CATALOG: content, SIGNATURE: signature(corpus, digest, content)})


def offer(corpus: Path, digest: str, kept: Path) -> None:
    """Offer a kept catalogue, and the digest of what defines it, to new corpora like one."""
    with suppress(OSError):
        publish_file(_offered(corpus), f"{digest} {kept.name} {_digest(kept.read_bytes())}".encode())


def publish_kept(corpus: Path) -> bool:
    """Write the catalogue of a new corpus as a copy of one that is kept; return False where that cannot be."""
    try:
        digest, name, as_kept = _offered(corpus).read_text().split()
        kept = (cache_folder() / name).read_bytes()
        if _digest(kept) != as_kept:
            return False
        publish(corpus, digest, placed(kept, folder_of(corpus)))
    except (OSError, ValueError):
        return False
    return True


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def placed(content: bytes, folder: str) -> bytes:
    """Return a catalogue with a folder in place of the mark; raises `ValueError` where it has none, or is too small."""
    text, place = folder.encode(), content.index(MARK.encode())
    if len(text) > len(MARK):
        raise ValueError(f"longer than {len(MARK)} bytes: {folder}")
    block, start = place - (place - _HEADERS_BYTES) % _BLOCK_BYTES, place - place % _WORD_BYTES
    words = slice(start, start + len(MARK) + _WORD_BYTES)
    copy = bytearray(content)
    checksum = int.from_bytes(copy[block : block + _WORD_BYTES], "little") ^ _sum(copy[words])
    copy[place : place + len(MARK)] = text.rjust(len(MARK))
    copy[block : block + _WORD_BYTES] = (checksum ^ _sum(copy[words])).to_bytes(_WORD_BYTES, "little")
    return bytes(copy)


def _sum(words: bytearray) -> int:
    """Return the checksum of whole words, to which any others can be added."""
    total = 0
    for start in range(0, len(words), _WORD_BYTES):
        total ^= int.from_bytes(words[start : start + _WORD_BYTES], "little") * _FACTOR
    return total % (1 << 8 * _WORD_BYTES)


def _offered(corpus: Path) -> Path:
    """Return the file that names the catalogue for new corpora: by what defines it, and by which DuckDB is there."""
    hasher = hashlib.sha256(str(partitioned(corpus)).encode())
    for file in (*sorted(sql_folder().glob("*/*.sql")), *sorted(Path(__file__).parent.glob("*.py"))):
        hasher.update(file.name.encode() + b"\0" + file.read_bytes())
    engine = find_spec("_duckdb") or find_spec("duckdb")
    if engine is not None and engine.origin:
        state = Path(engine.origin).stat()
        hasher.update(f"{engine.origin} {state.st_size} {state.st_mtime_ns}".encode())
    return cache_folder() / f"views-{hasher.hexdigest()[:12]}.new"


@cache
def signing_key() -> bytes:
    """Return this user's key, made on first use; where it cannot be kept, one for this process."""
    file = cache_folder() / "catalog.key"
    with suppress(OSError):
        if not file.exists():
            publish_file(file, secrets.token_bytes(_KEY_BYTES), mode=0o600)
        key = file.read_bytes()
        if len(key) == _KEY_BYTES:
            return key
    return secrets.token_bytes(_KEY_BYTES)
