"""The wire format of Protocol Buffers: the fields of many messages at once [its Encoding page]."""

import numpy as np

from lumos_df.base.jit import kernel


@kernel
def fields(data, begin, end):
    """Return the fields of messages, message by message, in their order.

    Args:
        data: uint8 [bytes].
        begin, end: int64 [n], where each message lies.

    Returns:
        owner: int64 [m], the message of each field.
        number: int64 [m].
        value: int64 [m], of a number its bits, of a text or message where it begins.
        length: int64 [m], bytes of a text or message, -1 of a number.
        broken: bool [n], messages that end in the middle of a field or hold what is none; what is before that counts.
    """
    broken = np.zeros(len(begin), np.bool_)
    count = 0
    owner = np.empty(0, np.int64)
    number = np.empty(0, np.int64)
    value = np.empty(0, np.int64)
    length = np.empty(0, np.int64)
    for turn in range(2):  # count, then fill
        if turn == 1:
            owner = np.empty(count, np.int64)
            number = np.empty(count, np.int64)
            value = np.empty(count, np.int64)
            length = np.empty(count, np.int64)
        count = 0
        for message in range(len(begin)):
            at, stop = begin[message], end[message]
            while at < stop:
                key, at = _varint(data, at, stop)
                kind = key & 7
                size = np.int64(-1)
                bits = np.int64(0)
                if at >= 0 and kind == 0:
                    bits, at = _varint(data, at, stop)
                elif at >= 0 and kind == 2:
                    size, at = _varint(data, at, stop)
                    if at >= 0 and 0 <= size <= stop - at:
                        bits = at
                        at += size
                    else:
                        at = np.int64(-1)
                elif at >= 0 and (kind == 1 or kind == 5):
                    width = 8 if kind == 1 else 4
                    if stop - at >= width:
                        for byte in range(width):
                            bits |= np.int64(data[at + byte]) << (8 * byte)
                        at += width
                    else:
                        at = np.int64(-1)
                else:
                    at = np.int64(-1)
                if at < 0 or key >> 3 <= 0:
                    broken[message] = True
                    break
                if turn == 1:
                    owner[count] = message
                    number[count] = key >> 3
                    value[count] = bits
                    length[count] = size
                count += 1
    return owner, number, value, length, broken


@kernel
def _varint(data, at, stop):
    """Return a number and where it ends, -1 where it does not; int64."""
    bits = np.int64(0)
    for turn in range(10):
        if at >= stop:
            return bits, np.int64(-1)
        byte = np.int64(data[at])
        at += 1
        bits |= (byte & 127) << (7 * turn)
        if byte < 128:
            return bits, at
    return bits, np.int64(-1)
