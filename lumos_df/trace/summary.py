"""The row of a trace in `traces`: where it came from, what it holds, what was mended."""

import json
import re
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lumos_df import schema
from lumos_df.schema.arrow import arrow_schema
from lumos_df.trace import kineto, record
from lumos_df.trace.kineto import Operators

_COUNT_OF_KIND: Final = {
    "cpu_ops": ("cpu_op",),
    "runtime_calls": ("runtime",),
    "kernels": ("kernel",),
    "memcpys": ("memcpy",),
    "memsets": ("memset",),
    "syncs": ("sync",),
    "annotations": ("annotation", "gpu_annotation"),
    "python_functions": ("python",),
    "others": ("other",),
}
_SECRET: Final = re.compile(r"(?i)token(?!i)|secret|passw|credential|(?:api|access|private|ssh|aws)\w*key")
_INSTANTS: Final = (ord("i"), ord("I"), ord("R"))


def resolution(ops: Operators) -> int:
    """Return the clock's finest step, ns: 1000 where every start and duration is a whole microsecond, else 1."""
    few = slice(0, 1000)  # a finer clock shows at once; only a coarse one has to be looked at in full
    for rows in (few, slice(None)):
        if (ops.ts[rows] % 1000).any() or (ops.dur[rows] % 1000).any():
            return 1
    return 1000 if len(ops) else 1


def trace_row(
    ops: Operators,
    path: str,
    job: str,
    ranks_in_file: int,
    memory_events: int,
    counters: int,
    unlaunched: int,
    *,
    first: bool,
) -> pa.Table:
    """Return the one-row `traces` table of a trace."""
    raw, metadata = ops.raw, ops.raw.metadata
    distributed = metadata.get("distributedInfo")
    info: dict[str, Any] = distributed if isinstance(distributed, dict) else {}
    devices = metadata.get("deviceProperties")
    devices = [device for device in devices if isinstance(device, dict)] if isinstance(devices, list) else []
    kinds = dict(zip(schema.KINDS, np.bincount(ops.kind, minlength=len(schema.KINDS)).tolist(), strict=True))
    phases = ops.marks[record.MARK_PHASE]
    shown, secrets = _without_secrets(metadata)
    hidden = [f"left out of the metadata, as it looks like a secret: {', '.join(secrets)}"] if secrets else []
    # What was repaired cannot be told apart by rank: the first rank of a merged file reports it.
    counts = ops.raw.counts if first else np.zeros_like(ops.raw.counts)
    skipped = ops.timeless + ops.unknown + int(counts[record.NOT_OBJECTS])
    row = {
        "path": path.encode("utf-8", "replace").decode(),
        "sha256": raw.sha256,
        "size_bytes": raw.size_bytes,
        "json_bytes": raw.json_bytes,
        "job": job.encode("utf-8", "replace").decode(),
        "rank": ops.rank,
        "rank_source": ops.rank_source,
        "ranks_in_file": ranks_in_file,
        "world_size": schema.within(info.get("world_size"), 32) or (ranks_in_file if ranks_in_file > 1 else None),
        "device_name": _device_name(ops, devices),
        "device_count": len(devices) or None,
        "backend": _text(info.get("backend")),
        "nccl_version": _text(info.get("nccl_version")),
        "versions": json.dumps({key: value for key, value in metadata.items() if "ersion" in key}),
        "dialect": kineto.dialect(raw),
        "clock_origin_ns": schema.within(metadata.get("baseTimeNanoseconds"), 64) or 0,
        "resolution_ns": resolution(ops),
        "first_ts": int(ops.ts[0]) if len(ops) else None,
        "last_ts": int((ops.ts + ops.dur).max()) if len(ops) else None,
        "events": len(ops) + len(phases) + ops.flows + skipped,
        "operators": len(ops),
        **{column: sum(kinds[kind] for kind in of) for column, of in _COUNT_OF_KIND.items()},
        "flows": ops.flows,
        "instants": int(np.isin(phases, _INSTANTS).sum()) - memory_events,
        "memory_events": memory_events,
        "counters": counters,
        "metadata_events": int((phases == ord("M")).sum()),
        "repaired_numbers": int(counts[record.NUMBERS]),
        "repaired_controls": int(counts[record.CONTROLS]),
        "repaired_utf8": int(counts[record.UTF8]),
        "skipped": skipped,
        "truncated": raw.truncated,
        "warnings": [*raw.warnings, *hidden, *_count_warnings(ops, counts, unlaunched)],
        "metadata": json.dumps(shown),
    }
    return pa.Table.from_pylist([row], schema=arrow_schema(schema.TRACES))


def _count_warnings(ops: Operators, counts: NDArray[np.int64], unlaunched: int) -> list[str]:
    notes = (
        (record.NUMBERS, "NaN or Infinity read as null"),
        (record.CONTROLS, "raw control characters inside strings escaped"),
        (record.UTF8, "broken UTF-8 sequences replaced by U+FFFD"),
        (record.NOT_OBJECTS, "list entries that are no event skipped"),
        (record.NEGATIVE, "negative durations read as 0"),
    )
    found = [f"{counts[place]} {what}" for place, what in notes if counts[place]]
    if ops.timeless:
        found.append(f"{ops.timeless} events without a start time skipped")
    if ops.unknown:
        found.append(f"{ops.unknown} events of a type (ph) this version does not know skipped")
    if unlaunched:
        found.append(f"{unlaunched} GPU rows without a launch call")
    return found


def _without_secrets(value: Any) -> tuple[Any, list[str]]:
    """Return top-level metadata without what looks like a credential, and the keys of what was hidden.

    Recorders put their whole environment there, and a corpus is meant to be shared.
    """
    if isinstance(value, list):
        parts = [_without_secrets(part) for part in value]
        return [part for part, _ in parts], [key for _, keys in parts for key in keys]
    if not isinstance(value, dict):
        return value, []
    shown: dict[str, Any] = {}
    hidden: list[str] = []
    for key, part in value.items():
        if _SECRET.search(key) and isinstance(part, str) and part:
            shown[key] = "<hidden>"
            hidden.append(key)
        else:
            shown[key], inside = _without_secrets(part)
            hidden += inside
    return shown, hidden


def _device_name(ops: Operators, devices: list[dict[str, Any]]) -> str | None:
    """Return the name of the device that the kernels ran on, else of the first one listed."""
    used = ops.narrow(record.OP_DEVICE)[ops.kind == kineto.KERNEL]
    used = used[used != record.NULL32]
    names = {device["id"]: device.get("name") for device in devices if isinstance(device.get("id"), int)}
    first = next(iter(names.values()), None)
    return _text(names.get(int(used[0]), first) if len(used) else first)


def _text(value: object) -> str | None:
    return None if value is None else str(value).encode("utf-8", "replace").decode()
