"""A host that does the same operators in one round after another: what if it did them once, for all."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.host_stretches import learns, outermost, runs_of, with_backward, without_stretches
from lumos_df.advice.loader_rows import loader_rows
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.torch_names import NODE, PRODUCT, READS
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph import typical_values
from lumos_df.graph.packed_keys import dense, packed
from lumos_df.graph.rows import Rows
from lumos_df.graph.simulate.forward import inherited
from lumos_df.schema.codes import CPU_OP, NONE
from lumos_df.schema.words import OPTIMIZER_STEP

_TAKES: Final = "aten::select"
"""What takes an item out of a tensor, as `x[:, t]` does."""
_TAKES_ALL: Final = "aten::unbind"
"""What takes all of them at once, as `for row in x` does."""
_PUTS_TOGETHER: Final = ("aten::cat", "aten::stack")
"""What makes one tensor of a list of them."""
_LISTED: Final = 30
"""The tensors of a list of which PyTorch records shapes; of longer ones it records none."""
_TOGETHER: Final = "if no round needs the one before, call them once"
_WHY: Final = (
    ("for an item of a tensor at a time", f"{_TOGETHER}; of recurrent cells, torch.nn.LSTM or GRU"),
    ("each for one of the tensors that are put together behind them", _TOGETHER),
    ("each time to read a number", "compute all at once and read them once, or in fewer steps"),
)
"""What shows that rounds are a loop of the program, and no layers; and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loop:
    """The loop of a rank that takes most of its time."""

    call: NDArray[np.int64]
    """Its operators, and those of its backward pass, in their order, run by run [k]."""
    run: NDArray[np.int64]
    """The run of each: of each step a forward and a backward one [k]."""
    why: int
    """Place in `_WHY`."""
    rounds: int
    """How many times its operators run in a row."""
    most: int
    """As many or more, up to this."""
    operators: int
    """How many they are, each time."""
    work_ns: int
    """What its products take."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that a host without a GPU call operators once for all rounds of a loop."""
    if any(rows.on_gpu.any() for rows in advised.ranks):
        return
    found = [_loop(advised, place) for place in range(len(advised.ranks))]
    loops = [loop for loop in found if loop is not None]
    if not loops:
        return
    nothing = np.empty(0, np.int64)
    call, run = ([nothing if loop is None else getattr(loop, name) for loop in found] for name in ("call", "run"))
    taken, _ = without_stretches(advised, call, run)
    rounds = min(loop.rounds for loop in loops)
    # Products of all rounds take as long as those of each, or next to nothing: they are too small to tell.
    work, once = sum(loop.work_ns for loop in loops), taken / rounds
    gain = taken - once - min(work, taken - once) / 2
    _, apply = without_stretches(advised, call, run, part=gain / taken if taken else 0.0)
    more = format_ns(round(gain / len(advised.steps_ns)))
    most = max(loop.most for loop in loops)
    often = f"{rounds}{f' to {most}' if most > rounds else ''}"
    why, do = _WHY[loops[0].why]
    yield Remedy(
        rule="item_loop",
        what=f"{format_count(loops[0].operators, 'operator')} run {often} times in a row, {why}, {more} a step more "
        f"than for all at once: {do}",
        known=Known.MODELLED,
        rests_on=format_count(sum(map(len, call)), "operator"),
        uncertainty=(taken - once - gain) / gain if gain else 0.0,
        apply=apply,
    )


