"""What rows are told by their names: each name is looked at once, however many rows have it."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray


def name_mask(names: Sequence[str], says: Callable[[str], object]) -> NDArray[np.bool_]:
    """Return of which of n names a question is true, and False at the end, where the code -1 of no name reads [n + 1].

    Args:
        names: the names that codes are places in.
        says: the question: `re.Pattern.match`, `re.Pattern.search` or any other whose answer is true or not.
    """
    return np.array([*(bool(says(name)) for name in names), False])
