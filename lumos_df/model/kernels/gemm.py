"""Time of a matrix product: tiles in waves over the multiprocessors, beside the bytes it moves.

A product C[m, n] = A[m, k] B[k, n] is cut into tiles of C; a multiprocessor computes a tile at a time, and all of them
one wave of tiles at a time. A library picks the tile, and how often to split k where tiles are few: the model takes the
fastest of seven tiles. The parts follow NVIDIA's "Matrix Multiplication Background User's Guide" (tile and wave
quantisation); the numbers are fitted (`lumos_df.model.fitted.GemmParameters`).
"""

from typing import Final

import numpy as np

from lumos_df.base.jit import inlined_kernel, lean_kernel

K_STEP = 64
"""Elements of k that a tile loads at a time: k counts in multiples of it."""

LARGEST_SPLIT = 16.0
"""Parts into which k is split at most."""

_SPLIT_WAVES: Final = 2.0
"""Threshold, waves. k is split only while all parts make no more. Evidence: a judgement; with more, multiprocessors
have work enough."""

PARTIAL_SUM_BYTES = 4
"""Bytes of a partial sum of a split product: float32."""

FLOOR, QUANTISATION, WEIGHT_GRADIENT = 0, 5, 15
"""Places of `floor_s`, `quantisation` and `weight_gradient` in the vector of `GemmParameters`."""

OUTPUT_BYTES = 2
"""Bytes of an element of C: products of 8-bit numbers, too, leave 16-bit ones."""


ALIGNED_BYTES: Final = 16
"""Bytes that a thread loads at once: rows of a matrix that are no multiple of it are loaded in smaller pieces."""

_MISALIGNED: Final = 0.45
"""Threshold, exponent. A product whose rows are loaded in pieces of 1/n takes n to this power as long. Evidence: on
an A100 the products of a head of 50,257 entries in 16 bits take 2.6 times as long as those of half of 50,256 for each
of two (vTrain's runs)."""


@lean_kernel
def misaligned(columns, dtype_bytes):
    """Return how many times as long a product takes whose matrices have rows of so many elements."""
    pieces = 1.0
    row = columns * dtype_bytes
    while pieces < ALIGNED_BYTES and row * pieces % ALIGNED_BYTES != 0.0:
        pieces *= 2.0
    return pieces**_MISALIGNED


@inlined_kernel
def _tiled_seconds(tiles, k, step_s, start_s, reduce_s, split_s, per_sm, quantisation):
    """Return seconds of the multiprocessors for a product cut into `tiles`, with the best split of k.

    Args:
        tiles, k: whole numbers, as floats.
        step_s: seconds of one step of k of one tile.
        start_s: seconds to start and end a tile.
        reduce_s, split_s: seconds of the reduction a part, and once, when k is split.
        per_sm: 1 / number of multiprocessors.
        quantisation: share of the last wave that is lost.
    """
    waves = tiles * per_sm
    steps = k * (1.0 / K_STEP)
    busy = max(1.0, waves + quantisation * (np.ceil(waves) - waves))
    best = busy * (np.ceil(steps) * step_s + start_s)
    parts = 2.0
    while parts <= LARGEST_SPLIT and waves * parts <= _SPLIT_WAVES and steps >= parts:
        split_waves = waves * parts
        busy = max(1.0, split_waves + quantisation * (np.ceil(split_waves) - split_waves))
        seconds = busy * (np.ceil(steps / parts) * step_s + start_s) + split_s + parts * reduce_s
        best = min(best, seconds)
        parts *= 2.0
    return best


@lean_kernel
def gemm_seconds(m, n, k, batch, dtype_bytes, peak_flops, hbm_bandwidth, sms, params):
    """Return seconds of `batch` products [m, k] x [k, n] in one kernel.

    Args:
        m, n, k, batch: whole numbers, at least 1.
        dtype_bytes: bytes of an element of the operands.
        peak_flops: dense peak of that type, operations a second.
        hbm_bandwidth: bytes a second.
        sms: number of multiprocessors.
        params: float64 [GemmParameters], in the order of that class.
    """
    efficiency, overhead_k, quantisation = params[1], params[4], params[QUANTISATION]
    per_128, per_64 = 1.0 / params[2], 1.0 / params[3]
    split_s = params[10]
    m, n, k, batch = float(m), float(n), float(k), float(batch)
    per_sm = 1.0 / sms
    fused = 2.0 * sms / (peak_flops * efficiency)  # seconds of a multiply-add of one multiprocessor
    arithmetic = fused * K_STEP  # seconds of an element of a tile, a step
    start = fused * overhead_k
    load = dtype_bytes * K_STEP * sms / (params[6] * hbm_bandwidth)  # seconds of a row or column of a tile, a step
    reduce_s = params[9] * PARTIAL_SUM_BYTES * m * n * batch / hbm_bandwidth

    rows_64 = np.ceil(m * (1.0 / 64.0)) * batch
    rows_128 = np.ceil(m * (1.0 / 128.0)) * batch
    rows_256 = np.ceil(m * (1.0 / 256.0)) * batch
    columns_64 = np.ceil(n * (1.0 / 64.0))
    columns_128 = np.ceil(n * (1.0 / 128.0))
    columns_256 = np.ceil(n * (1.0 / 256.0))

    step = max(384.0 * load, 32768.0 * arithmetic)
    compute = min(
        _tiled_seconds(rows_256 * columns_128, k, step, 32768.0 * start, reduce_s, split_s, per_sm, quantisation),
        _tiled_seconds(rows_128 * columns_256, k, step, 32768.0 * start, reduce_s, split_s, per_sm, quantisation),
    )
    step = max(256.0 * load, 16384.0 * arithmetic * per_128)
    compute = min(
        compute,
        _tiled_seconds(rows_128 * columns_128, k, step, 16384.0 * start, reduce_s, split_s, per_sm, quantisation),
    )
    step = max(192.0 * load, 8192.0 * arithmetic * per_64)
    compute = min(
        compute,
        _tiled_seconds(rows_128 * columns_64, k, step, 8192.0 * start, reduce_s, split_s, per_sm, quantisation),
        _tiled_seconds(rows_64 * columns_128, k, step, 8192.0 * start, reduce_s, split_s, per_sm, quantisation),
    )
    step = max(128.0 * load, 4096.0 * arithmetic * per_64)
    compute = min(
        compute,
        _tiled_seconds(rows_64 * columns_64, k, step, 4096.0 * start, reduce_s, split_s, per_sm, quantisation),
    )
    step = max(320.0 * load, 16384.0 * arithmetic * per_64)
    compute = min(
        compute,
        _tiled_seconds(rows_64 * columns_256, k, step, 16384.0 * start, reduce_s, split_s, per_sm, quantisation),
    )

    moved = batch * (dtype_bytes * (m * k + n * k) + OUTPUT_BYTES * m * n)
    memory = moved / (hbm_bandwidth * params[7])
    longer = max(compute, memory)
    share = min(compute, memory) / longer
    busy = longer * (1.0 + params[8] * share * share * share)
    busy *= 1.0 + params[11] * busy / (busy + params[12])
    busy += params[13] * m * k * batch / hbm_bandwidth
    return (params[FLOOR] + busy) * params[14]
