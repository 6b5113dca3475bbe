"""How a job is spread: the degrees of its plan, from what its process groups are called and what they are used for.

A group is told by its description where the framework gives one (Megatron's `TENSOR_MODEL_PARALLEL_GROUP`, a device
mesh's `mesh_tp`), else by its collectives: an all-reduce of an activation inside the layers of a forward pass is tensor
parallelism's, gradients reduced behind them are data parallelism's, sends and receives join pipeline stages, and an
all-to-all inside layers experts. That ranks share a sequence, a description alone tells.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.units import format_count
from lumos_df.schema.codes import ANNOTATION, BACKWARD, COMMUNICATION, CPU_OP, FORWARD, KERNEL, NONE, RECOMPUTE
from lumos_df.schema.collective_kinds import POINT_TO_POINT
from lumos_df.schema.dtypes import element_type
from lumos_df.schema.plan_words import GROUPS
from lumos_df.structure.compute_stream import issued
from lumos_df.structure.dimensions import Local
from lumos_df.structure.experts import Routing
from lumos_df.structure.facts import CONTEXT, DEGREES, Fact, unknown
from lumos_df.structure.kernels.spread import inherit
from lumos_df.structure.labelled_rows import Trace
from lumos_df.structure.layers import Structure

_DESCRIBED: Final = {
    "tp": re.compile(r"(?i)^(?:mesh_)?tp$|^tensor_(?:model_)?parallel"),
    "pp": re.compile(r"(?i)^(?:mesh_)?pp$|^pipeline_(?:model_)?parallel"),
    "ep": re.compile(r"(?i)^(?:mesh_)?ep$|^expert_(?:model_)?parallel"),
    "dp": re.compile(r"(?i)^(?:mesh_)?(?:dp|fsdp|ddp)$|^data_parallel_group(?:_with_cp)?$"),
    CONTEXT: re.compile(r"(?i)^(?:mesh_)?cp$|^context_parallel"),
}
_TO_EXPERTS: Final = re.compile(r"(?i)(?<![a-z])(?:dispatch|combine)(?![a-z])")
"""What kernels and annotations call the way of tokens to experts, and back: `dispatch(F)`, `deep_ep::combine<...>`."""
_SCALAR_BYTES: Final = 8
"""A number has at most so many. Collectives of one reduce losses and norms, and tell nothing about the plan."""
_GATHERS: Final = ("all_gather", "reduce_scatter")


@dataclass(frozen=True, slots=True)
class _Use:
    """Collectives of a group that are used alike."""

    degree: str
    group: str | None
    size: int | None
    in_bytes: int
    what: str


@dataclass(frozen=True, slots=True)
class _Call:
    """A collective, and when it runs."""

    word: str
    phase: int
    inside: bool
    """Whether it is part of a layer."""
    in_bytes: int
    activation: bool | None
    """Whether what it is given is as large as an activation; None where that is not known."""
    counts: bool
    """Whether it carries whole numbers."""
    nameless: bool
    """Whether the trace names no group for it."""
    trains: bool
    """Whether the trace has a backward pass."""
    routes: bool
    """Whether it sends tokens to experts or back, as its name or an annotation around it says, or a router ran."""


def degrees(
    trace: Trace, structure: Structure, shapes: Local, world: int | None, given: Mapping[str, Fact]
) -> tuple[dict[str, Fact], str | None]:
    """Return the degrees of the plan, and the name of the group that joins the pipeline's stages.

    That of context parallelism is among them where there is one.

    Args:
        trace: one rank.
        structure: what its operators belong to.
        shapes: what its shapes say.
        world: ranks of the job, where they are known.
        given: degrees that hold whatever the trace says, and for what follows from them.
    """
    uses = _uses(trace, structure, shapes)
    ran = {name: [use for use in uses if use.degree == name] for name in (*DEGREES, CONTEXT)}
    facts = {name: _sized(name, ran[name], trace, structure) for name in DEGREES}
    if facts["tp"].value is None and ran["tp"]:
        facts["tp"] = _by_shape(shapes, facts["tp"])
    for name in DEGREES:
        alone = [other for other in ran if ran[other]] == [name]
        if facts[name].value is None and alone and world:
            facts[name] = Fact(world, "group", f"{ran[name][0].what}, and all {world} ranks run nothing else")
    if shapes.routing is not None and not (facts["ep"].number or 1) > 1:
        facts["ep"] = _by_experts(shapes.routing, facts["ep"])
    if ran[CONTEXT]:
        facts[CONTEXT] = _sized(CONTEXT, ran[CONTEXT], trace, structure)
        facts["dp"] = _without_context(facts["dp"], trace, ran["dp"], ran[CONTEXT])
    facts |= given
    facts["dp"] = _data(facts, world, reduces=bool(ran["dp"]))
    pipeline = next((use.group for use in ran["pp"] if use.group is not None), None)
    return facts, pipeline


def stage(trace: Trace, pp: Fact, pipeline: str | None) -> Fact:
    """Return the pipeline stage of a rank, from 0: its place in the group of the stages."""
    if pp.number == 1:
        return Fact(0, pp.evidence, "there is one stage")
    if pp.number is None:
        return unknown(f"pp is unknown: {pp.reason}")
    ranks = trace.group_ranks.get(pipeline or "", (None, None, None))[1]
    if ranks is None or trace.rows.rank not in ranks or len(ranks) != pp.number:
        return unknown("the trace does not list the ranks of the group that joins the stages")
    return Fact(ranks.index(trace.rows.rank), "group", f"place of rank {trace.rows.rank} in group {pipeline}")


def roles(trace: Trace, structure: Structure, shapes: Local) -> tuple[NDArray[np.int32], NDArray[np.int8]]:
    """Return the collectives of a trace and the degree of each, a place in `plan_words.GROUPS` or NONE; [k] both."""
    row, kind, uses = _kinds(trace, structure, shapes)
    degree = np.array([GROUPS.index(use.degree) if use else NONE for use in uses], np.int8)
    return row, degree[kind] if len(row) else np.empty(0, np.int8)


def _uses(trace: Trace, structure: Structure, shapes: Local) -> list[_Use]:
    """Return what the trace's collectives are used for, alike ones together, most often used first."""
    _, kind, uses = _kinds(trace, structure, shapes)
    counted: Counter[_Use] = Counter()
    for use, count in zip(uses, np.bincount(kind, minlength=len(uses)).tolist(), strict=True):
        if use:
            counted[use] += count
    return [
        replace(use, what=f"{use.what}, {format_count(count, 'time')}") if use.degree == "ep" else use
        for use, count in counted.most_common()
    ]


