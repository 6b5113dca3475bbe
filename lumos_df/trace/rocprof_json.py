"""The reader of rocprofv3's JSON (`--output-format json`)."""

import json
from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lumos_df.base.errors import TraceError
from lumos_df.base.units import format_count
from lumos_df.schema.codes import KERNEL, MEMCPY, NULL
from lumos_df.trace import rocm_words
from lumos_df.trace.recording import ArgsSink, Attribute, RecordedDevice, Recording
from lumos_df.trace.row_collector import TID_BITS, RowCollector, left, sizes
from lumos_df.trace.stored_file import StoredFile

_KEY: Final = "rocprofiler-sdk-tool"
"""The only key of the document."""
_GPU: Final = 2
"""Type of an agent that is a GPU."""
_HOST: Final = ("hip_api", "hsa_api", "rccl_api", "marker_api")
"""Lists of calls."""
_ON_GPU: Final = ("kernel_dispatch", "memory_copy")

Records = list[Mapping[str, Any]]


def read(file: StoredFile, _: ArgsSink) -> Recording:
    """Read a file of rocprofv3.

    Raises:
        TraceError: it is no whole JSON, is not written as rocprofv3 does, or holds nothing that lasts.
    """
    with file.on_disk(in_memory=True) as path, open(path, "rb") as stream:  # noqa: PTH123  # as a path is what it is
        text = stream.read()
    try:
        processes = json.loads(text)[_KEY]
        if not processes:
            raise TraceError(f"{file.name}: a file of rocprofv3 without a process; record with --sys-trace")
        rows = RowCollector()
        left_out: dict[str, int] = {}
        for process in processes:
            left_out |= _process(rows, process)
        devices = _devices(processes[0]).values()
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        what = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise TraceError(f"{file.name}: not as rocprofv3 writes it ({what}); record it again") from None
    if rows.empty:
        raise TraceError(f"{file.name}: a file of rocprofv3 in which nothing lasts; record with --sys-trace")
    return rows.recording(
        dialect="rocprofv3",
        left_out=left(left_out),
        clock_origin_ns=0,
        devices=tuple(RecordedDevice(number, name) for number, name in devices),
    )


