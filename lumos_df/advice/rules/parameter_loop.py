"""Operators that a host calls for one parameter after another: what if one call did it for all."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.host_calls import without_calls
from lumos_df.advice.host_parameter_loops import ParameterLoops, least_of_kind, parameter_loops
from lumos_df.advice.host_stretches import without_stretches
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.same_rows import ordinals
from lumos_df.graph.simulate.forward import inherited

_NAMED: Final = 3
"""Operators that are named: more do not fit on the line."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that operators be called once for all parameters, behind the backward pass.

    Without a GPU the optimizer's loop, if torch has that optimizer fused, and those of the program are two changes.
    With one the optimizer's is that of `unfused_optimizer`.
    """
    if any(rows.on_gpu.any() for rows in advised.ranks):
        yield from _launched(advised)
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


def _launched(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose the same of loops of the program whose operators launch kernels: all but one parameter's calls go.

    What a kernel takes however small its tensor, and the gap before it, goes with them; what grows with the tensors
    stays.
    """
    found = [parameter_loops(advised, place, of_optimizer=False) for place in range(len(advised.ranks))]
    again = [
        loops.call[ordinals(packed(rows.step[loops.call], rows.name[loops.call])) > 0]
        for rows, loops in zip(advised.ranks, found, strict=True)
    ]
    if not any(map(len, again)):
        return
    graph = advised.event_graph
    _, without = without_calls(advised, again)
    inside, least = np.zeros(len(graph.own), np.bool_), np.zeros(len(graph.own), np.int64)
    for rows, call, base in zip(advised.ranks, again, graph.base[:-1].tolist(), strict=True):
        called = np.zeros(len(rows), np.bool_)
        called[call] = True
        kernel = np.flatnonzero(inherited(called, rows.parent) & rows.on_gpu)
        inside[base + kernel] = True
        least[base + kernel] = least_of_kind(rows.name[kernel].astype(np.int64), graph.own[base + kernel])
    gaps = inside[graph.dst] & (graph.lag > 0)

    def apply(changed: ChangedGraph) -> None:
        kept = np.maximum(changed.own[inside] - least[inside], 0)
        without(changed)
        changed.own[inside] = kept
        changed.lag[gaps] = 0

    lasts = format_ns(round(int(least[inside & advised.simulated].sum()) / len(advised.steps_ns)))
    yield Remedy(
        rule="parameter_loop",
        what=f"{_listed(advised, found)} run for each of {max(loops.parameters for loops in found)} parameters, and "
        f"kernels take {lasts} a step more than for all at once, besides their launches: torch._foreach_*",
        known=Known.MODELLED,
        rests_on=format_count(sum(map(len, again)), "operator"),
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
