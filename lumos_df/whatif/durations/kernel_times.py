"""What a measured kernel takes when its shape, type or GPU changes: the measured time anchors, a cost function scales.

A kernel's time is a floor that no size goes below and a part that grows with its work. The cost functions of `model`
say how the second part changes; how well the kernel did against them when it was measured is kept, the more so the
longer it ran above the floor, because near the floor nothing was measured but the floor.

A kernel that moves its tensors runs in waves of blocks: to start takes as long as a wave, so of w waves it takes
1 + w times a wave, and no less than its bytes over the bandwidth.
"""

import json
import zlib
from dataclasses import dataclass, replace
from math import ceil, gcd, log2, prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.model.kernels.attention import QUERIES, attention_seconds
from lumos_df.model.kernels.gemm import gemm_seconds
from lumos_df.schema import FAMILIES
from lumos_df.schema.codes import BACKWARD, COMMUNICATION, KERNEL, NONE
from lumos_df.schema.dtypes import element_type
from lumos_df.structure.axes import Axes, tensors
from lumos_df.structure.axis_labels import Labels
from lumos_df.structure.labelled_rows import Trace
from lumos_df.structure.layers import Structure
from lumos_df.structure.shapes import PRODUCT, Operation, Shape
from lumos_df.whatif.durations.symbols import Symbols
from lumos_df.whatif.durations.widths import widths
from lumos_df.whatif.job.recorded_gpu import Machine

GEMM, ATTENTION, SOFTMAX, NORM = (FAMILIES.index(name) for name in ("gemm", "attention", "softmax", "normalization"))
MEASURED, RESCALED, INTERPOLATED, MODELLED = range(4)
PROVENANCE: Final = ("measured", "rescaled", "interpolated", "modelled")
MODELLED_ERROR: Final = 0.3
"""Threshold, relative error. What nothing measured is like is so far off, and so are transfers whose bytes are not told
or that may all hold waiting. Evidence: a judgement."""

_UNALIGNED: Final = 5.0
"""Threshold, times. A 16-bit matrix product whose inner or last size is odd takes so many times as long above the floor
as one of multiples of 8, which are loaded 16 bytes at a time; what is loaded 8 or 4 bytes at a time lies between.
Evidence: 71 beside 128 on an A100, in one of the recorded traces, and 66 between."""
_START: Final = 0.2
"""Threshold, floors. What a kernel of waves takes besides a wave to start. Evidence: kernels of one name at two grids,
27 recorded jobs: half are within 25 % from the smaller one, 35 % from the larger one, and as many above as below."""
_THREADS: Final = 2048
"""Threads that a multiprocessor holds at once (compute capability 8.0 and 9.0)."""
_BLOCKS: Final = 32
"""Blocks that it holds at once."""
_NORM_WIDTH: Final = 512
"""Elements of a row that one pass of a normalization's block takes: 128 threads of 4."""
_SOFTMAX_WIDTH: Final = 1024
"""Elements of a row up to which PyTorch's softmax works on the next power of two."""
_FLOOR_PERCENTILE: Final = 5
"""Threshold, percentile. The floor of a trace's kernels is where this part of them is shorter."""
_WIDEST_FLOOR_S: Final = 10e-6
"""Threshold, s. The floor is at most this. Evidence: kernels that all last longer tell nothing about it."""
_TRUST_FLOORS: Final = 0.5
"""Threshold, floors. How well a kernel did against its cost function holds by half where its work takes so long.
Evidence: near the floor nothing was measured but the floor."""


