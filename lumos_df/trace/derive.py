"""What the rows imply: parent, step, phase, module, forward operator."""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.trace import classify, kineto, record, sweep
from lumos_df.trace.intervals import enclosing
from lumos_df.trace.kineto import (
    ANNOTATION,
    CPU_OP,
    GPU_ANNOTATION,
    KERNEL,
    MEMCPY,
    MEMSET,
    NONE,
    PYTHON,
    RUNTIME,
    SYNC,
    Operators,
)

GPU: Final = (KERNEL, MEMCPY, MEMSET)
_LAYER: Final = re.compile(r"(?i)(?:layer(?!_?norm)|block)\w*_(\d+)$")
_BACKWARD_ROOT: Final = "autograd::engine::evaluate_function"
_RECOMPUTE: Final = re.compile(r"torch/utils/checkpoint\.py.*(?:recompute_fn|unpack_hook)")


@dataclass(slots=True)
class Derived:
    """Columns of n rows; `NONE` is null."""

    parent: NDArray[np.int32]
    """Host rows: the row around it; GPU rows: the call that launched it, else the operator of its external id."""
    step: NDArray[np.int32]
    """n of ProfilerStep#n."""
    phase: NDArray[np.int8]
    """Place in `schema.PHASES`."""
    family: NDArray[np.int8]
    """Place in `families`; NONE on host rows."""
    families: list[str]
    """Names that `family` means."""
    module: NDArray[np.int32]
    """Place in `modules`."""
    modules: list[str]
    layer_of_module: NDArray[np.int32]
    """Layer that each of `modules` says, NONE where it says none."""
    forward: NDArray[np.int32]
    """Forward operator of a backward operator."""
    sequence_rows: NDArray[np.int32]
    """Rows that have a sequence number of autograd."""
    unlaunched: int
    """GPU rows whose launch call the trace does not have."""
    sequence: NDArray[np.int64]
    """Autograd sequence number of each of `sequence_rows`."""


def derive(ops: Operators, resolution: int) -> Derived:
    """Derive every column that follows from the rows alone; `resolution` is the clock's, ns."""
    parent, unlaunched = _parents(ops, resolution)
    family, families = _families(ops)
    rows, sequence, forward_thread = _sequence(ops)
    forward, made_node = _forward_operators(ops, rows, sequence, forward_thread)
    step_of_row = kineto.step_numbers(ops)
    is_gpu = ops.is_kind(*GPU)
    step = sweep.steps(ops.ts, ops.dur, parent, is_gpu, step_of_row)
    phase = _phases(
        ops,
        parent,
        family == families.index("communication"),
        rows[forward_thread == 0],
        rows[forward_thread > 0],
        made_node,
        step_of_row,
    )
    module, modules = _modules(ops, parent, forward)
    layers = [_layer(path) for path in modules]
    return Derived(
        parent,
        step,
        phase,
        family,
        families,
        module,
        modules,
        np.array(layers, np.int32),
        forward,
        rows,
        unlaunched,
        sequence,
    )


def _parents(ops: Operators, resolution: int) -> tuple[NDArray[np.int32], int]:
    """Return each row's parent, and how many GPU rows have no launch.

    Host rows: the enclosing row. GPU and sync rows: the runtime call, else the CPU operator of the external id.
    """
    on_gpu = ops.is_kind(*GPU, SYNC, GPU_ANNOTATION)
    track = np.where(on_gpu, np.int32(NONE), ops.track)
    parent = enclosing(ops.ts, ops.dur, track, len(ops.raw.tracks), resolution if resolution > 1 else 0)
    correlation = ops.wide(record.OP_CORRELATION)
    rows = np.flatnonzero(ops.is_kind(*GPU, SYNC))
    found = match(correlation, np.flatnonzero(ops.kind == RUNTIME), rows)
    orphans = found < 0
    if orphans.any():
        external = ops.wide(record.OP_EXTERNAL)
        found[orphans] = match(external, np.flatnonzero(ops.kind == CPU_OP), rows[orphans])
    parent[rows] = found
    return parent, int(np.count_nonzero(orphans & (ops.kind[rows] != SYNC)))


