"""Interning: every distinct string of a trace is kept once, and columns hold its number."""

import json
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lumos_df.trace.json.kernels.interning import rehash
from lumos_df.trace.json.kernels.simd import PADDING


class Strings(NamedTuple):
    """An open-addressing hash table over a pool of bytes; string k is `pool[offsets[k]:offsets[k + 1]]`."""

    slots: NDArray[np.int32]
    """Number of the string in each slot, -1 where free; a power of two of them."""
    hashes: NDArray[np.uint64]
    """Hash of each string by its number."""
    offsets: NDArray[np.int64]
    pool: NDArray[np.uint8]
    quoted: NDArray[np.bool_]
    """By number: it stood in quotes, so its backslashes are escapes; else it is a list or an object."""
    size: NDArray[np.int64]
    """One element: how many strings there are."""


def new_strings(slots: int = 1 << 14, pool_bytes: int = 1 << 20) -> Strings:
    """Return an empty table with room for `slots / 2` strings and `pool_bytes` bytes."""
    return Strings(
        np.full(slots, -1, np.int32),
        np.zeros(slots // 2, np.uint64),
        np.zeros(slots // 2 + 1, np.int64),
        np.zeros(pool_bytes + PADDING, np.uint8),
        np.zeros(slots // 2, np.bool_),
        np.zeros(1, np.int64),
    )


def grow(old: Strings, extra_bytes: int) -> Strings:
    """Return a table with the same strings under the same numbers, twice the slots and `extra_bytes` more room."""
    used, count = int(old.offsets[old.size[0]]), int(old.size[0])
    new = new_strings(2 * len(old.slots), 2 * len(old.pool) + extra_bytes)
    new.pool[:used] = old.pool[:used]
    new.hashes[:count] = old.hashes[:count]
    new.offsets[: count + 1] = old.offsets[: count + 1]
    new.quoted[:count] = old.quoted[:count]
    new.size[0] = count
    rehash(new.slots, new.hashes, count)
    return new


def decode(strings: Strings) -> list[str]:
    """Return every string, in the order of its number: escapes resolved, broken UTF-8 and lone surrogates U+FFFD."""
    pool, offsets = strings.pool.tobytes(), strings.offsets[: strings.size[0] + 1].tolist()
    texts = (pool[a:b].decode("utf-8", "replace") for a, b in pairwise(offsets))
    quoted = strings.quoted[: strings.size[0]].tolist()
    return [_unescaped(text) if inside and "\\" in text else text for text, inside in zip(texts, quoted, strict=True)]


def _unescaped(text: str) -> str:
    try:
        value = str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return text
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
