"""Loops over a sequence of symbols: where it repeats itself, in time that grows with its length alone.

A symbol is a number of at least 0; a negative one is a break, which matches nothing, itself included.
"""

import numpy as np

from lumos_df.base.jit import kernel
from lumos_df.schema.codes import NONE

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""Of the rolling hash: 2^64 over the golden ratio, as in Knuth's multiplicative hashing."""


@kernel
def previous(symbols, width):
    """Return for every place how far before it the same `width` symbols began last; 0 where nowhere.

    A table of hashes, open addressing; equal hashes are compared symbol by symbol.
    """
    count = len(symbols)
    distance = np.zeros(count, np.int32)
    size = 1024
    table = np.full(size, NONE, np.int32)
    filled = 0
    lead = np.uint64(1)
    for _ in range(width - 1):
        lead *= _FACTOR
    code = np.uint64(0)
    clean = 0
    for i in range(count):
        if symbols[i] < 0:
            code, clean = np.uint64(0), 0
            continue
        if clean >= width:
            code -= lead * np.uint64(symbols[i - width] + 1)
        code = code * _FACTOR + np.uint64(symbols[i] + 1)
        clean += 1
        if clean < width:
            continue
        first = i - width + 1
        slot = _slot(table, symbols, first, width, code)
        if table[slot] >= 0:
            distance[first] = first - table[slot]
        else:
            filled += 1
        table[slot] = first
        if 2 * filled > size:
            # Twice the size when half full: a sequence that repeats keeps a table that fits a cache.
            old = table
            size *= 2
            table = np.full(size, NONE, np.int32)
            for other in old:
                if other >= 0:
                    again = np.uint64(0)
                    for k in range(width):
                        again = again * _FACTOR + np.uint64(symbols[other + k] + 1)
                    table[_slot(table, symbols, other, width, again)] = other
    return distance


@kernel
def _slot(table, symbols, first, width, code):
    """Return where the symbols from `first` on are in the table, or the free place for them."""
    mask = np.uint64(len(table) - 1)
    slot = (code ^ (code >> np.uint64(29))) & mask
    while table[slot] >= 0 and not _same(symbols, table[slot], first, width):
        slot = (slot + np.uint64(1)) & mask
    return slot


@kernel
def _same(symbols, first, second, width):
    k = 0
    while k < width and symbols[first + k] == symbols[second + k]:
        k += 1
    return k == width