def match(values: NDArray[np.int64], among: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return for each of `rows` the last row `among` those with the same value, NONE where none or null."""
    wanted = values[rows]
    keys = values[among]
    keep = keys != record.NULL
    keys, among = keys[keep], among[keep]
    found = np.full(len(rows), NONE, np.int32)
    if len(keys) == 0:
        return found
    low, high = int(keys.min()), int(keys.max())
    inside = (wanted >= low) & (wanted <= high)
    if high - low < 8 * len(values) + (1 << 16):
        table = np.full(high - low + 1, NONE, np.int32)
        table[keys - low] = among
        found[inside] = table[wanted[inside] - low]
        return found
    order = np.argsort(keys, kind="stable")
    place = np.searchsorted(keys[order], wanted, side="right") - 1
    hit = (place >= 0) & (wanted != record.NULL)
    hit[hit] = keys[order][place[hit]] == wanted[hit]
    found[hit] = among[order][place[hit]]
    return found


def _families(ops: Operators) -> tuple[NDArray[np.int8], list[str]]:
    rows = np.flatnonzero(ops.is_kind(*GPU))
    names = ops.name[rows]
    used = np.unique(names)
    words = [classify.family(ops.raw.strings[number]) if number >= 0 else "other" for number in used.tolist()]
    families = sorted({*words, "communication"})
    table = np.full(len(ops.raw.strings) + 1, NONE, np.int8)
    table[used] = [families.index(word) for word in words]
    column = np.full(len(ops), NONE, np.int8)
    column[rows] = table[names]
    # A kernel that carries NCCL's own arguments is communication, whatever its name.
    stated, _ = ops.sparse("Collective name")
    column[stated[ops.kind[stated] == KERNEL]] = families.index("communication")
    return column, families


def _sequence(ops: Operators) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
    """Return (rows, autograd sequence number, forward thread) of the rows that have both; ordered by row."""
    events, sequence = ops.raw.sparse("Sequence number")
    thread_events, threads = ops.raw.sparse("Fwd thread id")
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
    ops: Operators, rows: NDArray[np.int32], sequence: NDArray[np.int64], forward_thread: NDArray[np.int64]
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
        for track in np.unique(tracks).tolist():
            here = tracks == track
            found = _last_before(made[here], made_sequence[here], rows[wanted], sequence[wanted])
            if (found >= 0).sum() > (best >= 0).sum():
                best, best_track = found, track
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
    # Key and row in one number, so that one search answers "same key, latest row before".
    packed = (np.searchsorted(distinct, keys[order]) << 32) | rows[order]
    number = np.searchsorted(distinct, wanted)
    number[number == len(distinct)] = 0
    place = np.searchsorted(packed, (number << 32) | wanted_rows) - 1
    hit = (place >= 0) & (distinct[number] == wanted)
    hit[hit] = keys[order][place[hit]] == wanted[hit]
    found = np.full(len(wanted), NONE, np.int32)
    found[hit] = rows[order][place[hit]]
    return found


def _phases(
    ops: Operators,
    parent: NDArray[np.int32],
    communicates: NDArray[np.bool_],
    grows_rows: NDArray[np.int32],
    backward_rows: NDArray[np.int32],
    made_node: NDArray[np.bool_],
    step_of_row: NDArray[np.int32],
) -> NDArray[np.int8]:
    roles = np.array([*map(_role, ops.raw.strings), sweep.NO_ROLE], np.int8)
    role = roles[ops.name]
    on_gpu = ops.is_kind(*GPU, SYNC, GPU_ANNOTATION)
    role[on_gpu] = sweep.NO_ROLE
    role[step_of_row >= 0] = sweep.STEP_ROLE
    role[backward_rows[role[backward_rows] == sweep.NO_ROLE]] = sweep.BACKWARD_ROLE
    role[communicates] = sweep.COMMUNICATION_ROLE
    grows_graph = np.zeros(len(ops), np.bool_)
    grows_graph[grows_rows] = True
    phase: NDArray[np.int8] = sweep.phases(ops.kind == CPU_OP, on_gpu, role, grows_graph, made_node, parent)
    return phase


def _role(name: str) -> int:
    if name.startswith(_BACKWARD_ROOT):
        return sweep.BACKWARD_ROLE
    if name.startswith("Optimizer."):
        return sweep.OPTIMIZER_ROLE
    if name.startswith("enumerate(DataLoader)"):
        return sweep.LOADER_ROLE
    if classify.COMMUNICATION_OPERATOR.match(name):
        return sweep.COMMUNICATION_ROLE
    if _RECOMPUTE.search(name):
        return sweep.RECOMPUTE_ROLE
    return sweep.NO_ROLE


def _modules(
    ops: Operators, parent: NDArray[np.int32], forward: NDArray[np.int32]
) -> tuple[NDArray[np.int32], list[str]]:
    """Return each row's module path, as a place in a list of paths.

    From `nn.Module: Name_0` rows, of the Python tracer or of `lumos-df capture`, else from the operators'
    `Module Hierarchy`.
    Backward rows take the path of their forward operator.
    """
    named = ops.raw.where(lambda text: text.startswith("nn.Module: "))
    is_module = ops.is_kind(PYTHON, ANNOTATION) & named[ops.name]
    own = np.full(len(ops), NONE, np.int32)
    paths: list[str] = []
    if is_module.any():
        own, paths = _paths_from_rows(ops, parent, is_module)
    else:
        rows, texts = ops.sparse("Module Hierarchy")
        used, inverse = np.unique(texts, return_inverse=True)
        hierarchy = [ops.raw.strings[number] for number in used.tolist()]
        filled = np.array([bool(text) for text in hierarchy], np.bool_)
        if filled.any():
            keep = filled[inverse]
            own[rows[keep]] = inverse[keep]
            paths = [text.replace(".", "/") for text in hierarchy]
    if not paths:
        return own, paths
    return sweep.inherit(own, parent, forward), paths


def _paths_from_rows(
    ops: Operators, parent: NDArray[np.int32], is_module: NDArray[np.bool_]
) -> tuple[NDArray[np.int32], list[str]]:
    """Return (path of each module row, paths): level by level, a module's path is its outer module's plus its name."""
    own = np.full(len(ops), NONE, np.int32)
    outer = sweep.nearest_marked(is_module, parent)
    rows = np.flatnonzero(is_module)
    paths: list[str] = []
    done = np.zeros(len(rows), np.bool_)
    while not done.all():
        ready = ~done & ((outer[rows] < 0) | (own[outer[rows]] >= 0))
        level = rows[ready]
        outer_path = np.where(outer[level] >= 0, own[outer[level]], NONE)
        pairs, inverse = np.unique(np.stack((outer_path, ops.name[level])), axis=1, return_inverse=True)
        own[level] = len(paths) + inverse.reshape(-1)
        for path, name in pairs.T.tolist():
            word = ops.raw.strings[name].removeprefix("nn.Module: ")
            paths.append(f"{paths[path]}/{word}" if path >= 0 else word)
        done |= ready
    return own, paths


def _layer(path: str) -> int:
    return next((int(found[1]) for word in path.split("/") if (found := _LAYER.search(word))), NONE)
