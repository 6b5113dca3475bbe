"""What the kernels of a rank were called with: operators, shapes, types, and how much they move or multiply."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.packed_keys import dense, packed
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.model.hardware import Hardware
from lumos_df.model.kernels.gemm import gemm_seconds
from lumos_df.schema.codes import ATTENTION, COMMUNICATION, CONVOLUTION, ELEMENTWISE, GEMM, KERNEL, NONE
from lumos_df.schema.dtypes import BF16, ELEMENT_TYPES, ElementType, element_type
from lumos_df.structure.labelled_rows import Trace, extend
from lumos_df.structure.shapes import Operation, Shape

MODEL_ERROR: Final = 0.1
"""Relative error of a time that a cost function of `model.kernels` gives: 3 to 10 % in the median on shapes that it was
not fitted to (docs/kernels.md)."""

SINGLE_BYTES: Final = 4
HALF_BYTES: Final = 2
"""Of an element of 32 bits, and of 16."""
_SINGLE: Final = ELEMENT_TYPES[0]


@dataclass(frozen=True, slots=True)
class Product:
    """`batch` products [m, k] x [k, n] in one kernel."""

    m: int
    k: int
    n: int
    batch: int

    def __str__(self) -> str:
        """Return its sizes as one writes them."""
        return f"[{self.m}, {self.k}] x [{self.k}, {self.n}]"

    @property
    def matrices(self) -> tuple[int, int, int]:
        """Elements of the two that are read, and of the one that is written."""
        return self.batch * self.m * self.k, self.batch * self.k * self.n, self.batch * self.m * self.n

    def seconds(self, hardware: np.void, peak_flops: float, element_bytes: float) -> float:
        """Return what it takes at a peak rate, s, by the cost function of 16-bit products; `hardware`: its record."""
        sizes = (max(size, 1) for size in (self.m, self.n, self.k, self.batch))
        return float(
            gemm_seconds(
                *sizes, element_bytes, peak_flops, hardware["hbm_bandwidth"], hardware["sms"], hardware["gemm"][BF16]
            )
        )


@dataclass(frozen=True, slots=True)
class Call:
    """Operators of one name, with the same shapes and types."""

    name: str
    tensors: tuple[Shape, ...]
    """Shapes of its tensors, those in lists, too."""
    dtype: ElementType
    """Type of the elements of the first tensor of numbers, float32 where none is told."""
    product: Product | None
    """What it multiplies."""
    read_bytes: int
    """Of all tensors that it reads."""

    @property
    def elements(self) -> int:
        """Of the largest tensor."""
        return max(map(prod, self.tensors), default=0)

    @property
    def moved_bytes(self) -> int:
        """Bytes that it reads, and those of one tensor as large as the largest, written."""
        return self.read_bytes + self.elements * self.dtype.bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCalls:
    """GPU rows of one rank, stream by stream, in the order in which they ran; [g]."""

    trace: Trace
    """The rank."""
    row: NDArray[np.int32]
    """The rows."""
    stream: NDArray[np.int32]
    """Their stream."""
    told: NDArray[np.int32]
    """The row that tells the work of each: itself, but of one issued before the recording its twin."""
    repeat: NDArray[np.int64]
    """0 of a row that tells of itself; of the others with the same twin 1, 2 and so on, counted back from it."""
    operator: NDArray[np.int64]
    """Nearest operator with recorded shapes above the row that tells, or NONE."""
    call: NDArray[np.int64]
    """Place in `calls` of what it was called with, or NONE."""
    calls: list[Call]
    """Every distinct one."""

    @property
    def family(self) -> NDArray[np.int8]:
        """Place in `schema.FAMILIES`; NONE of what is no kernel."""
        rows = self.trace.rows
        return np.where(rows.kind[self.row] == KERNEL, rows.family[self.row], NONE).astype(np.int8)

    @property
    def in_steps(self) -> NDArray[np.bool_]:
        """Those that were issued in the recording: the others are of no step in it."""
        issued: NDArray[np.bool_] = self.repeat == 0
        return issued

    @property
    def dur(self) -> NDArray[np.int64]:
        """Ns."""
        return self.trace.rows.dur[self.row]

    @property
    def bound_by_memory(self) -> NDArray[np.bool_]:
        """Kernels that multiply nothing and send nothing."""
        family = self.family
        bound: NDArray[np.bool_] = (family != NONE) & ~np.isin(family, (GEMM, CONVOLUTION, ATTENTION, COMMUNICATION))
        return bound

    def half_precisions(self) -> set[str]:
        """Return the precisions of 16 bits that it multiplies in."""
        used = np.unique(self.call[(self.family == GEMM) & (self.call >= 0)])
        types = {self.calls[call].dtype for call in used.tolist() if self.calls[call].product}
        return {kind.precision for kind in types if kind.precision and kind.bytes == HALF_BYTES}

    def of_calls(self, values: list[Any], none: Any) -> NDArray[Any]:
        """Return for each row the value of its call, of one value a call, or `none`."""
        return np.array([*values, none])[self.call]


def kernel_calls(corpus: Path, graph: TraceGraph) -> KernelCalls:
    """Read what the kernels of a rank were called with. Raise `CorpusError` when it cannot be read."""
    trace = extend(corpus, graph.rows)
    row = graph.gpu.row
    told = trace.twin[row]
    operator = graph.rows.nearest(trace.dims.code >= 0, told)
    key = np.stack((graph.rows.name[operator], trace.dims.code[operator], trace.types.code[operator]))
    key[:, operator < 0] = NONE
    call = dense(packed(*key))
    first = np.empty(int(call.max(initial=NONE)) + 1, np.int64)
    first[call] = np.arange(len(call))
    distinct = key[:, first]
    unknown = int(distinct.shape[1] > 0 and distinct[0, 0] == NONE)
    calls = [
        _call(
            graph.rows.names[name],
            json.loads(trace.dims.words[dims]),
            json.loads(trace.types.words[types]) if types >= 0 else [],
        )
        for name, dims, types in distinct[:, unknown:].T.tolist()
    ]
    stream = graph.rows.stream[row]
    place = call - unknown
    return KernelCalls(
        trace=trace,
        row=row,
        stream=stream,
        told=told,
        repeat=_repeat(told),
        operator=operator,
        call=place,
        calls=calls,
    )


def _repeat(told: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return how many rows of the same value come after each [g]; a twin comes after all that it tells of."""
    order = np.lexsort((-np.arange(len(told)), told))
    _, first, count = np.unique(told[order], return_index=True, return_counts=True)
    repeat = np.empty(len(told), np.int64)
    repeat[order] = np.arange(len(told)) - np.repeat(first, count)
    return repeat


