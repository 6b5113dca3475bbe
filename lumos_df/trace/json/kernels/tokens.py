"""JSON's tokens in a buffer: where they end, and the numbers that they write.

A position of -1 asks for more data, -2 says that this is no JSON.
"""

from typing import Final

import numpy as np

from lumos_df.base.jit import lean_kernel
from lumos_df.schema.codes import LATEST, NULL
from lumos_df.trace.json.kernels.repair import utf8_length
from lumos_df.trace.json.kernels.simd import (
    LANES,
    byte_at,
    first_delimiter,
    first_special,
    first_structural,
    first_token,
    load8,
    stay_apart,
)

_QUOTE, _BACKSLASH, _MINUS, _DOT = 34, 92, 45, 46
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = 123, 125, 91, 93
_N, _I = 78, 73
_TENTH: Final = np.iinfo(np.int64).max // 10
_BEYOND: Final = LATEST + 1000
"""ns. Stands for every time after `LATEST`."""
"""A tenth of the largest int64. A constant, because a division a digit halved the scanner's speed."""


@lean_kernel
def skip_space(buffer, i):
    """Return the position of the next byte that is not white space."""
    while True:
        c = byte_at(buffer, i)
        if c > 0x20 or c == 0:
            return i
        if byte_at(buffer, i + 1) > 0x20:  # the one space that most separators have
            return i + 1
        k = first_token(buffer, i)
        i += k
        if k < LANES:
            return i


@lean_kernel
def string_end(buffer, i, end, dirt):
    """Return the position of the quote that ends the string whose text starts at `i`, or -1 when the buffer ends first.

    `dirt` counts raw control characters [0] and broken UTF-8 sequences [1] on the way.
    """
    while True:
        k = first_special(buffer, i)
        i += k
        if k == LANES:
            continue
        c = byte_at(buffer, i)
        if c == _QUOTE:
            return i
        if i >= end:
            return np.int64(-1)
        if c == _BACKSLASH:
            i += 2
        elif c < 0x20:
            dirt[0] += 1
            i += 1
        else:
            length = utf8_length(buffer, i, end)
            if length == 0:
                dirt[1] += 1
                length = 1
            i += length


@lean_kernel
def value_end(buffer, i, end, dirt):
    """Return the position after the value that starts at `i`, -1 when the buffer ends first, -2 when it is no JSON."""
    c = byte_at(buffer, i)
    if c == _QUOTE:
        j = string_end(buffer, i + 1, end, dirt)
        return j + 1 if j >= 0 else j
    if c != _OPEN and c != _OPEN_LIST:
        return _scalar_end(buffer, i, end, dirt)
    depth = 0
    while True:
        k = first_structural(buffer, i)
        i += k
        if k == LANES:
            continue
        c = byte_at(buffer, i)
        if c == _QUOTE:
            i = string_end(buffer, i + 1, end, dirt)
            if i < 0:
                return i
        elif c == _OPEN or c == _OPEN_LIST:
            depth += 1
        elif c == _CLOSE or c == _CLOSE_LIST:
            depth -= 1
            if depth == 0:
                return i + 1
        elif c == 0:
            return np.int64(-1) if i >= end else np.int64(-2)
        else:
            i = _scalar_end(buffer, i, end, dirt) - 1
            if i < 0:
                return i + 1
        i += 1


@lean_kernel
def _scalar_end(buffer, i, end, dirt):
    """Return the position after a number or word; `NaN` and `Infinity` are counted in `dirt[2]`."""
    start = i
    c = byte_at(buffer, i)
    if c == _MINUS:
        c = byte_at(buffer, i + 1)
    if c == _N or c == _I:
        dirt[2] += 1
    while True:
        k = first_delimiter(buffer, i)
        i += k
        if k < LANES:
            break
    if i >= end:
        return np.int64(-1)
    return i if i > start else np.int64(-2)


