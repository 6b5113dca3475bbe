"""Which events of a file of several processes and GPUs are whose: a trace a process and GPU."""

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.units import format_count
from lumos_df.schema.codes import GPU, NONE, NULL, RUNTIME
from lumos_df.trace.ranks import NCCL
from lumos_df.trace.recording import RecordedRank

ANY: Final = -1
"""Process of an event that belongs to every one, as a GPU's counters do."""


def ranks_of_processes(
    process: NDArray[np.int64],
    device: NDArray[np.int64],
    kind: NDArray[np.int64],
    correlation: NDArray[np.int64],
    thread: NDArray[np.int64],
    nccl_ranks: Mapping[tuple[int, int], int],
) -> tuple[tuple[RecordedRank, ...], list[str]]:
    """Return the traces of a file, and what is in none of them, a clause each.

    A process that used several GPUs is a trace for each, with its host's rows but the calls that launched something on
    another one, and the threads that launched for that one alone. Processes without a row of a GPU are left out where
    any process has one. Where each has a GPU of its own they are in the order of the GPUs, as launchers give out ranks,
    else in that of the processes. They have ranks where NCCL says that of each, and no two the same.

    Args:
        process: process of each event, or ANY.
        device: GPU of each event, NULL where it is the host's.
        kind: place in `schema.KINDS`, NONE of events that are no operators.
        correlation: what a call shares with the rows that it launched, in a process; NULL where it launched nothing.
        thread: thread of each event of the host; NULL of the others.
        nccl_ranks: ranks by process and GPU, NULL for any of its GPUs.
    """
    on_gpu = np.isin(kind, GPU)
    owners = _distinct(process[on_gpu], device[on_gpu])
    if not owners:
        owners = [(number, NULL) for number in np.unique(process[kind != NONE]).tolist()]
    processes, devices = {number for number, _ in owners}, {gpu for _, gpu in owners}
    if len(devices) == len(owners):
        owners.sort(key=lambda owner: owner[1])
    if len(owners) > len(processes):
        device = _with_launches(process, device, kind, correlation, thread)
    said = [nccl_ranks.get(owner, nccl_ranks.get((owner[0], NULL), NONE)) for owner in owners]
    if NONE in said or len(set(said)) < len(said):
        said = [NONE] * len(owners)
    ranks = tuple(
        RecordedRank(
            rank=rank,
            source="" if rank == NONE else NCCL,
            events=((process == number) | (process == ANY)) & ((device == NULL) | (device == gpu) | (gpu == NULL)),
        )
        for rank, (number, gpu) in sorted(zip(said, owners, strict=True), key=lambda one: one[0])
    )
    others = (kind != NONE) & ~np.isin(process, [*processes, ANY])
    if not others.any():
        return ranks, []
    return ranks, [f"processes without a GPU ({format_count(int(others.sum()), 'row')})"]


def _distinct(process: NDArray[np.int64], device: NDArray[np.int64]) -> list[tuple[int, int]]:
    numbers, inverse = np.unique(process, return_inverse=True)
    return [
        (number, gpu)
        for place, number in enumerate(numbers.tolist())
        for gpu in np.unique(device[inverse.reshape(-1) == place]).tolist()
    ]


def _with_launches(
    process: NDArray[np.int64],
    device: NDArray[np.int64],
    kind: NDArray[np.int64],
    correlation: NDArray[np.int64],
    thread: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return the GPU of each event: of a call that of what it launched last, of a thread the only one of its calls."""
    of_event = device.copy()
    for number in np.unique(process).tolist():
        rows = np.flatnonzero(process == number)
        launched = rows[np.isin(kind[rows], GPU) & (correlation[rows] != NULL)]
        calls = rows[(kind[rows] == RUNTIME) & (correlation[rows] != NULL)]
        place, known = last_places(correlation[launched], correlation[calls])
        calls, gpu = calls[known], device[launched[place[known]]]
        of_event[calls] = gpu
        threads, inverse = np.unique(thread[calls], return_inverse=True)
        lowest, highest = np.full(len(threads), np.iinfo(np.int64).max), np.full(len(threads), NULL)
        np.minimum.at(lowest, inverse, gpu)
        np.maximum.at(highest, inverse, gpu)
        for own, only in zip(threads[lowest == highest].tolist(), lowest[lowest == highest].tolist(), strict=True):
            of_event[rows[(thread[rows] == own) & (of_event[rows] == NULL)]] = only
    return of_event


def last_places(keys: NDArray[np.int64], wanted: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the last place in `keys` of each number wanted, 0 where there is none, and whether there is one."""
    order = np.argsort(keys, kind="stable")
    place = np.searchsorted(keys[order], wanted, side="right") - 1
    known = place >= 0
    place = order[place] if len(keys) else np.zeros(len(wanted), np.int64)
    known[known] = keys[place[known]] == wanted[known]
    return np.where(known, place, 0), known
