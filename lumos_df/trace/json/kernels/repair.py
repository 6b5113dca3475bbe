"""Mending what JSON forbids but traces contain: NaN and Infinity, raw control characters, broken UTF-8."""

import numpy as np

from lumos_df.base.jit import lean_kernel
from lumos_df.trace.json.kernels.simd import LANES, copy_lanes, stay_apart

_QUOTE, _BACKSLASH, _MINUS = 34, 92, 45


@lean_kernel
def utf8_length(buffer, i, end):
    """Return the length of the well-formed UTF-8 sequence that starts at `i`, or 0 when there is none.

    The table of well-formed sequences is that of the Unicode Standard, table 3-7: no overlong form, no surrogate.
    """
    stay_apart()
    c = buffer[i]
    if c < 0x80:
        return 1
    if c < 0xC2 or c > 0xF4:
        return 0
    length = 2 if c < 0xE0 else (3 if c < 0xF0 else 4)
    if i + length > end:
        return 0
    low, high = 0x80, 0xBF
    if c == 0xE0:
        low = 0xA0
    elif c == 0xED:
        high = 0x9F
    elif c == 0xF0:
        low = 0x90
    elif c == 0xF4:
        high = 0x8F
    if buffer[i + 1] < low or buffer[i + 1] > high:
        return 0
    for k in range(2, length):
        if buffer[i + k] < 0x80 or buffer[i + k] > 0xBF:
            return 0
    return length


@lean_kernel
def copy(source, start, end, target, used):
    """Copy `source[start:end]` to `target[used:]`; return the end of the copy."""
    for i in range(end - start):
        target[used + i] = source[start + i]
    return used + end - start


@lean_kernel
def copy_ahead(source, start, end, target, used):
    """Copy as `copy` does, in whole vectors: up to `LANES` bytes behind either end are read, and overwritten."""
    for k in range(0, end - start, LANES):
        copy_lanes(source, start + k, target, used + k)
    return used + end - start


@lean_kernel
def copy_repaired(source, start, end, target, used):
    """Copy the JSON text `source[start:end]` to `target[used:]`, mended; return the end of the copy.

    Inside strings a control character becomes a unicode escape and a broken byte U+FFFD; outside, NaN and [-]Infinity
    become null. The copy is at most six times as long.
    """
    stay_apart()
    inside = False
    i = start
    while i < end:
        c = source[i]
        if inside:
            if c == _BACKSLASH and i + 1 < end:
                target[used] = c
                target[used + 1] = source[i + 1]
                used += 2
                i += 2
            elif c < 0x20:
                used = _put(target, used, (92, 117, 48, 48))
                target[used] = 48 + (c >> 4)
                target[used + 1] = _hex(c & 15)
                used += 2
                i += 1
            elif c >= 0x80:
                length = utf8_length(source, i, end)
                if length == 0:
                    used = _put(target, used, (0xEF, 0xBF, 0xBD))
                    length = 1
                else:
                    used = copy(source, i, i + length, target, used)
                i += length
            else:
                if c == _QUOTE:
                    inside = False
                target[used] = c
                used += 1
                i += 1
            continue
        letter = source[i + 1] if c == _MINUS and i + 1 < end else c
        if letter == 78 or letter == 73:  # NaN, Infinity, -Infinity
            used = _put(target, used, (110, 117, 108, 108))
            i += 1
            while i < end and ((source[i] | 0x20) >= 97 and (source[i] | 0x20) <= 122):
                i += 1
            continue
        if c == _QUOTE:
            inside = True
        target[used] = c
        used += 1
        i += 1
    return used


@lean_kernel
def _put(target, used, text):
    for c in text:
        target[used] = np.uint8(c)
        used += 1
    return used


@lean_kernel
def _hex(digit):
    return 48 + digit if digit < 10 else 87 + digit