def _kinds(
    trace: Trace, structure: Structure, shapes: Local
) -> tuple[NDArray[np.int32], NDArray[np.int64], list[_Use | None]]:
    """Return the collectives, which kind each is, by first appearance, and what each kind is used for."""
    row = collective_rows(trace)
    rows = trace.rows
    columns = (
        rows.collective[row],
        rows.group[row],
        rows.group_size[row],
        rows.in_bytes[row],
        trace.dtype.code[row],
        _during(trace, structure, row),
        structure.layer[row] >= 0,
        _routes(trace, row),
    )
    trains = bool((structure.phase == BACKWARD).any())
    number: dict[tuple[int, ...], int] = {}
    values = zip(*(column.tolist() for column in columns), strict=True)
    kind = [number.setdefault(value, len(number)) for value in values]
    uses: list[_Use | None] = []
    for collective, group, size, in_bytes, dtype, phase, inside, routes in number:
        name = rows.groups[group] if group >= 0 else None
        description, _, listed = trace.group_ranks.get(name or "", (None, None, None))
        known = size if size > 0 else listed
        word = rows.collectives[collective]
        element = element_type(trace.dtype.words[dtype]) if dtype >= 0 else None
        call = _Call(
            word=word,
            phase=phase,
            inside=bool(inside),
            in_bytes=in_bytes,
            activation=_fits(shapes, in_bytes, trace, dtype, known or 1),
            counts=element is not None and not element.floating,
            nameless=name is None,
            trains=trains,
            routes=bool(routes) or shapes.routing is not None,
        )
        degree = _described(description) or _degree(call, structure.kind)
        if known == 1 or not degree:
            uses.append(None)
            continue
        where = {FORWARD: "forward", BACKWARD: "backward", RECOMPUTE: "recompute"}.get(phase, "optimizer")
        what = f"{word} in the {where} pass" + (", inside layers" if inside else "")
        uses.append(_Use(degree, name, known, in_bytes, what))
    # What reduces activations in the forward does so in the backward, too: the same group, else the same bytes.
    tensor = {_shared(use) for use in uses if use and use.degree == "tp"}
    return (
        row,
        np.array(kind, np.int64),
        [replace(use, degree="tp") if use and _shared(use) in tensor else use for use in uses],
    )


