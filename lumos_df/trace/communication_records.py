"""A recording of `collective_records` alone, and what those of several recorders have in common."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lumos_df import schema
from lumos_df.schema.arrow import arrow_schema
from lumos_df.schema.codes import LATEST, NONE
from lumos_df.schema.collective_kinds import UNKNOWN
from lumos_df.trace import classify
from lumos_df.trace.recording import EventType, RecordedOperators, RecordedRank, Recording

_RECORDS: Final = schema.COLLECTIVE_RECORDS


def table(columns: Mapping[str, Any], rows: int) -> pa.Table:
    """Return the stored table from some of its columns; the others are null, and numbers that a column cannot hold."""
    target = arrow_schema(_RECORDS)
    arrays = [
        _column(columns[field.name], field.type) if field.name in columns else pa.nulls(rows, field.type)
        for field in target
    ]
    return pa.table(arrays, schema=target)


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except (OverflowError, pa.ArrowInvalid):
        if not pa.types.is_integer(kind):
            raise
        return pa.array([schema.within(value, kind.bit_width) for value in values], kind)


def words(names: Sequence[str | None]) -> list[str]:
    """Return the collective that each name speaks of."""
    known = {name: classify.collective(name) if name else UNKNOWN for name in set(names)}
    return [known[name] for name in names]


def recording(
    records: pa.Table, *, dialect: str, origin: int, rank: int = NONE, world_size: int | None = None, **more: Any
) -> Recording:
    """Return a recording of records; their times are ns after `origin`, Unix time.

    A file may say anything: an origin outside of 1970 to 2200, and a rank or size that cannot be, are none.
    """
    none = np.zeros(0, np.int64)
    rank = rank if rank >= 0 and schema.within(rank, 32) is not None else NONE
    return Recording(
        dialect=dialect,
        clock_origin_ns=origin if 0 <= origin <= LATEST else 0,
        resolution_ns=1,
        strings=[],
        threads=none,
        event_types=np.full(records.num_rows, EventType.INSTANT, np.int8),
        operators=RecordedOperators.of(event=none.astype(np.int32), ts=none, dur=none, kind=none.astype(np.int8)),
        ranks=(RecordedRank(rank=rank, source="records" if rank != NONE else ""),),
        tables={_RECORDS.name: records},
        world_size=schema.within(world_size, 32),
        **more,
    )
