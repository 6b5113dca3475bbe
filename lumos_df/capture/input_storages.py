"""Where the tensors lie that an operator read or wrote: the profiler knows it, and its file does not say it.

With the allocations that the file has it tells which operator made a tensor, and which one is a parameter.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

NAME: Final = "Input Storages"
"""Among the args of an operator: addresses of the storages of its tensors in their order, those in lists included."""

_ID: Final = re.compile(rb'"External id": (\d+),')
_OF_AN_OPERATOR: Final = b'"Record function id"'
"""In the args of an operator, and in none of what it launched, which have its id, too."""


def input_storages(profiler: Any) -> dict[int, list[int | None]]:
    """Return the addresses of each operator's tensors by its external id; nothing where this torch does not tell.

    Args:
        profiler: a `torch.profiler.profile` that has ended, with shapes.
    """
    tree = getattr(getattr(profiler.profiler, "kineto_results", None), "experimental_event_tree", None)
    found: dict[int, list[int | None]] = {}
    open_ = list(tree()) if tree else []
    while open_:
        event = open_.pop()
        open_ += event.children
        inputs = getattr(event.extra_fields, "inputs", None)
        addresses = [each.storage_data_ptr for each in _tensors(inputs or ())]
        if addresses:
            found[event.correlation_id] = addresses
    return found


def _tensors(inputs: Iterable[Any]) -> Iterator[Any]:
    for each in inputs:
        if isinstance(each, (list, tuple)):
            yield from _tensors(each)
        elif hasattr(each, "storage_data_ptr"):
            yield each


def with_storages(lines: Iterable[bytes], storages: Mapping[int, list[int | None]]) -> Iterator[bytes]:
    """Return a profiler's file, line by line, with the storages among the args of its operators."""
    for line in lines:
        stated = _ID.search(line) if _OF_AN_OPERATOR in line else None
        addresses = storages.get(int(stated[1])) if stated else None
        if stated and addresses:
            end = stated.end()
            yield line[:end] + b'"%s": %s,' % (NAME.encode(), json.dumps(addresses).encode()) + line[end:]
        else:
            yield line
