"""Distinct texts and the place of each among them."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def distinct(texts: Iterable[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Return the k distinct ones of n texts in order, and the place of each text among them [n].

    An array of texts would give each of them as much room as the longest, which for names of kernels is kilobytes.
    """
    given = list(texts)
    words = sorted(set(given))
    place = {word: number for number, word in enumerate(words)}
    return words, np.array([place[text] for text in given], np.int64)
