"""Passes of few samples that a host without a GPU accumulates gradients over: what if one pass had all samples."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.host_stretches import outermost, runs_of
from lumos_df.advice.loader_rows import loader_rows
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.torch_names import NODE, PRODUCT
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph.host_collectives import meanwhile
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.rows import Rows
from lumos_df.graph.simulate.forward import inherited
from lumos_df.schema.codes import ANNOTATION, CPU_OP, FORWARD
from lumos_df.schema.words import GRADIENT, OPTIMIZER_STEP

_OTHER_SPEED: Final = 0.15
"""Threshold, share of what stays. It may take so much less or longer. Evidence: of a GPT and a multilayer perceptron,
recorded with four passes and with one, it took 15 and 10 % longer of the processor's time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Passes:
    """The steps of a rank that have several passes."""

    count: int
    """How many a step has."""
    begin: NDArray[np.int64]
    """The first operator of the first pass of each step [k]."""
    lasts: NDArray[np.int64]
    """From there to the end of the last backward pass, ns [k]."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose one pass where a step has several alike and one update.

    A pass costs again what passes between operators and what adds gradients up, and of a product with a parameter as
    much as reading that takes: from nothing, where its numbers are what counts, to its share of the elements. What is
    done for each sample stays, at another speed: larger tensors may fit into no cache.
    """
    if any(rows.on_gpu.any() for rows in advised.ranks):
        return
    of_ranks = [_passes(rows, advised.phase(place)) for place, rows in enumerate(advised.ranks)]
    found = [passes for passes in of_ranks if passes is not None]
    if len(found) < len(of_ranks):
        return
    graph = advised.event_graph
    shares, unsure, lags = [], [], []
    for place, passes in enumerate(found):
        rows, host, again = advised.ranks[place], advised.host_works[place], 1 - 1 / passes.count
        inside = _inside(rows, passes)
        once = inherited(rows.named(lambda text: text == GRADIENT), rows.parent)
        read = np.where(once, 0.0, _read(advised, place))
        shares.append(again * inside * (once + read / 2))
        unsure.append(again * inside * read / 2 + _OTHER_SPEED * inside * (1 - again * (once + read / 2)))
        between = np.where(
            np.isin(rows.thread[host.graph.edges.dst], rows.thread[passes.begin]),
            meanwhile(host, passes.begin, passes.lasts) * (1 - host.share(loader_rows(rows))),
            0,
        )
        lags.append(np.round(again * between).astype(np.int64))
    own = np.where(advised.simulated, graph.own, 0)
    less, lag = np.round(own * np.concatenate(shares)).astype(np.int64), np.concatenate(lags)
    gain = int(less.sum() + lag.sum())

    def apply(changed: ChangedGraph) -> None:
        changed.own[:] -= less
        changed.lag[:] -= np.minimum(lag, np.maximum(changed.lag, 0))

    least = min(passes.count for passes in found)
    yield Remedy(
        rule="host_micro_batches",
        what=f"{least} forward and backward passes for each update take {format_ns(gain // len(advised.steps_ns))} "
        "a step more than one of all their samples: if memory has room, take larger micro-batches",
        known=Known.MODELLED,
        rests_on=f"{format_count(len(advised.steps_ns), 'step')} on {format_count(len(found), 'rank')}",
        uncertainty=float((own * np.concatenate(unsure)).sum() / gain) if gain else 0.0,
        apply=apply,
    )


def _passes(rows: Rows, phase: NDArray[np.int8]) -> _Passes | None:
    """Return the passes of a rank whose steps all have as many, with the same nodes of autograd; else None.

    Args:
        rows: the rows of a rank.
        phase: phase of each row [n].
    """
    outer = outermost(rows)
    is_node = rows.named(lambda text: text.startswith(NODE))[outer]
    run = runs_of(packed(rows.thread[outer], rows.step[outer]), is_node)[is_node]
    node = outer[is_node]
    steps = np.unique(rows.step[rows.step >= 0])
    if not len(node):
        return None
    first = np.unique(run, return_index=True)[1]
    # A pass is what its nodes add up to, one random number a distinct name.
    number = np.random.default_rng(0).integers(1 << 32, size=len(rows.names))
    kind = np.add.reduceat(number[rows.name[node]], first)
    of_pass = rows.step[node[first]]
    updates = rows.step[(rows.kind == ANNOTATION) & rows.named(lambda text: text.startswith(OPTIMIZER_STEP))]
    _, passes = np.unique(of_pass, return_counts=True)
    alike = len(np.unique(kind)) == 1 and len(np.unique(passes)) == 1 and len(passes) == len(steps)
    if not alike or passes[0] < 2 or len(np.unique(updates)) < len(updates):
        return None
    # Each pass has a forward pass before it.
    forward = np.flatnonzero((rows.kind == CPU_OP) & (rows.step >= 0) & (phase == FORWARD))
    forward = forward[np.argsort(rows.ts[forward], kind="stable")]
    _, earliest = np.unique(rows.step[forward], return_index=True)
    begin = forward[earliest]
    ends = np.zeros(int(steps.max()) + 1, np.int64)
    np.maximum.at(ends, rows.step[node], rows.end[node])
    before = np.searchsorted(rows.ts[forward], rows.ts[node[first]])
    if len(begin) != len(steps) or len(np.unique(before)) < len(before):
        return None
    return _Passes(count=int(passes[0]), begin=begin, lasts=ends[rows.step[begin]] - rows.ts[begin])


def _inside(rows: Rows, passes: _Passes) -> NDArray[np.bool_]:
    """Return which rows are of these passes [n]."""
    low, high = (np.zeros(int(rows.step.max()) + 2, np.int64) for _ in range(2))
    low[rows.step[passes.begin]] = rows.ts[passes.begin]
    high[rows.step[passes.begin]] = rows.ts[passes.begin] + passes.lasts
    inside: NDArray[np.bool_] = (rows.step >= 0) & (rows.ts >= low[rows.step]) & (rows.end <= high[rows.step])
    return inside


def _read(advised: AdvisedJob, place: int) -> NDArray[np.float64]:
    """Return which part of the elements of each product of a rank are those of a parameter [n]."""
    rows = advised.ranks[place]
    code, words = advised.texts(place, "input_dims")
    gradient = np.unique(code[rows.named(lambda text: text == GRADIENT) & (code >= 0)])
    sizes = {int(np.prod(json.loads(words[each])[0])) for each in gradient.tolist()}
    share = np.array([*(_share(json.loads(word), sizes) for word in words), 0.0])
    return np.where(rows.named(PRODUCT.match), share[code], 0.0)


def _share(dims: Any, sizes: set[int]) -> float:
    """Return the same of a product of matrices of these dimensions, where parameters have such numbers of elements."""
    both = [each for each in dims if isinstance(each, list) and len(each) == 2 and isinstance(each[0], int)]
    if len(both) < 2 or both[-2][1] != both[-1][0]:
        return 0.0
    (rows, inner), (_, columns) = both[-2:]
    matrices = (rows * inner, inner * columns, rows * columns)
    read = max((size for size in matrices if size in sizes), default=0)
    return float(read / sum(matrices))
