"""Interning: the loops over the hash table of `trace.json.strings`."""

from typing import Final

import numpy as np

from lumos_df.base.jit import lean_kernel
from lumos_df.trace.json.kernels.simd import PADDING, load8

FULL: Final = -(1 << 63) + 1
"""Answer of `intern` when the table must grow first; no number of a string, and no process or thread id."""

KEY_SLOTS: Final = 1 << 10

_QUOTE: Final = 34
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


@lean_kernel
def rehash(slots, hashes, count):
    """Put `count` strings into free `slots` by their hashes."""
    for k in range(count):
        _place(slots, hashes[k], k)


@lean_kernel
def _hash(buffer, start, end):
    state = np.uint64(end - start) * _MIX
    i = start
    while i + 8 <= end:
        state = (state ^ load8(buffer, i)) * _MIX
        state ^= state >> np.uint64(29)
        i += 8
    if i < end:
        tail = load8(buffer, i) & (np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - 8 * (end - i)))
        state = (state ^ tail) * _MIX
        state ^= state >> np.uint64(29)
    return state * _MIX


@lean_kernel
def find(buffer, start, end, strings):
    """Return the number of `buffer[start:end]`, or -1 when the table does not have it."""
    state = _hash(buffer, start, end)
    mask = len(strings.slots) - 1
    slot = np.int64(state >> np.uint64(20)) & mask
    while strings.slots[slot] >= 0:
        k = np.int64(strings.slots[slot])
        if strings.hashes[k] == state and _same(buffer, start, end, strings, k):
            return k
        slot = (slot + 1) & mask
    return np.int64(-1)


@lean_kernel
def key_slot(buffer, start, end):
    """Return the slot, below `KEY_SLOTS`, of a short word: a hash of its length and its two ends alone.

    Half of a scan's words are keys. With `find` for them the scanner ran at 400 MB/s, with this at 670.
    """
    length = end - start
    word = load8(buffer, start)
    if length < 8:
        word &= (np.uint64(1) << np.uint64(8 * length)) - np.uint64(1)
    else:
        word ^= load8(buffer, end - 8) << np.uint64(1)
    return np.int64(((word + np.uint64(length)) * _MIX) >> np.uint64(54))


@lean_kernel
def find_key(buffer, start, end, slots, strings):
    """Return the number of `buffer[start:end]` among a few known words, each alone in its slot, or -1."""
    k = np.int64(slots[key_slot(buffer, start, end)])
    if k >= 0 and _same(buffer, start, end, strings, k):
        return k
    return np.int64(-1)


@lean_kernel
def intern(buffer, start, end, strings):
    """Return the number of `buffer[start:end]`, adding it if new, or `FULL`."""
    k = find(buffer, start, end, strings)
    if k >= 0:
        return k
    count = strings.size[0]
    position = strings.offsets[count]
    length = end - start
    if count + 1 >= len(strings.offsets) or position + length > len(strings.pool) - PADDING:
        return np.int64(FULL)
    for j in range(length):
        strings.pool[position + j] = buffer[start + j]
    state = _hash(buffer, start, end)
    strings.hashes[count] = state
    strings.offsets[count + 1] = position + length
    strings.quoted[count] = start > 0 and buffer[start - 1] == _QUOTE
    strings.size[0] = count + 1
    _place(strings.slots, state, count)
    return np.int64(count)


@lean_kernel
def place_tracks(tracks, count, slots):
    """Put `count` pairs of process and thread into free `slots`, of which there is a power of two."""
    for k in range(count):
        slots[track_slot(tracks, slots, tracks[k, 0], tracks[k, 1])] = k


@lean_kernel
def track_slot(tracks, slots, pid, tid):
    """Return the slot that holds the number of a pair, or the free one where it belongs."""
    mask = len(slots) - 1
    state = (np.uint64(pid) * _MIX ^ np.uint64(tid)) * _MIX
    slot = np.int64(state >> np.uint64(20)) & mask
    while slots[slot] >= 0 and (tracks[slots[slot], 0] != pid or tracks[slots[slot], 1] != tid):
        slot = (slot + 1) & mask
    return slot


@lean_kernel
def _place(slots, state, k):
    mask = len(slots) - 1
    slot = np.int64(state >> np.uint64(20)) & mask
    while slots[slot] >= 0:
        slot = (slot + 1) & mask
    slots[slot] = k


@lean_kernel
def _same(buffer, start, end, strings, k):
    i, j, length = start, strings.offsets[k], end - start
    if strings.offsets[k + 1] - j != length:
        return False
    while i + 8 <= end:
        if load8(buffer, i) != load8(strings.pool, j):
            return False
        i += 8
        j += 8
    if i < end:
        shift = np.uint64(64 - 8 * (end - i))
        return (load8(buffer, i) << shift) == (load8(strings.pool, j) << shift)
    return True
