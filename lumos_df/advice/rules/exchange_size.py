"""Exchanges of tokens or looked-up rows that hold the GPU: what if they had half the bytes."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.half_transfers import half_transfers, may_have_waited
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns
from lumos_df.schema.codes import NONE
from lumos_df.schema.dtypes import element_type

_KIND: Final = "all_to_all"


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose half the bytes for all-to-alls, but for those whose elements are known to have one byte."""
    waits, graph = advised.waits, advised.event_graph
    places = range(len(advised.graphs))
    chosen = np.concatenate([np.empty(0, np.bool_), *(_exchanges(advised, place) for place in places)])
    chosen &= waits.transfer != NONE
    if not chosen.any():
        return
    kernel = (graph.base[waits.trace] + waits.row)[chosen]
    instance = graph.instance[kernel]
    taken = np.where(instance != NONE, np.append(graph.transfer, 0)[instance], graph.own[kernel])
    yield Remedy(
        rule="exchange_size",
        what=f"{_KIND} transfers for {format_ns(round(taken.sum() / len(advised.steps_ns)))} a step: send half the "
        "bytes (bfloat16 or float8, quantised), or let it run beside other work",
        known=Known.REPLAYED,
        rests_on=f"transfers of {format_count(len(kernel), 'kernel')}",
        apply=half_transfers(advised, chosen),
        at_most=may_have_waited(advised, chosen),
    )


def _exchanges(advised: AdvisedJob, place: int) -> NDArray[np.bool_]:
    """Return which communication kernels of a rank exchange elements that may become smaller."""
    rows, row = advised.ranks[place], advised.waits.row[advised.waits.of_trace(place)]
    kind = rows.of_collective((_KIND,))[row]
    code, words = advised.texts(place, "dtype", row)
    types = [element_type(word) for word in words]
    small = np.array([*(known is not None and known.bytes == 1 for known in types), False])[code]
    exchanges: NDArray[np.bool_] = kind & ~small
    return exchanges
