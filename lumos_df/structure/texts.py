"""A column of words."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Texts:
    """A column of n words."""

    code: NDArray[np.int32]
    """Place in `words`, NONE for null."""
    words: list[str]

    def where(self, hit: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which rows have a word for which `hit`, one value a word, holds."""
        return np.append(hit, False)[self.code]
