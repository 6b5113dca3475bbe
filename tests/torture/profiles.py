"""Files of other profilers that are wrong somewhere: SQLite, JSON, lines of JSON, protocol buffers."""

import json
import random
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from tests.torture import nested
from tests.torture.mutations import VALUES, damaged
from tests.trace import test_collective_records, test_nsight_schemas, test_rocm, test_xplane

_TEXT: Final = b'{}[]",:\\0-.eE \x00\xff\n'
_PROTOBUF: Final = b"\x00\x01\x08\x0a\x12\x1a\x22\x7f\x80\xff"


def mutated(kind: int, seed: int) -> bytes:
    """Return a file of one of the `KINDS`: the same for the same seed."""
    return KINDS[kind](random.Random(seed))  # noqa: S311 - not for secrets


def _database(write: Callable[[Path], Path]) -> Callable[[random.Random], bytes]:
    def made(choose: random.Random) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            file = write(Path(folder) / "file.sqlite")
            with closing(sqlite3.connect(file)) as database, database:
                for _ in range(choose.choice((0, 1, 3, 20))):
                    # What SQLite itself refuses, such as a key that is there twice, is no wrong file.
                    with suppress(sqlite3.Error, OverflowError):
                        _change_table(database, choose)
            data = bytearray(file.read_bytes())
        if choose.random() < 0.3:
            damaged(data, choose, bytes(range(256)))
        return bytes(data)

    return made


def _change_table(database: sqlite3.Connection, choose: random.Random) -> None:
    names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    table = choose.choice(names)
    column = choose.choice([row[1] for row in database.execute(f"PRAGMA table_info({table})")])
    rows = [row for (row,) in database.execute(f"SELECT rowid FROM {table}")]
    change = choose.randrange(12)
    if change == 0:
        database.execute(f"DROP TABLE {table}")
    elif change == 1:
        database.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    elif change == 2:
        database.execute(f"INSERT INTO {table} SELECT * FROM {table}")
    elif change == 3:
        database.execute(f"DELETE FROM {table}")
    elif rows:
        value = choose.choice((*(value for value in VALUES if not isinstance(value, list | dict)), b"\xff\x00", b""))
        database.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (value, choose.choice(rows)))


def _json(choose: random.Random) -> bytes:
    document = nested.changed(test_rocm.document(), choose, VALUES, circular=False)
    data = bytearray(json.dumps(document).encode())
    if choose.random() < 0.5:
        damaged(data, choose, _TEXT)
    return bytes(data)


def _lines(choose: random.Random) -> bytes:
    about = {"inspector_output_format_version": "v4.0", "dump_timestamp_us": 1_711_800_000_000_000, "hostname": "a"}
    group = {"id": "0x1f", "rank": 3, "n_ranks": 8, "nnodes": 1}
    lines: list[dict[str, Any]] = [
        {"header": group, "metadata": about, "coll_perf": test_collective_records.performed(name, number, 256, 20.5)}
        for number, name in enumerate(("AllGather", "AllReduce", "Send"))
    ]
    data = bytearray("\n".join(map(json.dumps, nested.changed(lines, choose, VALUES, circular=False))).encode())
    if choose.random() < 0.5:
        damaged(data, choose, _TEXT)
    return bytes(data)


def _plugin(choose: random.Random) -> bytes:
    lines = [json.loads(text[:-1]) for n in (4, 5) for text in test_collective_records.reduces(n, 512)]
    channels = test_collective_records.channel(0, 20.0, 90.0, StartGpuClk=1000, StopGpuClk=41_000)
    lines[2:2] = [json.loads(text[:-1]) for text in channels]
    changed = nested.changed(lines, choose, VALUES, circular=False)
    data = bytearray(("[\n" + "".join(f"{json.dumps(event)},\n" for event in changed) + "{}]\n").encode())
    if choose.random() < 0.5:
        damaged(data, choose, _TEXT)
    return bytes(data)


def _xplane(choose: random.Random) -> bytes:
    planes = [test_xplane.GPU, test_xplane.HOST, test_xplane.BEGUN]
    data = bytearray(test_xplane.message(*choose.choices(planes, k=choose.choice((1, 3, 4)))))
    damaged(data, choose, _PROTOBUF)
    return bytes(data)


KINDS: Final[tuple[Callable[[random.Random], bytes], ...]] = (
    _database(lambda file: test_nsight_schemas.report(file, "2024")),
    _database(test_rocm.rpd),
    _database(test_rocm.rocpd),
    _json,
    _lines,
    _plugin,
    _xplane,
)
