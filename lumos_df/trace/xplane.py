"""The reader of XPlane (`.xplane.pb`): what JAX, TensorFlow and PyTorch/XLA profile, of GPUs and TPUs.

A file is an XSpace of planes, one a device and one for the host; a plane has lines, a line events. A text stands in
each plane once [openxla/xla, third_party/tsl/tsl/profiler/protobuf/xplane.proto].
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lumos_df.base.errors import TraceError
from lumos_df.base.units import format_count
from lumos_df.schema.codes import (
    ANNOTATION,
    CPU_OP,
    GPU_ANNOTATION,
    KERNEL,
    MEMCPY,
    MEMSET,
    NONE,
    NULL,
    OTHER_KIND,
    PYTHON,
    RUNTIME,
)
from lumos_df.trace import hlo_texts
from lumos_df.trace.call_lines import callers
from lumos_df.trace.event_args import give
from lumos_df.trace.kernels.intervals import lanes
from lumos_df.trace.recording import ArgsSink, Attribute, EventType, RecordedDevice, Recording
from lumos_df.trace.row_collector import TID_BITS, RowCollector, left
from lumos_df.trace.stored_file import StoredFile
from lumos_df.trace.wire_messages import Messages

_DEVICE: Final = re.compile(r"/device:(GPU|TPU):([0-9]+)")
_STREAM: Final = re.compile(r"Stream #([0-9]+)")
_CALL: Final = re.compile(r"(?:cuda|cu|hip)[A-Z]\w+$")
_COPY: Final = re.compile(r"Memcpy([HDP])2([HDP])")
_PROFILER: Final = re.compile(r"\$profiler(?:_v2)?\.py:[0-9]+ (?:start|stop)(?:_trace)?$")
"""Frames of JAX and TensorFlow in which the profiler starts and stops: nothing inside is work of the job."""
_GRID: Final = re.compile(r"(grid|block):([0-9]+),([0-9]+),([0-9]+)")
_ASYNC: Final = "Async XLA Ops"
_READ: Final = {
    "XLA Ops": KERNEL,
    _ASYNC: MEMCPY,
    "XLA Modules": GPU_ANNOTATION,
    "Sparse Core Ops": KERNEL,
    "Sparse Core Modules": GPU_ANNOTATION,
}
"""Lines of a TPU; those of a GPU that bear these names repeat its streams."""
_HOSTS: Final = ("/host:CPU", "/host:TPU-runtime", "/host:CUPTI", "/host:ROCTRACER", "/host:python-tracer")
"""Planes of the host: most profilers write the later ones into the first [openxla/xla, xplane_schema.h]."""
_LANE: Final = 16
"""Bits of a stream below its lane: lines of a plane have small numbers."""
_STEPS: Final = "Steps"
_REPLACED: Final = "\ufffd".encode()


def read(file: StoredFile, sink: ArgsSink) -> Recording:
    """Read an XSpace.

    Raises:
        TraceError: it is damaged from the beginning, or holds nothing that lasts.
    """
    with file.on_disk(in_memory=True) as path:
        data = np.fromfile(path, np.uint8)
    reader = _SpaceReader(data, sink)
    try:
        reader.planes()
    except (ValueError, IndexError, OverflowError) as error:
        raise TraceError(f"{file.name}: a damaged XSpace ({error}); record it again") from None
    if reader.rows.empty:
        if _REPLACED in file.head(256) or _REPLACED in bytes(data[:4096]):
            raise TraceError(
                f"{file.name}: bytes of it were replaced, as when a binary file is copied as text; copy it again"
            )
        raise TraceError(f"{file.name}: an XSpace in which nothing lasts; record it again")
    if reader.broken:
        reader.rows.warnings.append(f"{format_count(reader.broken, 'damaged message')} read as far as possible")
    recording = reader.rows.recording(
        dialect="xplane",
        left_out=left(reader.unread),
        clock_origin_ns=reader.begun,
        devices=tuple(reader.devices),
        truncated=bool(reader.broken),
    )
    return replace(recording, world_size=reader.world_size or None)


class _Plane:
    """One plane: its lines, their events, and the texts of both."""

    def __init__(self, plane: Messages) -> None:
        self.stat_names, _ = _named(plane, 5)
        self.names, self._meta = _named(plane, 4)
        lines, _ = plane.inside(3)
        self.lines = [name or "" for name in lines.texts(2, 11)]
        self.line_ids = lines.numbers(1, absent=0)
        events, self.line = lines.inside(4)
        self.id = events.numbers(1, absent=0)
        began = 1000 * lines.numbers(3, absent=0)[self.line] + events.numbers(2, absent=0)
        self.lasts = events.numbers(3) != NULL
        self.ts = began // 1000
        self.dur = (began + events.numbers(3, absent=0)) // 1000 - self.ts
        self._stats, self._event = events.inside(4)
        self._stat = self._stats.numbers(1, absent=0)
        self.broken = plane.broken + lines.broken + events.broken + self._stats.broken
        self._own, _ = plane.inside(6)

    def stat(self, name: str, *fields: int) -> NDArray[np.int64]:
        """Return what each event states, by fields of XStat: 3 and 4 are numbers, 7 a place in `stat_names`."""
        column = np.full(len(self.ts), NULL)
        rows = np.isin(self._stat, [number for number, text in self.stat_names.items() if text == name])
        column[self._event[rows]] = self._stats.numbers(*fields)[rows]
        return column

    def own_number(self, name: str) -> int:
        """Return a number that the plane states of itself, 0 where it does not."""
        wanted = [number for number, text in self.stat_names.items() if text == name]
        found = self._own.numbers(3, 4, absent=0)[np.isin(self._own.numbers(1, absent=0), wanted)]
        return int(found[0]) if len(found) else 0

    def own_text(self, name: str) -> str | None:
        """Return a text that the plane states of itself."""
        return self._text_of(self._own, np.zeros(self._own.size, np.int64), name).get(0)

    def texts_of_names(self, name: str) -> dict[int, str]:
        """Return what the texts of events state, by their number."""
        stats, owner = self._meta[0].inside(5)
        return self._text_of(stats, self._meta[1][owner], name)

    def _text_of(self, stats: Messages, owner: NDArray[np.int64], name: str) -> dict[int, str]:
        wanted = [number for number, text in self.stat_names.items() if text == name]
        rows = np.flatnonzero(np.isin(stats.numbers(1, absent=0), wanted))
        texts, numbers, places = stats.texts(5), stats.numbers(3, 4), stats.numbers(7)
        return {
            int(owner[row]): texts[row] or self.stat_names.get(int(places[row])) or str(numbers[row])
            for row in rows.tolist()
        }


def _named(plane: Messages, field: int) -> tuple[dict[int, str], tuple[Messages, NDArray[np.int64]]]:
    """Return the names in a map of metadata by their number, and the metadata with the number of each."""
    entries, _ = plane.inside(field)
    metadata, owner = entries.inside(2)
    numbers = entries.numbers(1, absent=0)[owner]
    names = {number: text or "" for number, text in zip(numbers.tolist(), metadata.texts(2), strict=True)}
    return names, (metadata, numbers)


class _SpaceReader:
    """Takes planes in."""

    def __init__(self, data: NDArray[np.uint8], sink: ArgsSink) -> None:
        self.rows = RowCollector()
        self.devices: list[RecordedDevice] = []
        self.unread: dict[str, int] = {}
        self.begun = 0
        self.broken = 0
        self.world_size = 0
        """Devices of the job, of all its hosts; 0 where nothing tells."""
        self._tpus = 0
        """TPUs of this host."""
        self._unnumbered = 0
        """Lines of the host's planes so far, by which threads without an id are numbered."""
        self._data = data
        self._sink = sink

    def planes(self) -> None:
        """Take every plane in."""
        space = Messages.at(self._data, np.zeros(1, np.int64), np.array([len(self._data)]))
        self.broken += space.broken
        found = np.flatnonzero((space.number == 1) & (space.length >= 0))
        names, _ = space.inside(1)
        matches = [_DEVICE.match(name or "") for name in names.texts(2)]
        self._tpus = max((int(match[2]) + 1 for match in matches if match and match[1] == "TPU"), default=0)
        for number, row in enumerate(found.tolist()):
            message = Messages.at(
                self._data, space.value[row : row + 1], space.value[row : row + 1] + space.length[row]
            )
            (name,) = message.texts(2)
            plane = _Plane(message)
            self.broken += plane.broken
            self.begun = self.begun or plane.own_number("profile_start_time")
            device = _DEVICE.match(name or "")
            if device and len(plane.ts):
                if int(device[2]) not in {known.number for known in self.devices}:
                    self.devices.append(RecordedDevice(int(device[2]), plane.own_text("device_type_string")))
                taken = (self._gpu if device[1] == "GPU" else self._tpu)(plane, int(device[2]), number)
            elif name in _HOSTS:
                taken = self._host(plane)
            else:
                taken = np.zeros(len(plane.ts), np.bool_)
            for line, count in enumerate(np.bincount(plane.line[~taken], minlength=len(plane.lines)).tolist()):
                self.unread[plane.lines[line]] = self.unread.get(plane.lines[line], 0) + count

    def _gpu(self, plane: _Plane, device: int, _: int) -> NDArray[np.bool_]:
        """Take in the streams of a GPU; other lines of it repeat them."""
        streams = [int(match[1]) if (match := _STREAM.search(name)) else NULL for name in plane.lines]
        stream = np.array([*streams, NULL])[plane.line]
        taken: NDArray[np.bool_] = stream != NULL
        details = plane.stat("kernel_details", 7)[taken]
        copied, filled = plane.stat("memcpy_details", 7)[taken], plane.stat("memset_details", 7)[taken]
        text = plane.stat_names.get
        events = self.rows.add(
            np.where(copied != NULL, MEMCPY, np.where(filled != NULL, MEMSET, KERNEL)).astype(np.int8),
            self._span(plane, taken),
            device=np.full(int(taken.sum()), device),
            stream=stream[taken],
            correlation=plane.stat("correlation_id", 3, 4)[taken],
            name=self.rows.worded(plane.id[taken], lambda number: _gpu_name(plane.names.get(number, ""))),
            grid=self.rows.worded(details, lambda number: _sizes(text(number, ""), "grid")),
            block=self.rows.worded(details, lambda number: _sizes(text(number, ""), "block")),
        )
        moved = np.where(copied == NULL, filled, copied)
        sizes_of = {
            number: size for number in np.unique(moved).tolist() if (size := _bytes(text(number, ""))) is not None
        }
        self.rows.state(Attribute.BYTES_MOVED, events, _looked_up(moved, sizes_of))
        hlo = {name: _texts(plane.stat(name, 7)[taken], plane.stat_names) for name in ("hlo_op", "hlo_module", "name")}
        give(self._sink, events, pl.DataFrame(hlo))
        return taken

    def _tpu(self, plane: _Plane, device: int, number: int) -> NDArray[np.bool_]:
        """Take in the operations, modules and steps of a TPU."""
        line = np.array([*plane.lines, ""])[plane.line]
        taken: NDArray[np.bool_] = np.isin(line, list(_READ))
        categories = plane.texts_of_names("hlo_category")
        said = {
            place: hlo_texts.instruction(plane.names.get(place, ""), categories.get(place))
            for place in np.unique(plane.id[taken]).tolist()
        }
        communicates = np.array([place for place, one in said.items() if one.collective])
        kind = np.array([_READ.get(name, NONE) for name in [*plane.lines, ""]], np.int8)[plane.line][taken]
        kind[(kind == MEMCPY) & np.isin(plane.id[taken], communicates)] = KERNEL
        ids = plane.id[taken]
        # A device may have several planes: one for each kind of core.
        stream = number << 32 | plane.line_ids[plane.line]
        # What runs beside the rest waits for nothing of its line: several are under way at a time.
        beside = np.flatnonzero(taken & (line == _ASYNC))
        beside = beside[np.argsort(plane.ts[beside], kind="stable")]
        stream[beside] |= lanes(plane.ts[beside], plane.dur[beside]) << _LANE
        events = self.rows.add(
            kind,
            self._span(plane, taken),
            device=np.full(len(ids), device),
            stream=stream[taken],
            name=self.rows.worded(ids, lambda place: said[place].name),
        )
        place = self.rows.texts.place
        for attribute, words in (
            (Attribute.COLLECTIVE, {key: place(one.collective) for key, one in said.items() if one.collective}),
            (Attribute.COLLECTIVE_TYPE, {key: place(one.dtype) for key, one in said.items() if one.dtype}),
            (Attribute.ELEMENTS_IN, {key: one.elements_in for key, one in said.items() if one.elements_in}),
            (Attribute.ELEMENTS_OUT, {key: one.elements_out for key, one in said.items() if one.elements_out}),
            (Attribute.GROUP, {key: place(self._group(one, device)) for key, one in said.items() if one.groups}),
            (Attribute.GROUP_SIZE, {key: one.group_size for key, one in said.items() if one.group_size}),
        ):
            self.rows.state(attribute, events, _looked_up(ids, words))
        raw = {name: plane.texts_of_names(name) for name in ("hlo_category", "flops", "bytes_accessed")}
        give(
            self._sink,
            events,
            pl.DataFrame({name: _texts(ids, texts) for name, texts in raw.items()} | {"hlo": _texts(ids, plane.names)}),
        )
        steps = (line == _STEPS) & plane.lasts
        self._mark(plane, steps, plane.id, lambda place: plane.names.get(place, ""), device, number)
        taken |= steps
        return taken

    def _group(self, said: hlo_texts.HloInstruction, device: int) -> str:
        """Return the name of the group in which a device takes part in a collective, and count the job's devices."""
        groups = str(said.groups)
        if said.collective == "send_recv":
            return groups  # pairs: each device may be in two
        own = hlo_texts.own_group(groups, device, self._tpus)
        if own:
            self.world_size = max(self.world_size, sum(map(len, hlo_texts.replica_groups(groups))))
        return own or groups

    def _host(self, plane: _Plane) -> NDArray[np.bool_]:
        """Take in the threads of the host; what has no length is an instant."""
        taken = plane.lasts
        kinds = {number: _host_kind(name) for number, name in plane.names.items()}
        distinct, inverse = np.unique(plane.id[taken], return_inverse=True)
        table = np.array([*(kinds.get(number, CPU_OP) for number in distinct.tolist()), CPU_OP], np.int8)
        kind = table[inverse.reshape(-1)]
        span, line = self._span(plane, taken), plane.line[taken]
        end = span["ts"] + span["dur"]
        own = np.isin(plane.id[taken], [number for number, name in plane.names.items() if _PROFILER.match(name)])
        kind[_inside(line, span["ts"], end, own)] = OTHER_KIND
        # Threads without an id of the system have one that is longer than any.
        known = (plane.line_ids >= 0) & (plane.line_ids < 1 << TID_BITS)
        threads = np.where(known, plane.line_ids, self._unnumbered + np.arange(len(plane.line_ids)))
        self._unnumbered += len(threads)
        caller = callers(line, span["ts"], end, kind == RUNTIME, len(threads))
        self.rows.add(
            kind,
            span,
            thread=threads[caller[line]],
            correlation=plane.stat("correlation_id", 3, 4)[taken],
            name=self.rows.worded(plane.id[taken], plane.names.get),
        )
        self.rows.count(EventType.INSTANT, np.zeros(int((~taken).sum()), np.int64))
        numbers = plane.stat("step_num", 3, 4)
        self._mark(plane, taken & (numbers != NULL), numbers, str, NULL, int(threads[0]) if len(threads) else 0)
        return np.ones(len(plane.ts), np.bool_)

    def _mark(
        self,
        plane: _Plane,
        rows: NDArray[np.bool_],
        numbers: NDArray[np.int64],
        text: Callable[[int], str],
        device: int,
        thread: int,
    ) -> None:
        """Take steps in as marks of the host: of a device, or of all."""
        named = self.rows.worded(
            numbers[rows], lambda number: f"ProfilerStep#{text(number)}" if text(number).isdecimal() else None
        )
        self.rows.add(
            ANNOTATION,
            self._span(plane, rows),
            thread=np.full(len(named), thread),
            device=np.full(len(named), device),
            name=named,
        )

    def _span(self, plane: _Plane, rows: NDArray[np.bool_]) -> dict[str, NDArray[np.int64]]:
        return {"ts": plane.ts[rows], "dur": plane.dur[rows], "process": np.zeros(int(rows.sum()), np.int64)}


