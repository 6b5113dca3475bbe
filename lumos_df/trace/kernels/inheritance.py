"""Passes over the rows in order: what a row inherits from the row around it, or from the call that launched it.

A row's parent is always an earlier row on the host; a GPU row's parent may be a later one (two clocks), so each pass
takes the host rows first.
"""

import numpy as np

from lumos_df.base.jit import kernel
from lumos_df.schema.codes import BACKWARD, COMMUNICATION_PHASE, FORWARD, NONE, OPTIMIZER, OTHER_PHASE, RECOMPUTE

# What a name says about the phase of the row and of everything inside it.
NO_ROLE, BACKWARD_ROLE, OPTIMIZER_ROLE, LOADER_ROLE, COMMUNICATION_ROLE, RECOMPUTE_ROLE, STEP_ROLE = range(7)


@kernel
def steps(ts, dur, parent, is_gpu, step_of_row):
    """Return the step of each row: the ProfilerStep in which it starts; a GPU row's is that of its launch.

    Args:
        ts, dur: int64 [n], ns.
        parent: int32 [n]; a GPU row's is its launch, or -1.
        is_gpu: bool [n].
        step_of_row: int32 [n], the number of each ProfilerStep row, -1 elsewhere.

    Returns:
        int32 [n], -1 outside every step.
    """
    n = len(ts)
    step = np.full(n, -1, np.int32)
    current, end = np.int32(-1), np.int64(0)
    for row in range(n):
        if step_of_row[row] >= 0:
            current, end = step_of_row[row], ts[row] + dur[row]
        if current >= 0 and ts[row] < end:
            step[row] = current
    for row in range(n):
        if is_gpu[row] and parent[row] >= 0:
            step[row] = step[parent[row]]
    return step


@kernel
def phases(is_cpu_op, on_gpu, role, grows_graph, made_node, own_node, parent):
    """Return each row's phase, as a place in `schema.PHASES`.

    Args:
        is_cpu_op, on_gpu: bool [n].
        role: int8 [n], what the row's own name says.
        grows_graph: bool [n], operators that autograd could record for a later backward.
        made_node: bool [n], those whose backward is in the trace.
        own_node: bool [n], nodes of the backward pass that are PyTorch's own and no custom function's.
        parent: int32 [n].

    An operator that grows the graph is forward work; inside backward work, where custom functions only look as if they
    did, one whose own backward follows is a recomputation. So is one in a node of PyTorch's own that ends with what
    does not grow the graph: a hook runs it, to have what the node needs (checkpoints without reentry), and the nodes
    that it makes never run. An operator that
    nothing marks belongs to what comes next: forward before a forward or backward operator, other before the optimizer
    or the step's end, unless the trace has no backward at all (inference is all forward).
    """
    n = len(role)
    ends_grown = np.zeros(n, np.bool_)  # a node whose own work grows the graph, as for gradients of gradients
    for row in range(n):
        p = parent[row]
        if 0 <= p < row and own_node[p] and is_cpu_op[row]:
            ends_grown[p] = grows_graph[row]
    phase = np.full(n, NONE, np.int8)
    trains = False
    for row in range(n):
        if role[row] == BACKWARD_ROLE:
            trains = True
        p = parent[row]
        outer = phase[p] if 0 <= p < row else NONE
        if role[row] == COMMUNICATION_ROLE:
            phase[row] = COMMUNICATION_PHASE
        elif role[row] == OPTIMIZER_ROLE:
            phase[row] = OPTIMIZER
        elif role[row] == LOADER_ROLE:
            phase[row] = OTHER_PHASE
        elif role[row] == BACKWARD_ROLE:
            phase[row] = BACKWARD
        elif outer == BACKWARD and (
            made_node[row] or role[row] == RECOMPUTE_ROLE or (grows_graph[row] and own_node[p] and not ends_grown[p])
        ):
            phase[row] = RECOMPUTE
        elif outer != NONE:
            phase[row] = outer
        elif grows_graph[row]:
            phase[row] = FORWARD

    before = np.empty(n, np.int8)  # what an unmarked operator would be, by what comes next
    following = np.int8(OTHER_PHASE if trains else FORWARD)
    for row in range(n - 1, -1, -1):
        before[row] = following
        if on_gpu[row]:  # runs late: says nothing about what the host does next
            continue
        if phase[row] == FORWARD or role[row] == BACKWARD_ROLE:
            following = np.int8(FORWARD)
        elif trains and (role[row] == OPTIMIZER_ROLE or role[row] == STEP_ROLE):
            following = np.int8(OTHER_PHASE)
    for row in range(n):
        if phase[row] == NONE:
            p = parent[row]
            if 0 <= p < row and phase[p] != OTHER_PHASE:
                phase[row] = phase[p]
            elif is_cpu_op[row]:
                phase[row] = before[row]
            else:
                phase[row] = OTHER_PHASE
    for row in range(n):
        p = parent[row]
        if p > row and role[row] != COMMUNICATION_ROLE:
            phase[row] = phase[p]
    return phase


@kernel
def nearest_marked(marked, parent):
    """Return for each row its nearest marked ancestor, itself not counted, or -1; int32 [n]."""
    n = len(parent)
    nearest = np.full(n, -1, np.int32)
    for row in range(n):
        p = parent[row]
        if 0 <= p < row:
            nearest[row] = p if marked[p] else nearest[p]
    for row in range(n):
        p = parent[row]
        if p > row:
            nearest[row] = p if marked[p] else nearest[p]
    return nearest


@kernel
def inherit(value, parent, forward):
    """Return for each row its own value, else its forward operator's, else its parent's, -1 for none; int32 [n]."""
    n = len(value)
    inherited = value.copy()
    for row in range(n):
        if inherited[row] < 0 and forward[row] >= 0:
            inherited[row] = inherited[forward[row]]
        p = parent[row]
        if inherited[row] < 0 and 0 <= p < row:
            inherited[row] = inherited[p]
    for row in range(n):
        if inherited[row] < 0 and parent[row] > row:
            inherited[row] = inherited[parent[row]]
    return inherited
