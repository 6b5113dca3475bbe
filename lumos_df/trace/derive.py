"""What the rows imply: parent, step, phase, module, forward operator."""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.schema import FAMILIES, STEP_MARK
from lumos_df.schema.codes import (
    ANNOTATION,
    COMMUNICATION,
    CPU_OP,
    GPU,
    GPU_ANNOTATION,
    KERNEL,
    NONE,
    NULL,
    PYTHON,
    RUNTIME,
    SYNC,
)
from lumos_df.trace import classify
from lumos_df.trace.kernels import inheritance
from lumos_df.trace.kernels.intervals import enclosing, time_beneath
from lumos_df.trace.ordered_operators import OrderedOperators
from lumos_df.trace.recording import Attribute

_LAYER: Final = re.compile(r"(?i)\b(?>\w*?(?:layer(?!_?norm)|block))\w*_(\d+)$")
_BACKWARD_ROOT: Final = "autograd::engine::evaluate_function"
_OWN_NODE: Final = re.compile(r"\w+Backward\d+$")
"""Nodes whose code PyTorch generates. Those of custom functions have no number behind their name."""
_RECOMPUTE: Final = re.compile(r"\A(?>.*?torch/utils/checkpoint\.py).*(?:recompute_fn|unpack_hook)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """Columns of n rows; `NONE` is null."""

    parent: NDArray[np.int32]
    """Host rows: the row around it; GPU rows: the call that launched it, else the operator of its external id."""
    inner: NDArray[np.int64]
    """How long of each row a host row directly beneath ran, ns."""
    step: NDArray[np.int32]
    """n of ProfilerStep#n."""
    phase: NDArray[np.int8]
    """Place in `schema.PHASES`."""
    family: NDArray[np.int8]
    """Place in `schema.FAMILIES`; NONE on host rows."""
    module: NDArray[np.int32]
    """Place in `modules`."""
    modules: list[str]
    layer_of_module: NDArray[np.int32]
    """Layer that each of `modules` says, NONE where it says none."""
    forward: NDArray[np.int32]
    """Forward operator of a backward operator."""
    sequence_rows: NDArray[np.int32]
    """Rows that have a sequence number of autograd, ascending."""
    sequence: NDArray[np.int64]
    """Autograd sequence number of each of `sequence_rows`."""
    unlaunched: int
    """GPU rows whose launch call the trace does not have."""


def derive(ops: OrderedOperators) -> Derived:
    """Derive every column that follows from the rows alone."""
    parent, unlaunched = _parents(ops)
    family = _families(ops)
    rows, sequence, forward_thread = _sequence(ops)
    forward, made_node = _forward_operators(ops, rows, sequence, forward_thread)
    step_of_row = _step_numbers(ops)
    is_gpu = ops.is_kind(*GPU)
    step = inheritance.steps(ops.ts, ops.dur, parent, is_gpu, step_of_row)
    phase = _phases(
        ops,
        parent,
        family == COMMUNICATION,
        rows[forward_thread == 0],
        rows[forward_thread > 0],
        made_node,
        step_of_row,
    )
    module, modules = _modules(ops, parent, forward)
    return Derived(
        parent=parent,
        inner=time_beneath(ops.ts, ops.dur, parent, ops.is_kind(CPU_OP, RUNTIME, ANNOTATION, PYTHON)),
        step=step,
        phase=phase,
        family=family,
        module=module,
        modules=modules,
        layer_of_module=np.array([_layer(path) for path in modules], np.int32),
        forward=forward,
        sequence_rows=rows,
        sequence=sequence,
        unlaunched=unlaunched,
    )


def _parents(ops: OrderedOperators) -> tuple[NDArray[np.int32], int]:
    """Return each row's parent, and how many GPU rows have no launch.

    Host rows: the enclosing row. GPU and sync rows: the runtime call, else the CPU operator of the external id.
    """
    on_gpu = ops.is_kind(*GPU, SYNC, GPU_ANNOTATION)
    track = np.where(on_gpu, np.int32(NONE), ops.track)
    recording = ops.recording
    resolution = recording.resolution_ns
    parent = enclosing(ops.ts, ops.dur, track, len(recording.threads), resolution if resolution > 1 else 0)
    _leave_calls(ops, parent)
    correlation = ops.ordered(recording.operators.correlation)
    rows = np.flatnonzero(ops.is_kind(*GPU, SYNC))
    cause = _last_sharing(correlation, np.flatnonzero(ops.kind == RUNTIME), rows)
    orphans = cause < 0
    if orphans.any():
        external = ops.ordered(recording.operators.external_id)
        cause[orphans] = _last_sharing(external, np.flatnonzero(ops.kind == CPU_OP), rows[orphans])
    parent[rows] = cause
    return parent, int(np.count_nonzero(orphans & (ops.kind[rows] != SYNC)))


def _leave_calls(ops: OrderedOperators, parent: NDArray[np.int32]) -> None:
    """Give calls without length that seem to lie in a call the parent of that one; `parent` is written to [n].

    They begin with it by a clock that is too coarse to tell which came first, and no call makes another one in no time.
    """
    call = np.flatnonzero((ops.kind == RUNTIME) & (ops.dur == 0) & (parent >= 0))
    while len(call := call[(ops.kind[parent[call]] == RUNTIME) & (ops.ts[parent[call]] == ops.ts[call])]):
        parent[call] = parent[parent[call]]
        call = call[parent[call] >= 0]


def _last_sharing(values: NDArray[np.int64], among: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return for each of `rows` the last row `among` those with the same value, NONE where none or null."""
    wanted = values[rows]
    keys = values[among]
    keep = keys != NULL
    keys, among = keys[keep], among[keep]
    last = np.full(len(rows), NONE, np.int32)
    if len(keys) == 0:
        return last
    low, high = int(keys.min()), int(keys.max())
    inside = (wanted >= low) & (wanted <= high)
    if high - low < 8 * len(values) + (1 << 16):
        table = np.full(high - low + 1, NONE, np.int32)
        table[keys - low] = among
        last[inside] = table[wanted[inside] - low]
        return last
    order = np.argsort(keys, kind="stable")
    place = np.searchsorted(keys[order], wanted, side="right") - 1
    hit = (place >= 0) & (wanted != NULL)
    hit[hit] = keys[order][place[hit]] == wanted[hit]
    last[hit] = among[order][place[hit]]
    return last


def _families(ops: OrderedOperators) -> NDArray[np.int8]:
    strings = ops.recording.strings
    rows = np.flatnonzero(ops.is_kind(*GPU))
    names = ops.name[rows]
    used = ops.recording.used(names)
    table = np.full(len(strings) + 1, FAMILIES.index(classify.FAMILY_OTHER), np.int8)
    table[used] = [FAMILIES.index(classify.family(strings[number])) for number in used.tolist()]
    column = np.full(len(ops), NONE, np.int8)
    column[rows] = table.take(names)
    # A kernel that carries NCCL's own arguments is communication, whatever its name.
    stated, _ = ops.attribute(Attribute.COLLECTIVE)
    column[stated[ops.kind[stated] == KERNEL]] = COMMUNICATION
    return column


def _step_numbers(ops: OrderedOperators) -> NDArray[np.int32]:
    """Return n for each row named ProfilerStep#n on the host, NONE for every other row."""
    strings = ops.recording.strings
    numbers = np.full(len(strings) + 1, NONE, np.int32)
    for place, text in enumerate(strings):
        if match := STEP_MARK.match(text):
            numbers[place] = int(match[1])
    return np.where(ops.kind == ANNOTATION, numbers.take(ops.name), np.int32(NONE))


def _sequence(ops: OrderedOperators) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
    """Return (rows, autograd sequence number, forward thread) of the rows that have both; ordered by row."""
    events, sequence = ops.recording.attribute(Attribute.SEQUENCE_NUMBER)
    thread_events, threads = ops.recording.attribute(Attribute.FORWARD_THREAD)
    place = np.searchsorted(thread_events, events)
    place[place == len(thread_events)] = 0
    has = thread_events[place] == events if len(thread_events) else np.zeros(len(events), bool)
    threads_of = np.where(has, threads[place] if len(threads) else 0, 0)
    rows = ops.row_of_event[events]
    keep = (rows >= 0) & (sequence >= 0)
    rows, sequence, threads_of = rows[keep], sequence[keep], threads_of[keep]
    by_row = np.argsort(rows, kind="stable")
    return rows[by_row], sequence[by_row], threads_of[by_row]


def _forward_operators(
    ops: OrderedOperators, rows: NDArray[np.int32], sequence: NDArray[np.int64], forward_thread: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return the forward operator of each backward row, and which rows made a node that a backward row ran.

    Forward and backward share a sequence number on the thread that ran the forward. Autograd records that thread, as a
    small number of its own, on the backward side only; which track it is shows in where the sequence numbers are found.
    Of several operators with one number the last to start made the node, as in the profiler's own arrows.
    """
    forward = np.full(len(ops), NONE, np.int32)
    made_node = np.zeros(len(ops), np.bool_)
    backward = forward_thread > 0
    made, made_sequence = rows[~backward], sequence[~backward]
    if not len(made) or not backward.any():
        return forward, made_node
    tracks = ops.track[made]
    for logical in np.unique(forward_thread[backward]).tolist():
        wanted = np.flatnonzero(forward_thread == logical)
        best, best_track = np.full(len(wanted), NONE, np.int32), NONE
        # Only where one of the numbers was made: to look through all of thousands of threads took minutes.
        for track in np.unique(tracks[np.isin(made_sequence, sequence[wanted])]).tolist():
            here = tracks == track
            maker = _last_before(made[here], made_sequence[here], rows[wanted], sequence[wanted])
            if (maker >= 0).sum() > (best >= 0).sum():
                best, best_track = maker, track
        forward[rows[wanted]] = best
        here = tracks == best_track
        made_node[made[here]] |= np.isin(made_sequence[here], sequence[wanted[best >= 0]])
    return forward, made_node


def _last_before(
    rows: NDArray[np.int32], keys: NDArray[np.int64], wanted_rows: NDArray[np.int32], wanted: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Return for each wanted (row, key) the last of `rows` with that key before that row, or NONE."""
    distinct = np.unique(keys)
    order = np.lexsort((rows, keys))
    # Key and row in one number, so that one search answers "same key, latest row before". Both fit: rows are 32 bits
    # wide and not negative, and there are no more distinct keys than rows.
    packed = (np.searchsorted(distinct, keys[order]) << 32) | rows[order]
    number = np.searchsorted(distinct, wanted)
    number[number == len(distinct)] = 0
    place = np.searchsorted(packed, (number << 32) | wanted_rows) - 1
    hit = (place >= 0) & (distinct[number] == wanted)
    hit[hit] = keys[order][place[hit]] == wanted[hit]
    last = np.full(len(wanted), NONE, np.int32)
    last[hit] = rows[order][place[hit]]
    return last


def _phases(
    ops: OrderedOperators,
    parent: NDArray[np.int32],
    communicates: NDArray[np.bool_],
    grows_rows: NDArray[np.int32],
    backward_rows: NDArray[np.int32],
    made_node: NDArray[np.bool_],
    step_of_row: NDArray[np.int32],
) -> NDArray[np.int8]:
    roles = np.array([*map(_role, ops.recording.strings), inheritance.NO_ROLE], np.int8)
    role = roles.take(ops.name)
    on_gpu = ops.is_kind(*GPU, SYNC, GPU_ANNOTATION)
    role[on_gpu] = inheritance.NO_ROLE
    role[step_of_row >= 0] = inheritance.STEP_ROLE
    role[backward_rows[role[backward_rows] == inheritance.NO_ROLE]] = inheritance.BACKWARD_ROLE
    role[communicates] = inheritance.COMMUNICATION_ROLE
    grows_graph = np.zeros(len(ops), np.bool_)
    grows_graph[grows_rows] = True
    is_node = np.zeros(len(ops), np.bool_)
    is_node[backward_rows] = True
    own_node = is_node & ops.recording.where(lambda name: _OWN_NODE.match(name) is not None)[ops.name]
    phase: NDArray[np.int8] = inheritance.phases(
        ops.kind == CPU_OP, on_gpu, role, grows_graph, made_node, own_node, parent
    )
    return phase


def _role(name: str) -> int:
    if name.startswith(_BACKWARD_ROOT):
        return inheritance.BACKWARD_ROLE
    if name.startswith("Optimizer."):
        return inheritance.OPTIMIZER_ROLE
    if name.startswith("enumerate(DataLoader)"):
        return inheritance.LOADER_ROLE
    if classify.COMMUNICATION_OPERATOR.match(name):
        return inheritance.COMMUNICATION_ROLE
    if _RECOMPUTE.search(name):
        return inheritance.RECOMPUTE_ROLE
    return inheritance.NO_ROLE


def _modules(
    ops: OrderedOperators, parent: NDArray[np.int32], forward: NDArray[np.int32]
) -> tuple[NDArray[np.int32], list[str]]:
    """Return each row's module path, as a place in a list of paths.

    From `nn.Module: Name_0` rows, of the Python tracer or of `lumos-df capture`, else from the operators'
    `Module Hierarchy`.
    Backward rows take the path of their forward operator.
    """
    named = ops.recording.where(lambda text: text.startswith("nn.Module: "))
    is_module = ops.is_kind(PYTHON, ANNOTATION) & named.take(ops.name)
    path_of_row = np.full(len(ops), NONE, np.int32)
    paths: list[str] = []
    if is_module.any():
        path_of_row, paths = _paths_from_rows(ops, parent, is_module)
    else:
        rows, texts = ops.attribute(Attribute.MODULE)
        used, inverse = np.unique(texts, return_inverse=True)
        hierarchy = [ops.recording.strings[number] for number in used.tolist()]
        filled = np.array([bool(text) for text in hierarchy], np.bool_)
        if filled.any():
            keep = filled[inverse]
            path_of_row[rows[keep]] = inverse[keep]
            paths = [text.replace(".", "/") for text in hierarchy]
    if not paths:
        return path_of_row, paths
    return inheritance.inherit(path_of_row, parent, forward), paths


def _paths_from_rows(
    ops: OrderedOperators, parent: NDArray[np.int32], is_module: NDArray[np.bool_]
) -> tuple[NDArray[np.int32], list[str]]:
    """Return (path of each module row, paths): level by level, a module's path is its outer module's plus its name."""
    path_of_row = np.full(len(ops), NONE, np.int32)
    outer = inheritance.nearest_marked(is_module, parent)
    rows = np.flatnonzero(is_module)
    paths: list[str] = []
    done = np.zeros(len(rows), np.bool_)
    while not done.all():
        ready = ~done & ((outer[rows] < 0) | (path_of_row[outer[rows]] >= 0))
        level = rows[ready]
        outer_path = np.where(outer[level] >= 0, path_of_row[outer[level]], NONE)
        pairs, inverse = np.unique(np.stack((outer_path, ops.name[level])), axis=1, return_inverse=True)
        path_of_row[level] = len(paths) + inverse.reshape(-1)
        for path, name in pairs.T.tolist():
            word = ops.recording.strings[name].removeprefix("nn.Module: ")
            paths.append(f"{paths[path]}/{word}" if path >= 0 else word)
        done |= ready
    return path_of_row, paths


def _layer(path: str) -> int:
    return next((int(match[1]) for word in path.split("/") if (match := _LAYER.search(word))), NONE)
