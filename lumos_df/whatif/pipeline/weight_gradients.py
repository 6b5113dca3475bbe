"""The backward pass parted: gradients of weights, which nothing in a pipeline waits for, apart from those of inputs.

A product y = x w has two gradients, products as well: that of x contracts over the columns of w, that of w over the
rows of x, so shapes tell them apart; of two that look alike, and of two of one node of autograd without shapes, the
second is that of w, as PyTorch's formulas have it. With the products go what adds them up (`AccumulateGrad`) and
the reduction over replicas. All else stays with the gradients of inputs.
"""

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import QueryError
from lumos_df.graph.rows import Rows
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import BACKWARD, CPU_OP, FORWARD, KERNEL, NONE, RECOMPUTE
from lumos_df.structure.labelled_rows import Trace
from lumos_df.structure.shapes import BATCHED, PRODUCT, Operation
from lumos_df.whatif.durations.kernel_kind import GEMM, operation_of
from lumos_df.whatif.rewrite.blocks import BACKWARD_PASS, FORWARD_PASS, OUTSIDE, WEIGHTS, Blocks, placed
from lumos_df.whatif.rewrite.rewritten_graph import rewritten

_ADDS_UP: Final = re.compile(r".*AccumulateGrad")
_NEITHER, _INPUT, _WEIGHT, _EITHER, _UNTOLD = range(5)
"""Whose gradient a product is by its shapes; `_UNTOLD` without shapes."""


def parted(
    graph: TraceGraph, blocks: Blocks, trace: Trace, phase: NDArray[np.int8], reductions: NDArray[np.bool_]
) -> tuple[TraceGraph, Blocks, NDArray[np.int32], float]:
    """Return a trace with the weight gradients of every micro-batch in blocks at the end of its backward pass.

    Args:
        graph: the graph as it was.
        blocks: its blocks.
        trace: its operators.
        phase: phase of every operator [n].
        reductions: which operators reduce gradients over replicas [n].

    Returns:
        The graph, its blocks, which row of the original each of its rows is, and of what share of the time of the
        backward pass's products nothing tells whose gradients they are.

    Raises:
        QueryError: nothing tells which products are gradients of weights.
    """
    atoms, gpu = graph.atoms, graph.gpu
    atom_count = len(atoms.row)
    moved, untold = of_weights(trace, phase)
    if not moved.any() and (blocks.kind == BACKWARD_PASS).any():
        raise QueryError(
            f"{graph.rows.job}: rank {graph.rows.rank} does not tell gradients of weights from those of inputs, which "
            "this schedule runs apart; record its operators with PyTorch's record_shapes=True, or take schedule=1f1b"
        )
    moved |= reductions
    whose = blocks.of_row[atoms.row]
    may = (blocks.kind[whose] != FORWARD_PASS) & (blocks.micro_batch[whose] >= 0)
    launches = np.zeros(atom_count, np.bool_)
    launches[gpu.call[gpu.call >= 0]] = True
    weight = np.zeros(atom_count, np.bool_)
    weight[gpu.call[(gpu.call >= 0) & moved[gpu.row]]] = True
    weight = _with_next(weight, launches, atoms.thread, whose) & may
    # Runs of one block and one part of it.
    changes = np.flatnonzero((np.diff(whose, prepend=-1) != 0) | np.append(True, weight[1:] != weight[:-1]))
    of_atom = (np.searchsorted(changes, np.arange(atom_count), side="right") - 1).astype(np.int32)
    run, apart = whose[changes], weight[changes]
    none = np.full(len(run), NONE, np.int32)
    fine = Blocks(placed(graph, of_atom), np.full(len(run), OUTSIDE, np.int8), blocks.step[run], none, none)
    sequence = _delayed(blocks, run, apart)
    made = rewritten(graph, fine, sequence)
    run, apart = run[sequence], apart[sequence]
    begins = np.append(True, (np.diff(run) != 0) | (apart[1:] != apart[:-1]))
    first = np.flatnonzero(begins)
    block = (np.cumsum(begins) - 1)[made.position].astype(np.int32)
    kind = np.where(apart[first], WEIGHTS, blocks.kind[run[first]]).astype(np.int8)
    again = Blocks(block, kind, blocks.step[run[first]], blocks.micro_batch[run[first]], blocks.layer[run[first]])
    products = trace.rows.of_kind(KERNEL) & (trace.rows.family == GEMM) & (phase == BACKWARD)
    return made.graph, again, made.source, float(graph.own[untold].sum() / max(graph.own[products].sum(), 1))