def _loop(advised: AdvisedJob, place: int) -> _Loop | None:
    """Return the loop of a rank that takes most, None where nothing shows one.

    From one round to the next the same operators run. A round takes an item, and as many are taken as the tensor has in
    one of its dimensions, but for one; or a tensor was taken apart before into as many as there are rounds; or as many
    are put together behind them; or each reads a number. Layers of a model, which repeat, too, do nothing of this, but
    what all of them put out may be put together: each of them begins with a tensor like the one that it puts out.
    """
    rows = advised.ranks[place]
    apart = rows.named(lambda text: text.startswith(OPTIMIZER_STEP)) | loader_rows(rows)
    outer = outermost(rows)
    outer = outer[~inherited(apart, rows.parent)[outer]]
    takes, takes_all, reads_number, puts_together = (
        np.isin(np.array(rows.names), texts)[rows.name[outer]] for texts in (_TAKES, _TAKES_ALL, READS, _PUTS_TOGETHER)
    )
    node = rows.named(lambda text: text.startswith(NODE))[outer]
    low, high, period = _rounds(rows, outer, np.flatnonzero(~node))
    rounds = (high - low) // np.maximum(period, 1) + 1
    sizes = _sizes(advised, place, outer)
    take = _next(takes, low - 1)
    takes_one, take = take < low + period, np.minimum(take, len(outer) - 1)
    taken = takes_one & (sizes.largest[take] > 0) & (rounds >= sizes.largest[take] - 1)
    taken |= takes_one & sizes.taken_along(take, rounds)
    # The last tensor that was taken apart before, in the same step.
    before = np.maximum.accumulate(np.where(takes_all, np.arange(len(outer)), NONE))
    of_step = rows.step[outer]
    here = (before[low] == before[high]) & (before[low] >= 0) & (of_step[before[low]] == of_step[low])
    # Fewer are parts, such as queries, keys and values.
    many = rounds > typical_values.FEW
    parts = np.where(here, sizes.first[before[low]], 0)
    taken |= (rounds >= parts - 1) & (rounds <= parts)
    taken &= many & (period > 1)
    together = _next(puts_together, high)
    parts = sizes.tensors[together]
    joined = np.where(parts == 0, rounds >= _LISTED, (rounds >= parts - 1) & (rounds <= parts))
    joined &= many & (together <= high + period) & (np.append(of_step, NONE)[together] == of_step[low])
    begins = np.maximum(together - period, 0)
    learned = np.append(0, np.cumsum(learns(rows)[outer]))
    joined &= ~(sizes.like_what_it_makes(begins, together) & (learned[together] > learned[begins]))
    reads = np.append(0, np.cumsum(reads_number))
    nodes = np.append(0, np.cumsum(node))
    read = many & (reads[high] - reads[low] >= rounds - 1)
    # Rounds that go back are micro-batches.
    why = np.where(nodes[high] == nodes[low], np.select([taken, joined, read], [0, 1, 2], NONE), NONE)
    chosen = np.flatnonzero(why >= 0)
    if not len(chosen):
        return None
    chosen = chosen[np.lexsort((low[chosen], period[chosen], why[chosen]))]
    why, low, high, period, rounds, together = (column[chosen] for column in (why, low, high, period, rounds, together))
    # Of each operator of a round there is one; of the last round there may be some alone, as another one follows.
    goes_on = (why[1:] == why[:-1]) & (period[1:] == period[:-1]) & (low[1:] <= high[:-1])
    first = np.flatnonzero(np.append(True, ~goes_on))
    rounds = np.maximum.reduceat(rounds, first)
    why, low, period, together = why[first], low[first], period[first], together[first]
    # A loop begins as early as what comes before is what comes before its next round.
    low -= _before(rows.name[outer], low, period)
    high = np.where(why == 1, together, np.minimum(low + rounds * period, len(outer)))
    low = np.maximum(np.where(why == 1, high - rounds * period, low), 0)
    # Tensors of other sizes go through the same program.
    kind = dense(packed(why, rows.name[outer[low]], period))
    lasts = rows.ts[outer[high - 1]] - rows.ts[outer[low]]
    chosen = np.flatnonzero(kind == np.argmax(np.bincount(kind, lasts)))
    return _of_runs(
        rows,
        outer,
        low[chosen],
        high[chosen],
        rounds[chosen],
        why=int(why[chosen[0]]),
        operators=int(period[chosen[0]]),
    )


