"""Operators of one trace as arrays: what the rest of the graph reads of a corpus."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lumos_df.base.errors import CorpusError
from lumos_df.base.files import unreadable
from lumos_df.corpus.layout import trace_folder
from lumos_df.graph.gpu_clock import gpu_clock
from lumos_df.graph.name_mask import name_mask
from lumos_df.graph.packed_keys import packed
from lumos_df.schema import FAMILIES, KINDS
from lumos_df.schema.codes import GPU, KERNEL, MEMSET, NONE

FAR: Final = np.int64(1) << 60
"""Longer than any time in a trace, ns."""

_WORDS: Final = ("kind", "family", "name", "collective", "group", "seq_evidence")
_SHORT: Final = ("parent_id", "step", "forward_id", "group_size")
_LONG: Final = ("ts", "dur", "device", "stream", "correlation", "seq", "in_bytes", "wait_stream", "wait_correlation")
_NULL: Final = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Columns of n operators, in the order of op_id; times are ns. `NONE` is null unless said otherwise."""

    trace_id: str
    path: str
    """File or URL that the trace was read from."""
    job: str
    rank: int
    world_size: int
    """Ranks in the job as the trace states it, or NONE."""
    clock_origin: int
    """What to add to `ts` to get Unix time, ns."""
    resolution: int
    """Finest step of the trace's clock, ns."""
    kind: NDArray[np.int8]
    """Place in `schema.KINDS`."""
    family: NDArray[np.int8]
    """Place in `schema.FAMILIES`."""
    name: NDArray[np.int32]
    """Place in `names`."""
    names: list[str]
    parent: NDArray[np.int32]
    """Row around it on its thread; of GPU rows the call that launched it, else the operator that issued it."""
    ts: NDArray[np.int64]
    """By the host's clock, GPU rows too."""
    dur: NDArray[np.int64]
    thread: NDArray[np.int32]
    """Threads of the host, numbered from 0 in the order of their first row."""
    stream: NDArray[np.int32]
    """Streams (a device's), numbered from 0, on GPU and sync rows."""
    stream_keys: NDArray[np.int64]
    """(device, stream) as recorded of each numbered stream."""
    correlation: NDArray[np.int64]
    """Ties a call to the GPU rows that it launched; `null` is null."""
    step: NDArray[np.int32]
    """n of ProfilerStep#n."""
    forward: NDArray[np.int32]
    """Row of the forward operator that a backward operator belongs to."""
    collective: NDArray[np.int8]
    """Place in `collectives`."""
    collectives: list[str]
    group: NDArray[np.int32]
    """Place in `groups`."""
    groups: list[str]
    group_size: NDArray[np.int32]
    """Ranks of the process group."""
    seq: NDArray[np.int64]
    """Sequence number of a collective in its group; `null` is null."""
    seq_recorded: NDArray[np.bool_]
    """Whether the trace states that number; otherwise it was counted."""
    in_bytes: NDArray[np.int64]
    """Bytes that this rank gives to a collective."""
    wait_stream: NDArray[np.int64]
    """Stream as recorded; `null` where it is not."""
    wait_correlation: NDArray[np.int64]
    """Correlation of the event's record that a wait is for; `null` is null."""
    gpu_shift: int = 0
    """What was added to the times of GPU rows, so that they are times of the host's clock, ns."""
    gpu_spread: int = 0
    """By how much they may be off still, ns."""
    end: NDArray[np.int64] = field(init=False)
    """End of every row, ns."""

    null = _NULL
    """Null of the 64-bit columns."""

    def __len__(self) -> int:
        """Return n."""
        return len(self.ts)

    def __post_init__(self) -> None:
        """Add up the ends once: nearly everything reads them."""
        object.__setattr__(self, "end", self.ts + self.dur)

    @property
    def begun(self) -> int:
        """When the first row begins, Unix time by the host's clock, ns."""
        return (int(self.ts.min()) if len(self) else 0) + self.clock_origin

    @property
    def on_gpu(self) -> NDArray[np.bool_]:
        """Which rows occupy a stream."""
        return (self.kind >= KERNEL) & (self.kind <= MEMSET)

    def of_kind(self, *kinds: int) -> NDArray[np.bool_]:
        """Which rows are of one of these kinds."""
        wanted = np.zeros(len(KINDS) + 1, np.bool_)
        wanted[list(kinds)] = True
        return wanted[self.kind]

    def of_collective(self, words: Collection[str]) -> NDArray[np.bool_]:
        """Which rows are of one of these collectives."""
        return name_mask(self.collectives, lambda word: word in words)[self.collective]

    def named(self, says: Callable[[str], object]) -> NDArray[np.bool_]:
        """Which rows have a name of which `says`, asked once a name, is true; no row without a name is one."""
        return name_mask(self.names, says)[self.name]

    def only(self, row: NDArray[np.int32]) -> "Rows":
        """Return some rows of the trace, ascending, under new numbers; what they refer to outside of these is NONE."""
        place = np.full(len(self) + 1, NONE, np.int32)
        place[row] = np.arange(len(row))
        taken = {
            column.name: getattr(self, column.name)[row]
            for column in fields(self)
            if column.init and column.name != "stream_keys" and isinstance(getattr(self, column.name), np.ndarray)
        }
        used, name = np.unique(np.append(taken["name"], NONE), return_inverse=True)
        return replace(
            self,
            **taken
            | {
                "parent": place[taken["parent"]],
                "forward": place[taken["forward"]],
                "name": (name[:-1] - 1).astype(np.int32),
                "names": [self.names[code] for code in used[1:].tolist()],
            },
        )

    def nearest(self, has: NDArray[np.bool_], row: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the nearest row above each of `row` for which `has`, one value a row, holds; or NONE."""
        holds, above = np.append(has, False), np.append(self.parent, NONE)
        at = above[row].astype(np.int64)
        while True:
            missing = (at >= 0) & ~holds[at]
            if not missing.any():
                return at
            at = np.where(missing, above[at], at)


def about(corpus: Path, trace_id: str, *columns: str) -> dict[str, Any]:
    """Read the row of `traces` of one trace, or only some columns of it. Raise `CorpusError` when it cannot be read."""
    file = trace_folder(corpus, trace_id) / "traces.parquet"
    try:
        (row,) = pq.ParquetFile(file).read([*columns] or None).to_pylist()
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _unreadable(file, error) from None
    return dict(row)


def _unreadable(file: Path, error: Exception) -> CorpusError:
    return CorpusError(unreadable(file, error, "remove the folder around it and ingest the trace again"))


def read(corpus: Path, trace_id: str) -> Rows:
    """Read the operators of one trace. Raise `CorpusError` when they cannot be read."""
    trace = about(corpus, trace_id, "path", "job", "rank", "world_size", "clock_origin_ns", "resolution_ns")
    file = trace_folder(corpus, trace_id) / "operators.parquet"
    try:
        with pq.ParquetFile(file, read_dictionary=list(_WORDS)) as stored:
            # One after another: the memory that one was decoded in serves the next.
            words = {name: coded(stored.read([name])[name]) for name in _WORDS}
            short = {name: numbers(stored.read([name])[name], pa.int32(), NONE) for name in _SHORT}
            long = {name: numbers(stored.read([name])[name], pa.int64(), _NULL) for name in _LONG}
            thread = _numbered(numbers(stored.read(["thread"])["thread"], pa.int64(), _NULL))
    except (OSError, KeyError, pa.ArrowException) as error:
        raise _unreadable(file, error) from None
    stream, keys = _streams(long["device"], long["stream"])
    kind, parent, (name, names) = _places(words["kind"], KINDS), short["parent_id"], words["name"]
    one_device = len(np.unique(keys[:, 0])) <= 1
    shift, spread = gpu_clock(kind, name, names, parent, thread, stream, long["ts"], long["dur"], one_device=one_device)
    on_gpu = np.isin(kind, GPU)
    return Rows(
        trace_id=trace_id,
        path=str(trace["path"]),
        job=str(trace["job"]),
        rank=int(trace["rank"]),
        world_size=int(trace["world_size"] or NONE),
        clock_origin=int(trace["clock_origin_ns"] or 0),
        resolution=int(trace["resolution_ns"] or 1),
        kind=kind,
        family=_places(words["family"], FAMILIES),
        name=name,
        names=names,
        parent=parent,
        ts=long["ts"] + shift * on_gpu,
        dur=long["dur"],
        thread=thread,
        stream=stream,
        stream_keys=keys,
        correlation=long["correlation"],
        step=short["step"],
        forward=short["forward_id"],
        collective=words["collective"][0].astype(np.int8),
        collectives=words["collective"][1],
        group=words["group"][0],
        groups=words["group"][1],
        group_size=short["group_size"],
        seq=long["seq"],
        seq_recorded=_is_word(words["seq_evidence"], "recorded"),
        in_bytes=long["in_bytes"],
        wait_stream=long["wait_stream"],
        wait_correlation=long["wait_correlation"],
        gpu_shift=shift,
        gpu_spread=spread,
    )


def shape_codes(corpus: Path, trace_id: str) -> NDArray[np.int32]:
    """Return a number of the shapes of each row's inputs, NONE where none were recorded [n]. Raises as `read` does."""
    file = trace_folder(corpus, trace_id) / "operators.parquet"
    try:
        with pq.ParquetFile(file, read_dictionary=["input_dims"]) as stored:
            return coded(stored.read(["input_dims"])["input_dims"])[0]
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(file, error) from None


def coded(column: pa.ChunkedArray) -> tuple[NDArray[np.int32], list[str]]:
    """Return (codes [n], words) of a dictionary column; null is NONE."""
    whole = column.unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = whole.chunk(0) if whole.num_chunks else pa.array([], pa.dictionary(pa.int32(), pa.string()))
    return _filled(whole.indices, np.dtype(np.int32), NONE), whole.dictionary.to_pylist()


def numbers(column: pa.ChunkedArray, kind: pa.DataType, null: int) -> NDArray[Any]:
    """Return a column of numbers as numbers of that kind [n], `null` for null, that may be written to."""
    whole = column.combine_chunks()
    return _filled(whole, np.dtype(kind.to_pandas_dtype()), null)


def _numbered(column: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the distinct values of a column numbered from 0, in the order in which they come; `_NULL` is NONE [n]."""
    begins = np.flatnonzero(np.append(True, column[1:] != column[:-1])) if len(column) else np.empty(0, np.int64)
    values, first, inverse = np.unique(column[begins], return_index=True, return_inverse=True)
    number = np.full(len(values), NONE, np.int32)
    known = np.flatnonzero(values != _NULL)
    number[known[np.argsort(first[known])]] = np.arange(len(known), dtype=np.int32)
    return np.repeat(number[inverse.reshape(-1)], np.diff(np.append(begins, len(column))))


def _filled(column: pa.Array, kind: np.dtype[Any], null: int) -> NDArray[Any]:
    """Return an array of numbers that nobody else reads as another kind of numbers, `null` for null.

    By its buffers: the first fill of pyarrow loads all that it can compute, a tenth of what a small trace takes.
    """
    valid, data = column.buffers()
    if not len(column) or data is None:
        return np.full(len(column), null, kind)
    part = slice(column.offset, column.offset + len(column))
    values = np.frombuffer(data, column.type.to_pandas_dtype())[part]
    # What was decoded for this alone is taken as it is.
    if values.dtype != kind or not values.flags.writeable:
        values = values.astype(kind)
    if column.null_count:
        values[np.unpackbits(np.frombuffer(valid, np.uint8), bitorder="little")[part] == 0] = null
    return values


def _places(words: tuple[NDArray[np.int32], list[str]], choices: tuple[str, ...]) -> NDArray[np.int8]:
    codes, texts = words
    table = np.array([*(choices.index(text) if text in choices else len(choices) - 1 for text in texts), NONE], np.int8)
    return table[codes]


def _is_word(words: tuple[NDArray[np.int32], list[str]], word: str) -> NDArray[np.bool_]:
    codes, texts = words
    return np.array([*(text == word for text in texts), False])[codes]


def _streams(device: NDArray[np.int64], stream: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the number of every row's stream, NONE for none [n], and (device, stream) of each number [streams, 2]."""
    known = np.flatnonzero((stream != _NULL) & (stream >= 0))
    numbered = np.full(len(stream), NONE, np.int32)
    if not len(known):
        return numbered, np.empty((0, 2), np.int64)
    # A sync row names its stream and not its device; one trace is one rank, whose device is that of its GPU rows.
    on_device = device[known]
    stated = on_device[on_device >= 0]
    on_device = np.where(on_device < 0, stated[0] if len(stated) else 0, on_device)
    _, first, inverse = np.unique(packed(on_device, stream[known]), return_index=True, return_inverse=True)
    numbered[known] = inverse.reshape(-1)
    return numbered, np.stack((on_device[first], stream[known][first]), axis=1)