def _with_next(
    weight: NDArray[np.bool_], launches: NDArray[np.bool_], thread: NDArray[np.int32], whose: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Return the atoms of weight gradients: what launches nothing goes with the next of its block that does, or last.

    Args:
        weight: which atoms launch such work.
        launches: which launch any.
        thread, whose: thread and block of the atoms.
    """
    spread = weight.copy()
    for number in np.unique(thread).tolist():
        atom = np.flatnonzero(thread == number)
        known = atom[launches[atom]]
        if not len(known):
            continue
        place = np.searchsorted(known, atom)
        after = known[np.minimum(place, len(known) - 1)]
        before = known[np.maximum(place - 1, 0)]
        spread[atom] = np.where(
            whose[after] == whose[atom], weight[after], weight[before] & (whose[before] == whose[atom])
        )
    return spread


def _delayed(blocks: Blocks, run: NDArray[np.int32], apart: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the runs in a sequence in which weight gradients come after all else of their micro-batch.

    Args:
        blocks: the blocks.
        run: block that each run is a part of.
        apart: whether it is weight gradients.
    """
    batch = blocks.step[run].astype(np.int64) << 32 | blocks.micro_batch[run]
    names, number = np.unique(batch, return_inverse=True)
    end = np.zeros(len(names), np.int64)
    np.maximum.at(end, number, np.where(blocks.kind[run] != FORWARD_PASS, np.arange(len(run)), 0))
    at = np.arange(len(run))
    return np.lexsort((at, apart, np.where(apart, end[number], at)))


def of_weights(trace: Trace, phase: NDArray[np.int8]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which GPU rows compute or add up gradients of weights, and of which products nothing tells; both [n].

    Args:
        trace: the operators.
        phase: phase of each [n].
    """
    rows = trace.rows
    moved, untold = (np.zeros(len(rows), np.bool_) for _ in range(2))
    work = np.flatnonzero(rows.on_gpu & (phase == BACKWARD)).astype(np.int32)
    kernel = work[(rows.kind[work] == KERNEL) & (rows.family[work] == GEMM)]
    plain, batch = (_named(rows, pattern) for pattern in (PRODUCT, BATCHED))
    product = rows.nearest(plain | batch, kernel)
    node = rows.nearest(rows.forward >= 0, kernel)
    node = np.where(node >= 0, rows.forward[node], NONE)
    passed = np.isin(phase, (FORWARD, RECOMPUTE))
    told = _told(trace, product, {each.product for each in _operations(trace, np.flatnonzero(plain & passed))[0]})
    told[np.append(batch, False)[product]] = _NEITHER
    linear, batched = (np.append(_with_above(rows, each & passed), False)[node] for each in (plain, batch))
    untold[kernel[(told == _UNTOLD) & ~linear & ~batched]] = True
    told[(told == _UNTOLD) & ~linear] = _NEITHER
    # One operator may launch several kernels; where none is known each kernel is one.
    unit = np.where(product >= 0, product, len(rows) + kernel)
    chosen = (told == _WEIGHT) | _second(told, node, unit, rows.ts[kernel])
    if chosen.any():
        moved[kernel[chosen]] = True
        whole = product[chosen & (product >= 0)]
        adds = rows.nearest(_named(rows, _ADDS_UP), work) >= 0
        moved[work] |= np.isin(rows.nearest(plain, work), whole) | adds
    return moved, untold


def _named(rows: Rows, pattern: re.Pattern[str]) -> NDArray[np.bool_]:
    """Return which operators of the host go by such a name [n]."""
    matching: NDArray[np.bool_] = rows.named(pattern.match) & (rows.kind == CPU_OP)
    return matching


def _with_above(rows: Rows, below: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return some rows and all rows above them [n]."""
    reached = np.zeros(len(rows), np.bool_)
    at = np.flatnonzero(below)
    while len(at):
        reached[at] = True
        at = np.unique(rows.parent[at])
        at = at[at >= 0]
        at = at[~reached[at]]
    return reached


def _second(
    told: NDArray[np.int64], node: NDArray[np.int64], unit: NDArray[np.int64], ts: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which products that shapes do not tell are gradients of weights: the second ones of their node.

    Where no link to the forward pass says the node, every second one of those that look alike.
    """
    second = np.zeros(len(told), np.bool_)
    use = np.flatnonzero((told != _NEITHER) & (told != _WEIGHT) & ((node >= 0) | (told == _EITHER)))
    use = use[np.lexsort((ts[use], node[use]))]
    new = np.append(True, np.diff(unit[use]) != 0) if len(use) else np.empty(0, np.bool_)
    number = np.cumsum(new)
    first = np.searchsorted(node[use], node[use])
    turn = number - number[first]
    second[use] = (turn % 2 == 1) & (told[use] != _INPUT)
    return second


def _told(trace: Trace, operator: NDArray[np.int64], products: set[tuple[int, int, int]]) -> NDArray[np.int64]:
    """Return whose gradients operators compute, by their shapes [k].

    Args:
        trace: the operators.
        operator: those that the gradients are computed by, or NONE [k].
        products: (m, k, n) of the products of the forward pass.
    """
    told = np.full(len(operator), _UNTOLD, np.int64)
    shaped = np.flatnonzero(operator >= 0)
    kinds, which = _operations(trace, operator[shaped])
    whose = np.array([*(_whose(operation, products) for operation in kinds), _UNTOLD], np.int64)
    told[shaped] = whose[which]
    return told


def _whose(operation: Operation, products: set[tuple[int, int, int]]) -> int:
    m, k, n = operation.product
    weight = any(k == rows and {m, n} == {inner, columns} for rows, inner, columns in products)
    other = any(k == columns and {m, n} == {rows, inner} for rows, inner, columns in products)
    return (_EITHER if other else _WEIGHT) if weight else _INPUT if other else _NEITHER


def _operations(trace: Trace, row: NDArray[np.int64]) -> tuple[list[Operation], NDArray[np.int64]]:
    """Return the distinct products of matrices among operators, and which each of them is, NONE without shapes [k]."""
    key = trace.rows.name[row].astype(np.int64) * (len(trace.dims.words) + 1) + trace.dims.code[row]
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    every = [
        operation_of(trace, operator) if trace.dims.code[operator] >= 0 else None for operator in row[first].tolist()
    ]
    kept = {
        number: operation for number, operation in enumerate(every) if operation is not None and operation.is_product()
    }
    place = np.full(len(every) + 1, NONE, np.int64)
    place[[*kept]] = np.arange(len(kept))
    return [*kept.values()], place[inverse.reshape(-1)]