def _rounds(
    rows: Rows, outer: NDArray[np.int64], at: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return where some outermost operators repeat with all that runs between them.

    Args:
        rows: the rows of a rank.
        outer: its outermost operators, in their order.
        at: places in these of operators that may [k].

    Returns:
        (place of the first of each, that of the last, operators from one to the next), all [r].
    """
    # A round has an operator more than once, but hardly twice before the same other one.
    pair = packed(rows.name[outer], np.append(rows.name[outer[1:]], NONE))
    at = at[np.lexsort((at, pair[at], rows.step[outer[at]], rows.thread[outer[at]]))]
    same = packed(rows.thread[outer[at]], rows.step[outer[at]], pair[at])
    # What runs between two of them, as a sum of random numbers, one a distinct name.
    number = np.random.default_rng(0).integers(1 << 62, size=len(rows.names) + 1)
    total = np.append(0, np.cumsum(number[rows.name[outer]]))
    period = at[1:] - at[:-1]
    between = total[at[1:]] - total[at[:-1]]
    follows = same[1:] == same[:-1]
    repeats = follows[1:] & follows[:-1] & (period[1:] == period[:-1]) & (between[1:] == between[:-1])
    bounds = np.flatnonzero(np.diff(np.concatenate(([False], repeats, [False]))))
    first, last = bounds[::2], bounds[1::2] + 1
    return at[first], at[last], period[first]


def _before(name: NDArray[np.int32], low: NDArray[np.int64], period: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many operators before some places [r] are those of a period later; less than a period [r]."""
    most = period - 1
    loop = np.repeat(np.arange(len(low)), most)
    back = np.arange(len(loop)) - np.repeat(np.cumsum(most) - most, most) + 1
    place = low[loop] - back
    differs = (place < 0) | (name[place] != name[np.minimum(place + period[loop], len(name) - 1)])
    before = most.copy()
    np.minimum.at(before, loop[differs], back[differs] - 1)
    return before


def _next(hit: NDArray[np.bool_], at: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first place of a hit [n] behind each of some places [k]; n where there is none."""
    places = np.append(np.flatnonzero(hit), len(hit))
    return places[np.searchsorted(places, at, side="right")]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """What operators get [k + 1]; the last one is of no operator."""

    largest: NDArray[np.int64]
    """Largest size of the first tensor; NONE without recorded shapes."""
    first: NDArray[np.int64]
    """Its first size."""
    tensors: NDArray[np.int64]
    """Of a list of tensors how many it has."""
    code: NDArray[np.int64]
    """Place in `dims`, NONE without recorded shapes."""
    dims: list[tuple[int, ...]]
    """Sizes of the first tensor; () at the end."""
    pieces: list[tuple[int, ...]]
    """Sizes of the first tensor of a list; () at the end."""

    def taken_along(self, at: NDArray[np.int64], rounds: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether operators take items along a dimension of as many, or one more, as there are rounds [r].

        One of the two operators behind them then gets what is left of their tensor without it.
        """
        then = np.minimum(at[:, None] + np.arange(3), len(self.code) - 1)
        kinds, kind = np.unique(np.column_stack((self.code[then], rounds)), axis=0, return_inverse=True)
        return np.array([self._along(*each) for each in kinds.tolist()], np.bool_)[kind.reshape(-1)]

    def like_what_it_makes(self, begins: NDArray[np.int64], together: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether what begins a round has a tensor like those that are put together behind all rounds [r].

        These are like that of the operator before, where their sizes were not recorded.
        """
        last = np.maximum(together - 1, begins)
        kinds, kind = np.unique(self.code[np.stack((begins, last, together))], axis=1, return_inverse=True)
        alike = [
            self.dims[begin] != () and self.dims[begin] == (self.pieces[both] or self.dims[end])
            for begin, end, both in kinds.T.tolist()
        ]
        return np.array(alike, np.bool_)[kind.reshape(-1)] & (last > begins)

    def _along(self, tensor: int, first: int, second: int, rounds: int) -> bool:
        sizes, left = self.dims[tensor], (self.dims[first], self.dims[second])
        return any(size - rounds in (0, 1) and (*sizes[:at], *sizes[at + 1 :]) in left for at, size in enumerate(sizes))


def _sizes(advised: AdvisedJob, place: int, row: NDArray[np.int64]) -> _Sizes:
    """Return the sizes of what some rows get [k]."""
    code, words = advised.texts(place, "input_dims")
    given = [(json.loads(word) or [[]])[0] for word in words]
    dims = [tuple(size for size in each if isinstance(size, int)) for each in given]
    of_word = [
        (max(sizes, default=0), next(iter(sizes), 0), len(each)) for sizes, each in zip(dims, given, strict=True)
    ]
    of_row = np.append(code[row], NONE)
    columns = np.array([*of_word, (NONE,) * 3], np.int64)[of_row].T
    lists = [each[0] if each and isinstance(each[0], list) else [] for each in given]
    pieces = [tuple(size for size in each if isinstance(size, int)) for each in lists]
    return _Sizes(
        largest=columns[0], first=columns[1], tensors=columns[2], code=of_row, dims=[*dims, ()], pieces=[*pieces, ()]
    )


def _of_runs(
    rows: Rows,
    outer: NDArray[np.int64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    rounds: NDArray[np.int64],
    *,
    why: int,
    operators: int,
) -> _Loop:
    """Return the loop of some stretches of the outermost operators, from place `low` to before `high` each [r]."""
    edges = np.bincount(low, minlength=len(outer) + 1) - np.bincount(
        np.minimum(high, len(outer)), minlength=len(outer) + 1
    )
    chosen = np.cumsum(edges)[:-1] > 0
    chosen = with_backward(rows, outer, chosen)
    called = np.zeros(len(rows), np.bool_)
    called[outer[chosen]] = True
    below = np.flatnonzero((rows.kind == CPU_OP) & (rows.parent >= 0))
    inner = np.bincount(rows.parent[below], rows.dur[below], len(rows))
    multiplies = inherited(called, rows.parent) & rows.named(PRODUCT.match)
    return _Loop(
        call=outer[chosen],
        run=runs_of(packed(rows.thread[outer], rows.step[outer]), chosen)[chosen],
        why=why,
        rounds=int(rounds.min()),
        most=int(rounds.max()),
        operators=operators,
        work_ns=int((rows.dur - inner)[multiplies].sum()),
    )
