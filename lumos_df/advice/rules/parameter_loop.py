"""Operators that a host calls for one parameter after another: what if one call did it for all."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.host_parameter_loops import ParameterLoops, parameter_loops
from lumos_df.advice.host_stretches import without_stretches
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns

_NAMED: Final = 3
"""Operators that are named: more do not fit on the line."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that a host without a GPU call operators once for all parameters, behind the backward pass.

    The optimizer's loop, if torch has that optimizer fused, and those of the program are two changes.
    """
    if any(rows.on_gpu.any() for rows in advised.ranks):
        return
    for of_optimizer in (True, False):
        found = [parameter_loops(advised, place, of_optimizer=of_optimizer) for place in range(len(advised.ranks))]
        between, latency = sum(each.between_ns for each in found), sum(each.latency_ns for each in found)
        call, run = [each.call for each in found], [each.run for each in found]
        taken, _ = without_stretches(advised, call, run)
        # Operators of lists of tensors are called once, and do the same for each. One fused kernel does all at once.
        gain = between + latency / 2
        if not gain or gain > taken:
            continue
        _, apply = without_stretches(advised, call, run, part=gain / taken)
        more = format_ns(round(gain / len(advised.steps_ns)))
        each = f"each of {max(loops.parameters for loops in found)} parameters"
        yield Remedy(
            rule="parameter_loop",
            what=f"the optimizer's step calls operators for {each}, {more} a step more than for all at once: fused=True"
            if of_optimizer
            else f"{_listed(advised, found)} run for {each}, {more} a step more than for all at once: torch._foreach_*",
            known=Known.MODELLED,
            rests_on=format_count(sum(map(len, call)), "operator"),
            uncertainty=latency / 2 / gain,
            apply=apply,
        )


def _listed(advised: AdvisedJob, found: list[ParameterLoops]) -> str:
    """Name the operators that take most time."""
    spent: dict[str, int] = {}
    for rows, loops in zip(advised.ranks, found, strict=True):
        name, place = np.unique(rows.name[loops.call], return_inverse=True)
        for code, ns in zip(name.tolist(), np.bincount(place, rows.dur[loops.call]).tolist(), strict=True):
            spent[rows.names[code]] = spent.get(rows.names[code], 0) + ns
    most = sorted(spent, key=lambda text: -spent[text])
    more = f" and {format_count(len(most) - _NAMED, 'other')}" if len(most) > _NAMED else ""
    return ", ".join(most[:_NAMED]) + more
