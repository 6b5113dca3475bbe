"""What surrounds the event list: the file's own shape and its top-level values."""

import json
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import TraceError, nearest
from lumos_df.trace.json import scanned
from lumos_df.trace.json.kernels import tokens
from lumos_df.trace.json.kernels.repair import copy_repaired

_MARK: Final = b"\xef\xbb\xbf"
"""A byte order mark, which some editors write."""
_OPENING, _CLOSING = list(b"[{"), list(b"]}")
_DEEPEST: Final = 200
"""Levels of nesting beyond which no recorder means it."""
_OPEN, _CLOSE, _OPEN_LIST, _COMMA, _QUOTE, _COLON = b'{}[,":'


class Header:
    """Walks a trace's top level, member by member, around the event list; a bare list has no other member."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._begun = False
        self._bare = False
        self._dirt = np.zeros(3, np.int64)
        self.list_seen = False
        self.closed = False
        self.metadata: dict[str, Any] = {}
        self.warnings: list[str] = []

    def advance(self, buffer: NDArray[np.uint8], position: int, end: int) -> tuple[int, int]:
        """Read top-level values from `position`; return (answer, position) as `scan.scan_events` does.

        `scanned.DONE` means that the event list begins at the position. Sets `closed` at the end of the file's object.
        """
        while True:
            start = int(tokens.skip_space(buffer, position))
            char = int(buffer[start])
            if start >= end:
                return scanned.MORE, position
            if not self._begun:
                position = self._begin(buffer, start, end)
                if self._bare:
                    return scanned.DONE, position
            elif char == _CLOSE:
                self.closed = True
                return scanned.MORE, start + 1
            elif char == _COMMA:
                position = start + 1
            elif char == _QUOTE:
                answer, position = self._member(buffer, start, end)
                if answer != scanned.DRAIN:
                    return answer, position
            else:
                return scanned.BROKEN, start

    def _begin(self, buffer: NDArray[np.uint8], start: int, end: int) -> int:
        if bytes(buffer[start : start + 3]) == _MARK:
            start = int(tokens.skip_space(buffer, start + 3))
        if buffer[start] not in (_OPEN, _OPEN_LIST):
            text = bytes(buffer[start : min(end, start + 20)])
            raise TraceError(f"{self._path}: not JSON: begins with {text!r}; give a Kineto trace (.json or .json.gz)")
        self._begun = True
        self._bare = self.list_seen = buffer[start] == _OPEN_LIST
        return start + 1

    def _member(self, buffer: NDArray[np.uint8], start: int, end: int) -> tuple[int, int]:
        """Read one `"key": value`; answer `scanned.DRAIN` when it is done with."""
        key_end = int(tokens.string_end(buffer, start + 1, end, self._dirt))
        if key_end < 0:
            return scanned.MORE, start
        colon = int(tokens.skip_space(buffer, key_end + 1))
        if buffer[colon] != _COLON:
            return (scanned.MORE if colon >= end else scanned.BROKEN), start
        value = int(tokens.skip_space(buffer, colon + 1))
        if value >= end:
            return scanned.MORE, start
        key = bytes(buffer[start + 1 : key_end]).decode("utf-8", "replace")
        if key == "traceEvents":
            if buffer[value] != _OPEN_LIST:
                raise TraceError(f"{self._path}: traceEvents is not a list; give a Kineto trace (.json or .json.gz)")
            self.list_seen = True
            return scanned.DONE, value + 1
        after = int(tokens.value_end(buffer, value, end, self._dirt))
        if after < 0 or after >= end:
            return (scanned.BROKEN if after == -2 else scanned.MORE), start
        self._keep(key, buffer, value, after)
        return scanned.DRAIN, after

    def _keep(self, key: str, buffer: NDArray[np.uint8], start: int, end: int) -> None:
        mended = np.empty(6 * (end - start), np.uint8)
        raw = mended[: copy_repaired(buffer, start, end, mended, 0)]
        depth = np.cumsum(np.isin(raw, _OPENING).astype(np.int8) - np.isin(raw, _CLOSING), dtype=np.int64)
        try:
            value = json.loads(raw.tobytes()) if depth.max(initial=0) < _DEEPEST else None
        except ValueError:
            value = None
        if value is None and raw.tobytes() != b"null":
            self.warnings.append(f"top-level value '{key}' is not JSON, or too deep, and was left out")
        else:
            self.metadata[key] = value

    def end_list(self) -> None:
        """Note that the event list has ended; that of a bare list is the end of the file."""
        self.closed = self._bare

    def require_events(self, size: int) -> None:
        """Raise `TraceError` unless the event list was seen; `size` is the JSON's length in bytes."""
        if size == 0:
            raise TraceError(f"{self._path}: empty file; record the trace again")
        if self.list_seen:
            return
        if not self._begun:
            raise TraceError(f"{self._path}: nothing but white space; record the trace again")
        if not self.closed:
            raise TraceError(f"{self._path}: ends or breaks off before traceEvents begins; record it again")
        keys = sorted(self.metadata)
        names = ", ".join(keys[:6]) or "nothing"
        raise TraceError(
            f"{self._path}: JSON without traceEvents (it has {names}{nearest('traceEvents', keys)}); "
            "give a Kineto trace, as torch.profiler exports it"
        )