def _shared(use: _Use) -> tuple[str | None, int | None]:
    return use.group, None if use.group else use.in_bytes


def _fits(shapes: Local, in_bytes: int, trace: Trace, dtype: int, members: int) -> bool | None:
    """Return whether a collective is given an activation or a rank's part of it, None where that is not known."""
    kind = element_type(trace.dtype.words[dtype]) if dtype >= 0 else None
    if in_bytes < 0 or kind is None or shapes.activation is None:
        return None
    return in_bytes // kind.bytes in {shapes.activation, shapes.activation // members}


def collective_rows(trace: Trace) -> NDArray[np.int32]:
    """Return the collectives: kernels, else (on a CPU) the backend's annotations."""
    rows = trace.rows
    row = np.flatnonzero((rows.kind == KERNEL) & (rows.family == COMMUNICATION) & (rows.collective >= 0))
    if not len(row):
        row = np.flatnonzero((rows.kind == ANNOTATION) & (rows.collective >= 0) & (rows.thread >= 0))
    if not len(row):
        row = np.flatnonzero((rows.kind == CPU_OP) & (rows.collective >= 0))
    return row.astype(np.int32)


def _routes(trace: Trace, row: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which collectives their name, or an annotation around them, calls the way to experts or back [k]."""
    rows = trace.rows
    says = rows.named(_TO_EXPERTS.search)
    if not says.any():
        return np.zeros(len(row), np.bool_)
    itself = np.where(says & (rows.on_gpu | (rows.kind == ANNOTATION)), 0, NONE).astype(np.int32)
    around: NDArray[np.int32] = inherit(itself, rows.parent, rows.thread)
    routes: NDArray[np.bool_] = around[row] >= 0
    return routes


def _during(trace: Trace, structure: Structure, row: NDArray[np.int32]) -> NDArray[np.int8]:
    """Return the phase in which each collective was issued: that of the last compute kernel or operator before it."""
    rows = trace.rows
    marks = structure.kernels.row
    if not len(marks):
        worked = (rows.kind == CPU_OP) & np.isin(structure.phase, (FORWARD, BACKWARD, RECOMPUTE))
        marks = np.flatnonzero(worked).astype(np.int32)
    if not len(marks):
        return np.full(len(row), NONE, np.int8)
    moment = issued(trace, marks)
    order = np.argsort(moment, kind="stable")
    at = np.searchsorted(moment[order], issued(trace, row), side="right") - 1
    return np.where(at >= 0, structure.phase[marks[order[np.maximum(at, 0)]]], NONE).astype(np.int8)


def _described(description: str | None) -> str | None:
    if not description:
        return None
    return next((name for name, pattern in _DESCRIBED.items() if pattern.search(description)), None)


def _degree(call: _Call, kind: str) -> str | None:
    """Return the degree that a collective belongs to, None where it tells nothing."""
    layered = kind in {"transformer", "other"}
    if call.routes and call.nameless and call.word == "send_recv":
        # NCCL's kernel of all-to-alls, too.
        return "ep"
    if call.word in POINT_TO_POINT or call.word == "all_to_all":
        between_layers = "pp" if call.word != "all_to_all" else "ep" if call.inside or call.routes else None
        return between_layers if layered else None
    if call.routes and call.counts and call.word == "all_gather":
        # How many tokens go to each expert.
        return "ep"
    if kind == "none" or 0 <= call.in_bytes <= _SCALAR_BYTES or call.word not in {"all_reduce", *_GATHERS}:
        return None
    activation = call.activation
    # Without a backward pass there are no gradients to reduce.
    sums = call.word == "all_reduce" or (call.word == "reduce_scatter" and not call.trains)
    if activation is None and call.phase == FORWARD and sums:
        if not call.inside:
            return None
        activation = True
    return "tp" if layered and activation else "dp"


def _sized(name: str, uses: list[_Use], trace: Trace, structure: Structure) -> Fact:
    sized = next((use for use in uses if use.size), None)
    if sized:
        return Fact(sized.size, "group", f"group {sized.group}: {sized.what}")
    if uses:
        return unknown(f"{uses[0].what}, and the trace names no group or size for it")
    described = [size for text, _, size in trace.group_ranks.values() if size and _described(text) == name]
    if described:
        return Fact(max(described), "group", "a process group's description")
    if name == "dp":
        return unknown("no collective reduces gradients or gathers parameters")
    if structure.kind == "none":
        return unknown("no kernel runs on a GPU")
    absent = {
        "tp": "no collective of an activation runs inside the layers of the forward pass",
        "pp": "nothing is sent from stage to stage",
        "ep": "no all-to-all runs inside layers",
    }
    return Fact(1, "group", absent[name])


def _by_shape(shapes: Local, before: Fact) -> Fact:
    hidden, inner = shapes.hidden.number, shapes.projection
    if hidden is None or inner is None or hidden % inner:
        return before
    return Fact(hidden // inner, "shape", f"attention's output product reads {inner} of hidden {hidden}")


def _by_experts(routing: Routing, before: Fact) -> Fact:
    experts, of_rank = routing.experts, routing.local_experts
    if of_rank is None:
        return before
    return Fact(experts // of_rank, "shape", f"{of_rank} of {experts} experts are on this rank")


def _without_context(data: Fact, trace: Trace, reduces: list[_Use], shares: list[_Use]) -> Fact:
    """Return the data-parallel degree, where the ranks that reduce gradients together also share their sequences."""
    ranks, others = (
        next((set(trace.group_ranks[use.group][1] or ()) for use in uses if use.group in trace.group_ranks), set())
        for uses in (reduces, shares)
    )
    if data.number is None or not others or not others <= ranks:
        return data
    why = f"{data.reason}; {len(others)} of these {len(ranks)} share a sequence"
    return Fact(data.number // len(others), data.evidence, why)


def _data(facts: dict[str, Fact], world: int | None, *, reduces: bool) -> Fact:
    stated = facts["dp"]
    if stated.value is not None:
        return stated
    tp, pp, cp = facts["tp"].number, facts["pp"].number, facts[CONTEXT].number if CONTEXT in facts else 1
    if world and tp and pp and cp:
        others = f"tp={tp} x pp={pp}" + (f" x cp={cp}" if cp > 1 else "")
        if world % (tp * pp * cp):
            return unknown(f"{world} ranks are no multiple of {others}")
        return Fact(world // (tp * pp * cp), "group", f"{format_count(world, 'rank')} over {others}")
    if not reduces and not world:
        return Fact(1, "group", "no collective ran, and the trace names no other rank") if tp == pp == 1 else stated
    return stated
