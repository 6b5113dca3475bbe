"""Pointwise kernels that follow one another on the same elements: what if one kernel went through them once."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.kernel_calls import KernelCalls
from lumos_df.advice.less_work import less_work
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.rules.unfused_attention import unfused_attention
from lumos_df.base.units import format_count, format_ns
from lumos_df.schema.codes import COPY, ELEMENTWISE, OPTIMIZER, RANDOM

_APART: Final = "AccumulateGrad"
"""What runs inside an operator with this in its name lies outside of what is compiled."""
_NAMES: Final = 4
"""Operators of a chain that are named."""
INDEPENDENT: Final = 0.5
"""Threshold, share of the gain. It may be so much less or more. Evidence: a judgement; a trace does not tell whether a
kernel reads what the one before wrote, and two that read other tensors share no reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chains:
    """Chains of kernels of one rank; times ns."""

    calls: KernelCalls
    at: NDArray[np.int64]
    """[k] places of the kernels in `calls`, chain by chain."""
    start: NDArray[np.int64]
    """[c] where each chain begins in `at`."""
    length: NDArray[np.int64]
    """[c] its kernels."""
    longest: NDArray[np.int64]
    """[c] place in `calls` of the one that takes longest."""
    took: NDArray[np.int64]
    """[c] what its kernels take."""
    fused: NDArray[np.float64]
    """[c] what one kernel would take."""

    @property
    def in_steps(self) -> NDArray[np.bool_]:
        """[c] those that were issued in the recording: the others are of no step in it."""
        return self.calls.in_steps[self.longest]


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose to compile the chains of pointwise kernels."""
    if not any((rows.on_gpu & (rows.family == ELEMENTWISE)).any() for rows in advised.ranks):
        return
    attentions = unfused_attention(advised)
    ranks = [
        _chains(calls, attention.between) for calls, attention in zip(advised.kernel_calls, attentions, strict=True)
    ]
    chains = sum(int(np.count_nonzero(rank.in_steps)) for rank in ranks)
    kernels = sum(int(rank.length[rank.in_steps].sum()) for rank in ranks)
    if not chains:
        return
    parts = []
    for rank in ranks:
        part = np.ones(len(rank.calls.trace))
        part[rank.calls.row[rank.at]] = 0
        part[rank.calls.row[rank.longest]] = rank.fused / np.maximum(rank.calls.dur[rank.longest], 1)
        parts.append(part)
    steps = len(advised.steps_ns)
    again = format_ns(round(sum(float((rank.took - rank.fused)[rank.in_steps].sum()) for rank in ranks) / steps))
    yield Remedy(
        rule="fused_elementwise",
        what=f"{format_count(round(chains / steps), 'chain')} of pointwise kernels read again what they "
        f"wrote, {again} a step, most in {_most(ranks)}: "
        + ("fuse them with torch.compile" if advised.words.torch else "write each chain as one kernel"),
        known=Known.MODELLED,
        rests_on=format_count(kernels, "kernel"),
        apply=less_work(advised, parts).apply,
        uncertainty=INDEPENDENT,
    )


def _chains(calls: KernelCalls, elsewhere: NDArray[np.int64]) -> _Chains:
    """Return the chains of a rank, without the kernels at the places that something else takes away."""
    rows, phase = calls.trace.rows, calls.trace.phase[calls.told]
    apart = rows.named(lambda name: _APART in name)
    pointwise = np.isin(calls.family, (ELEMENTWISE, RANDOM, COPY)) & (phase != OPTIMIZER)
    # What a larger operator does before and after its own work, no compiler takes out of it.
    larger = np.zeros(len(rows) + 1, np.bool_)
    larger[calls.operator[~pointwise]] = True
    pointwise &= ~larger[calls.operator]
    pointwise[elsewhere] = False
    pointwise &= rows.nearest(apart, calls.told) < 0
    elements = np.where(pointwise, calls.of_calls([call.elements for call in calls.calls], 0), 0)
    same = np.zeros(len(calls.row), np.bool_)
    same[1:] = elements[1:] > 0
    for column in (elements, calls.stream, phase, rows.step[calls.row], calls.repeat):
        same[1:] &= column[1:] == column[:-1]
    member = same | np.append(same[1:], False)
    at = np.flatnonzero(member)
    start = np.flatnonzero(~same[at])
    length = np.diff(start, append=len(at))
    chain = np.repeat(np.arange(len(start)), length)
    dur, read, moved = (
        column[at]
        for column in (
            calls.dur,
            calls.of_calls([call.read_bytes for call in calls.calls], 0),
            calls.of_calls([call.moved_bytes for call in calls.calls], 0),
        )
    )
    longest = np.lexsort((-dur, chain))[start]
    took = np.bincount(chain, dur, len(start)).astype(np.int64)
    # Each reads what the one before wrote, and only the last one writes.
    written = (moved - read)[longest]
    once = np.bincount(chain, read, len(start)) - (length - 1) * written + written
    fused = np.maximum(dur[longest], once * dur[longest] / np.maximum(moved[longest], 1))
    return _Chains(
        calls=calls, at=at, start=start, length=length, longest=at[longest], took=took, fused=np.minimum(fused, took)
    )


def _most(ranks: list[_Chains]) -> str:
    """Return the operators of the kind of chain that would gain most."""
    gains: dict[tuple[str, ...], float] = {}
    for rank in ranks:
        call, position = rank.calls.call[rank.at], np.arange(len(rank.at)) - np.repeat(rank.start, rank.length)
        # A number for every sequence of calls; that two share one is as unlikely as it is harmless.
        number = np.random.default_rng(0).integers(
            1 << 62, size=(len(rank.calls.calls), int(position.max(initial=0)) + 1)
        )
        key = np.bitwise_xor.reduceat(number[call, position], rank.start) if len(rank.start) else rank.start
        _, first, kind = np.unique(key, return_index=True, return_inverse=True)
        gain = np.bincount(kind, rank.took - rank.fused, len(first))
        for chain, ns in zip(first.tolist(), gain.tolist(), strict=True):
            begin = int(rank.start[chain])
            places = call[begin : begin + int(rank.length[chain])].tolist()
            names = tuple(rank.calls.calls[place].name for place in places)
            gains[names] = gains.get(names, 0.0) + ns
    largest = max(gains, key=lambda names: gains[names])
    return " then ".join([*largest[:_NAMES], *["..."] * (len(largest) > _NAMES)])
