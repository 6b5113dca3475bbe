"""What one block of each kind costs, and which plans of a sweep it is the same for.

A sweep changes the batch, the schedule or the optimizer far more often than what a block does, so the last costs are
remembered by what they follow from.
"""

from typing import Final

import numpy as np

from lumos_df.base.jit import lean_kernel
from lumos_df.model.kernels import cost as c
from lumos_df.model.kernels import expert_operators, placement, sparse_attention, state_space
from lumos_df.model.kernels import layer_operators as op
from lumos_df.model.pipeline import stages as st
from lumos_df.schema.plan_words import CP, EP, TP

OPERATORS: Final = 64
"""Operators that a block has at most."""

_HASH_BITS: Final = 8
"""Threshold, bits. So many of a key's hash say where its costs are remembered. Evidence: with 3 a shuffled dense grid
runs at 390,000 estimates a second and one of experts in DualPipe at 160,000, with 8 at 560,000 and 270,000, with 10 at
570,000 and 290,000; 8 are 0.2 MB, which stays in a core's cache."""

REMEMBERED: Final = 1 << _HASH_BITS
"""How many costs are remembered at once."""

KEY_BEYOND_FIELDS: Final = 6
"""Numbers of a key beside fields of the plan: model and GPU, and how far apart the ranks of four groups are."""

_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)
"""An odd number without a pattern in its bits, 2^64 over the golden ratio: it carries every bit to the highest ones."""

NOBODYS: Final = -1
"""First number of a key that nothing is remembered by."""


@lean_kernel
def write_key(fields, blocks_by, model_number, hardware_number, plan, key):
    """Write what the costs follow from into `key`; return where they are remembered.

    Args:
        fields: the plan as int64 [fields].
        blocks_by: int64 [n], which of them count.
        model_number, hardware_number: which model and GPU.
        plan: a record. Fields that do not count still say how far apart ranks are.
        key: int64 [n + KEY_BEYOND_FIELDS].
    """
    key[0] = model_number
    key[1] = hardware_number
    key[2] = placement.group_stride(plan, TP)
    key[3] = placement.group_stride(plan, CP)
    key[4] = placement.expert_group_stride(plan, TP)
    key[5] = placement.expert_group_stride(plan, EP)
    for i in range(len(blocks_by)):
        key[KEY_BEYOND_FIELDS + i] = fields[blocks_by[i]]
    hashed = np.uint64(0)
    for i in range(len(key)):
        hashed = (hashed ^ np.uint64(key[i])) * _SPREAD
    return hashed >> np.uint64(64 - _HASH_BITS)


@lean_kernel
def same_key(key, known):
    """Return whether `known` is this key already; else it is from now on."""
    same = True
    for i in range(len(key)):
        same &= key[i] == known[i]
        known[i] = key[i]
    return same


@lean_kernel
def block_costs(model, plan, hardware, software, ops, costs):
    """Write the cost of one block of each kind into `costs`."""
    costs[:] = 0.0
    n = sparse_attention.indexer(model, plan, ops, 0)
    n = op.attention_block(model, plan, software, ops, n)
    c.block_cost(ops, 0, n, model, plan, hardware, software, costs[st.DENSE])
    if model.mamba_layers > 0:
        # A layer of a hybrid model is the mean of what its layers have; the head's row is free as yet.
        n = state_space.mixer_block(model, plan, software, ops, 0)
        c.block_cost(ops, 0, n, model, plan, hardware, software, costs[st.HEAD])
        for row in range(c.PASSES):
            for kind in range(c.KINDS):
                both = (
                    model.attention_layers * costs[st.DENSE, row, kind] + model.mamba_layers * costs[st.HEAD, row, kind]
                )
                costs[st.DENSE, row, kind] = both / model.layers
                costs[st.HEAD, row, kind] = 0.0
    if model.experts > 0:
        for row in range(c.PASSES):
            for kind in range(c.KINDS):
                costs[st.EXPERT, row, kind] = costs[st.DENSE, row, kind]
        n = expert_operators.expert_block(model, plan, software, ops, 0)
        c.block_cost(ops, 0, n, model, plan, hardware, software, costs[st.EXPERT])
    if model.dense_layers > 0:
        n = op.dense_block(model, plan, software, ops, 0)
        c.block_cost(ops, 0, n, model, plan, hardware, software, costs[st.DENSE])
    n = op.embedding_block(model, plan, ops, 0)
    c.block_cost(ops, 0, n, model, plan, hardware, software, costs[st.EMBEDDING])
    n = op.head_block(model, plan, software, ops, 0)
    c.block_cost(ops, 0, n, model, plan, hardware, software, costs[st.HEAD])
