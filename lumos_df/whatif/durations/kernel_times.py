"""What a measured kernel takes when its shape, type or GPU changes: the measured time anchors, a cost function scales.

A kernel's time is a floor that no size goes below and a part that grows with its work. The cost functions of `model`
say how the second part changes; how well the kernel did against them when it was measured is kept, the more so the
longer it ran above the floor, because near the floor nothing was measured but the floor.

A kernel that moves its tensors runs in waves of blocks: to start takes as long as a wave, so of w waves it takes
1 + w times a wave, and no less than its bytes over the bandwidth.
"""

import zlib
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.packed_keys import packed
from lumos_df.schema.codes import BACKWARD, COMMUNICATION, KERNEL, NONE
from lumos_df.structure.axes import Axes
from lumos_df.structure.labelled_rows import Trace
from lumos_df.structure.layers import Structure
from lumos_df.structure.shapes import PRODUCT
from lumos_df.whatif.durations.kernel_kind import ATTENTION, GEMM, KernelKind
from lumos_df.whatif.durations.named_precision import machines
from lumos_df.whatif.durations.other_memory import convolution_ratio, moved_besides, other_time
from lumos_df.whatif.durations.symbols import Symbols
from lumos_df.whatif.durations.widths import widths
from lumos_df.whatif.job.recorded_gpu import Machine

MEASURED, RESCALED, INTERPOLATED, MODELLED = range(4)
PROVENANCE: Final = ("measured", "rescaled", "interpolated", "modelled")
MODELLED_ERROR: Final = 0.3
"""Threshold, relative error. What nothing measured is like is so far off, and so are transfers whose bytes are not told
or that may all hold waiting. Evidence: a judgement."""

_START: Final = 0.2
"""Threshold, floors. What a kernel of waves takes besides a wave to start. Evidence: kernels of one name at two grids,
27 recorded jobs: half are within 25 % from the smaller one, 35 % from the larger one, and as many above as below."""
_THREADS: Final = 2048
"""Threads that a multiprocessor holds at once (compute capability 8.0 and 9.0)."""
_BLOCKS: Final = 32
"""Blocks that it holds at once."""
_FLOOR_PERCENTILE: Final = 5
"""Threshold, percentile. The floor of a trace's kernels is where this part of them is shorter."""
_WIDEST_FLOOR_S: Final = 10e-6
"""Threshold, s. The floor is at most this. Evidence: kernels that all last longer tell nothing about it."""
TRUST_FLOORS: Final = 0.5
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
    doubt: NDArray[np.float64]
    """How far `after` over `before` may be off because the trace does not tell how the work is cut, as a logarithm."""
    gaps: NDArray[np.float64] | None = None
    """By how much the host's work before each row of the trace grows, as a logarithm [n]; None where it stays."""

    def rescaled(self, floor_ratio: float = 1.0) -> NDArray[np.float64]:
        """Return the time after the change, s. `floor_ratio`: floor of the new GPU over that of the old one."""
        with np.errstate(divide="ignore", invalid="ignore"):
            trust = self.before / (self.before + TRUST_FLOORS * self.floor)
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
    _, first, inverse = np.unique(packed(*columns), return_index=True, return_inverse=True)
    before, after, linear, waves, more, peak, peak_after, moved = (np.empty(len(first)) for _ in range(8))
    resident = np.clip(_THREADS // np.maximum(trace.threads[row], 1), 1, _BLOCKS)
    blocks = trace.blocks[row] / resident
    _, of_one, alike = np.unique(
        packed(operator, rows.name[row].astype(np.int64)), return_inverse=True, return_counts=True
    )
    threads = trace.blocks[row] * trace.threads[row] * alike[of_one.reshape(-1)]
    kinds: list[tuple[object, ...]] = []
    convolves = np.zeros(len(first), np.bool_)
    multiplies = np.isin(rows.family[row], (GEMM, ATTENTION))
    for number, at in enumerate(first.tolist()):
        # On the same GPU what a kernel did against its cost function is kept, whichever precision that is of.
        named = old is not new and multiplies[at]
        was, will = machines(rows.names[rows.name[row[at]]], old, new) if named else (old, new)
        kernel = KernelKind.of(
            trace,
            axes,
            int(row[at]),
            int(operator[at]),
            blocks=float(blocks[at]),
            threads=float(threads[at]),
            wide=int(columns[-2][at]),
            backward=bool(columns[-1][at]),
        )
        before[number], after[number] = kernel.seconds(was), kernel.changed(symbols, was, will)
        linear[number] = before[number] * kernel.operations(symbols) if old is new else after[number]
        waves[number], moved[number] = kernel.waves(old), kernel.moved(old)
        peak[number] = kernel.flop() / float(was.row["peak_flops"][was.precision])
        grown = kernel.operations(symbols) if peak[number] else 0.0
        peak_after[number] = kernel.flop() * grown / float(will.row["peak_flops"][will.precision])
        more[number] = after[number] / before[number] if before[number] > 0 else 1.0
        kinds.append(kernel.kind())
        convolves[number] = kernel.convolves()
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
        np.zeros(len(row)),
    )
    if old.hardware is not new.hardware:
        return on_other_gpu(kernels, moved[inverse], more[inverse], convolves[inverse], old, new)
    if old is not new:
        return kernels
    waved = in_waves(kernels, waves[inverse], more[inverse], float(old.row["memory"][1]))
    return of_fewer_blocks(waved, more[inverse], convolves[inverse] & ~np.isnan(waves[inverse]))


