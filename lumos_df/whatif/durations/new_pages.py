"""Memory that is new to a process: what an operator writes there first takes a fault for each page.

Small results get memory that the allocator has kept, large ones what it has to ask the system for each time, as it
gave that back when they were freed (mallopt(3), M_MMAP_THRESHOLD and M_TRIM_THRESHOLD).
"""

import re
from math import prod
from typing import Final

from lumos_df.structure.axis_rules import BACK, ELEMENTS, RULES
from lumos_df.structure.shapes import Shape

_ELEMENT_BYTES: Final = 4
_NEW_BYTES: Final = 8_388_608
"""Threshold, bytes. A result that is larger lies in new pages. Evidence: of 36 kinds of nets results of 1 to 8 MiB take
as long for each byte as smaller ones, but for some from 4 MiB on; those of 11 to 22 MiB, of seven operators, take two
or three times as long, where operators that write into what they read take no longer."""
_NEW_S: Final = 3.6e-10
"""Threshold, s. What a byte of new pages takes longer, 1.5 us for each page. Evidence: of those nets' multiplications,
activations and their backward 340 to 450 us for each MiB, the median 380."""
_OLD: Final = re.compile(r"aten::(?:(?!fill_|zero_)\w*_|_?(?:log_)?softmax|embedding\w*_backward)$")
"""Operators that write into what they read, or a table; and softmaxes: eight of more than 8 MiB took no longer for each
byte."""


def seconds(name: str, before: tuple[Shape, ...], after: tuple[Shape, ...]) -> float:
    """Return by how much new pages may change the time of an operator that goes through its elements.

    That is nothing where its result lies in new pages before and after a change, or neither time.

    Args:
        name: the operator.
        before: what it reads; its result is as large as the largest.
        after: the same in the changed job.
    """
    rule = next(rule for rule, pattern in RULES if pattern.match(name))
    sizes = [max(map(prod, shapes), default=0) * _ELEMENT_BYTES for shapes in (before, after)]
    crosses = min(sizes) <= _NEW_BYTES < max(sizes)
    return sizes[1] * _NEW_S if crosses and rule in (ELEMENTS, BACK) and not _OLD.match(name) else 0.0
