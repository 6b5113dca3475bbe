"""The formats of profilers' files: a new one is its reader, a module of its own, and one entry of `FORMATS`."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final

from lumos_df.base.errors import TraceError
from lumos_df.trace.plain_pickle import is_pickle
from lumos_df.trace.stored_file import StoredFile

if TYPE_CHECKING:
    from lumos_df.trace.recording import ArgsSink, Recording


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFormat:
    """What files of one format are called, how they are told by their content, and who reads them."""

    name: str
    endings: tuple[str, ...]
    """How the names of its files end: what an ingest takes from a folder."""
    recognises: Callable[[StoredFile], bool]
    """Whether a file is of the format, by its `head`, or by its name where that is a local file that it may open."""
    folder_of: str = ""
    """A file by which a folder is one trace, whose bytes are those of its files; empty where traces are files."""
    read: "Callable[[StoredFile, ArgsSink], Recording]"
    """Read a file, and give the raw args of its events to the sink. Raises `TraceError`, which names the file."""


def _by(module: str, reader: str = "read") -> "Callable[[StoredFile, ArgsSink], Recording]":
    """Return a reader that is imported when it is called: numba, polars and the like only the worker needs."""

    def read(file: StoredFile, sink: "ArgsSink") -> "Recording":
        recording: Recording = getattr(import_module(f"lumos_df.trace.{module}"), reader)(file, sink)
        return recording

    return read


_SQLITE: Final = b"SQLite format 3\0"
_PARQUET: Final = b"PAR1"
_HEAD: Final = 256
"""Bytes from the beginning in which a format shows itself."""
_SHOWN: Final = 20
"""Bytes of them that are told where none does."""

_FLIGHT_RECORDER: Final = re.compile(
    rb'\s*\{\s*(?:"version"\s*:\s*"[^"]*"\s*,\s*)?'
    rb'"(?:comm_lib_version|entries|nccl_comm_state|nccl_version|pg_config|pg_status)"'
)
"""The first key of a dump, whose keys are sorted, or the second of one that was a pickle: a trace of Kineto has some of
them further down."""
_NCCL_PROFILER: Final = re.compile(
    rb'\[\s*\{"name": "[^"]*", "cat": "(?:GROUP|COLL|P2P|PROXY|KERNEL|CE)(?:_\w+)?", "ph": "b"'
)
"""The first event, which is one of NCCL's categories."""


def _is_sqlite(*tables: str) -> Callable[[StoredFile], bool]:
    """Return whether a file is SQLite, and has one of some tables."""

    def recognises(file: StoredFile) -> bool:
        if file.head(len(_SQLITE)) != _SQLITE:
            return False
        from lumos_df.trace.sqlite_columns import has_table  # noqa: PLC0415  # as above

        return has_table(file, frozenset(tables))

    return recognises


def _is_pickle(*keys: bytes) -> Callable[[StoredFile], bool]:
    """Return whether a file is a pickle that begins with a dictionary's key, one of some."""
    return lambda file: is_pickle(file) and any(key in file.head(_HEAD) for key in keys)


_PACKERS: Final = {
    b"PK\x03\x04": "zip",
    b"\x28\xb5\x2f\xfd": "Zstandard",
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"\x04\x22\x4d\x18": "LZ4",
    b"\x1f\x8b": "gzip twice",
}
"""By how their files begin; of gzip what is inside of it."""


def _is_no_text(file: StoredFile) -> bool:
    """Return whether a file is no text, nor a trace that is damaged further on."""
    head = file.head(_HEAD)
    return b"\0" in head and not head.lstrip().startswith((b"{", b"["))


def _refuse(file: StoredFile, _: "ArgsSink") -> "Recording":
    """Say how a report of Nsight Systems is exported: its own format has no public description, only names tell it."""
    export = f"nsys export --type sqlite {file.name}"
    if file.name.removesuffix(".gz").endswith((".nsys-rep", ".qdrep")):
        raise TraceError(f"{file.name}: a report of Nsight Systems; export it: {export}")
    begin = file.head(_SHOWN)
    for magic, packer in _PACKERS.items():
        if begin.startswith(magic):
            raise TraceError(f"{file.name}: packed by {packer}, which is not read; unpack it, or pack it with gzip")
    raise TraceError(f"{file.name}: no format that is read begins with {begin!r}; if Nsight Systems wrote it: {export}")


