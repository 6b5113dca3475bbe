"""Traces of any size: a real or sample trace repeated in time."""

import gzip
import json
import re
import sqlite3
from contextlib import closing
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


def report(rows: int, path: Path) -> Path:
    """Write a report of Nsight Systems with so many rows: half are operators, a quarter calls, a quarter kernels."""
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(
            f"""
            CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
            INSERT INTO StringIds VALUES (0, 'ampere_sgemm_128x64_nn'), (1, 'cudaLaunchKernel_v7000');
            CREATE TEMP TABLE numbers AS
              WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {rows // 4}) SELECT * FROM n;
            CREATE TABLE NVTX_EVENTS AS
              SELECT 1000 * i + 100 * inner AS start, 1000 * i + 900 - 100 * inner AS "end", 59 AS eventType,
                281474993487877 AS globalTid, NULL AS textId, NULL AS jsonText,
                printf('aten::%s, seq = %d, op_id = %d, sizes = [[%d, 768], [768, 3072]]',
                  iif(inner, 'mm', 'linear'), i, 2 * i + inner, i % 64) AS text
              FROM numbers, (SELECT 0 AS inner UNION ALL SELECT 1);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME AS
              SELECT 1000 * i + 300 AS start, 1000 * i + 500 AS "end", 281474993487877 AS globalTid, 1 AS nameId,
                i + 1 AS correlationId FROM numbers;
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL AS
              SELECT 1000 * i + 600 AS start, 1000 * i + 1500 AS "end", 0 AS deviceId, 7 AS streamId,
                281474993487872 AS globalPid, i + 1 AS correlationId, 0 AS demangledName, 80 AS gridX, 2 AS gridY,
                1 AS gridZ, 256 AS blockX, 1 AS blockY, 1 AS blockZ, 128 AS registersPerThread FROM numbers;
            """
        )
    return path