def on_other_gpu(
    kernels: KernelWork,
    moved: NDArray[np.float64],
    more: NDArray[np.float64],
    convolves: NDArray[np.bool_],
    old: Machine,
    new: Machine,
) -> KernelWork:
    """Return kernels of which those that move tensors follow the memory as far as they waited for it.

    What they do besides goes with the number of multiprocessors. Whether those of another chip are as fast no trace
    tells: as much as their number makes of it is doubted.

    Args:
        kernels: of another GPU, which has other waves: how many blocks there are tells nothing.
        moved: what moving the bytes of each takes, s; nan for products and attention, and where nothing tells [k].
        more: by how much that grows [k].
        convolves: which of them convolve [k].
        old: the GPU that was measured.
        new: the other one.
    """
    time, memory = kernels.time - kernels.floor, moved_besides(moved, old)
    work = more * (new.memory_rate / old.memory_rate)
    besides = np.where(convolves, convolution_ratio(old, new), old.sms / new.sms)
    after, as_before = other_time(time, memory, more, work * besides), other_time(time, memory, more, work)
    known = ~np.isnan(after)
    apart = np.abs(np.log(np.maximum(as_before, 1e-12) / np.maximum(after, 1e-12)))
    return replace(
        kernels,
        before=np.where(known, time, kernels.before),
        after=np.where(known, after, kernels.after),
        linear=np.where(known, after, kernels.linear),
        doubt=np.where(known, apart, kernels.doubt),
    )


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


def of_fewer_blocks(kernels: KernelWork, more: NDArray[np.float64], convolves: NDArray[np.bool_]) -> KernelWork:
    """Return kernels of which convolutions may also take as many times as long as they do more.

    Their tiles fill a multiprocessor's registers and shared memory, so it may hold far fewer of their blocks at once
    than its threads would let it, and the trace does not tell how many.

    Args:
        kernels: in waves of blocks.
        more: by how much the work of each grows [k].
        convolves: which of them convolve [k].
    """
    in_step = kernels.floor + (kernels.time - kernels.floor) * more
    apart = np.abs(np.log(np.maximum(in_step, 1e-12) / np.maximum(kernels.rescaled(), 1e-12)))
    return replace(kernels, doubt=np.where(convolves & np.isfinite(apart), apart, kernels.doubt))


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
    product[row] = (rows.family[row] == GEMM) & (operator >= 0) & rows.named(PRODUCT.match)[operator]
    return widths(structure, rows.family, product)[trace.twin]


def numbered(kinds: list[tuple[object, ...]]) -> NDArray[np.int64]:
    """Return numbers of kinds that are the same in every trace."""
    return np.array([zlib.crc32(repr(kind).encode()) for kind in kinds], np.int64)


def floor_of(times: NDArray[np.float64]) -> float:
    """Return the floor of a trace's kernels, s: the low end of their distribution."""
    return min(float(np.percentile(times, _FLOOR_PERCENTILE)), _WIDEST_FLOOR_S) if len(times) else 0.0


def shaped(trace: Trace, row: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the nearest operator above each row, or its twin, that has shapes, or NONE."""
    return trace.rows.nearest(trace.dims.code >= 0, trace.twin[row])
