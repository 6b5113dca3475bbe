"""The reader of snapshots of PyTorch's CUDA allocator: `torch.cuda.memory._dump_snapshot`, a pickle of plain data.

It holds the allocator's segments at the end, and its events before, as many as it was asked to keep.
"""

import re
from collections.abc import Mapping
from itertools import chain
from operator import methodcaller
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lumos_df import schema
from lumos_df.base.errors import TraceError
from lumos_df.schema.arrow import arrow_schema
from lumos_df.schema.codes import NONE
from lumos_df.trace import plain_pickle
from lumos_df.trace.recording import ArgsSink, EventType, RecordedDevice, RecordedOperators, Recording
from lumos_df.trace.stored_file import StoredFile

_CATEGORIES: Final = tuple(
    (category, re.compile(pattern))
    for category, pattern in (
        ("optimizer", r"[\\/]optim(?:izers?)?[\\/.]|Optimizer"),
        ("workspace", r"(?i)(?:cublas|cudnn|miopen|hipblas)\S*workspace|getCurrentCUDABlasHandle|cublasHandle"),
        ("activations", r"(?:^|\n)forward "),
        ("gradients", r"torch::autograd::(?:Engine|AccumulateGrad|Node|generated|python::)|(?:^|\n)backward "),
        ("weights", r"(?:^|\n)(?:__init__|_apply|to|cuda|load_state_dict|reset_parameters) "),
    )
)
"""What an allocation is for, by its stack: the first pattern that it contains. `unknown` without a stack: PyTorch
records none of a thread without Python, as autograd's, unless it was asked for stacks of C++."""
_FRAMES: Final = 64
"""Frames of a stack that are kept, from the innermost."""


def read(file: StoredFile, _: ArgsSink) -> Recording:
    """Read a snapshot.

    Raises:
        TraceError: it is damaged, holds anything but plain data, or is no snapshot.
    """
    data = plain_pickle.load(file)
    try:
        return _recording({"segments": data} if isinstance(data, list) else data)  # `memory_snapshot()` gives a list
    except (TypeError, KeyError, ValueError, AttributeError, IndexError, OverflowError, pa.ArrowException) as error:
        what = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise TraceError(
            f"{file.name}: a pickle that is no snapshot of torch.cuda.memory ({what}); save it with _dump_snapshot"
        ) from None


def _recording(data: Mapping[str, Any]) -> Recording:
    segments, traces = list(data.get("segments", ())), list(data.get("device_traces", ()))
    if not any(map(len, (segments, *traces))):
        raise ValueError("neither segments nor events in it")
    stacks = _Stacks()
    blocks = _segments(segments, stacks)
    begun = min((int(events[0].get("time_us", 0)) for events in traces if events), default=0)
    # Where no history was kept there may be no list of any device.
    history = pa.concat_tables(
        [_history(number, events, begun, blocks, stacks) for number, events in enumerate(traces or [[]])]
    )
    devices = sorted({*history["device"].unique().to_pylist(), *blocks["device"].unique().to_pylist()})
    none = np.zeros(0, np.int64)
    return Recording(
        dialect="memory-snapshot",
        clock_origin_ns=1000 * begun,
        resolution_ns=1000,
        strings=[],
        threads=none,
        event_types=np.full(history.num_rows, EventType.MEMORY, np.int8),
        operators=RecordedOperators.of(event=none.astype(np.int32), ts=none, dur=none, kind=none.astype(np.int8)),
        devices=tuple(RecordedDevice(device, None) for device in devices),
        metadata={"allocator_settings": data.get("allocator_settings")},
        tables={schema.MEMORY_SEGMENTS.name: blocks, schema.MEMORY_HISTORY.name: history},
    )


def _segments(segments: list[Any], stacks: "_Stacks") -> pa.Table:
    """Return a row for each block of each segment."""
    parts = [segment["blocks"] for segment in segments]
    blocks = list(chain.from_iterable(parts))
    of_block = np.repeat(np.arange(len(segments)), list(map(len, parts)))
    stack, category = stacks.columns([block.get("frames") for block in blocks])
    each = {
        "device": _numbers(segments, "device", 0),
        "segment": _numbers(segments, "address", 0),
        "segment_bytes": _numbers(segments, "total_size", 0),
        "stream": _numbers(segments, "stream", 0),
        "expandable": np.array([bool(segment.get("is_expandable")) for segment in segments], np.bool_),
    }
    columns: dict[str, Any] = {name: pa.array(column[of_block]) for name, column in each.items()}
    columns["pool"] = pa.array([str(segment.get("segment_type")) for segment in segments], pa.string()).take(
        pa.array(of_block)
    )
    columns |= {
        "address": pa.array(_numbers(blocks, "address", NONE)),
        "bytes": pa.array(_numbers(blocks, "size", 0)),
        "requested_bytes": pa.array(_requested(blocks)),
        "state": pa.array([str(block.get("state")) for block in blocks], pa.string()),
        "category": category,
        "stack": stack,
    }
    return _table(schema.MEMORY_SEGMENTS, columns, len(blocks))


