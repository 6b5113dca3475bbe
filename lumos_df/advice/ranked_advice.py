"""What every proposed change brings to a job, by simulating it; those that bring something, ranked."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.remedy import Remedy
from lumos_df.graph import typical_values
from lumos_df.graph.job import in_threads

_EIGHT_OF_TEN: Final = 1.2816
"""Half width of the interval that holds 80 % of a normal distribution, in standard deviations."""
_MAY_WAIT: Final = ", which may have waited for ranks that are not here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One change to a job and what it brings; times ns a step, means over the steps of all ranks that count."""

    remedy: Remedy
    gain_ns: float
    """How much shorter the step becomes; below 0 it becomes longer."""
    low_ns: float
    """The gain is at least this, 9 times of 10."""
    high_ns: float
    """It is at most this, 9 times of 10."""
    worthwhile: bool
    """Whether it is advice; otherwise it is told as what would not help."""

    @property
    def rests_on(self) -> str:
        """What the gain is made of, and whether that may be something else."""
        return f"{self.remedy.rests_on}{_MAY_WAIT if self.remedy.at_most else ''}"


def ranked(advised: AdvisedJob, remedies: Sequence[Remedy]) -> list[Advice]:
    """Return what is worth doing, then what money would buy in vain, the least gain first.

    What the job can change comes before what money buys, each by its gain, the largest first. What brings nothing any
    more once the better ones are made is another name for one of them, and is left out; so is what the replay's own
    error could make up. Of two names for the same time the one whose gain is surer is told.
    """
    usual = advised.steps_ns[advised.counted]
    mean = float(usual.mean()) if len(usual) else 0.0
    least = typical_values.LEAST_PCT / 100 * mean
    measured = in_threads(partial(_gain, advised), remedies)
    by_gain = _surer_first(advised, sorted(measured, key=lambda advice: -advice.gain_ns), mean, least)
    chosen = []
    together, before = ChangedGraph.of(advised.event_graph), mean
    for advice in sorted(by_gain, key=lambda advice: advice.remedy.bought):
        # A gain that may be anything down to none is told, one that may be a loss is not.
        sure = advice.low_ns > 0 or (advice.remedy.at_most and not advice.low_ns)
        if advice.remedy.probe or advice.gain_ns < least or not sure:
            continue
        advice.remedy.apply(together)
        after = float(advised.changed_steps_ns(together)[advised.counted].mean())
        if before - after >= least:
            chosen.append(advice)
        before = after
    no_help = [advice for advice in reversed(by_gain) if advice.remedy.bought and advice.gain_ns < least]
    return [*chosen, *no_help]


def _surer_first(advised: AdvisedJob, by_gain: list[Advice], mean: float, least: float) -> list[Advice]:
    """Return advice by its gain, but before what takes away the same time what surely takes away more of it."""
    ordered: list[Advice] = []
    for advice in by_gain:
        at = len(ordered)
        while at and not advice.remedy.probe and _surer(advised, advice, ordered[at - 1], mean, least):
            at -= 1
        ordered.insert(at, advice)
    return ordered


def _surer(advised: AdvisedJob, advice: Advice, other: Advice, mean: float, least: float) -> bool:
    """Return whether an advice surely brings more than another one, to which it adds as little as that to it."""
    if advice.low_ns <= max(other.low_ns, 0.0) or other.gain_ns - advice.gain_ns >= least or other.gain_ns < least:
        return False
    both = ChangedGraph.of(advised.event_graph)
    advice.remedy.apply(both)
    other.remedy.apply(both)
    return mean - float(advised.changed_steps_ns(both)[advised.counted].mean()) - advice.gain_ns < least


def _gain(advised: AdvisedJob, remedy: Remedy) -> Advice:
    changed = ChangedGraph.of(advised.event_graph)
    remedy.apply(changed)
    after = advised.changed_steps_ns(changed)
    counted = advised.counted
    gains = (advised.steps_ns - after)[counted]
    gain = float(gains.mean()) if len(gains) else 0.0
    # What the replay does not explain may be what the change would take away.
    missed = abs(float((advised.replayed_ns - advised.recorded_ns)[counted].mean())) if len(gains) else 0.0
    assumed = missed + remedy.uncertainty * abs(gain)
    by_cost = [gain, *_by_row_cost(advised, changed)]
    # The rest differs from step to step, and from one run to the next as the changed steps do: a gain that is less than
    # these in proportion, a larger one, which mostly waited, by as much as they.
    steps = 0.0 if remedy.once else _EIGHT_OF_TEN * _error_of_mean(advised, gains)
    spread = advised.spread(after) if gain else 0.0
    mean = float(advised.steps_ns[counted].mean()) if len(gains) else 0.0
    differs = min(abs(gain), mean - gain)
    with np.errstate(over="ignore"):  # where the first step compiles, the others are a thousandth of it
        longer = differs * float(np.expm1(spread)) if differs else 0.0
    low = min(by_cost) - assumed - max(steps, differs * -np.expm1(-spread))
    return Advice(
        remedy=remedy,
        gain_ns=gain,
        low_ns=0.0 if remedy.at_most and low > 0 else low,
        # Nothing takes more away than the whole step.
        high_ns=min(max(by_cost) + assumed + max(steps, longer), max(mean, gain)),
        worthwhile=not remedy.probe and gain >= typical_values.LEAST_PCT / 100 * mean,
    )


def _by_row_cost(advised: AdvisedJob, changed: ChangedGraph) -> list[float]:
    """Return the gain with the least and with the most that a row of the host may cost under the profiler, ns."""
    if advised.unprofiled is None:
        return []
    usual, counted = ChangedGraph.of(advised.event_graph), advised.counted
    costs = (advised.row_cost.least, advised.row_cost.most)
    lengths = [(advised.changed_steps_ns(usual, cost), advised.changed_steps_ns(changed, cost)) for cost in costs]
    return [float((before - after)[counted].mean()) for before, after in lengths]


def _error_of_mean(advised: AdvisedJob, gains: NDArray[np.int64]) -> float:
    """Return the standard error of the mean gain, ns: steps differ, and the ranks of one step hang together."""
    _, step = np.unique(advised.step_number[advised.counted], return_inverse=True)
    of_step = np.bincount(step, gains) / np.bincount(step)
    return float(of_step.std(ddof=1) / np.sqrt(len(of_step))) if len(of_step) > 1 else 0.0
