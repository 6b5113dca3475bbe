"""PyTorch execution traces (ExecutionTraceObserver's JSON) among the files that a user names, and whose they are."""

import gzip
import re
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Final

from lumos_df.base.location import is_url
from lumos_df.trace.sources import is_stream

_HEAD: Final = 256
"""Bytes of text in which a file's opening is looked for."""
_OPENING: Final = re.compile(rb'\s*\{\s*"schema"\s*:\s*"\d')
"""How an execution trace begins; a Kineto file's `schemaVersion` is another key."""
_NUMBER: Final = re.compile(r"\d+")


def pair(files: list[str]) -> tuple[list[str], dict[str, str], list[str]]:
    """Return the traces among files; the execution trace of each that has one; execution traces that belong to none.

    An execution trace belongs to the trace of its folder with the same last number in its name (rank0.et.json to
    rank0.json.gz), or to the only one there.
    """
    executions = [file for file in files if _is_execution_trace(file)]
    if not executions:
        return files, {}, []
    is_execution = set(executions)
    traces = [file for file in files if file not in is_execution]
    in_folder: dict[Path, list[str]] = defaultdict(list)
    for trace in traces:
        in_folder[Path(trace).parent].append(trace)
    execution_of: dict[str, str] = {}
    unpaired: list[str] = []
    for execution in executions:
        near = in_folder[Path(execution).parent]
        same_number = [trace for trace in near if _number(trace) == _number(execution)]
        candidates = same_number if len(same_number) == 1 else near
        if len(candidates) == 1 and candidates[0] not in execution_of:
            execution_of[candidates[0]] = execution
        else:
            unpaired.append(execution)
    return traces, execution_of, unpaired


def _is_execution_trace(file: str) -> bool:
    if is_url(file) or is_stream(file):
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