def _history(device: int, events: list[Any], begun: int, blocks: pa.Table, stacks: "_Stacks") -> pa.Table:
    """Return a row for each event of one device.

    What is allocated and reserved after each is counted back from the segments at the end: the allocator forgets its
    oldest events.
    """
    action = np.array([event["action"] for event in events], np.str_)
    size, address = _numbers(events, "size", 0), _numbers(events, "addr", 0)
    ts = 1000 * (_numbers(events, "time_us", begun) - begun)
    begins, ends = action == "alloc", np.isin(action, ("free_completed", "free"))
    grows, shrinks = (
        np.isin(action, ("segment_alloc", "segment_map")),
        np.isin(action, ("segment_free", "segment_unmap")),
    )
    own = blocks.filter(pc.equal(blocks["device"], device))
    held = own.filter(pc.starts_with(own["state"], "active"))["requested_bytes"].to_numpy().sum()
    stack, category = stacks.columns([event.get("frames") for event in events])
    columns = {
        "device": pa.array(np.full(len(events), device)),
        "event": pa.array(np.arange(len(events))),
        "ts": pa.array(ts),
        "action": pa.array(action.tolist(), pa.string()),
        "address": pa.array(address),
        "bytes": pa.array(size),
        "stream": pa.array(_numbers(events, "stream", 0)),
        "allocated_bytes": pa.array(_counted_back(size * begins - size * ends, int(held))),
        "reserved_bytes": pa.array(_counted_back(size * grows - size * shrinks, int(own["bytes"].to_numpy().sum()))),
        "freed_by": _freed(address, begins, ends),
        "category": category,
        "stack": stack,
    }
    return _table(schema.MEMORY_HISTORY, columns, len(events))


def _numbers(entries: list[Any], key: str, absent: int) -> NDArray[np.int64]:
    return np.fromiter(map(methodcaller("get", key, absent), entries), np.int64, len(entries))


def _requested(blocks: list[Any]) -> NDArray[np.int64]:
    """Return the bytes that were asked for; of versions that do not say it, those of the block."""
    asked, size = _numbers(blocks, "requested_size", NONE), _numbers(blocks, "size", 0)
    return np.where(asked == NONE, size, asked)


def _counted_back(change: NDArray[np.int64], at_end: int) -> NDArray[np.int64]:
    """Return what there is after each change if at the end there is so much, or more where it would fall below 0."""
    total = at_end - int(change.sum()) + np.cumsum(change)
    return total - min(0, int(total.min(initial=0)))


def _freed(address: NDArray[np.int64], begins: NDArray[np.bool_], ends: NDArray[np.bool_]) -> pa.Array:
    """Return which event freed what each event allocated, null where none did, or the event is another one."""
    rows = np.flatnonzero(begins | ends)
    rows = rows[np.lexsort((rows, address[rows]))]
    follows = (address[rows[1:]] == address[rows[:-1]]) & begins[rows[:-1]] & ends[rows[1:]]
    freed = np.full(len(address), NONE)
    freed[rows[:-1][follows]] = rows[1:][follows]
    return pa.array(freed, mask=freed == NONE)


def _table(table: schema.Table, columns: dict[str, Any], rows: int) -> pa.Table:
    """Return a stored table; its rank is filled in where it becomes known."""
    target = arrow_schema(table)
    return pa.table(
        [
            columns[field.name].cast(field.type) if field.name in columns else pa.nulls(rows, field.type)
            for field in target
        ],
        schema=target,
    )


class _Stacks:
    """Texts of stacks. A pickle holds each stack once, however many events have it: its identity is a key."""

    def __init__(self) -> None:
        self._kept: dict[int, Any] = {}
        self._texts: dict[int, str | None] = {}

    def columns(self, stacks: list[Any]) -> tuple[pa.Array, pa.Array]:
        """Return the text and the category of each stack, strings."""
        numbers = np.fromiter(map(id, stacks), np.int64, len(stacks))
        distinct, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
        for number, place in zip(distinct.tolist(), first.tolist(), strict=True):
            if number not in self._texts:
                self._kept[number] = stacks[place]  # else another list could come to lie there
                self._texts[number] = _text(stacks[place])
        texts = pa.array([self._texts[number] for number in distinct.tolist()], pa.string())
        categories = pa.array([_category(text) for text in texts.to_pylist()], pa.string())
        places = pa.array(inverse.reshape(-1))
        return texts.take(places), categories.take(places)


def _text(stack: Any) -> str | None:
    """Return a stack as lines `name (file:line)`, innermost first."""
    if not stack:
        return None
    return "\n".join(f"{frame['name']} ({frame['filename']}:{frame['line']})" for frame in stack[:_FRAMES])


def _category(stack: str | None) -> str:
    if stack is None:
        return "unknown"
    return next((category for category, pattern in _CATEGORIES if pattern.search(stack)), "unknown")
