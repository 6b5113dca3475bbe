"""The observer's rows as files of PyTorch's profiler (Kineto JSON), one a rank."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import msgspec
from isal import igzip

from tests.emulator.device import Device
from tests.emulator.job import Profiler
from tests.emulator.model import THREADS
from tests.emulator.records import FIRST_PROCESS, Collective, GpuRow, Group, HostRow, MemoryRow, Recording

Event: TypeAlias = dict[str, Any]
Lane: TypeAlias = tuple[int | str, int | str]
"""Process and thread, or GPU and stream, as the file numbers them."""

LABEL: Final = "by tests/emulator, not recorded"
BASE_TIME_NS: Final = 1_790_000_000_000_000_000
NODE: Final = 8
"""GPUs of a node: a rank sees those of its own."""
_COMPRESSION: Final = 1
START_NS: Final = 10_000_000_000
"""Where a true clock stands when the job begins; a clock may be this far behind."""

_CALLBACKS: Final = {
    "cudaLaunchKernel": 211,
    "cudaLaunchKernelExC": 430,
    "cudaMemcpyAsync": 41,
    "cudaMemsetAsync": 51,
    "cudaEventRecord": 135,
    "cudaStreamWaitEvent": 147,
    "cudaStreamSynchronize": 131,
    "cudaEventSynchronize": 137,
    "cudaDeviceSynchronize": 165,
    "cudaGraphLaunch": 311,
    "cudaMalloc": 20,
    "cudaFree": 22,
}
_WAITS: Final = {
    "cudaStreamWaitEvent": "Stream Wait Event",
    "cudaStreamSynchronize": "Stream Sync",
    "cudaDeviceSynchronize": "Context Sync",
}
"""Calls that `cuda_sync` rows describe, and what these are called."""


class World(Protocol):
    """How many ranks a job has."""

    @property
    def ranks(self) -> int:
        """Ranks."""


class Ran(Protocol):
    """What is left of a job: its recordings."""

    @property
    def job(self) -> World:
        """The job."""

    @property
    def recordings(self) -> tuple[Recording, ...]:
        """One a rank."""


def write(outcome: Ran, profiler: Profiler, directory: Path) -> tuple[Path, ...]:
    """Write `directory`/rank<n>.json.gz for every rank; return the paths."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for recording in outcome.recordings:
        text = msgspec.json.encode(document(recording, outcome.job, profiler))
        path = directory / f"rank{recording.rank}.json.gz"
        # Without a time stamp, the same job gives the same file. Better compression takes as long as all the rest.
        path.write_bytes(igzip.compress(text, _COMPRESSION, mtime=0))
        paths.append(path)
    return tuple(paths)


def document(recording: Recording, job: World, profiler: Profiler) -> dict[str, Any]:
    """Return the file of one rank as the JSON object that it holds."""
    here = min(job.ranks, NODE)
    return {
        "generated": LABEL,
        "schemaVersion": 1,
        "deviceProperties": [_device(number, recording.device) for number in range(here)],
        "cupti_version": 24,
        "cuda_runtime_version": 12040,
        "cuda_driver_version": 12040,
        "record_shapes": 1,
        "profile_memory": int(profiler.memory),
        "with_stack": int(profiler.stacks),
        "distributedInfo": {
            "backend": "nccl",
            "rank": recording.rank,
            "world_size": job.ranks,
            "pg_count": len(recording.groups),
            "pg_config": [_group(group) for group in recording.groups],
            "nccl_version": "2.21.5",
        },
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": BASE_TIME_NS,
        "traceEvents": list(_Writer(recording, profiler).events()),
    }


def _group(group: Group) -> Event:
    return {
        "pg_name": group.name,
        "pg_desc": group.description,
        "backend_config": "cuda:nccl",
        "pg_size": len(group.ranks),
        "ranks": list(group.ranks),
    }


def _device(number: int, device: Device) -> Event:
    return {
        "id": number,
        "name": device.name,
        "totalGlobalMem": device.memory_bytes,
        "computeMajor": device.capability[0],
        "computeMinor": device.capability[1],
        "maxThreadsPerBlock": 1024,
        "maxThreadsPerMultiprocessor": 2048,
        "regsPerBlock": 65536,
        "warpSize": 32,
        "sharedMemPerBlock": 49152,
        "numSms": device.multiprocessors,
        "regsPerMultiprocessor": 65536,
        "sharedMemPerBlockOptin": 166912,
        "sharedMemPerMultiprocessor": 167936,
    }


def _microseconds(ns: int) -> float:
    return ns / 1000


