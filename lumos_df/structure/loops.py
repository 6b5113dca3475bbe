"""Loops over a sequence of symbols: where it repeats itself, in time that grows with its length alone.

A symbol is a number of at least 0; a negative one is a break, which matches nothing, itself included.
"""

import numpy as np

from lumos_df.jit import kernel

NONE = -1
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""Of the rolling hash: 2^64 over the golden ratio, as in Knuth's multiplicative hashing."""


_CONFIRM = 4
"""Symbols that must agree for two sequences to be in step again."""


@kernel
def previous(symbols, width):
    """Return for every place how far before it the same `width` symbols began last; 0 where nowhere.

    A table of hashes, open addressing; equal hashes are compared symbol by symbol.
    """
    many = len(symbols)
    distance = np.zeros(many, np.int32)
    size = 1024
    table = np.full(size, NONE, np.int32)
    held = 0
    lead = np.uint64(1)
    for _ in range(width - 1):
        lead *= _FACTOR
    code = np.uint64(0)
    clean = 0
    for i in range(many):
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
            held += 1
        table[slot] = first
        if 2 * held > size:
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
def _same(symbols, one, other, width):
    k = 0
    while k < width and symbols[one + k] == symbols[other + k]:
        k += 1
    return k == width


@kernel
def stretches(symbols, period):
    """Return (start, end) of every stretch of at least two periods in which each symbol is that one period before."""
    many = len(symbols)
    start = np.empty(many // (period + 1) + 1, np.int32)
    end = np.empty(many // (period + 1) + 1, np.int32)
    found = 0
    begin = period
    for i in range(period, many + 1):
        if i < many and symbols[i] >= 0 and symbols[i] == symbols[i - period]:
            continue
        if i - begin >= period:
            start[found], end[found] = begin - period, i
            found += 1
        begin = i + 1
    return start[:found], end[:found]


@kernel
def phase_of(symbols, at, template):
    """Return where in the endlessly repeated `template` the symbols from `at` on are, NONE where it is not in them.

    Knuth, Morris and Pratt's search for one period of the sequence in two of the template.
    """
    many = len(template)
    border = np.zeros(many + 1, np.int32)
    border[0] = NONE
    k = NONE
    for i in range(many):
        while k >= 0 and symbols[at + i] != symbols[at + k]:
            k = border[k]
        k += 1
        border[i + 1] = k
    k = 0
    for i in range(2 * many):
        while k >= 0 and (k == many or template[i % many] != symbols[at + k]):
            k = border[k]
        k += 1
        if k == many:
            return (i - many + 1) % many
    return NONE


@kernel
def align(symbols, template, start, end, phase, reach):
    """Follow the repeated template out of every stretch, over small differences: a kernel more, less, or another one.

    Args:
        symbols: the sequence [n].
        template: one period.
        start: first place of each stretch [k], ascending.
        end: place after its last.
        phase: place in the template of its first symbol.
        reach: how many places may be skipped at once.

    Returns:
        Run of every place, NONE outside; its place in the run's unrolled template, which may be negative before the
        stretch's own start; and which runs lead without a break into the next one.
    """
    many = len(symbols)
    period = len(template)
    run = np.full(many, NONE, np.int32)
    place = np.zeros(many, np.int64)
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
            _follow(symbols, template, run, place, k, first - 1, place[first] - 1, -1, reach)
            _follow(symbols, template, run, place, k, end[k], phase[k] + end[k] - start[k], 1, reach)
    for i in range(1, many):
        k = run[i - 1]
        if k >= 0 and run[i] > k:
            jump = (place[i - 1] + 1 - place[i]) % period
            joined[k] = min(jump, period - jump) <= reach
    return run, place, joined


@kernel
def _follow(symbols, template, run, place, own, i, at, step, reach):
    """Extend a run from place `i`, where the template is at `at`; return the place after the last one kept."""
    many, period = len(symbols), len(template)
    score, best = 0, 0
    kept = i
    while 0 <= i < many and symbols[i] >= 0 and run[i] == NONE:
        if symbols[i] == template[at % period]:
            run[i], place[i] = own, at
            score += 1
            i += step
            at += step
            if score >= best:
                best, kept = score, i
            continue
        more, fewer = _resume(symbols, template, i, at, step, reach)
        if more < 0:
            break
        for _ in range(more):
            run[i], place[i] = own, at
            i += step
        at += step * fewer
        score -= more + fewer
        if score < best - reach:
            break
    if 0 <= i < many and run[i] != NONE and run[i] != own and (place[i] - at) % period == 0:
        # What lies between two runs that fit together belongs to them.
        kept = i
    while i != kept:
        i -= step
        if run[i] == own:
            run[i], place[i] = NONE, 0
    return kept


@kernel
def _resume(symbols, template, i, at, step, reach):
    """Return the fewest places to skip of the sequence and of the template after which both agree again."""
    many, period = len(symbols), len(template)
    confirm = min(_CONFIRM, period)
    for total in range(1, reach + 1):
        for more in range(total + 1):
            fewer = total - more
            agree = 0
            for k in range(more + confirm):
                j = i + step * k
                if j < 0 or j >= many or symbols[j] < 0:
                    break
                if k >= more and symbols[j] != template[(at + step * (fewer + k - more)) % period]:
                    break
                agree = k + 1
            if agree == more + confirm:
                return more, fewer
    return -1, -1


UNKNOWN, MIXED = -2, -3
"""Of a value that is spread over rows: nothing says it; what it stands for has more than one."""


@kernel
def spread(value, parent, thread, launches):
    """Give host rows the value of the GPU rows that they lead to, and GPU rows without one that of their call.

    A row has its kernels' common value, MIXED where they differ. One without kernels has its parent's, and where that
    is MIXED or unknown the value of the next launch on its thread: what leads to nothing leads to what comes next.

    Args:
        value: of GPU rows, at least -1; UNKNOWN elsewhere; filled in place [n].
        parent: row around or that launched, NONE where none [n].
        thread: host rows: number of the thread; NONE on GPU rows [n].
        launches: host rows that launch something [n].
    """
    many = len(value)
    for i in range(many):
        if thread[i] == NONE and value[i] != UNKNOWN and parent[i] >= 0:
            _meet(value, parent[i], value[i])
    threads = 0
    for i in range(many - 1, -1, -1):
        threads = max(threads, thread[i] + 1)
        if thread[i] >= 0 and value[i] != UNKNOWN and parent[i] >= 0:
            _meet(value, parent[i], value[i])
    ahead = np.full(threads, UNKNOWN, value.dtype)
    following = np.full(many, UNKNOWN, value.dtype)
    for i in range(many - 1, -1, -1):
        if thread[i] >= 0:
            if launches[i] and value[i] != UNKNOWN:
                ahead[thread[i]] = value[i]
            following[i] = ahead[thread[i]]
    for i in range(many):
        if value[i] == UNKNOWN:
            above = value[parent[i]] if parent[i] >= 0 else UNKNOWN
            value[i] = above if above > UNKNOWN else following[i]


@kernel
def _meet(value, row, other):
    if value[row] == UNKNOWN:
        value[row] = other
    elif value[row] != other:
        value[row] = MIXED


@kernel
def fill_launched(value, order, backwards):
    """Give GPU rows without a value, in the order of their launches, that of the one before (else after) them."""
    last = UNKNOWN
    for k in range(len(order)):
        i = order[k]
        if value[i] == UNKNOWN:
            if not backwards[i]:
                value[i] = last
        else:
            last = value[i]
    last = UNKNOWN
    for k in range(len(order) - 1, -1, -1):
        i = order[k]
        if value[i] == UNKNOWN:
            value[i] = last
        else:
            last = value[i]


@kernel
def inherit(own, parent, thread):
    """Return for every row its own value, else that of the nearest row above it; NONE where none has any.

    Args:
        own: at least 0, or NONE [n].
        parent: row around or that launched, NONE where none [n].
        thread: host rows: number of the thread; NONE on GPU rows, whose parent may come after them [n].
    """
    value = own.copy()
    for on_host in (True, False):
        for i in range(len(own)):
            if (thread[i] >= 0) == on_host and value[i] == NONE and parent[i] >= 0:
                value[i] = value[parent[i]]
    return value
