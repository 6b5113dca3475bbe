"""Binary payloads of NVTX ranges as JSON texts, by the schemas that the program registered for them.

Nsight writes before each payload four numbers of 8 bytes: its domain, its schema, its bytes, and the bytes of what is
before and in it. Codes of types are those of NVTX [NVTX 3, nvToolsExtPayload.h].
"""

from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from lumos_df.trace.stored_tables import StoredTables

_HEADER: Final = 32
"""Bytes before a payload."""
_TYPES: Final = {
    3: "<i2",
    4: "<u2",
    5: "<i4",
    6: "<u4",
    7: "<i8",
    8: "<u8",
    9: "<i8",
    10: "<u8",
    11: "<i1",
    12: "<u1",
    13: "<i2",
    14: "<u2",
    15: "<i4",
    16: "<u4",
    17: "<i8",
    18: "<u8",
    19: "<f4",
    20: "<f8",
    22: "<u8",
    23: "<u8",
}
"""Numbers among the types of entries, as a 64-bit Linux has them; entries of other types are not read."""
_ENTRY: Final = {
    "domain": '"domainId"',
    "schema": '"schemaId"',
    "type": '"type"',
    "offset": 'coalesce("offset", 0)',
    "idx": '"idx"',
}


def as_json(database: StoredTables, payloads: pa.Array) -> pa.Array:
    """Return the numbers in each payload as an object by the names of its entries, null where there are none."""
    texts = np.full(len(payloads), None, np.object_)
    column = payloads.cast(pa.large_binary())
    _, offsets, data = column.buffers()
    known = np.flatnonzero(np.asarray(column.is_valid()))
    if not len(known):
        return pa.nulls(len(payloads), pa.string())
    places = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    size = np.diff(places)[known]
    known, size = known[size >= _HEADER], size[size >= _HEADER]
    memory = np.frombuffer(data or b"", np.uint8)
    domain, schema, stated, _ = _values(memory, places[known], "<u8", 4).T
    inside = np.minimum(stated.astype(np.int64), size - _HEADER)
    entries = _entries(database)
    for (of_domain, of_schema), fields in entries.group_by("domain", "schema", maintain_order=True):
        rows = np.flatnonzero((domain == of_domain) & (schema == of_schema))
        needed = max(
            (offset + np.dtype(_TYPES[code]).itemsize for code, offset in fields.select("type", "offset").rows())
        )
        rows = rows[inside[rows] >= needed]
        if len(rows):
            start = places[known[rows]] + _HEADER
            numbers = {
                name: _values(memory, start + offset, _TYPES[code], 1)[:, 0]
                for name, code, offset in fields.select("name", "type", "offset").rows()
            }
            encoded = pl.DataFrame(numbers).select(pl.struct(pl.all()).struct.json_encode()).to_series()
            texts[known[rows]] = encoded.to_numpy()
    return pa.array(texts, pa.string())


def _entries(database: StoredTables) -> pl.DataFrame:
    """Return the entries that are numbers, each once: every process registers its schemas again."""
    table = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
    names = database.texts(table, '"name"')
    numbers = {name: column[: len(names)] for name, column in database.numbers(table, _ENTRY).items()}
    entries = pl.DataFrame({**numbers, "name": pl.Series(names[: len(numbers["type"])], dtype=pl.String)})
    readable = (
        pl.col("type").is_in(list(_TYPES)) & pl.col("name").is_not_null() & pl.col("offset").is_between(0, 1 << 31)
    )
    return entries.filter(readable).unique(["domain", "schema", "name"], keep="first", maintain_order=True)


def _values(memory: NDArray[np.uint8], start: NDArray[np.int64], kind: str, count: int) -> NDArray[Any]:
    """Return the numbers that lie one after another from each start, [start, number]."""
    width = np.dtype(kind).itemsize * count
    values: NDArray[Any] = memory[start[:, None] + np.arange(width)].view(kind)
    return values
