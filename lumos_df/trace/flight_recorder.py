"""The reader of PyTorch's flight recorder: what `TORCH_NCCL_TRACE_BUFFER_SIZE` keeps, as pickle or JSON.

Versions 1.4 to 2.10 of the dump, and the list of entries that was all of it before [PyTorch,
torch/csrc/distributed/c10d/FlightRecorder.hpp, once TraceUtils.h].
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final

from lumos_df.base.errors import TraceError
from lumos_df.schema.codes import NONE
from lumos_df.schema.dtypes import element_type
from lumos_df.trace import communication_records, plain_pickle
from lumos_df.trace.group_ranks import rank_list
from lumos_df.trace.recording import ArgsSink, RecordedGroup, Recording
from lumos_df.trace.stored_file import StoredFile

_PEER: Final = re.compile(r"(?:send [0-9]+->|recv [0-9]+<-)([0-9]+)")
_BACKEND: Final = re.compile(r"^(?:[\w-]+:)+")
_WAITING: Final = re.compile(r" [0-9]+(?:->|<-).*")
_GLOO: Final = "gloo:"
"""How names of operations begin that no GPU event ever starts or ends."""


def read(file: StoredFile, _: ArgsSink) -> Recording:
    """Read a dump of one rank.

    Raises:
        TraceError: it is damaged, holds anything but plain data, or is no dump.
    """
    if plain_pickle.is_pickle(file):
        data = plain_pickle.load(file)
    else:
        with file.on_disk(in_memory=True) as path, open(path, "rb") as stream:  # noqa: PTH123  # as a path is what it is
            text = stream.read()
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise TraceError(f"{file.name}: a flight recorder's dump that is no whole JSON ({error})") from None
    try:
        return _recording(data)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        what = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise TraceError(f"{file.name}: no dump of PyTorch's flight recorder ({what})") from None


def _recording(dump: Mapping[str, Any] | list[Any]) -> Recording:
    data: Mapping[str, Any] = {"entries": dump} if isinstance(dump, list) else dump
    entries = [_in_ns(entry) for entry in data.get("entries", ()) if isinstance(entry, Mapping)]
    # Of gloo's groups there is one entry, of no name and no ranks.
    stated = {str(number): _config(number, group) for number, group in data.get("pg_config", {}).items()}
    groups = {number: group for number, group in stated.items() if group.get("name") != ""}
    origin = min((int(entry["time_created_ns"]) for entry in entries), default=0)
    named = [_group(entry, groups) for entry in entries]
    operations = [_BACKEND.sub("", str(entry["profiling_name"])) for entry in entries]
    of_group = {name: _ranks(group) for name, group in ((str(group.get("name")), group) for group in groups.values())}
    columns = {
        "record": range(len(entries)),
        "group": [name for name, _ in named],
        "group_description": [description for _, description in named],
        "group_ranks": [of_group.get(name) for name, _ in named],
        "group_size": [len(ranks) if (ranks := of_group.get(name)) else None for name, _ in named],
        "collective": communication_records.words([_WAITING.sub("", operation) for operation in operations]),
        "peer": [int(match[1]) if (match := _PEER.search(operation)) else None for operation in operations],
        "seq": [entry["p2p_seq_id" if entry.get("is_p2p") else "collective_seq_id"] if "collective_seq_id" in entry
                else entry["seq_id"] for entry in entries],
        "dtype": [_dtype(entry) for entry in entries],
        "message_bytes": [_bytes(entry) for entry in entries],
        "state": [_state(entry) for entry in entries],
        "created_ts": [entry["time_created_ns"] - origin for entry in entries],
        **{
            f"{state}_ts": [
                at - origin if (at := entry.get(f"time_discovered_{state}_ns")) else None  # JSON has 0 for none
                for entry in entries
            ]
            for state in ("started", "completed")
        },
        "duration_ns": [None if (ms := entry.get("duration_ms")) is None else round(1e6 * ms) for entry in entries],
        "stack": [_stack(entry) for entry in entries],
    }  # fmt: skip
    rank = data.get("rank", NONE)
    return communication_records.recording(
        communication_records.table(columns, len(entries)),
        dialect="flight-recorder",
        origin=origin,
        rank=rank if isinstance(rank, int) else NONE,
        nccl_version=_text(data.get("nccl_version") or data.get("comm_lib_version") or None),
        groups=tuple(
            RecordedGroup(
                name=str(group.get("name")),
                description=_text(group.get("desc")),
                backend=None,
                size=len(ranks) if (ranks := _ranks(group)) else None,
                ranks=ranks,
            )
            for group in groups.values()
        ),
        versions={"flight_recorder": _text(data.get("version"))},
        metadata={"pg_status": data.get("pg_status")},
    )


def _in_ns(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an entry whose time is in ns; dumps without a version have microseconds."""
    return {"time_created_ns": 1000 * entry["time_created_us"], **entry} if "time_created_us" in entry else entry


def _config(number: Any, group: Any) -> Mapping[str, Any]:
    """Return what is said of a group; versions below 2 have its ranks alone."""
    return {"name": str(number), "ranks": group} if isinstance(group, list) else group


def _group(entry: Mapping[str, Any], groups: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return (name, description) of an entry's group; old versions have its number alone."""
    if "process_group" in entry:
        name, description = entry["process_group"]
        return str(name), _text(description)
    group = groups.get(str(entry.get("pg_id")), {})
    return str(entry.get("pg_name") or group.get("name") or entry.get("pg_id")), _text(group.get("desc"))


def _state(entry: Mapping[str, Any]) -> str:
    """Return how far an entry came. Gloo's stay `scheduled`: one is over when its work is no longer watched."""
    is_over = entry.get("retired") and str(entry["profiling_name"]).startswith(_GLOO)
    return "completed" if is_over else str(entry["state"])


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _ranks(group: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Return the ranks of a group, which stand as a list in a text."""
    ranks = group.get("ranks")
    return rank_list(json.loads(ranks) if isinstance(ranks, str) else ranks)


def _dtype(entry: Mapping[str, Any]) -> str | None:
    kind = element_type(str(entry["input_dtypes"][0])) if entry.get("input_dtypes") else None
    return kind.name if kind else None


def _bytes(entry: Mapping[str, Any]) -> int | None:
    """Return the bytes of an entry's inputs, None where a type is unknown."""
    sizes, dtypes = entry.get("input_sizes") or [], entry.get("input_dtypes") or []
    kinds = [element_type(str(dtype)) for dtype in dtypes]
    if not sizes or len(kinds) != len(sizes) or not all(kinds):
        return None
    total: int = sum(math.prod(size) * kind.bytes for size, kind in zip(sizes, kinds, strict=True) if kind)
    return total


def _stack(entry: Mapping[str, Any]) -> str | None:
    frames = entry.get("frames") or ()
    return "\n".join(f"{frame['name']} ({frame['filename']}:{frame['line']})" for frame in frames) or None
