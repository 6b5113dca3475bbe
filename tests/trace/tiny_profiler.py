"""A profiler that only tests know, unlike Kineto: SQLite, all processes of a job in one file, the same correlations.

Its reader shows what a format needs: columns, and nothing else of the package.
"""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from lumos_df.schema import KINDS
from lumos_df.schema.codes import NULL
from lumos_df.trace.formats import TraceFormat
from lumos_df.trace.recording import (
    ArgsSink,
    Attribute,
    AttributeValues,
    EventType,
    RecordedCounters,
    RecordedDevice,
    RecordedOperators,
    RecordedRank,
    Recording,
)
from lumos_df.trace.stored_file import StoredFile

EVENT = "pid INT, tid INT, kind TEXT, name TEXT, start INT, stop INT, stream INT, correlation INT, value REAL"
COLLECTIVE = "event INT, collective TEXT, element TEXT, elements INT, group_name TEXT, group_size INT"


def write(path: Path, events: Sequence[tuple[Any, ...]], collectives: Sequence[tuple[Any, ...]], **ranks: int) -> Path:
    """Write a file of `events`, and what of each rank is known: `p100=0` says that process 100 is rank 0."""
    with closing(sqlite3.connect(path)) as database, database:
        for name, columns in (("event", EVENT), ("collective", COLLECTIVE), ("process", "pid INT, rank INT")):
            database.execute(f"CREATE TABLE {name} ({columns})")
        database.executemany(f"INSERT INTO event VALUES ({', '.join('?' * 9)})", events)
        database.executemany(f"INSERT INTO collective VALUES ({', '.join('?' * 6)})", collectives)
        database.executemany("INSERT INTO process VALUES (?, ?)", [(int(pid[1:]), rank) for pid, rank in ranks.items()])
    return path


def read(file: StoredFile, sink: ArgsSink) -> Recording:
    with closing(sqlite3.connect(f"file:{file.name}?mode=ro", uri=True)) as database:
        events, collectives, processes = (
            database.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()
            for table in ("(SELECT rowid, * FROM event)", "collective", "process")
        )
    strings: dict[str, int] = {}
    tracks: dict[tuple[int, int], int] = {}

    def text(word: str) -> int:
        return strings.setdefault(word, len(strings))

    def int64(numbers: Sequence[int | None]) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.array([NULL if number is None else number for number in numbers], np.int64)

    _, pid, tid, kind, name, start, stop, stream, correlation, value = zip(*events, strict=True)
    names = np.array(list(map(text, name)), np.int32)
    track = [tracks.setdefault(key, len(tracks)) for key in zip(pid, tid, strict=True)]
    timed = [place for place, word in enumerate(kind) if word in KINDS]
    counting = [place for place, word in enumerate(kind) if word == "counter"]
    types = np.full(len(events), EventType.OPERATOR, np.int8)
    types[counting] = EventType.COUNTER

    args = [json.dumps({"row": row}).encode() for row, *_ in events]
    offsets = np.cumsum([0, *map(len, args)], dtype=np.int32)
    sink(np.arange(len(args), dtype=np.int32), offsets, np.frombuffer(b"".join(args), np.uint8))
    event, collective, element, elements, group, size = zip(*collectives, strict=True)

    def stated(values: Sequence[int]) -> AttributeValues:
        return AttributeValues(np.array(event, np.int32), np.array(values, np.int64))

    return Recording(
        dialect="tiny",
        clock_origin_ns=10**18,
        resolution_ns=1,
        threads=np.array([thread for _, thread in tracks], np.int64),
        event_types=types,
        operators=RecordedOperators.of(
            event=np.array(timed, np.int32),
            ts=int64(start)[timed],
            dur=(int64(stop)[timed] - int64(start)[timed]),
            kind=np.array([KINDS.index(kind[place]) for place in timed], np.int8),
            name=names[timed],
            track=np.array(track, np.int32)[timed],
            device=np.zeros(len(timed), np.int32),
            stream=int64(stream)[timed],
            correlation=int64(correlation)[timed],
        ),
        attributes={
            Attribute.COLLECTIVE: stated([*map(text, collective)]),
            Attribute.COLLECTIVE_TYPE: stated([*map(text, element)]),
            Attribute.ELEMENTS_IN: stated(elements),
            Attribute.ELEMENTS_OUT: stated(elements),
            Attribute.GROUP: stated([*map(text, group)]),
            Attribute.GROUP_SIZE: stated(size),
        },
        counters=RecordedCounters(
            event=np.array(counting, np.int32),
            ts=int64(start)[counting],
            name=names[counting],
            series=np.full(len(counting), text("value"), np.int32),
            value=np.array(value, np.float64)[counting],
        ),
        ranks=tuple(
            RecordedRank(rank=rank, source="process", events=np.array(pid) == process) for process, rank in processes
        )
        or (RecordedRank(),),
        devices=(RecordedDevice(0, "Tiny GPU"),),
        strings=list(strings),
    )


TINY = TraceFormat(
    name="Tiny SQLite",
    endings=(".tiny",),
    recognises=lambda file: file.head(16) == b"SQLite format 3\0",
    read=read,
)