@dataclass(frozen=True, slots=True)
class KernelWork:
    """GPU rows of a trace and what they do, before and after a change [k]."""

    row: NDArray[np.int32]
    time: NDArray[np.float64]
    """Measured, s."""
    floor: NDArray[np.float64]
    """What no size goes below, s."""
    before: NDArray[np.float64]
    """The part that grows with work, by the cost functions, s; nan where nothing tells the work."""
    after: NDArray[np.float64]
    linear: NDArray[np.float64]
    """What `after` would be if the kernel did as many operations a second as before."""
    size: NDArray[np.float64]
    """What a line through several measured sizes is drawn over: waves of blocks, else `before`."""
    size_after: NDArray[np.float64]
    key: NDArray[np.int64]
    """The same for kernels of one kind of operator, in other traces of the model, too."""
    least: NDArray[np.float64]
    """s that it cannot be shorter than after the change: its operations at the peak, as far as it kept to that."""

    def rescaled(self, floor_ratio: float = 1.0) -> NDArray[np.float64]:
        """Return the time after the change, s. `floor_ratio`: floor of the new GPU over that of the old one."""
        with np.errstate(divide="ignore", invalid="ignore"):
            trust = self.before / (self.before + _TRUST_FLOORS * self.floor)
            slowness = np.maximum(self.time - self.floor, 1e-9) / self.before
            efficiency = np.where(self.before > 0, slowness**trust, 1.0)
            # A kernel that beat its cost function when it was small does not beat it as much when it is large.
            faster = np.minimum(efficiency * (self.linear - self.before), self.after - self.before)
        growth = efficiency * (self.after - self.before)
        growth = np.where((growth > 0) & (efficiency < 1), np.maximum(growth, faster), growth)
        grown = self.time + growth + self.floor * (floor_ratio - 1)
        least = np.minimum(self.time, self.floor) * min(floor_ratio, 1.0)
        return np.where(np.isnan(grown), self.time, np.maximum(grown, np.maximum(least, self.least)))


