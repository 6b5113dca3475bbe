"""What waits for events may mean, against a slow twin that tries every pair of streams for every wait."""

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from lumos_df.graph.simulate.event_candidates import candidates, clearest, fitting

REACTION, RESOLUTION, LATE = 25, 1, 10
FRACTION = 1 / 64


@dataclass(frozen=True)
class Waits:
    """Random waits of a few streams, whose rows often end and start together."""

    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    group: NDArray[np.int64]
    previous: NDArray[np.int64]
    following: NDArray[np.int64]
    ts: NDArray[np.int64]
    end: NDArray[np.int64]

    @classmethod
    def of(cls, seed: int) -> "Waits":
        random = np.random.default_rng(seed)
        streams, waits, rows = (int(random.integers(*bounds)) for bounds in ((2, 7), (1, 30), (20, 60)))
        ts = np.sort(random.integers(0, 300, rows))

        def row() -> NDArray[np.int32]:
            """Rows that mostly climb with the waits, so that many pairs fit."""
            climbing = np.linspace(0, rows - 1, waits).astype(int) + random.integers(-3, 4, (streams, waits))
            known = random.random((streams, waits)) < 0.8
            return np.where(known, np.clip(climbing, 0, rows - 1), -1).astype(np.int32)

        def stream() -> NDArray[np.int64]:
            return random.integers(-1, streams, waits)

        group = np.unique(random.integers(0, waits, waits) // 3, return_inverse=True)[1].reshape(-1)
        return cls(row(), row(), group, stream(), stream(), ts, ts + random.integers(0, 30, rows))

    @property
    def grouped(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the waits by group, and where each group begins."""
        order = np.argsort(self.group, kind="stable")
        return order, np.searchsorted(self.group[order], np.arange(self.group.max() + 2))

    def slack(self, a: int, b: int, wait: int) -> int | None:
        """Return how long after the row of a that of b started; None where there is none."""
        waited, waiting = int(self.src[a, wait]), int(self.dst[b, wait])
        return None if waited < 0 or waiting < 0 else int(self.ts[waiting] - self.end[waited])

    def fits(self, a: int, b: int, group: int) -> bool:
        """Return whether no wait of the group is contradicted by the pair."""
        slacks = [self.slack(a, b, wait) for wait in np.flatnonzero(self.group == group).tolist()]
        return a != b and all(slack is None or slack >= -RESOLUTION for slack in slacks)


Found = tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]


def found(waits: Waits) -> Found:
    around = (waits.previous, waits.following, waits.ts, waits.end)
    answer: Found = candidates(waits.src, waits.dst, *waits.grouped, *around, RESOLUTION, REACTION)
    return answer


@pytest.mark.parametrize("seed", range(40))
def test_candidates_are_the_pairs_that_fit_a_group_and_are_prompt_or_usual(seed: int) -> None:
    waits = Waits.of(seed)
    streams = range(len(waits.src))
    expected = set()
    for wait, group in enumerate(waits.group.tolist()):
        for a in streams:
            for b in streams:
                slack = waits.slack(a, b, wait)
                usual = (a, b) == (waits.previous[wait], waits.following[wait])
                if slack is not None and waits.fits(a, b, group) and (slack <= REACTION or usual):
                    expected.add((wait, a * len(streams) + b, slack, usual))
    rows = list(zip(*(column.tolist() for column in found(waits)), strict=True))
    assert len(rows) == len(set(rows))
    assert set(rows) == expected


@pytest.mark.parametrize("seed", range(40))
def test_the_clearest_pair_of_a_group_explains_most_of_its_waits(seed: int) -> None:
    waits = Waits.of(seed)
    random = np.random.default_rng(seed)
    groups = int(waits.group.max()) + 1
    is_open = random.random(groups) < 0.7
    explained = waits.ts - random.integers(0, 20, len(waits.ts))
    wait, pair, slack, usual = found(waits)
    order = np.lexsort((wait, pair, waits.group[wait]))
    wait, pair, slack, usual = wait[order], pair[order], slack[order], usual[order]
    dst, tells = waits.dst[pair % len(waits.src), wait], slack <= REACTION
    first = np.searchsorted(waits.group[wait], np.arange(groups + 1))
    args = (first, pair, waits.ts[dst], dst, tells, usual, is_open, explained, LATE, FRACTION)
    choice, weight = clearest(*args)
    for group in range(groups):
        weights: dict[int, float] = {}
        for k in np.flatnonzero(waits.group[wait] == group).tolist():
            explains = tells[k] and waits.ts[dst[k]] > explained[dst[k]] + LATE
            weights[int(pair[k])] = weights.get(int(pair[k]), 0.0) + bool(explains) + usual[k] * FRACTION
        most = max(weights.values(), default=0.0) if is_open[group] else 0.0
        assert weight[group] == most
        assert choice[group] == (min(key for key, value in weights.items() if value == most) if most > 0 else -1)


@pytest.mark.parametrize("seed", range(20))
def test_a_pair_given_for_a_group_stays_where_it_fits(seed: int) -> None:
    waits = Waits.of(seed)
    streams, groups = len(waits.src), int(waits.group.max()) + 1
    pair = np.random.default_rng(seed).integers(-1, streams**2, groups)
    pair = np.where(pair // streams == pair % streams, -1, pair)
    kept = fitting(pair, waits.src, waits.dst, *waits.grouped, waits.ts, waits.end, RESOLUTION)
    for group, number in enumerate(pair.tolist()):
        stays = number >= 0 and waits.fits(number // streams, number % streams, group)
        assert kept[group] == (number if stays else -1)
