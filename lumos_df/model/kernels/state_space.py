"""The mixer of a state-space layer (Mamba-2, Dao and Gu 2024, arXiv 2405.21060): operators, parameters, activations.

Shapes: T tokens a rank, h hidden, d = heads * head width, n the state's size, g groups that share its input and output.
"""

from typing import Final

from lumos_df.base.jit import lean_kernel
from lumos_df.model.kernels import layer_operators as op

_CHUNK: Final = 128
"""Tokens of a chunk of the scan: within one it is a product, between them a recurrence. What published models have."""

_STATE_TOUCHES: Final = 4.0
"""Times that a chunk's state, in single precision, is written or read: by the chunk, by the recurrence twice, by the
output."""

_SCAN_BACKWARD: Final = 2.5
"""Bytes of the scan's backward pass over those of its forward pass: states again, and a gradient for each operand."""


@lean_kernel
def inner_width(model, plan):
    """Return the columns of the input projection on one rank: gate and input, state's input and output, step sizes."""
    return _parted(model, 2.0, 2.0) / plan.tp


@lean_kernel
def _parted(model, inner, groups):
    return (
        inner * model.state_heads * model.state_head_dim
        + groups * model.state_groups * model.state_size
        + (model.state_heads if inner > 1.0 else 0.0)
    )


@lean_kernel
def mixer_parameters(model):
    """Return the parameters of one such mixer: projections, convolution of four taps and its biases, steps, norms."""
    inner = model.state_heads * model.state_head_dim
    projections = model.hidden * (_parted(model, 2.0, 2.0) + inner)
    return projections + 5.0 * _parted(model, 1.0, 2.0) + 3.0 * model.state_heads + inner + model.hidden


@lean_kernel
def mixer_activation_bytes(model, plan, operand_size):
    """Return the bytes that the forward pass of one such mixer keeps for its backward pass, one micro-batch.

    The norm's input and output, what the input projection puts out, the convolution's output, and the scan's before and
    after its gate, the latter as the output projection reads it.
    """
    tokens = plan.micro_batch * model.seq / plan.cp
    size = op.activation_bytes(plan)
    inner = model.state_heads * model.state_head_dim / plan.tp
    narrow = plan.tp if plan.sequence_parallel else 1
    kept = (inner_width(model, plan) + _parted(model, 1.0, 2.0) / plan.tp + inner) * size + inner * operand_size
    return tokens * (kept + model.hidden * (size + operand_size) / narrow)


@lean_kernel
def mixer_block(model, plan, software, ops, i):
    """Write the forward operators of one such mixer from row `i` on; return the row after the last."""
    tokens = plan.micro_batch * model.seq / plan.cp
    size = op.activation_bytes(plan)
    hidden_bytes = tokens * model.hidden * size
    inner = model.state_heads * model.state_head_dim / plan.tp
    mixed = tokens * _parted(model, 1.0, 2.0) / plan.tp * size
    i = op.enter(model, plan, software, ops, i, hidden_bytes)
    i = op.product(ops, i, op.STATE_INPUT, tokens, inner_width(model, plan), model.hidden, 1.0)
    i = op.memory_pass(ops, i, op.CONVOLUTION, 2 * mixed, 3 * mixed, 1.0)
    states = _STATE_TOUCHES * 4.0 * tokens / _CHUNK * inner * model.state_size
    scanned = software.scan_passes * (2 * mixed + states + tokens * inner * size)
    i = op.memory_pass(ops, i, op.STATE_SCAN, scanned, _SCAN_BACKWARD * scanned, 5.0)
    gated = tokens * inner * size
    i = op.memory_pass(ops, i, op.STATE_GATE, 3 * gated, 5 * gated, 1.0)
    i = op.product(ops, i, op.STATE_OUTPUT, tokens, model.hidden, inner, 1.0)
    i = op.leave(plan, ops, i, hidden_bytes)
    return op.residual(plan, software, ops, i, hidden_bytes)