class _Writer:
    """One file."""

    def __init__(self, recording: Recording, profiler: Profiler) -> None:
        self._recording = recording
        self._profiler = profiler
        self._process = FIRST_PROCESS + recording.rank
        self._device = recording.rank % NODE
        self._zero = START_NS + profiler.offset_ns(recording.rank)
        self._index = count()
        self._hidden = {"called": (), "described": (), "unrecorded": ("cudaEventRecord",)}.get(
            profiler.waits, ("cudaEventRecord", "cudaStreamWaitEvent")
        )
        self._gpu_rows = tuple(self._recorded())

    def events(self) -> Iterator[Event]:
        rows = self._recording
        yield from self._names()
        for host in rows.host:
            if self._is_told(host):
                yield self._host(host)
        if self._profiler.memory:
            yield from map(self._memory, rows.memory)
        yield from map(self._gpu, self._gpu_rows)
        if self._profiler.waits == "described":
            yield from (self._wait(host) for host in rows.host if host.name in _WAITS)
        yield from self._gpu_annotations()
        yield from self._launch_flows()
        yield from self._backward_flows()
        yield from self._span()

    def _recorded(self) -> Iterator[GpuRow]:
        """Return the GPU rows of the file, by the GPU's clock."""
        rank, profiler = self._recording.rank, self._profiler
        job_ns = max(row.end for row in self._recording.host)
        for row in self._recording.gpu:
            if self._is_recorded(row):
                start, end = (profiler.gpu_time_ns(rank, time, job_ns) for time in (row.start, row.end))
                yield row if (start, end) == (row.start, row.end) else replace(row, start=start, end=end)

    def _is_recorded(self, row: GpuRow) -> bool:
        if row.collective and (self._recording.rank, row.collective.seq) in self._profiler.lost:
            return False
        # Not the first node of a graph, so that what is left out lies around what is recorded.
        every = self._profiler.graph_nodes
        return row.node is None or row.node % every == every // 2

    def _names(self) -> Iterator[Event]:
        time = _microseconds(self._zero)
        for process, label in ((self._process, "CPU"), (self._device, f"GPU {self._device}")):
            for name, args in (("process_name", {"name": "python"}), ("process_labels", {"labels": label})):
                yield {"ph": "M", "name": name, "ts": time, "pid": process, "tid": 0, "args": args}
        threads = {(self._process, row.thread): f"thread {row.thread} (python)" for row in self._recording.host}
        streams = {(self._device, row.stream): f"stream {row.stream} " for row in self._gpu_rows}
        for (process, thread), name in sorted((threads | streams).items()):
            args = {"name": name}
            yield {"ph": "M", "name": "thread_name", "ts": time, "pid": process, "tid": thread, "args": args}

    def _host(self, row: HostRow) -> Event:
        args: Event = {"External id": row.external_id} if row.external_id is not None else {}
        if row.kind == "cuda_runtime":
            args |= {"cbid": _CALLBACKS[row.name], "correlation": row.correlation}
        elif row.kind == "python_function":
            args |= {"Python parent id": row.python_parent, "Python id": row.python_id}
            if row.name.startswith("nn.Module: "):
                args["Python module id"] = int(row.name.rpartition("_")[2])
        if row.sequence is not None:
            args |= {"Sequence number": row.sequence, "Fwd thread id": row.made_on}
        if row.shapes:
            args |= {"Input Dims": row.shapes, "Input type": _types(row)}
        if row.collective and self._profiler.collective_args:
            args |= _collective(row.collective)
            if row.collective.ranks and not row.collective.route:
                args |= {
                    "Global rank start": row.collective.ranks[0],
                    "Global rank stride": _stride(row.collective.ranks),
                    "Rank": self._recording.rank,
                    "Seq": row.collective.seq,
                }
        if row.kind != "cuda_runtime":
            args["Ev Idx"] = next(self._index)
        return self._complete(row.kind, row.name, (self._process, row.thread), (row.start, row.end), args)

    def _is_told(self, row: HostRow) -> bool:
        return row.name not in self._hidden and (row.kind != "python_function" or self._profiler.stacks)

    def _wait(self, row: HostRow) -> Event:
        """The row by which CUPTI tells who waits for what; it lasts as long as the call, which is all we know."""
        kind, stream = _WAITS[row.name], -1 if row.stream is None else row.stream
        args: Event = {"cuda_sync_kind": kind}
        if row.event:
            args |= {
                "wait_on_stream": row.event.stream,
                "wait_on_cuda_event_record_corr_id": row.event.correlation,
                "wait_on_cuda_event_id": row.event.correlation,
            }
        args |= {"stream": stream, "correlation": row.correlation, "device": self._device, "context": 1}
        return self._complete("cuda_sync", kind, (self._device, stream), (row.start, row.end), args)

    def _memory(self, row: MemoryRow) -> Event:
        args = {
            "Total Reserved": row.reserved_bytes,
            "Total Allocated": row.allocated_bytes,
            "Bytes": row.change_bytes,
            "Addr": row.address,
            "Device Id": self._device,
            "Device Type": 1,
            "Ev Idx": next(self._index),
        }
        time = _microseconds(self._zero + row.time)
        return {
            "ph": "i",
            "cat": "cpu_instant_event",
            "s": "t",
            "name": "[memory]",
            "pid": self._process,
            "tid": row.thread,
            "ts": time,
            "args": args,
        }

    def _gpu(self, row: GpuRow) -> Event:
        args: Event = {
            "External id": row.external_id,
            "device": self._device,
            "context": 1,
            "stream": row.stream,
            "correlation": row.correlation,
        }
        if row.work.kind == "kernel":
            blocks = row.work.blocks / self._recording.device.multiprocessors
            warps = blocks * THREADS / 32
            args |= {
                "queued": 0,
                "registers per thread": 64,
                "shared memory": 0,
                "blocks per SM": round(blocks, 6),
                "warps per SM": round(warps, 6),
                "grid": [row.work.blocks, 1, 1],
                "block": [THREADS, 1, 1],
                "est. achieved occupancy %": min(100, round(warps / 64 * 100)),
            }
        else:
            moved = row.work.moved_bytes
            args |= {"bytes": moved, "memory bandwidth (GB/s)": moved / (row.end - row.start)}
        if row.collective and self._profiler.collective_args:
            args |= _collective(row.collective)
        return self._complete(row.work.kind, row.work.name, (self._device, row.stream), (row.start, row.end), args)

    def _gpu_annotations(self) -> Iterator[Event]:
        covered: dict[tuple[int | None, int], tuple[str, int, int]] = {}
        for row in self._gpu_rows:
            for annotation in row.annotations:
                key = annotation.external_id, row.stream
                name, start, end = covered.get(key, (annotation.name, row.start, row.end))
                covered[key] = name, min(start, row.start), max(end, row.end)
        for (external_id, stream), (name, start, end) in covered.items():
            args = {"External id": external_id}
            yield self._complete("gpu_user_annotation", name, (self._device, stream), (start, end), args)

    def _launch_flows(self) -> Iterator[Event]:
        calls = {row.correlation: row for row in self._recording.host if row.correlation is not None}
        for row in self._gpu_rows:
            call = calls[row.correlation]
            yield self._flow("s", "ac2g", row.correlation, (self._process, call.thread), call.start)
            yield self._flow("f", "ac2g", row.correlation, (self._device, row.stream), row.start)

    def _backward_flows(self) -> Iterator[Event]:
        for row in self._recording.host:
            if row.sequence is None or row.name.startswith("autograd::engine::"):
                continue
            end = "f" if row.made_on else "s"
            yield self._flow(end, "fwdbwd", row.sequence, (self._process, row.thread), row.start)

    def _span(self) -> Iterator[Event]:
        end = max(row.end for row in self._recording.host)
        args = {"Op count": 0}
        yield self._complete("Trace", "PyTorch Profiler (0)", ("Spans", "PyTorch Profiler"), (0, end), args)
        for name, process, thread, time in (
            ("Iteration Start: PyTorch Profiler", "Traces", "Trace PyTorch Profiler", 0),
            ("Record Window End", "", "", end),
        ):
            at = _microseconds(self._zero + time)
            yield {"ph": "i", "s": "g", "name": name, "pid": process, "tid": thread, "ts": at}

    def _complete(self, category: str, name: str, lane: Lane, span: tuple[int, int], args: Event) -> Event:
        start, end = span
        return {
            "ph": "X",
            "cat": category,
            "name": name,
            "pid": lane[0],
            "tid": lane[1],
            "ts": _microseconds(self._zero + start),
            "dur": _microseconds(end - start),
            "args": args,
        }

    def _flow(self, phase: str, category: str, number: int, lane: Lane, time: int) -> Event:
        event = {
            "ph": phase,
            "id": number,
            "pid": lane[0],
            "tid": lane[1],
            "ts": _microseconds(self._zero + time),
            "cat": category,
            "name": category,
        }
        if phase == "f":
            event["bp"] = "e"
        return event


