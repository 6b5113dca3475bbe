"""The profiler's file, with what it does not know added, as a gzip file that appears whole."""

import gzip
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lumos_df.base.files import draft_of
from lumos_df.capture.input_storages import with_storages

KEY: Final = "lumosCapture"
"""The top-level member of a trace that holds what a capture adds."""

_HEAD: Final = 1 << 16
"""Bytes at the start of the text within which the member stands whole."""


def publish(
    raw: Path,
    target: Path,
    metadata: Mapping[str, object],
    storages: Mapping[int, list[int | None]] | None = None,
) -> None:
    """Write the trace `raw` to `target`, gzipped, with `metadata` as its first member.

    Of operators by their external id `storages` are the addresses of what they were called with.

    Raises `OSError` for a file that cannot be written, and where the profiler has left less than a whole trace.
    """
    if not raw.exists():
        raise OSError(f"{raw.parent}: the profiler could not write its file; is the disk full?")
    with raw.open("rb") as source:
        source.seek(-min(raw.stat().st_size, 16), os.SEEK_END)
        if not source.read().rstrip().endswith(b"}"):
            raise OSError(f"{raw.parent}: the profiler's file breaks off; is the disk full?")
        source.seek(0)
        space, brace, _ = source.read(64).partition(b"{")
        if not brace or space.strip():
            raise OSError(f"{raw.parent}: the profiler's file is no JSON object")
        source.seek(len(space + brace))
        # Level 4 packs traces within a tenth of level 9 in a third of the time.
        with (
            draft_of(target) as draft,
            draft.open("wb") as plain,
            gzip.GzipFile("", "wb", compresslevel=4, fileobj=plain, mtime=0) as packed,
        ):
            packed.write(b'{"%s": %s,' % (KEY.encode(), json.dumps(metadata).encode()))
            if storages:
                packed.writelines(with_storages(source, storages))
            else:
                shutil.copyfileobj(source, packed, 1 << 20)


def pack(raw: Path, target: Path) -> None:
    """Write a file to `target`, gzipped, which appears whole. Raises `OSError` where it cannot be written."""
    with (
        draft_of(target) as draft,
        raw.open("rb") as source,
        draft.open("wb") as plain,
        gzip.GzipFile("", "wb", compresslevel=4, fileobj=plain, mtime=0) as packed,
    ):
        shutil.copyfileobj(source, packed, 1 << 20)


def read_metadata(trace: Path) -> dict[str, object]:
    """Return what `publish` has added to a trace; nothing for a file of another maker, or no trace."""
    try:
        with gzip.open(trace, "rb") as packed:
            head = packed.read(_HEAD).decode("utf-8", "replace")
    except (OSError, EOFError):
        return {}
    opening = f'{{"{KEY}": '
    if not head.startswith(opening):
        return {}
    try:
        metadata, _ = json.JSONDecoder().raw_decode(head, len(opening))
    except ValueError:
        return {}
    return metadata if isinstance(metadata, dict) else {}