def _process(rows: RowCollector, process: Mapping[str, Any]) -> dict[str, int]:
    """Take in what one process recorded, and return the rows of the lists that are not read."""
    pid = int(process["metadata"]["pid"])
    records: Mapping[str, Records] = process["buffer_records"]
    strings = process["strings"]
    operations = {entry["kind"]: entry["operations"] for entry in strings["buffer_records"]}
    kinds = [entry["kind"] for entry in strings["buffer_records"]]
    messages = {entry["key"]: entry["value"] for entry in strings.get("marker_api", ())}

    for name in _HOST:
        calls = records.get(name, [])
        domain, operation = _column(calls, "kind"), _column(calls, "operation")
        correlation = _column(calls, "correlation_id", "internal")
        said = np.isin(correlation, list(messages)) if name == "marker_api" else np.zeros(len(calls), np.bool_)
        text = rows.worded(domain << 32 | operation, lambda pair: _word(operations, kinds, pair))
        text[said] = rows.worded(correlation[said], messages.get)
        kind = np.array([rocm_words.host_kind(word) for word in kinds], np.int8)
        events = rows.add(
            kind[domain],
            {**_span(calls), "correlation": correlation},
            thread=pid << TID_BITS | _column(calls, "thread_id"),
            name=text,
        )
        if name == "rccl_api":
            words = rows.texts.strings
            rocm_words.state_collectives(rows, events, pa.array([words[place] for place in text.tolist()], pa.string()))

    dispatches = records.get("kernel_dispatch", [])
    symbols = {
        entry["kernel_id"]: entry.get("formatted_kernel_name") or entry.get("kernel_name")
        for entry in process.get("kernel_symbols", ())
    }
    info = [dispatch["dispatch_info"] for dispatch in dispatches]
    device = _numbers(rows, process, _column(info, "agent_id", "handle"))
    block = {axis: _column(info, "workgroup_size", axis) for axis in "xyz"}
    grid = {axis: _column(info, "grid_size", axis) // np.maximum(block[axis], 1) for axis in "xyz"}
    rows.add(
        KERNEL,
        {**_span(dispatches), "correlation": _column(dispatches, "correlation_id", "internal")},
        process=np.full(len(dispatches), pid),
        device=_mapped(_column(info, "agent_id", "handle"), device.get),
        stream=_column(dispatches, "stream_id", "handle"),
        name=rows.worded(_column(info, "kernel_id"), symbols.get),
        block=rows.worded(block["x"] << 32 | block["y"] << 16 | block["z"], sizes),
        grid=rows.worded(grid["x"] << 32 | grid["y"] << 16 | grid["z"], sizes),
    )
    copies = records.get("memory_copy", [])
    source, target = (_mapped(_column(copies, f"{end}_agent_id", "handle"), device.get) for end in ("src", "dst"))
    pairs = _column(copies, "kind") << 32 | _column(copies, "operation")
    events = rows.add(
        MEMCPY,
        {**_span(copies), "correlation": _column(copies, "correlation_id", "internal")},
        process=np.full(len(copies), pid),
        device=np.where(target == NULL, source, target),
        stream=_column(copies, "stream_id", "handle"),
        name=rows.worded(pairs, lambda pair: rocm_words.gpu_row(_word(operations, kinds, pair))[1]),
    )
    rows.state(Attribute.BYTES_MOVED, events, _column(copies, "bytes"))
    read = {*_HOST, *_ON_GPU}
    return {name: len(entries) for name, entries in records.items() if name not in read and isinstance(entries, list)}


def _devices(process: Mapping[str, Any]) -> dict[int, tuple[int, str | None]]:
    """Return (index, name) of each GPU by the handle of its agent."""
    return {
        agent["id"]["handle"]: (agent.get("logical_node_type_id", 0), agent.get("product_name") or agent.get("name"))
        for agent in process.get("agents") or ()
        if agent["type"] == _GPU
    }


def _numbers(rows: RowCollector, process: Mapping[str, Any], ran_on: NDArray[np.int64]) -> dict[int, int]:
    """Return the index of each GPU by its handle; those that ran kernels and are not listed are counted on."""
    numbers = {handle: number for handle, (number, _) in _devices(process).items()}
    unlisted = [handle for handle in np.unique(ran_on[ran_on != NULL]).tolist() if handle not in numbers]
    if unlisted:
        rows.warnings.append(f"no agent describes {format_count(len(unlisted), 'GPU')}: numbered by their handles")
    return numbers | {handle: max(numbers.values(), default=-1) + 1 + place for place, handle in enumerate(unlisted)}


def _word(operations: Mapping[str, list[str]], kinds: list[str], pair: int) -> str:
    return operations[kinds[pair >> 32]][pair & 0xFFFFFFFF]


def _span(records: Records) -> dict[str, NDArray[np.int64]]:
    ts = _column(records, "start_timestamp")
    return {"ts": ts, "dur": _column(records, "end_timestamp") - ts}


def _column(records: Records, *path: str) -> NDArray[np.int64]:
    """Return a number of each record, by the keys that lead to it; NULL where there is none."""
    if not records or path[0] not in records[0]:
        return np.full(len(records), NULL)
    values: Iterator[Any] = iter(records)
    for key in path:
        values = map(itemgetter(key), values)
    return np.fromiter(values, np.int64, len(records))


def _mapped(numbers: NDArray[np.int64], number: Callable[[int], int | None]) -> NDArray[np.int64]:
    distinct, inverse = np.unique(numbers, return_inverse=True)
    table = [NULL if (mapped := number(value)) is None else mapped for value in distinct.tolist()]
    return np.array(table, np.int64)[inverse.reshape(-1)]