FORMATS: Final = (
    TraceFormat(name="RPD", endings=(".rpd",), recognises=_is_sqlite("rocpd_op", "rocpd_api"), read=_by("rpd")),
    TraceFormat(name="rocpd", endings=(".db",), recognises=_is_sqlite("rocpd_info_agent"), read=_by("rocpd")),
    TraceFormat(
        name="Nsight Systems",
        endings=(".sqlite",),
        recognises=lambda file: file.head(len(_SQLITE)) == _SQLITE,  # and what no other knows
        read=_by("nsight"),
    ),
    TraceFormat(
        name="Nsight Systems, Parquet",
        endings=(),
        folder_of="StringIds.parquet",
        recognises=lambda file: file.head(len(_PARQUET)) == _PARQUET,
        read=_by("nsight", "read_folder"),
    ),
    TraceFormat(
        name="PyTorch memory snapshot",
        endings=(".pickle",),
        recognises=_is_pickle(b"segments", b"device_traces"),
        read=_by("memory_snapshot"),
    ),
    TraceFormat(
        name="PyTorch flight recorder, pickle",
        endings=(),  # its files have none: nccl_trace_rank_0
        # Among these is `comm_lib_version`, as newer dumps have it; the oldest begin with an entry.
        recognises=_is_pickle(
            *(b"entries", b"pg_config", b"pg_status", b"nccl_comm_state", b"nccl_version", b"version"),
            b"profiling_name",
        ),
        read=_by("flight_recorder"),
    ),
    TraceFormat(
        name="pickle of anything else",  # lists of segments, and what is refused by name
        endings=(),
        recognises=is_pickle,
        read=_by("memory_snapshot"),
    ),
    TraceFormat(
        name="PyTorch flight recorder, JSON",
        endings=(".json", ".json.gz"),
        recognises=lambda file: bool(_FLIGHT_RECORDER.match(file.head(_HEAD))),
        read=_by("flight_recorder"),
    ),
    TraceFormat(
        name="NCCL Inspector",
        endings=(".jsonl", ".log"),
        recognises=lambda file: any(
            key in file.head(_HEAD) for key in (b'"inspector_output_format_version"', b'"coll_perf"', b'"dump_stats"')
        ),
        read=_by("nccl_inspector"),
    ),
    TraceFormat(
        name="NCCL profiler plugin",
        endings=(".json",),
        recognises=lambda file: bool(_NCCL_PROFILER.match(file.head(_HEAD))),
        read=_by("nccl_profiler"),
    ),
    TraceFormat(
        name="rocprofv3 JSON",
        endings=(".json", ".json.gz"),
        recognises=lambda file: b'"rocprofiler-sdk-tool"' in file.head(_HEAD),
        read=_by("rocprof_json"),
    ),
    TraceFormat(
        name="XPlane",
        endings=(".xplane.pb",),
        recognises=lambda file: (
            file.head(1) == b"\n" and any(name in file.head(_HEAD) for name in (b"/host:", b"/device:"))
        ),
        read=_by("xplane"),
    ),
    TraceFormat(name="binary, of no other", endings=(), recognises=_is_no_text, read=_refuse),
    TraceFormat(
        name="Kineto JSON",
        endings=(".json", ".json.gz"),
        recognises=lambda _: True,
        read=_by("kineto"),
    ),
)
"""The first that recognises a file reads it. The last takes what no other does, and says what is wrong with it."""


def endings() -> tuple[str, ...]:
    """Return how the names of traces end."""
    return tuple(dict.fromkeys(ending for trace_format in FORMATS for ending in trace_format.endings))


def is_one_trace(names: Iterable[str]) -> bool:
    """Return whether a folder with files of such names is one trace."""
    return not {trace_format.folder_of for trace_format in FORMATS if trace_format.folder_of}.isdisjoint(names)


def read(file: StoredFile, sink: "ArgsSink") -> "Recording":
    """Read a file by its format."""
    return next(trace_format for trace_format in FORMATS if trace_format.recognises(file)).read(file, sink)


def compile_kernels() -> None:
    """Compile what readers need, once, in this process, before every worker would."""
    from lumos_df.trace.kineto import compile_scanner  # noqa: PLC0415  # as above

    compile_scanner()
