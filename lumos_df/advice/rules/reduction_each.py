"""Gradients reduced by hand, one parameter after another: what if they went together, with the latency of one."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.hooked_collectives import latency_of
from lumos_df.advice.host_stretches import without_stretches
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph.rows import Rows
from lumos_df.graph.typical_values import medians
from lumos_df.schema.codes import CPU_OP
from lumos_df.schema.words import GRADIENT

_REDUCES: Final = "c10d::allreduce_"


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that a host without a GPU reduce all gradients of a step at once."""
    if any(rows.on_gpu.any() for rows in advised.ranks):
        return
    found = [_reductions(rows) for rows in advised.ranks]
    if not all(len(row) for row in found):
        return
    steps = [rows.step[row].astype(np.int64) for rows, row in zip(advised.ranks, found, strict=True)]
    known = [_latencies(advised, place, *each) for place, each in enumerate(zip(found, steps, strict=True))]
    latency, doubt, taken = map(sum, zip(*known, strict=True))
    if not latency:
        return
    part = min(latency / taken, 1.0)
    lasts, apply = without_stretches(advised, found, steps, part=part)
    count, all_steps = sum(map(len, found)), len(advised.steps_ns)
    more = format_ns(round(part * lasts / all_steps))
    yield Remedy(
        rule="reduction_each",
        what=f"gradients are reduced one by one, which takes {more} a step more than "
        f"{round(count / all_steps)} of them at once: DistributedDataParallel, or one flat tensor",
        known=Known.MODELLED,
        rests_on=format_count(count, "reduction"),
        uncertainty=doubt / latency,
        apply=apply,
    )


def _reductions(rows: Rows) -> NDArray[np.int64]:
    """Return the operators that reduce a gradient each, behind the backward pass, step by step [k].

    A step has as many of them as parameters that got a gradient.
    """
    steps = int(rows.step.max(initial=-1)) + 1
    marked = (rows.kind == CPU_OP) & (rows.step >= 0)
    row = np.flatnonzero(marked & rows.named(lambda text: text == _REDUCES))
    node = rows.named(lambda text: text.startswith("autograd::"))
    row = row[rows.nearest(node, row.astype(np.int32)) < 0]
    gradients = np.bincount(rows.step[marked & rows.named(lambda text: text == GRADIENT)], minlength=steps)
    count = np.bincount(rows.step[row], minlength=steps)
    alike = (count == gradients) & (count > 1)
    row = row[alike[rows.step[row]]]
    found: NDArray[np.int64] = row[np.lexsort((rows.ts[row], rows.step[row]))]
    return found


def _latencies(
    advised: AdvisedJob, place: int, row: NDArray[np.int64], step: NDArray[np.int64]
) -> tuple[float, float, float]:
    """Return what the latency of all reductions but one a step takes, how far off that may be, and what all take, ns.

    A reduction lasts until the next one begins: what follows it, such as a division, is there once for all of them.
    Where bytes are unknown, a quarter of them is taken to be as short as latency makes them, since biases and gains of
    norms are half of the tensors of most models; where none takes twice the shortest, nothing tells latency from bytes.
    """
    rows = advised.ranks[place]
    follows = np.flatnonzero(step[1:] == step[:-1])
    lasts = (rows.ts[row[1:]] - rows.ts[row[:-1]])[follows]
    elements = advised.elements(place)[row[follows]]
    taken = float(lasts.sum())
    if (elements > 0).all():
        latency = latency_of(np.zeros(len(follows), np.int64), elements, lasts)
        return (0.0 if np.isnan(latency).any() else float(latency.sum())), 0.0, taken
    # Of the same parameter in every step.
    first = np.searchsorted(step, step[follows])
    _, one = np.unique(follows - first, return_index=True)
    usual = medians(lasts, follows - first)[0][one]
    if usual.max() < 2 * usual.min():
        return 0.0, 0.0, taken
    low, short, middle = np.percentile(usual, (0, 25, 50)) * len(follows)
    return float(short), float(max(short - low, middle - short)), taken
