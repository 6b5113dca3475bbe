"""What stands between two values of an object: white space, a comma, the next key, a colon.

A recorder writes the events of one kind alike, to the byte. So what stood behind a key last time is compared first, a
vector at a time, and only what is new is read byte by byte: with this the scanner ran half as fast again.
"""

from lumos_df.base.jit import inlined_kernel, lean_kernel
from lumos_df.trace.json.kernels.interning import find_key
from lumos_df.trace.json.kernels.simd import LANES, byte_at, equal_bytes, stay_apart
from lumos_df.trace.json.kernels.tokens import skip_space, string_end
from lumos_df.trace.json.scanned import CLOSED, GAP_BYTES, WAYS

_QUOTE, _COMMA, _COLON, _CLOSE = 34, 44, 58, 125


@lean_kernel
def read_gap(buffer, i, end, words, dirt):
    """Read on from the end of a value, or from behind the bracket that opens an object.

    Return (start of the next value, code of its key, start and end of the key); at the end of the object (position
    after it, CLOSED, 0, 0); -1 as the position asks for more data, -2 says that this is no JSON.
    """
    while True:
        i = skip_space(buffer, i)
        c = byte_at(buffer, i)
        if c == _COMMA:
            i += 1
            continue
        if c == _CLOSE:
            return i + 1, CLOSED, 0, 0
        if c != _QUOTE:
            return -1 if i >= end else -2, 0, 0, 0
        key_start = i + 1
        key_end = string_end(buffer, key_start, end, dirt)
        if key_end < 0:
            return key_end, 0, 0, 0
        i = skip_space(buffer, key_end + 1)
        if byte_at(buffer, i) != _COLON:
            return -1 if i >= end else -2, 0, 0, 0
        i = skip_space(buffer, i + 1)
        k = find_key(buffer, key_start, key_end, words.slots, words.texts)
        return i, words.code[k] if k >= 0 else 0, key_start, key_end


@inlined_kernel
def next_value(buffer, i, end, gaps, words, place, dirt):
    """Read on as `read_gap`, from a place that says what was read before.

    Return (start of the next value, code of its key, its own place).
    """
    for way in range(WAYS):
        gap = gaps.after[place, way]
        if gap >= 0 and _is_at(buffer, i, gaps, gap):
            start = i + gaps.length[gap]
            if gaps.code[gap] == CLOSED or byte_at(buffer, start) > 0x20:
                return start, gaps.code[gap], gap
    return _learn(buffer, i, end, gaps, words, place, dirt)


@inlined_kernel
def _is_at(buffer, i, gaps, gap):
    length = gaps.length[gap]
    if length <= LANES:
        return equal_bytes(buffer, i, gaps.text, gap * GAP_BYTES) >= length
    return (
        equal_bytes(buffer, i, gaps.text, gap * GAP_BYTES) == LANES
        and equal_bytes(buffer, i + LANES, gaps.text, gap * GAP_BYTES + LANES) >= length - LANES
    )


@lean_kernel
def _learn(buffer, i, end, gaps, words, place, dirt):
    """Read a gap that did not come after this place the last times, and remember it."""
    stay_apart()
    found = dirt[0] + dirt[1]
    start, code, _, _ = read_gap(buffer, i, end, words, dirt)
    length = start - i
    gap = gaps.size[0]
    if start < 0 or start >= end or length > GAP_BYTES or dirt[0] + dirt[1] > found or gap == len(gaps.length):
        return start, code, 0
    for k in range(length):
        gaps.text[gap * GAP_BYTES + k] = byte_at(buffer, i + k)
    for k in range(gap):  # known, but of another place, or not of late
        if gaps.length[k] == length and gaps.code[k] == code and gaps.origin[k] == place and _is_at(buffer, i, gaps, k):
            gap = k
            break
    if gap == gaps.size[0]:
        gaps.length[gap] = length
        gaps.code[gap] = code
        gaps.origin[gap] = place
        gaps.size[0] = gap + 1
    for way in range(WAYS - 1, 0, -1):
        gaps.after[place, way] = gaps.after[place, way - 1]
    gaps.after[place, 0] = gap
    return start, code, gap