@lean_kernel
def _eight_digits(word):
    """Return the number that eight digits write, the first in the lowest byte, or -1 where there is another byte.

    Neighbours are joined side by side: eight digits to four numbers below 100, to two below 10^4, to one.
    """
    word ^= np.uint64(0x3030303030303030)
    if ((word + np.uint64(0x7676767676767676)) | word) & np.uint64(0x8080808080808080):
        return np.int64(-1)
    word = (word * np.uint64(10) + (word >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    word = (word * np.uint64(100) + (word >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    return np.int64((word * np.uint64(10000) + (word >> np.uint64(32))) & np.uint64(0xFFFFFFFF))


@lean_kernel
def _digits(buffer, start, stop):
    """Return the number that `buffer[start:stop]` writes, or -1 where that is not 1 to 16 digits and nothing else."""
    length = stop - start
    if length < 1 or length > 16:
        return np.int64(-1)
    rest = np.int64(0)
    if length > 8:
        rest = _eight_digits(load8(buffer, stop - 8))
        length -= 8
    unused = np.uint64(64 - 8 * length)
    zeros = np.uint64(0x3030303030303030) & ((np.uint64(1) << unused) - np.uint64(1))
    first = _eight_digits((load8(buffer, start) << unused) | zeros)
    if first < 0 or rest < 0:
        return np.int64(-1)
    return first * 100000000 + rest if stop - start > 8 else first


@lean_kernel
def integer_of(buffer, start, stop):
    """Return what `read_integer` does of the value `buffer[start:stop]`."""
    value = _digits(buffer, start, stop)
    return value if value >= 0 else read_integer(buffer, start)


@lean_kernel
def time_of(buffer, start, stop):
    """Return what `read_time` does of the value `buffer[start:stop]`."""
    micros = _digits(buffer, start, stop)
    nanos = np.int64(0)
    if micros < 0 and stop - start > 4 and byte_at(buffer, stop - 4) == _DOT:
        micros = _digits(buffer, start, stop - 4)
        nanos = _digits(buffer, stop - 3, stop)
    if micros < 0 or nanos < 0:
        return read_time(buffer, start)
    return min(micros, _BEYOND // 1000) * 1000 + nanos


@lean_kernel
def read_integer(buffer, i):
    """Return the integer at `i` (a quoted or fractional one is cut to its integer part), or NULL."""
    if byte_at(buffer, i) == _QUOTE:
        i += 1
    negative = byte_at(buffer, i) == _MINUS
    if negative:
        i += 1
    c = byte_at(buffer, i)
    if c < 48 or c > 57 or (c == 48 and (byte_at(buffer, i + 1) | 0x20) == 120):  # not a digit, or hexadecimal
        return NULL
    value = np.int64(0)
    digits = 0
    while c >= 48 and c <= 57:
        if digits < 19:
            value = value * 10 + np.int64(c - 48)
        digits += 1
        i += 1
        c = byte_at(buffer, i)
    if digits > 19 or value < 0 or (c | 0x20) == 101:  # beyond int64, or an exponent, which no recorder writes
        return NULL
    return -value if negative else value


@lean_kernel
def read_float(buffer, i):
    """Return the number at `i` (quoted or not) as float64; not a number gives NaN."""
    stay_apart()
    if byte_at(buffer, i) == _QUOTE:
        i += 1
    negative = byte_at(buffer, i) == _MINUS
    if negative:
        i += 1
    mantissa = np.int64(0)
    digits = scale = 0
    while byte_at(buffer, i) >= 48 and byte_at(buffer, i) <= 57:
        if digits < 18:
            mantissa = mantissa * 10 + np.int64(byte_at(buffer, i) - 48)
        else:
            scale += 1
        digits += 1
        i += 1
    if byte_at(buffer, i) == _DOT:
        i += 1
        while byte_at(buffer, i) >= 48 and byte_at(buffer, i) <= 57:
            if digits < 18:
                mantissa = mantissa * 10 + np.int64(byte_at(buffer, i) - 48)
                scale -= 1
            digits += 1
            i += 1
    if digits == 0:
        return np.nan
    if (byte_at(buffer, i) | 0x20) == 101:
        scale += _exponent(buffer, i + 1)
    # Powers of ten up to 22 are exact, so one multiplication or division rounds once.
    value = np.float64(mantissa)
    if scale < 0:
        value /= 10.0 ** np.float64(-scale)
    elif scale > 0:
        value *= 10.0 ** np.float64(scale)
    return -value if negative else value


@lean_kernel
def _decimal(buffer, i):
    """Read digits with at most one point; return (mantissa, power of ten, digits, position after, digit left off).

    The mantissa holds 18 or 19 digits; the first of those that do not fit is returned, so that a caller can round.
    """
    mantissa = np.int64(0)
    scale = digits = left_off = 0
    past_point = full = False
    while True:
        c = byte_at(buffer, i)
        if c == _DOT and not past_point:
            past_point = True
        elif c >= 48 and c <= 57:
            digits += 1
            digit = np.int64(c - 48)
            if not full and (mantissa < _TENTH or (mantissa == _TENTH and digit <= 7)):  # within int64
                mantissa = mantissa * 10 + digit
                scale -= 1 if past_point else 0
            else:
                left_off = left_off if full else digit
                full = True
                scale += 0 if past_point else 1
        else:
            return mantissa, scale, digits, i, left_off
        i += 1


@lean_kernel
def _exponent(buffer, i):
    negative = byte_at(buffer, i) == _MINUS
    if negative or byte_at(buffer, i) == 43:
        i += 1
    value = np.int64(0)
    while byte_at(buffer, i) >= 48 and byte_at(buffer, i) <= 57 and value < 400:
        value = value * 10 + np.int64(byte_at(buffer, i) - 48)
        i += 1
    return -value if negative else value


@lean_kernel
def _scaled_time(buffer, i):
    """Return the unsigned microseconds at `i`, written with an exponent, as nanoseconds, or `_BEYOND` above int64."""
    stay_apart()
    mantissa, scale, _, i, left_off = _decimal(buffer, i)
    scale += _exponent(buffer, i + 1) + 3
    while scale > 0 and mantissa > 0:
        if mantissa >= _TENTH:
            return _BEYOND
        mantissa = mantissa * 10 + left_off
        left_off = 0
        scale -= 1
    while scale < 0 and mantissa > 0:
        left_off = mantissa % 10
        mantissa //= 10
        scale += 1
    return mantissa + 1 if left_off >= 5 else mantissa


@lean_kernel
def read_time(buffer, i):
    """Return the microseconds at `i` (a number, or one in quotes) as whole nanoseconds, exactly; half a ns rounds up.

    What is no number is NULL; what lies beyond `LATEST`, either side of 0, is `_BEYOND`.
    Decimal digits are read as they stand: through float64 a Unix time in microseconds would lose up to 250 ns.
    """
    if byte_at(buffer, i) == _QUOTE:
        i += 1
    negative = byte_at(buffer, i) == _MINUS
    if negative:
        i += 1
    start = i
    value = np.int64(0)
    while byte_at(buffer, i) >= 48 and byte_at(buffer, i) <= 57:
        value = value * 10 + np.int64(byte_at(buffer, i) - 48)
        i += 1
    if i == start:
        return NULL
    if i > start + 16 or value > _BEYOND // 1000:
        value = _BEYOND // 1000
    value *= 1000
    if byte_at(buffer, i) == _DOT:
        i += 1
        scale = 100
        while byte_at(buffer, i) >= 48 and byte_at(buffer, i) <= 57:
            digit = np.int64(byte_at(buffer, i) - 48)
            if scale > 0:
                value += digit * scale
                scale = scale // 10 if scale > 1 else -1
            elif scale == -1:
                value += 1 if digit >= 5 else 0
                scale = 0
            i += 1
    if (byte_at(buffer, i) | 0x20) == 101:
        value = min(_scaled_time(buffer, start), _BEYOND)
    return -value if negative else value