def _stride(ranks: tuple[int, ...]) -> int:
    return ranks[1] - ranks[0] if len(ranks) > 1 else 1


def _types(row: HostRow) -> list[str]:
    return [
        "Scalar"
        if not shape
        else "TensorList"
        if isinstance(shape[0], tuple)
        else "long int"
        if position in row.indices
        else row.dtype
        for position, shape in enumerate(row.shapes)
    ]


def _collective(collective: Collective) -> Event:
    split = {"In split size": "[]", "Out split size": "[]"}
    if not collective.ranks:
        # The wait for a collective is recorded as if it were one, of nobody.
        return {
            "Collective name": collective.name,
            "In msg nelems": 0,
            "Out msg nelems": 0,
            "Group size": 1,
            "dtype": "Byte",
            **split,
            "Process Group Ranks": "[]",
        }
    return {
        "Collective name": collective.name,
        "In msg nelems": collective.elements // (len(collective.ranks) if "gather" in collective.name else 1),
        "Out msg nelems": collective.elements // (len(collective.ranks) if "scatter" in collective.name else 1),
        "Group size": len(collective.ranks),
        "dtype": collective.dtype,
        **split,
        "Process Group Name": collective.group,
        "Process Group Description": collective.description,
        "Process Group Ranks": str(list(collective.ranks)),
    }
