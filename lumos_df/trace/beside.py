"""PyTorch execution traces (ExecutionTraceObserver's JSON) among the files that a user names, and whose they are."""

import gzip
import re
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Final

from lumos_df.trace.sources import STDIN, is_url

_HEAD: Final = 256
"""Bytes of text in which a file's opening is looked for."""
_OPENING: Final = re.compile(rb'\s*\{\s*"schema"\s*:\s*"\d')
"""How an execution trace begins; a Kineto file's `schemaVersion` is another key."""
_NUMBER: Final = re.compile(r"\d+")


def pair(files: list[str]) -> tuple[list[str], dict[str, str], list[str]]:
    """Return the other files; the execution trace of each that has one; execution traces that belong to none.

    An execution trace belongs to the file of its folder with the same last number in its name (rank0.et.json to
    rank0.json.gz), or to the only one there.
    """
    executions = [file for file in files if _is_execution_trace(file)]
    if not executions:
        return files, {}, []
    own = set(executions)
    others = [file for file in files if file not in own]
    beside: dict[Path, list[str]] = defaultdict(list)
    for file in others:
        beside[Path(file).parent].append(file)
    found: dict[str, str] = {}
    alone: list[str] = []
    for file in executions:
        near = beside[Path(file).parent]
        same = [other for other in near if _number(other) == _number(file)]
        match = same if len(same) == 1 else near
        if len(match) == 1 and match[0] not in found:
            found[match[0]] = file
        else:
            alone.append(file)
    return others, found, alone


def _is_execution_trace(file: str) -> bool:
    if file == STDIN or is_url(file):
        return False
    try:
        with Path(file).open("rb") as stream:
            head = stream.read(_HEAD)
        if head.startswith(b"\x1f\x8b"):
            with gzip.open(file, "rb") as packed:
                head = packed.read(_HEAD)
    except (OSError, EOFError, zlib.error):
        return False  # whoever reads it says what is wrong
    return bool(_OPENING.match(head))


def _number(file: str) -> int | None:
    """Return the last number of a file's name: its rank, in the names that people give."""
    numbers = _NUMBER.findall(Path(file).name)
    return int(numbers[-1]) if numbers else None
