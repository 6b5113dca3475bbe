"""Traces of any size: a real or sample trace repeated in time."""

import gzip
import json
import re
from pathlib import Path

_IDS = re.compile(rb'("(?:correlation|External id|external id|id)": ?)(\d+)')
_TIMES = re.compile(rb'("ts": ?)(\d+)((?:\.\d+)?)')
_STEPS = re.compile(rb'("ProfilerStep#)(\d+)')
_ID_STEP = 10_000_000
"""Far above the ids of one repetition."""


def repeat(base: Path, megabytes: float, target: Path, *, rank: int = 0, dense: bool = False) -> Path:
    """Write `base` repeated until the file has `megabytes` (10^6 bytes).

    Times, ids and steps move on with each repetition. The text of an event stays as recorded, white space and all:
    how a file is laid out decides how fast it reads. Or else it is `dense`, with no white space between tokens.
    """
    data = gzip.decompress(base.read_bytes()) if base.suffix == ".gz" else base.read_bytes()
    document = json.loads(data)
    if dense:
        data = json.dumps(document, separators=(",", ":")).encode()
    start = data.index(b"[", data.index(b'"traceEvents"'))
    text = data[start:].decode()
    body = text[1 : json.JSONDecoder().raw_decode(text)[1] - 1].encode().rstrip()
    times = [event["ts"] for event in document["traceEvents"] if event.get("ph") == "X"]
    span = int(max(times) - min(times)) + 1000
    pieces = _split(body, span)
    header = {key: value for key, value in document.items() if key != "traceEvents"}
    header["distributedInfo"] = {**(header.get("distributedInfo") or {}), "rank": rank}
    with target.open("wb") as file:
        file.write(json.dumps(header).encode()[:-1] + b', "traceEvents": [')
        count = 0
        while file.tell() < megabytes * 1e6:
            file.write(b"," if count else b"")
            file.write(b"".join(_moved(pieces, count)))
            count += 1
        file.write(b"]}")
    return target


def _split(body: bytes, span: int) -> list[tuple[bytes, int, int]]:
    """Cut a text into (text, number that follows it, how much the number grows a repetition)."""
    pieces, position = [], 0
    steps = {int(match[2]) for match in _STEPS.finditer(body)}
    moves = ((_IDS, _ID_STEP), (_TIMES, span), (_STEPS, max(steps, default=0) - min(steps, default=0) + 1))
    found = [(match, growth) for pattern, growth in moves for match in pattern.finditer(body)]
    for match, step in sorted(found, key=lambda one: one[0].start()):
        pieces.append((body[position : match.end(1)], int(match[2]), step))
        position = match.end(2)
    return [*pieces, (body[position:], -1, 0)]


def _moved(pieces: list[tuple[bytes, int, int]], count: int) -> list[bytes]:
    return [text if number < 0 else b"%b%d" % (text, number + count * step) for text, number, step in pieces]
