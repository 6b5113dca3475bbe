"""The operators of one trace, brought into the order in which they are stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from lumos_df.schema.codes import NONE, NULL
from lumos_df.trace.kernels.intervals import order_ties
from lumos_df.trace.recording import Attribute, EventType, RecordedRank, Recording

Number = TypeVar("Number", np.int32, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedOperators:
    """The operators of one rank of a recording, ordered by ts, then -dur: columns of n rows."""

    recording: Recording
    rank: RecordedRank
    order: NDArray[np.int64]
    """Place of each row in the columns of `recording.operators`."""
    row_of_event: NDArray[np.int32]
    """Row of each event of the file, NONE where the event is no operator of this rank."""
    ts: NDArray[np.int64]
    """Start, ns."""
    dur: NDArray[np.int64]
    """Duration, ns."""
    kind: NDArray[np.int8]
    """Place in `schema.KINDS`."""
    name: NDArray[np.int32]
    """Place in `recording.strings`."""
    track: NDArray[np.int32]
    """Place in `recording.threads`."""
    event: NDArray[np.int32]
    """Number of the event in the file."""

    def __len__(self) -> int:
        return len(self.ts)

    def is_kind(self, *kinds: int) -> NDArray[np.bool_]:
        """Return which rows are of one of `kinds`."""
        return among(self.kind, kinds)

    def ordered(self, column: NDArray[Number]) -> NDArray[Number]:
        """Return a column of `recording.operators` in the order of the rows."""
        return column[self.order]

    def attribute(self, attribute: Attribute) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return (rows, values) of an attribute, ordered by event, for the events that are operators of this rank."""
        stated = self.recording.attribute(attribute)
        rows = self.row_of_event[stated.event]
        return rows[rows >= 0], stated.value[rows >= 0]

    def attribute_at(self, attribute: Attribute, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return an attribute on each of `rows`, which ascend; NULL where it is not stated."""
        column = np.full(len(rows), NULL, np.int64)
        stating, values = self.attribute(attribute)
        hit = np.isin(stating, rows)
        column[np.searchsorted(rows, stating[hit])] = values[hit]
        return column

    def own(self, events: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the places of those among some events of the file that are this rank's."""
        mine = self.rank.events
        return np.arange(len(events)) if mine is None else np.flatnonzero(mine[events])

    def event_counts(self) -> NDArray[np.int64]:
        """Return how many events of each `EventType` are this rank's."""
        types, of_rank = self.recording.event_types, self.rank.events
        own = types if of_rank is None else types[of_rank]
        # Some comparisons of bytes take less time than to count by wider numbers.
        return np.array([np.count_nonzero(own == number) for number in range(len(EventType))])


def among(kind: NDArray[np.int8], kinds: Sequence[int]) -> NDArray[np.bool_]:
    """Return which of some codes are one of `kinds`; some comparisons of bytes take less time than a look-up."""
    found: NDArray[np.bool_] = np.logical_or.reduce([kind == one for one in kinds])
    return found


def in_order(recording: Recording, rank: RecordedRank) -> OrderedOperators:
    """Bring the operators of a rank into order."""
    columns, of_rank = recording.operators, rank.events
    if of_rank is None:
        order = np.argsort(columns.ts, kind="stable")  # a merge of the file's few sorted runs: linear in practice
    else:
        places = np.flatnonzero(of_rank[columns.event])
        order = places[np.argsort(columns.ts[places], kind="stable")]
    order_ties(order, columns.ts, columns.dur)
    event = columns.event[order]
    row_of_event = np.full(len(recording.event_types), NONE, np.int32)
    row_of_event[event] = np.arange(len(order), dtype=np.int32)
    return OrderedOperators(
        recording=recording,
        rank=rank,
        order=order,
        row_of_event=row_of_event,
        ts=columns.ts[order],
        dur=columns.dur[order],
        kind=columns.kind[order],
        name=columns.name[order],
        track=columns.track[order],
        event=event,
    )
