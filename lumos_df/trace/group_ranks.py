"""The rank of a process whose file does not state it, by the process groups that its collectives name.

A process runs collectives of its own groups alone, so it is among the ranks of each of them. Of a collective in which
all do the same, PyTorch records its place in the group as `Rank` (`saveNcclMeta` in torch/csrc/profiler/util.cpp; of
others that is the root or the peer).
"""

import json
from functools import reduce
from typing import Final

import numpy as np

from lumos_df.base.units import format_count
from lumos_df.schema import within
from lumos_df.schema.codes import GPU, NULL32
from lumos_df.schema.collective_kinds import COLLECTIVE_KINDS
from lumos_df.trace import classify
from lumos_df.trace.recording import Attribute, RecordedRank, Recording

_TOGETHER: Final = frozenset(kind.word for kind in COLLECTIVE_KINDS if kind.together)


def rank_list(values: object) -> tuple[int, ...] | None:
    """Return a JSON list of ranks, None for what is none."""
    if not isinstance(values, list):
        return None
    ranks = tuple(rank for value in values if (rank := within(value, 32)) is not None)
    return ranks if len(ranks) == len(values) else None


def rank_list_in(text: str) -> tuple[int, ...] | None:
    """Return the ranks in a text like `[0, 1]`; a shortened one (`[0, 1, ...]`) is no list."""
    try:
        return rank_list(json.loads(text))
    except (ValueError, RecursionError):
        return None


def rank_by_groups(recording: Recording) -> tuple[RecordedRank | None, list[str]]:
    """Return the rank of a file's only process, None where its groups leave several, and what a user should know of it.

    Where the groups leave several, its place in them decides, else its GPU: launchers number ranks host by host, and
    on a host in the order of its GPUs.
    """
    lists = np.unique(recording.attribute(Attribute.GROUP_RANKS).value).tolist()
    groups = {place: ranks for place in lists if (ranks := rank_list_in(recording.strings[place]))}
    possible = reduce(frozenset.intersection, map(frozenset, groups.values())) if groups else frozenset()
    if len(possible) > 1:
        possible = (possible & _by_place(recording, groups)) or possible
    if len(possible) == 1:
        return RecordedRank(rank=min(possible), source="process groups"), []
    gpus = len(recording.devices)
    used = np.unique(recording.operators.device[np.isin(recording.operators.kind, GPU)])
    used = used[used != NULL32]
    here = [rank for rank in possible if len(used) == 1 and gpus and rank % gpus == used[0]]
    if len(here) != 1:
        return None, []
    place = f"GPU {used[0]} of a host with {format_count(gpus, 'GPU')}"
    warning = f"rank taken as {here[0]}: of the ranks of its process groups the one with {place}; --rank N sets it"
    return RecordedRank(rank=here[0], source="process groups and GPU"), [warning]


def _by_place(recording: Recording, groups: dict[int, tuple[int, ...]]) -> frozenset[int]:
    """Return the ranks at the places that collectives state; several contradict one another."""
    columns = [
        recording.attribute(attribute)
        for attribute in (Attribute.COLLECTIVE, Attribute.GROUP_RANKS, Attribute.GROUP_PLACE)
    ]
    events = reduce(np.intersect1d, [column.event for column in columns])
    stated = np.stack([column.value[np.searchsorted(column.event, events)] for column in columns], axis=1)
    return frozenset(
        groups[listed][place]
        for collective, listed, place in np.unique(stated, axis=0).tolist()
        if classify.collective(recording.strings[collective]) in _TOGETHER and 0 <= place < len(groups.get(listed, ()))
    )
