"""What ROCm's recorders call things, in Kineto's words."""

import re
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lumos_df.schema.codes import ANNOTATION, KERNEL, MEMCPY, MEMSET, NONE, OTHER_KIND, RUNTIME
from lumos_df.trace.recording import Attribute
from lumos_df.trace.row_collector import RowCollector

_COPY: Final = re.compile(r"(?i)(Host|Device|Peer)_?to_?(Host|Device|Peer)")
_FILL: Final = re.compile(r"(?i)fill|memset")
_CALLS: Final = (("HIP", RUNTIME), ("MARKER", ANNOTATION), ("RCCL", ANNOTATION), ("", OTHER_KIND))
"""Kind of a host row by the beginning of its domain; calls of HSA lie within those of HIP."""
_COLLECTIVE: Final = re.compile(r"nccl((?:All|Reduce|Broadcast|Send|Recv|Gather|Scatter)\w*)")


def gpu_row(name: str) -> tuple[int, str]:
    """Return the kind of what ran on a GPU, and its name as Kineto writes it."""
    if copy := _COPY.search(name):
        source, target = (word[0].upper() for word in copy.groups())
        return MEMCPY, f"Memcpy {source}to{target}"
    return (MEMSET, "Memset (Device)") if _FILL.search(name) else (KERNEL, name)


def host_kind(domain: str) -> int:
    """Return the kind of a host row by its domain, such as `HIP_RUNTIME_API`."""
    return next(kind for beginning, kind in _CALLS if domain.upper().startswith(beginning))


def by_text(texts: pa.Array, meaning: dict[str, int]) -> NDArray[np.int8]:
    """Return what each text means; `other` of one that is null or means nothing."""
    coded = texts.dictionary_encode()
    table = np.array([*(meaning.get(text, OTHER_KIND) for text in coded.dictionary.to_pylist()), OTHER_KIND], np.int8)
    kinds: NDArray[np.int8] = table[coded.indices.fill_null(len(table) - 1).to_numpy(zero_copy_only=False)]
    return kinds


def state_collectives(rows: RowCollector, events: NDArray[np.int32], names: pa.Array) -> None:
    """State the collective of calls of RCCL."""
    coded = names.dictionary_encode()
    matches = [_COLLECTIVE.match(text or "") for text in coded.dictionary.to_pylist()]
    places = np.array([*(rows.texts.place(match[1]) if match else NONE for match in matches), NONE], np.int32)
    rows.state(
        Attribute.COLLECTIVE, events, places[coded.indices.fill_null(len(places) - 1).to_numpy(zero_copy_only=False)]
    )
