"""Which ranks a file holds: what the user says, else the file, else its name, else its process groups."""

import re
from dataclasses import replace
from typing import Final

import numpy as np

from lumos_df.base.errors import TraceError
from lumos_df.schema.codes import KERNEL, NONE
from lumos_df.trace import classify
from lumos_df.trace.group_ranks import rank_by_groups
from lumos_df.trace.recording import RecordedRank, Recording

RANKS: Final = 1 << 31
"""Ranks are below this: they are stored in 32 bits."""

NCCL: Final = "NCCL"
"""Source of ranks that are those of communicators: an option of the user is over them."""

_RANK_IN_NAME: Final = re.compile(r"(?i)(?<![a-z])(?:rank|worker|device)[-_.]?([0-9]{1,7})(?![0-9])")
_HOST_AND_PROCESS: Final = re.compile(r".+_[0-9]+\.[0-9]+\.pt\.trace\.json")
"""torch.profiler's own file name, host_process.time: digits in it belong to the host."""


def ranks_in_file(recording: Recording, path: str, rank: int | None) -> tuple[tuple[RecordedRank, ...], list[str]]:
    """Return the ranks whose traces a file becomes, each known, and what a user should know of them.

    Args:
        recording: the file as read.
        path: names the file, in errors and for a rank in its name.
        rank: what the user says: the whole file is of this rank; where the file has several processes and no word on
            their ranks, or NCCL's alone, the first of them is. None to go by the file.

    Raises:
        TraceError: the rank matters (the file has collectives) and nothing tells it, or no row is of any process.
    """
    stated = recording.ranks
    if not stated:
        raise TraceError(f"{path}: no row in it has a start and an end; record it again")
    if len(stated) > 1 and (stated[0].rank == NONE or (rank is not None and stated[0].source == NCCL)):
        first, source = (0, "process order") if rank is None else (rank, "option")
        return tuple(replace(one, rank=first + place, source=source) for place, one in enumerate(stated)), []
    if rank is not None:
        own = stated[0].events if len(stated) == 1 else None
        return (RecordedRank(rank=rank, source="option", events=own),), []
    if stated[0].rank != NONE:
        return stated, []
    name = path.rsplit("/", 1)[-1]
    if not _HOST_AND_PROCESS.match(name) and (numbers := _RANK_IN_NAME.findall(name)):
        return (replace(stated[0], rank=int(numbers[-1]), source="file name"),), []
    known, warnings = rank_by_groups(recording)
    if known:
        return (replace(known, events=stated[0].events),), warnings
    if _has_collectives(recording):
        raise TraceError(
            f"{path}: rank unknown: neither distributedInfo, the file name nor process groups say it, and the trace "
            "has collectives; give it with --rank N or --rank-from path:REGEX, or name the file rankN.json"
        )
    warning = "rank taken as 0: neither distributedInfo nor the file name says it; --rank N sets it"
    return (replace(stated[0], rank=0, source="assumed"),), [warning]


def _has_collectives(recording: Recording) -> bool:
    if any(map(classify.is_collective_operator, recording.strings)):
        return True
    # Anything may be called as a kernel is: files, functions, values of metadata.
    operators = recording.operators
    of_kernels = np.zeros(len(recording.strings) + 1, np.bool_)
    of_kernels[operators.name[operators.kind == KERNEL]] = True
    return any(
        classify.kernel_collective(recording.strings[place]) is not None
        for place in np.flatnonzero(of_kernels[:-1]).tolist()
    )