def work(trace: Trace, symbols: Symbols, axes: Axes, old: Machine, new: Machine, structure: Structure) -> KernelWork:
    """Return what the kernels, copies and clears of a trace do, before and after a change; collectives are left out.

    Args:
        trace: the trace.
        symbols: what axes of shapes become.
        axes: what is known of them.
        old: the GPU and data type that were measured.
        new: those of the changed job.
        structure: phases and layers.
    """
    rows = trace.rows
    row = np.flatnonzero(rows.on_gpu & ~((rows.kind == KERNEL) & (rows.family == COMMUNICATION))).astype(np.int32)
    time = (rows.dur[row] * 1e-9).astype(np.float64)
    floor = np.minimum(time, floor_of(time[rows.kind[row] == KERNEL]))
    operator = shaped(trace, row)
    columns = (
        np.where(operator >= 0, rows.name[operator], NONE),
        np.where(operator >= 0, trace.dims.code[operator], NONE),
        rows.family[row].astype(np.int64),
        rows.name[row].astype(np.int64),
        trace.grid.code[row].astype(np.int64),
        trace.block.code[row].astype(np.int64),
        np.where(operator >= 0, axes.kind[operator], NONE).astype(np.int64),
        wide(trace, structure, row, operator)[row].astype(np.int64),
        (structure.phase[row] == BACKWARD).astype(np.int64),
    )
    _, first, inverse = np.unique(np.stack(columns), axis=1, return_index=True, return_inverse=True)
    inverse = inverse.reshape(-1)
    before, after, linear, waves, more, peak, peak_after = (np.empty(len(first)) for _ in range(7))
    resident = np.clip(_THREADS // np.maximum(trace.threads[row], 1), 1, _BLOCKS)
    blocks = trace.blocks[row] / resident
    kinds: list[tuple[object, ...]] = []
    for number, at in enumerate(first.tolist()):
        kernel = _Kernel.of(
            trace,
            axes,
            int(row[at]),
            int(operator[at]),
            blocks=float(blocks[at]),
            wide=int(columns[-2][at]),
            backward=bool(columns[-1][at]),
        )
        before[number], after[number] = kernel.seconds(old), kernel.changed(symbols, old, new)
        linear[number] = before[number] * kernel.operations(symbols) if old is new else after[number]
        waves[number] = kernel.waves(old)
        peak[number] = kernel.flop() / float(old.row["peak_flops"][old.precision])
        grown = kernel.operations(symbols) if peak[number] else 0.0
        peak_after[number] = kernel.flop() * grown / float(new.row["peak_flops"][new.precision])
        more[number] = after[number] / before[number] if before[number] > 0 else 1.0
        kinds.append(kernel.kind())
    kernels = KernelWork(
        row,
        time,
        floor.astype(np.float64),
        before[inverse],
        after[inverse],
        linear[inverse],
        before[inverse],
        after[inverse],
        numbered(kinds)[inverse],
        peak_after[inverse] * np.minimum(time / np.maximum(peak[inverse], 1e-12), 1.0),
    )
    # Another GPU has other waves: how its bandwidth differs is all that is known.
    return in_waves(kernels, waves[inverse], more[inverse], float(old.row["memory"][1])) if old is new else kernels


def in_waves(kernels: KernelWork, waves: NDArray[np.float64], more: NDArray[np.float64], reached: float) -> KernelWork:
    """Return kernels of which those that run in waves take one to start, and then each, or their bytes' time.

    The squares of both add up, so that either holds where it is the longer by far.

    Args:
        kernels: with what moving their tensors takes.
        waves: of blocks that each kernel runs in, nan for products and where nothing tells the grid or the work [k].
        more: by how much that grows [k].
        reached: share of the memory's peak that kernels reach.
    """
    moved = np.minimum(kernels.before, kernels.time)
    # One that beats the memory's peak has its bytes in a cache, or does not touch all of them.
    moved = np.where(kernels.before * reached > kernels.time, 0.0, moved)
    start = _START * kernels.floor
    wave = np.maximum(np.sqrt(kernels.time**2 - moved**2) - start, 0) / (1 + waves)
    after = np.hypot(start + wave * (1 + waves * more), moved * more)
    known = ~np.isnan(waves)
    return replace(
        kernels,
        before=np.where(known, kernels.time - kernels.floor, kernels.before),
        after=np.where(known, after - kernels.floor, kernels.after),
        linear=np.where(known, after - kernels.floor, kernels.linear),
        size=np.where(known, waves, kernels.size),
        size_after=np.where(known, waves * more, kernels.size_after),
    )


def wide(trace: Trace, structure: Structure, row: NDArray[np.int32], operator: NDArray[np.int64]) -> NDArray[np.int8]:
    """Return what the widths of every row are, a kind of `widths` [n].

    Args:
        trace: the trace.
        structure: its phases and layers.
        row: its kernels [k].
        operator: the nearest operator above each that has shapes, NONE for none [k].
    """
    rows = trace.rows
    product = np.zeros(len(rows), np.bool_)
    multiplies = np.array([*(bool(PRODUCT.match(name)) for name in rows.names), False])
    product[row] = (rows.family[row] == GEMM) & multiplies[np.where(operator >= 0, rows.name[operator], NONE)]
    return widths(structure, rows.family, product)


def numbered(kinds: list[tuple[object, ...]]) -> NDArray[np.int64]:
    """Return numbers of kinds that are the same in every trace."""
    return np.array([zlib.crc32(repr(kind).encode()) for kind in kinds], np.int64)


def floor_of(times: NDArray[np.float64]) -> float:
    """Return the floor of a trace's kernels, s: the low end of their distribution."""
    return min(float(np.percentile(times, _FLOOR_PERCENTILE)), _WIDEST_FLOOR_S) if len(times) else 0.0


def shaped(trace: Trace, row: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the nearest operator above each row that has shapes, or NONE."""
    return trace.rows.nearest(trace.dims.code >= 0, row)


def element_bytes(inputs: list[object], types: list[object]) -> tuple[float, ...]:
    """Return the bytes of an element of each tensor in an operator's inputs, nothing where any is of unknown type."""
    each: list[float] = []
    for entry, name in zip(inputs, types, strict=False):
        if isinstance(entry, list) and entry:
            kind = element_type(str(name))
            if kind is None:
                return ()
            each.append(float(kind.bytes))
    return tuple(each) if len(each) == len(tensors(inputs)) else ()


def operation_of(trace: Trace, operator: int) -> Operation:
    """Return what one operator with shapes does."""
    inputs = json.loads(trace.dims.words[trace.dims.code[operator]])
    shapes = tuple(tuple(entry) if entry and all(type(size) is int for size in entry) else None for entry in inputs)
    return Operation(trace.rows.names[trace.rows.name[operator]], shapes, (), 1, operator, inside=True)


@dataclass(frozen=True, slots=True)
class _Kernel:
    """One kind of kernel launched by one kind of operator."""

    family: int
    operation: Operation | None
    numel: tuple[Shape, ...]
    """All tensors of the operator, those in lists as well."""
    widths: tuple[float, ...]
    """Bytes of an element of each; nothing where their types were not recorded."""
    labels: tuple[Labels, ...]
    """What is known of their axes; nothing where empty."""
    blocks: float
    """Blocks over those that the GPU runs at once, for a GPU with one multiprocessor."""
    wide: int
    """What its widths are, a kind of `widths`."""
    backward: bool
    context: float = 1.0
    """How many times as long its keys are as their tensor: those of all context-parallel ranks."""

    @classmethod
    def of(
        cls, trace: Trace, axes: Axes, row: int, operator: int, *, blocks: float, wide: int, backward: bool
    ) -> "_Kernel":
        rows = trace.rows
        shapes: tuple[Shape, ...] = ()
        element: tuple[float, ...] = ()
        operation = None
        if operator >= 0:
            inputs = json.loads(trace.dims.words[trace.dims.code[operator]])
            shapes = tuple(tensors(inputs))
            operation = operation_of(trace, operator)
            known = int(trace.types.code[operator])
            element = element_bytes(inputs, json.loads(trace.types.words[known])) if known >= 0 else ()
        labels = axes.labels(operator)
        return cls(int(rows.family[row]), operation, shapes, element, labels, blocks, wide, backward)

    def kind(self) -> tuple[object, ...]:
        """Return what names it in any trace of the model."""
        name = self.operation.name if self.operation else ""
        return name, self.family, tuple(len(shape) for shape in self.numel), self.backward

    def seconds(self, machine: Machine) -> float:
        """Return the part of its time that grows with work, s; nan where nothing tells the work."""
        operation = self.operation
        if operation is None or not self.numel:
            return float("nan")
        if self.family == GEMM and operation.multiplies():
            m, k, n = operation.product
            return _product_seconds(m, k, n, _products(operation), machine)
        if self.family == ATTENTION and operation.is_attention():
            return _attention(operation, machine, self.context, backward=self.backward)
        return self._memory(machine)

    def changed(self, symbols: Symbols, old: Machine, new: Machine) -> float:
        """Return the same for the changed job."""
        operation = self.operation
        if operation is None or not self.numel:
            return float("nan")
        shapes = symbols.operands(operation.shapes, self.wide, self.labels)
        if operation.is_grouped():
            shapes = symbols.groups(operation.shapes, shapes)
        after = replace(
            self,
            operation=replace(operation, shapes=shapes),
            numel=self._resized(symbols),
            context=self.context * symbols.context,
        )
        if self.family in (GEMM, ATTENTION) and (operation.multiplies() or operation.is_attention()):
            return after.seconds(new)
        ratio = after._units() / max(self._units(), 1.0)  # noqa: SLF001 - of the same class
        rate = old.memory_rate / new.memory_rate * new.element_bytes / old.element_bytes
        return self._memory(old) * ratio * rate

    def flop(self) -> float:
        """Return the floating-point operations of a product, or the fewest of attention; 0 of other kernels."""
        operation = self.operation
        if operation is None or not self.numel:
            return 0.0
        if self.family == GEMM and operation.multiplies():
            return 2.0 * _products(operation) * prod(operation.product)
        if self.family == ATTENTION and operation.is_attention():
            query, key = operation.operands[:2]
            # Both products, of which a causal mask leaves half.
            return 2.0 * prod(query) * sorted(key[1:3])[1]
        return 0.0

    def operations(self, symbols: Symbols) -> float:
        """Return by how much its operations grow; nan where nothing tells them."""
        operation = self.operation
        if operation is None or not self.numel:
            return float("nan")
        after = replace(operation, shapes=symbols.operands(operation.shapes, self.wide, self.labels))
        if self.family == GEMM and operation.is_grouped():
            after = replace(operation, shapes=symbols.groups(operation.shapes, after.shapes))
            whole = operation.groups * prod(operation.product)
            return after.groups * prod(after.product) / max(whole, 1)
        if self.family == GEMM and operation.multiplies():
            batches = after.operands[0][0] / max(operation.operands[0][0], 1) if operation.is_batched() else 1.0
            return batches * prod(after.product) / max(prod(operation.product), 1)
        if self.family == ATTENTION and operation.is_attention():
            was, now = operation.operands[0], after.operands[0]
            return symbols.context * prod(now) * sorted(now[1:3])[1] / max(prod(was) * sorted(was[1:3])[1], 1)
        return replace(self, numel=self._resized(symbols))._units() / max(self._units(), 1.0)  # noqa: SLF001 - of the same class

    def _resized(self, symbols: Symbols) -> tuple[Shape, ...]:
        labels = self.labels or ((),) * len(self.numel)
        return tuple(map(symbols.rescaled, self.numel, (self.wide,) * len(labels), labels))

    def waves(self, machine: Machine) -> float:
        """Return how many waves of blocks it runs in; nan for products and attention, and where nothing tells."""
        operation = self.operation
        multiplies = operation is not None and (operation.multiplies() or operation.is_attention())
        if not self.blocks or not self.numel or (self.family in (GEMM, ATTENTION) and multiplies):
            return float("nan")
        return self.blocks / machine.sms

    def _memory(self, machine: Machine) -> float:
        """Return the time of moving its tensors, s."""
        each = self.widths or (machine.element_bytes,) * len(self.numel)
        return sum(prod(shape) * width for shape, width in zip(self.numel, each, strict=True)) / machine.memory_rate

    def _elements(self) -> float:
        return float(sum(prod(shape) for shape in self.numel))

    def _units(self) -> float:
        """Return the work in units that keep their time: rows of a width, as the library pads it, or elements."""
        largest = max(self.numel, key=prod)
        width = max(largest[-1], 1)
        if self.family == SOFTMAX:
            return prod(largest) / width * (2 ** ceil(log2(width)) if width <= _SOFTMAX_WIDTH else width)
        if self.family == NORM and self.operation is not None and self.operation.is_norm():
            return prod(largest) / width * ceil(width / _NORM_WIDTH)
        return self._elements()


def _products(operation: Operation) -> int:
    """Return how many matrices a product makes."""
    if operation.is_grouped():
        return operation.groups
    return operation.operands[0][0] if operation.is_batched() else 1


def _product_seconds(m: int, k: int, n: int, batch: int, machine: Machine) -> float:
    row = machine.row
    seconds = float(
        gemm_seconds(
            max(m, 1),
            max(n, 1),
            max(k, 1),
            max(batch, 1),
            float(machine.element_bytes),
            row["peak_flops"][machine.precision],
            row["hbm_bandwidth"],
            row["sms"],
            row["gemm"][machine.precision],
        )
    )
    grown = max(seconds - float(row["gemm"][machine.precision][0]), 1e-9)
    return grown * (_UNALIGNED ** (1 - log2(gcd(k, n, 8)) / 3) if machine.element_bytes == 2 and min(m, n) > 1 else 1.0)


def _attention(operation: Operation, machine: Machine, context: float, *, backward: bool) -> float:
    """Return the time of attention; of a shared sequence each rank takes parts of both ends: half the keys."""
    row = machine.row
    query, key = operation.operands[:2]
    # (batch, heads, sequence, width), or the middle two the other way round: the sequence is the longer.
    heads, seq = sorted(query[1:3])
    kv_heads, keys = sorted(key[1:3])
    return float(
        attention_seconds(
            query[0],
            seq,
            keys if context == 1 else 0.5 * (context * keys + QUERIES),
            heads,
            kv_heads,
            query[3],
            context == 1,
            backward,
            float(machine.element_bytes),
            row["peak_flops"][machine.precision],
            row["hbm_bandwidth"],
            row["sms"],
            row["attention"][machine.precision],
        )
        - row["attention"][machine.precision][0]
    )
