"""The fields that PyTorch's `emit_nvtx` writes behind the name of a range, of many texts at once."""

import numpy as np

from lumos_df.base.jit import kernel
from lumos_df.schema.codes import NULL

_DIGITS = 18
_SEQUENCE = np.frombuffer(b", seq = ", np.uint8)
_ID = np.frombuffer(b", op_id = ", np.uint8)
_SIZES = np.frombuffer(b", sizes = ", np.uint8)
_INPUTS = np.frombuffer(b", input_op_ids = ", np.uint8)


@kernel
def fields(data, begin, end):
    """Return where the fields of texts lie.

    Args:
        data: uint8 [bytes].
        begin, end: int64 [n], where each text lies.

    Returns:
        name_end: int64 [n], where its first field begins, else its end.
        sequence: int64 [n], autograd's number, NULL where none of 18 digits at most is said.
        numbered: bool [n], whether it has that number or one of its own.
        sizes_begin, sizes_end: int64 [n], where the shapes of the inputs lie, -1 where they are not said.
    """
    name_end = end.copy()
    sequence = np.full(len(begin), NULL, np.int64)
    numbered = np.zeros(len(begin), np.bool_)
    sizes_begin = np.full(len(begin), -1, np.int64)
    sizes_end = np.full(len(begin), -1, np.int64)
    for text in range(len(begin)):
        stop = end[text]
        named = False
        for at in range(begin[text], stop):
            if data[at] != _ID[0] or at + 1 == stop or data[at + 1] != _ID[1]:
                continue
            field = False
            if _is_here(data, at, stop, _SEQUENCE):
                first = at + len(_SEQUENCE)
                digit = first + 1 if first < stop and data[first] == ord("-") else first
                number = np.int64(0)
                last = digit
                while last < stop and _is_digit(data[last]) and last - digit <= _DIGITS:
                    if last - digit < _DIGITS:
                        number = number * 10 + (data[last] - ord("0"))
                    last += 1
                field = last > digit
                whole = last == stop or data[last] == ord(",")
                if field and whole and last - digit <= _DIGITS and sequence[text] == NULL:
                    sequence[text] = number if digit == first else -number
                    numbered[text] = True
            elif _is_here(data, at, stop, _ID):
                first = at + len(_ID)
                field = first < stop and _is_digit(data[first])
                numbered[text] = numbered[text] or field
            elif _is_here(data, at, stop, _INPUTS):
                field = True
            elif _is_here(data, at, stop, _SIZES):
                sizes_begin[text] = at + len(_SIZES)
                sizes_end[text] = stop
                for inside in range(sizes_begin[text], stop):
                    if _is_here(data, inside, stop, _INPUTS):
                        sizes_end[text] = inside
                        break
                field = True
            if field and not named:
                name_end[text] = at
                named = True
            if sizes_begin[text] >= 0:
                break
    return name_end, sequence, numbered, sizes_begin, sizes_end


@kernel
def cut(data, begin, end):
    """Return the bytes from begin to end of each of n texts, one behind the other, and where each begins.

    Args:
        data: uint8 [bytes].
        begin, end: int64 [n].

    Returns:
        bytes: uint8 [m].
        offsets: int32 [n + 1].
    """
    offsets = np.zeros(len(begin) + 1, np.int32)
    for text in range(len(begin)):
        offsets[text + 1] = offsets[text] + (end[text] - begin[text])
    out = np.empty(offsets[-1], np.uint8)
    for text in range(len(begin)):
        to = offsets[text]
        for at in range(begin[text], end[text]):
            out[to] = data[at]
            to += 1
    return out, offsets


@kernel
def _is_here(data, at, stop, word):
    """Return whether a word begins at a place."""
    place = 0
    while place < len(word) and at + place < stop and data[at + place] == word[place]:
        place += 1
    return place == len(word)


@kernel
def _is_digit(byte):
    return ord("0") <= byte <= ord("9")
