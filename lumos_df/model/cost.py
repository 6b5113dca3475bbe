"""What the operators of a block cost: seconds by kind of work, for each pass over the block.

The backward of a matrix product is two products (input and weight gradient), of an attention its own kernel, of a
pass over memory another pass. Collectives are mirrored: what was gathered is scattered, and what was reduced once in
the forward pass is reduced once in the backward pass.
"""

from typing import Final

from lumos_df.jit import lean_kernel
from lumos_df.model import network, placement
from lumos_df.model import operators as op
from lumos_df.model.attention import attention_seconds, unfused_attention_seconds
from lumos_df.model.elementwise import elementwise_seconds
from lumos_df.model.gemm import gemm_seconds

PRECISION_BYTES: Final = (4.0, 2.0, 2.0, 1.0)
"""Bytes of an operand of a matrix product, by `lumos_df.model.hardware.PRECISIONS`."""

_BF16 = 2
_FP8 = 3

FORWARD: Final = 0
BACKWARD_INPUT: Final = 1
BACKWARD_WEIGHT: Final = 2
PASSES: Final = 3
"""Rows of a cost: the passes over a block."""

GEMM: Final = 0
ATTENTION: Final = 1
ELEMENTWISE: Final = 2
TP: Final = 3
CP: Final = 4
EP: Final = 5
LAUNCHES: Final = 6
COLLECTIVES: Final = 7
KINDS: Final = 8
"""Columns of a cost: seconds, but for the last two, which count."""


@lean_kernel
def block_cost(ops, start, stop, model, plan, hardware, software, cost):
    """Time the operators `start` to `stop` of `ops` and add them to `cost`, float64 [PASSES, KINDS].

    The seconds of each pass are also written into the rows (columns FORWARD_S, INPUT_S, WEIGHT_S).
    """
    for i in range(start, stop):
        family = int(ops[i, op.FAMILY])
        launches = ops[i, op.LAUNCHES]
        kind = ELEMENTWISE
        forward, backward, weight = 0.0, 0.0, 0.0
        if family == op.GEMM or family == op.GROUPED_GEMM:
            kind = GEMM
            m, n, k, batch = ops[i, op.M], ops[i, op.N], ops[i, op.K], ops[i, op.BATCH]
            factor = software.compute_factor
            if family == op.GROUPED_GEMM:
                factor *= software.expert_factor
            forward = _product(m, n, k, batch, plan, hardware) * factor
            backward = _product(m, k, n, batch, plan, hardware) * factor
            weight = _product(k, n, m, batch, plan, hardware) * factor
            cost[BACKWARD_WEIGHT, LAUNCHES] += launches
        elif family == op.ATTENTION:
            kind = ATTENTION
            forward = _attention(ops, i, model, plan, hardware, software, False)
            backward = _attention(ops, i, model, plan, hardware, software, True)
        elif family == op.ELEMENTWISE:
            forward = _pass(ops[i, op.BYTES], hardware) * software.memory_factor
            backward = _pass(ops[i, op.BACKWARD_BYTES], hardware) * software.memory_factor
        else:
            group = int(ops[i, op.GROUP])
            kind = CP if group == op.CONTEXT else EP if group == op.EXPERT else TP
            forward = group_seconds(family, ops[i, op.BYTES], group, plan, hardware)
            backward = group_seconds(_mirrored(family), ops[i, op.BYTES], group, plan, hardware)
            cost[FORWARD, COLLECTIVES] += 1.0
            cost[BACKWARD_INPUT, COLLECTIVES] += 1.0
            launches = 0.0
        cost[FORWARD, kind] += forward
        cost[BACKWARD_INPUT, kind] += backward
        cost[BACKWARD_WEIGHT, kind] += weight
        cost[FORWARD, LAUNCHES] += launches
        cost[BACKWARD_INPUT, LAUNCHES] += launches
        ops[i, op.FORWARD_S] = forward
        ops[i, op.INPUT_S] = backward
        ops[i, op.WEIGHT_S] = weight


@lean_kernel
def group_seconds(family, payload, group, plan, hardware):
    """Return seconds of a collective of `family` among the ranks of `group`, `payload` as nccl-tests count it."""
    if group == op.TENSOR:
        size, stride = plan.tp, placement.group_stride(plan, placement.TP)
    elif group == op.CONTEXT:
        size, stride = plan.cp, placement.group_stride(plan, placement.CP)
    elif group == op.EXPERT:
        size, stride = plan.ep, placement.expert_group_stride(plan, placement.EP)
    elif group == op.EXPERT_TENSOR:
        size, stride = plan.etp, placement.expert_group_stride(plan, placement.TP)
    else:
        size, stride = 2, placement.group_stride(plan, placement.PP)
    return ranks_seconds(family, payload, size, stride, hardware)


@lean_kernel
def ranks_seconds(family, payload, size, stride, hardware):
    """Return seconds of a collective of `family` among `size` ranks that are `stride` apart."""
    kind = network.POINT_TO_POINT
    if family == op.ALL_REDUCE:
        kind = network.ALL_REDUCE
    elif family == op.ALL_GATHER:
        kind = network.ALL_GATHER
    elif family == op.REDUCE_SCATTER:
        kind = network.REDUCE_SCATTER
    elif family == op.ALL_TO_ALL:
        kind = network.ALL_TO_ALL
    return network.collective_seconds(
        kind,
        payload,
        size,
        placement.members_per_domain(size, stride, hardware.scale_up_gpus),
        hardware.scale_up_bandwidth,
        hardware.scale_out_bandwidth,
        hardware.scale_up,
        hardware.scale_out,
    )


@lean_kernel
def _mirrored(family):
    if family == op.ALL_GATHER:
        return op.REDUCE_SCATTER
    if family == op.REDUCE_SCATTER:
        return op.ALL_GATHER
    return family


@lean_kernel
def _product(m, n, k, batch, plan, hardware):
    precision = plan.precision
    return gemm_seconds(
        m,
        n,
        k,
        batch,
        PRECISION_BYTES[precision],
        hardware.peak_flops[precision],
        hardware.hbm_bandwidth,
        hardware.sms,
        hardware.gemm[precision],
    )


@lean_kernel
def _pass(moved_bytes, hardware):
    return elementwise_seconds(moved_bytes, hardware.hbm_bandwidth, hardware.memory)


@lean_kernel
def _attention(ops, i, model, plan, hardware, software, backward):
    # Attention's products run in 16 bits where the others run in 8.
    precision = _BF16 if plan.precision == _FP8 else plan.precision
    heads = ops[i, op.BATCH] / plan.micro_batch
    size = PRECISION_BYTES[precision]
    if plan.flash:
        factor = software.attention_factor * (hardware.flash2_factor if software.flash2 else 1.0)
        return factor * attention_seconds(
            plan.micro_batch,
            ops[i, op.M],
            ops[i, op.N],
            heads,
            max(model.kv_heads / plan.tp, 1.0),
            ops[i, op.K],
            True,
            backward,
            size,
            hardware.peak_flops[precision],
            hardware.hbm_bandwidth,
            hardware.sms,
            hardware.attention[precision],
        )
    return unfused_attention_seconds(
        plan.micro_batch,
        ops[i, op.M],
        ops[i, op.N],
        heads,
        ops[i, op.K],
        software.dropout > 0,
        backward,
        size,
        hardware.peak_flops[precision],
        hardware.hbm_bandwidth,
        hardware.sms,
        hardware.gemm[precision],
        hardware.memory,
    )
