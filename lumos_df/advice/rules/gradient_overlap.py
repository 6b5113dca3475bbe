"""Gradients reduced late: what if the reduction of each bucket began once its gradients were ready."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.hooked_collectives import BUCKET_BYTES, HookedCollectives, gradient_reductions
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_bytes, format_count, format_ns
from lumos_df.graph import typical_values
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.rows import FAR
from lumos_df.schema.codes import COMMUNICATION, CPU_OP, NONE
from lumos_df.schema.words import GRADIENT


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose to begin with reductions as early as buckets of the usual size allow."""
    reductions = gradient_reductions(advised)
    if not len(reductions):
        return
    unheld = _without(advised, reductions)
    sooner = np.min([_sooner(advised, reductions, unheld, place) for place in range(len(advised.graphs))], axis=0)
    # The steps cannot gain more than that.
    if 100 * sooner.mean() < typical_values.LEAST_PCT * advised.steps_ns.mean():
        return
    # What could run beside the backward pass is taken from the end: from the last reduction, then from those before.
    total = np.cumsum(reductions.transfer)
    ends = np.searchsorted(reductions.sequence, reductions.sequence, side="right") - 1
    less = np.clip(sooner[reductions.sequence] - (total[ends] - total), 0, reductions.transfer)

    def apply(changed: ChangedGraph) -> None:
        reductions.add(changed, -less)

    yield Remedy(
        rule="gradient_overlap",
        what=f"the backward pass could hide {format_ns(int(sooner.mean()))} a step of the reductions of gradients: "
        f"reduce them in buckets of {format_bytes(BUCKET_BYTES)}, each once it is full, and let no kernel wait",
        known=Known.REPLAYED,
        rests_on=format_count(len(reductions), "reduction"),
        apply=apply,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gradients:
    """Gradients of one rank in the order in which they become ready [g]."""

    step: NDArray[np.int32]
    elements: NDArray[np.int64]
    ready: NDArray[np.int64]
    """When all is over that host and GPU do for it and those before, in the replay, job time, ns."""


def _without(advised: AdvisedJob, reductions: HookedCollectives) -> NDArray[np.int64]:
    """Return when each node of the job would end if no reduction took any time, job time, ns [N]."""
    changed = ChangedGraph.of(advised.event_graph)
    reductions.add(changed, -reductions.transfer)
    return advised.simulate(changed).end


def _sooner(
    advised: AdvisedJob, reductions: HookedCollectives, unheld: NDArray[np.int64], place: int
) -> NDArray[np.int64]:
    """Return how much sooner a rank's gradients would let each sequence of reductions end, ns [sequences].

    FAR where the rank takes no part, 0 where the sizes of its gradients are not known.

    Args:
        advised: the job.
        reductions: of all ranks.
        unheld: when each node of the job ends where no reduction holds it up, ns [N].
        place: of the rank.
    """
    base, rows = int(advised.event_graph.base[place]), advised.ranks[place]
    mine = (reductions.member >= base) & (reductions.member < base + len(rows))
    part, row = reductions.of_member[mine], reductions.member[mine] - base
    sooner = np.full(int(reductions.sequence[-1]) + 1, int(FAR))
    if not len(part):
        return sooner
    gradients = _gradients(advised, unheld, place)
    for sequence in np.unique(reductions.sequence[part]).tolist():
        inside = reductions.sequence[part] == sequence
        of_step = gradients.step == rows.step[row[inside][0]]
        elements, ready = gradients.elements[of_step], gradients.ready[of_step]
        # Gradients of micro-batches before the last are reduced with those of the last.
        behind = np.cumsum(elements[::-1])[::-1] - elements
        last = behind < (reductions.moved / np.maximum(reductions.element, 1))[part[inside]].sum()
        end = _end(reductions, part[inside], elements[last], ready[last])
        sooner[sequence] = max(0, int(reductions.end[part[inside]].max()) - end) if end else 0
    return sooner


def _end(
    reductions: HookedCollectives, part: NDArray[np.int64], elements: NDArray[np.int64], ready: NDArray[np.int64]
) -> int:
    """Return when some reductions would be over if each began early, job time; 0 without any element.

    A bucket goes when its last gradient is ready and the bucket before is over.
    """
    if not elements.any():
        return 0
    moved = np.cumsum(elements) / elements.sum() * reductions.moved[part].sum()
    last = _last_of_buckets(moved, reductions.moved[part])
    latency = np.nan_to_num(reductions.latency[part])
    growing = np.maximum(reductions.transfer[part] - latency, 0).sum()
    transfer = latency.mean() + growing * np.diff(moved[last], prepend=0) / moved[-1]
    return int((ready[last] + np.cumsum(transfer[::-1])[::-1]).max())


def _last_of_buckets(moved: NDArray[np.float64], present: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the last gradient of each bucket: the present ones, unless they are fewer than of the usual size.

    Args:
        moved: bytes up to each gradient.
        present: bytes of each reduction.
    """
    end = len(moved) - 1
    usual = [min(int(np.searchsorted(moved, BUCKET_BYTES)), end)]
    while usual[-1] < end:
        usual.append(min(int(np.searchsorted(moved, moved[usual[-1]] + BUCKET_BYTES)), end))
    if len(present) < len(usual):
        return np.array(usual)
    # Half a byte stands for the error of the sums.
    return np.unique(np.minimum(np.searchsorted(moved, np.cumsum(present) - 0.5), end))


def _gradients(advised: AdvisedJob, unheld: NDArray[np.int64], place: int) -> _Gradients:
    rows, replay = advised.ranks[place], advised.played.replays[place]
    row = np.flatnonzero(rows.named(lambda name: name == GRADIENT) & (rows.kind == CPU_OP))
    code, words = advised.texts(place, "input_dims", row)
    elements = np.array([*(sum(map(prod, json.loads(word))) for word in words), 0], np.int64)[code]
    # What autograd calls around it, hooks included: these copy the gradient into its bucket.
    around = np.where(rows.parent[row] >= 0, rows.parent[row], row)
    call = np.where(rows.on_gpu & (rows.family != COMMUNICATION), rows.parent, NONE)
    launched = np.flatnonzero(call >= 0)
    thread, at = rows.thread[call[launched]], rows.ts[call[launched]]
    key = packed(np.append(thread, rows.thread[row]), np.append(at, rows.end[around]))
    by_key = np.argsort(key[: len(launched)], kind="stable")
    before = np.searchsorted(key[by_key], key[len(launched) :]) - 1
    last = launched[by_key[np.maximum(before, 0)]]
    over = np.where(before >= 0, replay.run.end[last] - _held(advised, unheld, place, rows.step[row], last), 0)
    ready = np.maximum(over, replay.end[row]) + advised.event_graph.shift[place]
    return _Gradients(step=rows.step[row], elements=elements, ready=np.maximum.accumulate(ready))


def _held(
    advised: AdvisedJob, unheld: NDArray[np.int64], place: int, step: NDArray[np.int32], row: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return how long reductions of their step hold up some rows of the GPU, ns [rows].

    What comes before the first of them holds up all.
    """
    base = int(advised.event_graph.base[place])
    later = advised.played.run.end[base + row] - unheld[base + row]
    _, first, of_step = np.unique(step, return_index=True, return_inverse=True)
    held: NDArray[np.int64] = np.maximum(later - later[first][of_step], 0)
    return held