def _inside(
    line: NDArray[np.int32], ts: NDArray[np.int64], end: NDArray[np.int64], around: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return which of n rows lie in one of those `around` them on their line, these too."""
    rows = pl.DataFrame({"line": line, "ts": ts, "end": end}).with_row_index("row")
    outer = rows.filter(pl.Series(around)).select("line", "ts", until="end").sort("ts")
    found = rows.sort("ts").join_asof(outer, on="ts", by="line", strategy="backward", check_sortedness=False)
    inside: NDArray[np.bool_] = (
        found.sort("row").select(pl.col("end") <= pl.col("until").fill_null(-1)).to_series().to_numpy()
    )
    return inside


def _looked_up(keys: NDArray[np.int64], values: Mapping[int, int | None]) -> NDArray[np.int64]:
    """Return the value of each key, NULL where it has none."""
    distinct, inverse = np.unique(keys, return_inverse=True)
    table = [NULL if (value := values.get(key)) is None else value for key in distinct.tolist()]
    return np.array(table, np.int64)[inverse.reshape(-1)]


def _texts(keys: NDArray[np.int64], texts: Mapping[int, str]) -> pl.Series:
    distinct, inverse = np.unique(keys, return_inverse=True)
    return pl.Series([texts.get(key) for key in distinct.tolist()], dtype=pl.String).gather(inverse.reshape(-1))


def _gpu_name(name: str) -> str:
    """Return the name of a GPU's row: without the suffix of ROCm, of a copy in Kineto's words."""
    copy = _COPY.match(name)
    return f"Memcpy {copy[1]}to{copy[2]}" if copy else name.removesuffix(".kd")


def _sizes(details: str, which: str) -> str | None:
    found = {match[1]: [int(size) for size in match.groups()[1:]] for match in _GRID.finditer(details)}
    return str(found[which]) if which in found else None


def _bytes(details: str) -> int | None:
    match = re.search(r"\bsize:([0-9]{1,18})\b", details)
    return int(match[1]) if match else None


def _host_kind(name: str) -> int:
    return RUNTIME if _CALL.match(name) else PYTHON if name.startswith("$") else CPU_OP
