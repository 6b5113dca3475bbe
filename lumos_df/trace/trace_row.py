"""The row of a trace in `traces`: where it came from, what it holds, what was mended."""

import json
import re
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lumos_df import schema
from lumos_df.schema.arrow import arrow_schema
from lumos_df.schema.codes import KERNEL, NULL32
from lumos_df.trace.ordered_operators import OrderedOperators
from lumos_df.trace.recording import EventType, Repairs
from lumos_df.trace.stored_file import StoredFile

_COUNT_OF_KIND: Final = {
    "cpu_ops": ("cpu_op",),
    "runtime_calls": ("runtime",),
    "kernels": ("kernel",),
    "memcpys": ("memcpy",),
    "memsets": ("memset",),
    "syncs": ("sync",),
    "annotations": ("annotation", "gpu_annotation"),
    "python_functions": ("python",),
    "others": ("other",),
}
_SECRET: Final = re.compile(
    r"(?i)token(?!i)|secret|passw|credential|(?:api|access|private|ssh|aws)[\w-]*key|(?:^|_)(?:pat|pwd|auth)$"
)
"""A key whose value is nobody else's business."""
_COUNT: Final = re.compile(r"(?i)tokens|num|max|size|len")
"""A key that tells how many: of tokens, for one."""
_SET: Final = re.compile(r"([\w.-]+)=(.+)", re.DOTALL)
"""One entry of an environment that is written as a list."""
_OPTION: Final = re.compile(r"""(?<!\S)(--?[\w.-]++)(=|\s+)("[^"]*"|'[^']*'|[^\s-]\S*)""")
"""An option of a command, and what it gives."""
_SECRET_OPTION: Final = re.compile(
    r"(?i)(?:token|secret|passw\w*|credentials?|(?:api|access|private|ssh|aws)[\w-]*key|[-_](?:pat|pwd|auth))\Z"
)
"""The end of an option whose value is nobody else's business: its last word says so, unlike `--token-dispatcher`."""
_LONGEST_OPTION: Final = 64
"""Characters of an option's name, beyond which a text is none."""
_IN_URL: Final = re.compile(r"(\w://[^/\s:@]*:)[^/\s@]+@")
"""The password of a URL, behind its user."""
_SHA256_DIGITS: Final = 64
_HIDDEN: Final = "<hidden>"


def trace_row(
    ops: OrderedOperators,
    file: StoredFile,
    job: str,
    *,
    ranks_in_file: int,
    counters: int,
    unlaunched: int,
    warnings: Iterable[str],
    first: bool,
) -> pa.Table:
    """Return the one-row `traces` table of a trace.

    Args:
        ops: its operators.
        file: the file that it was read from, to its end.
        job: the job that it belongs to.
        ranks_in_file: traces that the file became.
        counters: rows of its table of counters.
        unlaunched: its GPU rows without a launch call.
        warnings: what is to be told of the whole file.
        first: it is the first of the file's traces, which reports what was mended: that has no rank.
    """
    recording = ops.recording
    kinds = {word: int(np.count_nonzero(ops.kind == code)) for code, word in enumerate(schema.KINDS)}
    counts = dict(zip(EventType, ops.event_counts().tolist(), strict=True))
    repairs = recording.repairs if first else Repairs()
    shown, secrets = _without_secrets(recording.metadata)
    hidden = [f"left out of the metadata, as it looks like a secret: {', '.join(secrets)}"] if secrets else []
    row = {
        "path": _utf8(file.name),
        "sha256": file.digest if len(file.digest) == _SHA256_DIGITS else None,
        "size_bytes": file.size_bytes,
        "json_bytes": file.content_bytes,
        "job": _utf8(job),
        "rank": ops.rank.rank,
        "rank_source": ops.rank.source,
        "ranks_in_file": ranks_in_file,
        "world_size": recording.world_size or (ranks_in_file if ranks_in_file > 1 else None),
        "device_name": _device_name(ops),
        "device_count": len(recording.devices) or None,
        "backend": recording.backend,
        "nccl_version": recording.nccl_version,
        "versions": json.dumps(recording.versions),
        "dialect": recording.dialect,
        "clock_origin_ns": recording.clock_origin_ns,
        "resolution_ns": recording.resolution_ns,
        "first_ts": int(ops.ts[0]) if len(ops) else None,
        "last_ts": int((ops.ts + ops.dur).max()) if len(ops) else None,
        "events": sum(counts.values()) + repairs.non_events,
        "operators": len(ops),
        **{column: sum(kinds[kind] for kind in counted) for column, counted in _COUNT_OF_KIND.items()},
        "flows": counts[EventType.FLOW],
        "instants": counts[EventType.INSTANT],
        "memory_events": counts[EventType.MEMORY],
        "counters": counters,
        "metadata_events": counts[EventType.METADATA],
        "repaired_numbers": repairs.numbers,
        "repaired_controls": repairs.controls,
        "repaired_utf8": repairs.utf8,
        "skipped": counts[EventType.UNTIMED] + counts[EventType.UNKNOWN] + repairs.non_events,
        "truncated": recording.truncated,
        "warnings": [*warnings, *hidden, *_count_warnings(counts, repairs, unlaunched)],
        # A pickle holds what JSON has no word for.
        "metadata": json.dumps(shown, default=str),
    }
    return pa.Table.from_pylist([row], schema=arrow_schema(schema.TRACES))


