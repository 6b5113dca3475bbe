"""A recording of `collective_records` alone, and what those of several recorders have in common."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lumos_df import schema
from lumos_df.schema.arrow import arrow_schema
from lumos_df.schema.codes import NONE
from lumos_df.schema.collective_kinds import UNKNOWN
from lumos_df.trace import classify
from lumos_df.trace.recording import EventType, RecordedOperators, RecordedRank, Recording

_RECORDS: Final = schema.COLLECTIVE_RECORDS


def table(columns: Mapping[str, Any], rows: int) -> pa.Table:
    """Return the stored table from some of its columns; the others are null."""
    target = arrow_schema(_RECORDS)
    arrays = [
        pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(rows, field.type)
        for field in target
    ]
    return pa.table(arrays, schema=target)


def words(names: Sequence[str | None]) -> list[str]:
    """Return the collective that each name speaks of."""
    known = {name: classify.collective(name) if name else UNKNOWN for name in set(names)}
    return [known[name] for name in names]


def recording(records: pa.Table, *, dialect: str, origin: int, rank: int = NONE, **more: Any) -> Recording:
    """Return a recording of records; their times are ns after `origin`, Unix time."""
    none = np.zeros(0, np.int64)
    return Recording(
        dialect=dialect,
        clock_origin_ns=origin,
        resolution_ns=1,
        strings=[],
        threads=none,
        event_types=np.full(records.num_rows, EventType.INSTANT, np.int8),
        operators=RecordedOperators.of(event=none.astype(np.int32), ts=none, dur=none, kind=none.astype(np.int8)),
        ranks=(RecordedRank(rank=rank, source="records" if rank != NONE else ""),),
        tables={_RECORDS.name: records},
        **more,
    )