def memory_bytes_per_ns(ranks: list[KernelCalls], hardware: Hardware) -> float:
    """Return the rate at which the job's largest pointwise kernels go through memory, never above the GPU's peak.

    Without any, that of a good kernel on such a GPU.
    """
    rates = [rate for calls in ranks for rate in _rates(calls)]
    largest = max(rates, default=(0, float(hardware.hbm_bandwidth * hardware.row()["memory"][1]) / 1e9))
    return min(largest[1], hardware.hbm_bandwidth / 1e9)


def _rates(calls: KernelCalls) -> Iterator[tuple[int, float]]:
    """Return the bytes of the largest call of a pointwise kernel, and its rate in the median."""
    moved = calls.of_calls([call.moved_bytes for call in calls.calls], 0)
    at = np.flatnonzero((calls.family == ELEMENTWISE) & (moved > 0))
    if len(at):
        largest = at[moved[at] == moved[at].max()]
        yield int(moved[largest[0]]), float(moved[largest[0]] / np.median(np.maximum(calls.dur[largest], 1)))


def _call(name: str, dims: list[Any], types: list[Any]) -> Call:
    inputs = tuple(tuple(entry) if _is_shape(entry) else None for entry in dims)
    told = [*types, *[""] * (len(dims) - len(types))]
    typed = [pair for entry, spelled in zip(dims, told, strict=False) for pair in _tensors(entry, spelled)]
    # A copy reads its second tensor, into the first.
    read = typed[1:] if name == "aten::copy_" else typed
    numbers = [kind for _, kind in typed if kind and kind.floating]
    return Call(
        name=name,
        tensors=tuple(shape for shape, _ in typed),
        dtype=numbers[0] if numbers else _SINGLE,
        product=_product(Operation(name, inputs, (), 1, NONE, inside=True)),
        read_bytes=sum(prod(shape) * (kind or _SINGLE).bytes for shape, kind in read),
    )


def _product(operation: Operation) -> Product | None:
    if operation.is_product():
        return Product(*operation.product, 1)
    if operation.is_batched():
        return Product(*operation.product, operation.operands[0][0])
    return None


def _is_shape(entry: Any) -> bool:
    return isinstance(entry, list) and bool(entry) and all(type(size) is int for size in entry)


def _tensors(entry: Any, spelled: Any) -> Iterator[tuple[Shape, ElementType | None]]:
    """Return the shape and type of each tensor of an input, which may be a list of them."""
    if _is_shape(entry):
        yield tuple(entry), element_type(spelled) if isinstance(spelled, str) else None
    elif isinstance(entry, list):
        of_each = spelled if isinstance(spelled, list) and len(spelled) == len(entry) else [spelled] * len(entry)
        for inner, kind in zip(entry, of_each, strict=True):
            yield from _tensors(inner, kind)
