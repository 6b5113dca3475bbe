"""Loops over rows behind estimates: numba infers their types."""

import numpy as np

from lumos_df.base.jit import kernel
from lumos_df.model.kernels import cost as c
from lumos_df.model.kernels import expert_operators, sparse_attention, state_space
from lumos_df.model.kernels import layer_operators as op
from lumos_df.model.kernels.legality import first_broken, violated


@kernel
def first_rules_broken(models, hardware, plans, model_of, hardware_of):
    """Return int64 [n]: for each row the first of `model.rules.RULES` that it breaks, counted from 1, or 0.

    Args:
        models, hardware: MODEL_ROW and HARDWARE_ROW.
        plans: PLAN_ROW [n].
        model_of, hardware_of: int64 [n].
    """
    codes = np.zeros(len(plans), np.int64)
    for i in range(len(plans)):
        codes[i] = first_broken(violated(plans[i], models[model_of[i]], hardware[hardware_of[i]]))
    return codes


@kernel
def front(memory, level, levels):
    """Return int64: the places of the rows that are on the front.

    Args:
        memory: float64 [n], in the order of time, then memory, then GPUs: whatever beats a row comes before it.
        level: int64 [n], the place of the row's GPUs among the distinct numbers of them.
        levels: how many of those there are.
    """
    least = np.full(levels, np.inf)  # memory of the rows so far with at most as many GPUs
    kept = np.empty(len(memory), np.int64)
    count = 0
    for row in range(len(memory)):
        if memory[row] < least[level[row]]:
            kept[count] = row
            count += 1
            for other in range(level[row], levels):
                least[other] = min(least[other], memory[row])
    return kept[:count]


@kernel
def write_blocks(models, plans, hardware, software, table, cost, ends):
    """Write what the blocks of a model run into `table`, with seconds, and where each block ends into `ends`.

    Args:
        models, plans, hardware, software: one record each of MODEL_ROW, PLAN_ROW, HARDWARE_ROW and SOFTWARE_ROW.
        table: float64 [BLOCKS * OPERATORS, op.COLUMNS], written.
        cost: float64 [PASSES, KINDS], work space.
        ends: int64 [BLOCKS] of `operators.BLOCKS`, written.
    """
    model, plan, gpu, profile = models[0], plans[0], hardware[0], software[0]
    n = sparse_attention.indexer(model, plan, table, 0)
    n = op.attention_block(model, plan, profile, table, n)
    ends[0] = n
    if model.mamba_layers > 0:
        n = state_space.mixer_block(model, plan, profile, table, n)
    ends[1] = n
    if model.dense_layers > 0:
        n = op.dense_block(model, plan, profile, table, n)
    ends[2] = n
    if model.experts > 0:
        n = expert_operators.expert_block(model, plan, profile, table, n)
    ends[3] = n
    n = op.embedding_block(model, plan, table, n)
    ends[4] = n
    n = op.head_block(model, plan, profile, table, n)
    ends[5] = n
    c.block_cost(table, 0, n, model, plan, gpu, profile, cost)
