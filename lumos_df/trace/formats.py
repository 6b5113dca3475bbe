"""The formats of profilers' files: a new one is its reader, a module of its own, and one entry of `FORMATS`."""

from collections.abc import Callable
from dataclasses import dataclass
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
    read: "Callable[[StoredFile, ArgsSink], Recording]"
    """Read a file, and give the raw args of its events to the sink. Raises `TraceError`, which names the file."""


def _read_kineto(file: StoredFile, sink: "ArgsSink") -> "Recording":
    from lumos_df.trace.kineto import read  # noqa: PLC0415  # numba, which only the worker needs

    return read(file, sink)


def _read_nsight(file: StoredFile, sink: "ArgsSink") -> "Recording":
    from lumos_df.trace.nsight import read  # noqa: PLC0415  # polars, which only the worker needs

    return read(file, sink)


def _read_memory_snapshot(file: StoredFile, sink: "ArgsSink") -> "Recording":
    from lumos_df.trace.memory_snapshot import read  # noqa: PLC0415  # as above

    return read(file, sink)


def _refuse_nsight_report(file: StoredFile, _: "ArgsSink") -> "Recording":
    export = f"nsys export --type sqlite {file.name}"
    raise TraceError(f"{file.name}: a report of Nsight Systems; export it: {export}")


FORMATS: Final = (
    TraceFormat(
        name="Nsight Systems",
        endings=(".sqlite",),
        recognises=lambda file: file.head(16) == b"SQLite format 3\0",
        read=_read_nsight,
    ),
    TraceFormat(
        name="PyTorch memory snapshot",
        endings=(".pickle",),
        recognises=lambda file: (
            is_pickle(file) and any(key in file.head(64) for key in (b"segments", b"device_traces"))
        ),
        read=_read_memory_snapshot,
    ),
    TraceFormat(
        name="Nsight Systems, not exported",
        endings=(),
        recognises=lambda file: file.name.endswith(".nsys-rep"),  # its own format has no public description
        read=_refuse_nsight_report,
    ),
    TraceFormat(
        name="Kineto JSON",
        endings=(".json", ".json.gz"),
        recognises=lambda _: True,
        read=_read_kineto,
    ),
)
"""The first that recognises a file reads it. The last takes what no other does, and says what is wrong with it."""


def endings() -> tuple[str, ...]:
    """Return how the names of traces end."""
    return tuple(ending for trace_format in FORMATS for ending in trace_format.endings)


def read(file: StoredFile, sink: "ArgsSink") -> "Recording":
    """Read a file by its format."""
    return next(trace_format for trace_format in FORMATS if trace_format.recognises(file)).read(file, sink)


def compile_kernels() -> None:
    """Compile what readers need, once, in this process, before every worker would."""
    from lumos_df.trace.kineto import compile_scanner  # noqa: PLC0415  # as above

    compile_scanner()
