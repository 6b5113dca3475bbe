"""Kernels that would take less: what they take, what they would, and the change of the job that makes it so."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.kernel_calls import MODEL_ERROR, KernelCalls, Product
from lumos_df.advice.less_work import LessWork, less_work


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTimes:
    """What k kernels of one rank would take; ns."""

    calls: KernelCalls
    at: NDArray[np.int64]
    """[k] places in `calls`, of kernels whose operators are known."""
    would: NDArray[np.float64]
    """[k] never more than they take now."""

    @property
    def gain(self) -> NDArray[np.float64]:
        """What each would take less, ns [k]."""
        return self.calls.dur[self.at] - self.would


@dataclass(frozen=True, slots=True, kw_only=True)
class ShorterKernels:
    """What becomes of a job whose kernels take new times; ns, of all ranks and steps.

    Kernels that were issued before the recording change, too, and count for no step.
    """

    change: LessWork
    before: float
    """What the kernels take that would take less."""
    after: float
    """What they would."""
    count: int
    """How many they are."""
    gains: dict[Product, float]
    """What the kernels of a product would take less, the most first."""

    @property
    def model_error(self) -> float:
        """Relative error of the gain where the new times are those of the cost functions."""
        return MODEL_ERROR * self.after / (self.before - self.after)


def shorter_kernels(advised: AdvisedJob, ranks: Sequence[NewTimes]) -> ShorterKernels | None:
    """Return what the new times of every rank's kernels make of a job; None where nothing becomes shorter."""
    parts, before, after, count = [], 0.0, 0.0, 0
    gains: dict[Product, float] = {}
    for rank in ranks:
        dur = rank.calls.dur[rank.at]
        part = np.ones(len(rank.calls.trace))
        part[rank.calls.row[rank.at]] = rank.would / np.maximum(dur, 1)
        parts.append(part)
        in_steps = rank.calls.in_steps[rank.at]
        less = (rank.would < dur) & in_steps
        before, after = before + dur[less].sum(), after + rank.would[less].sum()
        count += int(np.count_nonzero(less))
        of_call = np.bincount(rank.calls.call[rank.at], rank.gain * in_steps, len(rank.calls.calls))
        for call in np.flatnonzero(of_call).tolist():
            product = rank.calls.calls[call].product
            if product is not None:
                gains[product] = gains.get(product, 0.0) + float(of_call[call])
    if after >= before:
        return None
    by_gain = sorted(gains, key=lambda product: -gains[product])
    return ShorterKernels(
        change=less_work(advised, parts),
        before=before,
        after=after,
        count=count,
        gains={product: gains[product] for product in by_gain},
    )


def slowness(ranks: Sequence[tuple[NDArray[np.int64], NDArray[np.float64]]], otherwise: float) -> float:
    """Return how far a job's own kernels are from the cost function; `otherwise` where it has none to tell by.

    Args:
        ranks: what some kernels of each rank took, and what the cost function says of them; ns.
        otherwise: where there is no such kernel.
    """
    taken = sum(int(dur.sum()) for dur, _ in ranks)
    return taken / sum(float(modelled.sum()) for _, modelled in ranks) if taken else otherwise
