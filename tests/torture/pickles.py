"""Pickles that are wrong somewhere: memory snapshots and dumps of the flight recorder, some of which would run code."""

import pickle
import random
from typing import Any, Final

from tests.torture import nested
from tests.torture.mutations import VALUES, damaged

RAN: Final = "ran"
"""The file that a pickle makes when it is let."""


class Runs:
    """Makes a file when it is unpickled as any object is."""

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (RAN, "w")


_STACK: Final = [{"name": "forward", "filename": "model.py", "line": 7}]
_SNAPSHOT: Final[dict[str, Any]] = {
    "segments": [
        {"device": 0, "address": 4096 * n, "total_size": 4096, "stream": 0, "segment_type": "small", "blocks": [
            {"address": 4096 * n, "size": 512, "requested_size": 500, "state": "active_allocated", "frames": _STACK},
            {"address": 4096 * n + 512, "size": 3584, "requested_size": 0, "state": "inactive", "frames": []},
        ]}
        for n in range(2)
    ],
    "device_traces": [
        [
            {"action": action, "addr": 512 * n, "size": 512, "stream": 0, "time_us": 10 + n, "frames": _STACK}
            for n in range(3)
            for action in ("segment_alloc", "alloc", "free_requested", "free_completed")
        ],
        [],
    ],
    "allocator_settings": {"expandable_segments": False},
}  # fmt: skip
_DUMP: Final[dict[str, Any]] = {
    "version": "2.10",
    "nccl_version": "2.30.7",
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "pg_status": {"0": {"last_enqueued_collective": 2}},
    "entries": [
        {"pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": n, "p2p_seq_id": 0,
         "profiling_name": name, "time_created_ns": 10**18 + n, "input_sizes": [[8, 4]], "input_dtypes": ["Float"],
         "state": "completed", "time_discovered_started_ns": 10**18 + 5, "time_discovered_completed_ns": None,
         "is_p2p": False, "duration_ms": 1.5, "frames": _STACK}
        for n, name in enumerate(("nccl:all_reduce", "nccl:send 0->1", "nccl:all_gather"))
    ],
}  # fmt: skip
DOCUMENTS: Final = (_SNAPSHOT, _DUMP)


def mutated(document: dict[str, Any], seed: int) -> bytes:
    """Return a file made of a document: the same for the same seed."""
    choose = random.Random(seed)  # noqa: S311 - not for secrets
    document = nested.changed(document, choose, (*VALUES, Runs(), b"bytes", 1j, (1,), {2}))
    data = bytearray(pickle.dumps(document, protocol=choose.choice((2, 4, 5))))
    if choose.random() < 0.5:
        damaged(data, choose, _OPCODES)
    return bytes(data)


_OPCODES: Final = b"(.0Ncio\x81\x92\x93RbrjqhPQ\x95\x8b\x8e}]\x85\xff\x00u"