def _count_warnings(counts: dict[EventType, int], repairs: Repairs, unlaunched: int) -> list[str]:
    told = (
        (repairs.numbers, "NaN or Infinity read as null"),
        (repairs.controls, "raw control characters inside strings escaped"),
        (repairs.utf8, "broken UTF-8 sequences replaced by U+FFFD"),
        (repairs.non_events, "list entries that are no event skipped"),
        (repairs.negative_durations, "negative durations read as 0"),
        (repairs.no_durations, "durations that are missing or no number taken as 0"),
        (repairs.cut_names, "names longer than 64 KiB cut"),
        (counts[EventType.UNTIMED], "events without a start time, or outside the years 1970 to 2200, skipped"),
        (counts[EventType.UNKNOWN], "events of a type (ph) this version does not know skipped"),
        (unlaunched, "GPU rows without a launch call"),
    )
    return [f"{count} {what}" for count, what in told if count]


def _without_secrets(value: Any) -> tuple[Any, list[str]]:
    """Return top-level metadata without what looks like a credential, and the keys of what was hidden.

    Recorders put their whole environment there, and a corpus is meant to be shared.
    """
    if isinstance(value, list):
        parts = [
            (_HIDDEN, [before]) if _gives_secret(before) and _is_value(part) else _without_secrets(part)
            for before, part in zip(["", *value], value, strict=False)
        ]
        return [part for part, _ in parts], [key for _, keys in parts for key in keys]
    if isinstance(value, str):
        entry = _SET.fullmatch(value)
        if entry and _SECRET.search(entry[1]):
            return f"{entry[1]}={_HIDDEN}", [entry[1]]
        without_passwords = _IN_URL.sub(rf"\1{_HIDDEN}@", value)
        options = [match[1] for match in _OPTION.finditer(without_passwords) if _gives_secret(match[1])]
        shown_text = _OPTION.sub(
            lambda match: f"{match[1]}{match[2]}{_HIDDEN}" if _gives_secret(match[1]) else match[0], without_passwords
        )
        return shown_text, [*["password of a URL"] * (without_passwords != value), *options]
    if not isinstance(value, dict):
        return value, []
    shown: dict[str, Any] = {}
    hidden: list[str] = []
    for key, part in value.items():
        if _SECRET.search(key) and part not in (None, "", [], {}) and not (_COUNT.search(key) and _is_number(part)):
            shown[key] = _HIDDEN
            hidden.append(key)
        else:
            shown[key], inside = _without_secrets(part)
            hidden += inside
    return shown, hidden


def _gives_secret(option: Any) -> bool:
    """Return whether an entry of a command is an option whose value is a secret."""
    return (
        isinstance(option, str)
        and option.startswith("-")
        and len(option) <= _LONGEST_OPTION
        and bool(_SECRET_OPTION.search(option))
    )


def _is_value(entry: Any) -> bool:
    return isinstance(entry, str | int) and not str(entry).startswith("-")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _device_name(ops: OrderedOperators) -> str | None:
    """Return the name of the device that the kernels ran on, else of the first one listed."""
    used = ops.recording.operators.device[ops.order[ops.kind == KERNEL]]
    used = used[used != NULL32]
    names = {device.number: device.name for device in ops.recording.devices if device.number is not None}
    first = next(iter(names.values()), None)
    return names.get(int(used[0]), first) if len(used) else first


def _utf8(text: str) -> str:
    """Return a text with `?` for what a file name may hold and UTF-8 may not."""
    return text.encode("utf-8", "replace").decode()