@kernel
def stretches(symbols, period):
    """Return (start, end) of every stretch of at least two periods in which each symbol is that one period before."""
    count = len(symbols)
    start = np.empty(count // (period + 1) + 1, np.int32)
    end = np.empty(count // (period + 1) + 1, np.int32)
    kept = 0
    begin = period
    for i in range(period, count + 1):
        if i < count and symbols[i] >= 0 and symbols[i] == symbols[i - period]:
            continue
        if i - begin >= period:
            start[kept], end[kept] = begin - period, i
            kept += 1
        begin = i + 1
    return start[:kept], end[:kept]


@kernel
def phase_of(symbols, at, template):
    """Return where in the endlessly repeated `template` the symbols from `at` on are, NONE where it is not in them.

    Knuth, Morris and Pratt's search for one period of the sequence in two of the template.
    """
    period = len(template)
    border = np.zeros(period + 1, np.int32)
    border[0] = NONE
    k = NONE
    for i in range(period):
        while k >= 0 and symbols[at + i] != symbols[at + k]:
            k = border[k]
        k += 1
        border[i + 1] = k
    k = 0
    for i in range(2 * period):
        while k >= 0 and (k == period or template[i % period] != symbols[at + k]):
            k = border[k]
        k += 1
        if k == period:
            return (i - period + 1) % period
    return NONE


@kernel
def align(symbols, template, start, end, phase, reach, confirm):
    """Follow the repeated template out of every stretch, over small differences: a kernel more, less, or another one.

    Args:
        symbols: the sequence [n].
        template: one period.
        start: first place of each stretch [k], ascending.
        end: place after its last.
        phase: place in the template of its first symbol.
        reach: how many places may be skipped at once.
        confirm: how many symbols must agree for the sequence to be in step again.

    Returns:
        Run of every place, NONE outside; its place in the run's unrolled template, which may be negative before the
        stretch's own start; and which runs lead without a break into the next one.
    """
    count = len(symbols)
    period = len(template)
    run = np.full(count, NONE, np.int32)
    place = np.zeros(count, np.int64)
    joined = np.zeros(len(start), np.bool_)
    for k in range(len(start)):
        for i in range(start[k], end[k]):
            # Neighbours may share places: the earlier keeps them.
            if run[i] == NONE:
                run[i] = k
                place[i] = phase[k] + i - start[k]
    for k in range(len(start)):
        first = start[k]
        while first < end[k] and run[first] != k:
            first += 1
        if first < end[k]:
            _follow(symbols, template, run, place, k, first - 1, place[first] - 1, -1, reach, confirm)
            _follow(symbols, template, run, place, k, end[k], phase[k] + end[k] - start[k], 1, reach, confirm)
    for i in range(1, count):
        k = run[i - 1]
        if k >= 0 and run[i] > k:
            jump = (place[i - 1] + 1 - place[i]) % period
            joined[k] = min(jump, period - jump) <= reach
    return run, place, joined


@kernel
def _follow(symbols, template, run, place, number, i, at, step, reach, confirm):
    """Extend a run from place `i`, where the template is at `at`; return the place after the last one kept."""
    count, period = len(symbols), len(template)
    score, best = 0, 0
    kept = i
    while 0 <= i < count and symbols[i] >= 0 and run[i] == NONE:
        if symbols[i] == template[at % period]:
            run[i], place[i] = number, at
            score += 1
            i += step
            at += step
            if score >= best:
                best, kept = score, i
            continue
        more, fewer = _resume(symbols, template, i, at, step, reach, confirm)
        if more < 0:
            break
        for _ in range(more):
            run[i], place[i] = number, at
            i += step
        at += step * fewer
        score -= more + fewer
        if score < best - reach:
            break
    if 0 <= i < count and run[i] != NONE and run[i] != number and (place[i] - at) % period == 0:
        # What lies between two runs that fit together belongs to them.
        kept = i
    while i != kept:
        i -= step
        if run[i] == number:
            run[i], place[i] = NONE, 0
    return kept


@kernel
def _resume(symbols, template, i, at, step, reach, confirm):
    """Return the fewest places to skip of the sequence and of the template after which both agree again."""
    count, period = len(symbols), len(template)
    confirm = min(confirm, period)
    for total in range(1, reach + 1):
        for more in range(total + 1):
            fewer = total - more
            agree = 0
            for k in range(more + confirm):
                j = i + step * k
                if j < 0 or j >= count or symbols[j] < 0:
                    break
                if k >= more and symbols[j] != template[(at + step * (fewer + k - more)) % period]:
                    break
                agree = k + 1
            if agree == more + confirm:
                return more, fewer
    return -1, -1


@kernel
def like_ends(symbols, length):
    """Return for every place from `length` on how many symbols before it are those before `length`, counted back.

    The Z algorithm (Gusfield, Algorithms on Strings, Trees, and Sequences, 1.3) on the sequence from its end.

    Returns:
        [n + 1 - length] of the places `length` to n; the first is `length` itself.
    """
    count = len(symbols)
    joined = np.empty(length + 1 + count, symbols.dtype)
    for i in range(length):
        joined[i] = symbols[length - 1 - i]
    joined[length] = NONE
    for i in range(count):
        joined[length + 1 + i] = symbols[count - 1 - i]
    alike = np.zeros(len(joined) + 1, np.int64)
    low, high = 0, 0
    for i in range(1, len(joined)):
        k = min(high - i, alike[i - low]) if i < high else 0
        while i + k < len(joined) and joined[k] >= 0 and joined[k] == joined[i + k]:
            k += 1
        alike[i] = k
        if i + k > high:
            low, high = i, i + k
    return alike[length + 1 : len(joined) + 1 - length][::-1].copy()
