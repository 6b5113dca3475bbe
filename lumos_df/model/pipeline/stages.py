"""The chunks of a pipeline: which layers each has, and what one micro-batch takes on it, host and GPU together."""

from typing import Final

import numpy as np

from lumos_df.base.jit import lean_kernel
from lumos_df.model.kernels import cost as c
from lumos_df.model.kernels import placement
from lumos_df.model.kernels.layer_operators import vocabulary
from lumos_df.model.kernels.memory import (
    attention_parameters,
    feed_forward_parameters,
    keeps_products,
    layer_parameters,
    mixer_parameters,
)
from lumos_df.schema.plan_words import RECOMPUTE_ATTENTION, RECOMPUTE_LAYERS, RECOMPUTE_LIGHT, SHARD_GRADIENTS, TP

DENSE: Final = 0
EXPERT: Final = 1
EMBEDDING: Final = 2
HEAD: Final = 3
BLOCKS: Final = 4
"""Kinds of block, the first axis of the costs: a dense layer, a layer with experts, the embedding, the head."""

DENSE_LAYERS: Final = 0
EXPERT_LAYERS: Final = 1
FORWARD_S: Final = 2
INPUT_S: Final = 3
WEIGHT_S: Final = 4
HOST_S: Final = 5
EP_FORWARD_S: Final = 6
EP_BACKWARD_S: Final = 7
ADD_S: Final = 8
HOST_BUSY_S: Final = 9
CHUNK_ROWS: Final = 10
"""Rows of the table of chunks: layers of both kinds; seconds of a micro-batch, by pass; of those, seconds by which the
host is slower than the GPU, expert-parallel ones of both passes, and those in which gradients are added up; the host's
own."""


@lean_kernel
def cut(model, plan, software, chunks):
    """Write the layers of every chunk into `chunks`, float64 [CHUNK_ROWS, pp * vp].

    Even, or where the software balances its pipeline: every chunk takes layers until its share of the compute, the
    head's included, is passed (nanotron's `build_and_set_rank`). Layers of multi-token prediction are the last.
    """
    layers = model.layers + model.mtp_layers
    count = plan.pp * plan.vp
    head = vocabulary(model, plan) * model.hidden
    layer = mixer_parameters(model) + feed_forward_parameters(model, float(model.ffn))
    share = (layers + head / layer) / count
    chunk = 0
    before = 0
    taken = 0
    for v in range(count):
        if software.balanced:
            taken = 0
            while chunk < layers and (v == count - 1 or taken == 0 or chunk <= share * (v + 1)):
                chunk += 1
                taken += 1
        else:
            taken = placement.chunk_layers(layers, count, v)
        dense = min(max(model.dense_layers - before, 0), taken)
        chunks[DENSE_LAYERS, v] = dense
        chunks[EXPERT_LAYERS, v] = taken - dense
        before += taken


@lean_kernel
def times_of(model, block, v, count, chunks):
    """Return how many blocks of a kind chunk `v` of `count` has; each multi-token prediction has logits of its own."""
    if block == DENSE:
        return chunks[DENSE_LAYERS, v]
    if block == EXPERT:
        return chunks[EXPERT_LAYERS, v]
    if block == EMBEDDING:
        return 1.0 if v == 0 else 0.0
    return 1.0 + model.mtp_layers if v == count - 1 else 0.0


@lean_kernel
def collective_host_s(plan, hardware, software):
    """Return the host's seconds of one collective inside a layer, latency of the nodes between its ranks included."""
    hops = 0.0
    if plan.tp > 1:
        near = placement.members_per_domain(plan.tp, placement.group_stride(plan, TP), hardware.scale_up_gpus)
        hops = np.ceil(plan.tp / near) - 1.0
        spans = plan.tp * plan.cp * plan.dp * plan.pp > hardware.scale_up_gpus
        if software.piped_hops and plan.pp > 1 and spans:
            hops = plan.tp - 1.0
    return software.collective_s + hops * software.hop_s


@lean_kernel
def collectives_host_s(cost, row, collective_s, software):
    """Return the host's seconds of all collectives of one pass over a block; `collective_s` is that of one alone."""
    return cost[row, c.COLLECTIVES] * collective_s + cost[row, c.DOUBLINGS] * software.skew_s


@lean_kernel
def hidden_seconds(cost, row, plan, software):
    """Return the seconds of tensor-parallel communication of one pass over a block that run behind matrix products.

    The software's share of them, and no more than those products take: backwards both passes' do.
    """
    share = software.tp_hidden if plan.overlap_tp else 0.0
    products = cost[row, c.GEMM_S]
    if row != c.FORWARD:
        share = max(share, software.tp_backward_hidden)
        products = cost[c.BACKWARD_INPUT, c.GEMM_S] + cost[c.BACKWARD_WEIGHT, c.GEMM_S]
    return min(share * cost[row, c.TP_S], products)


@lean_kernel
def passed_on_seconds(cost, row, plan, software):
    """Return the seconds of context-parallel exchange of one pass over a block that run behind attention.

    In a ring, ranks attend to one part of the keys while the next one comes (Liu et al. 2023, arXiv 2310.01889), so
    behind all parts but the last. Who gathers all keys first hides nothing.
    """
    return min(cost[row, c.CP_S], (1.0 - 1.0 / plan.cp) * cost[row, c.ATTENTION_S]) if software.zigzag else 0.0


@lean_kernel
def exchange_seconds(cost, row, plan, software):
    """Return the seconds that context-parallel exchange adds to one pass: what shows, and what the rest slows down."""
    passed_on = passed_on_seconds(cost, row, plan, software)
    return cost[row, c.CP_S] - passed_on + software.slowdown * passed_on


@lean_kernel
def compute_seconds(cost, row):
    """Return the GPU's seconds of one pass over a block, without communication."""
    return cost[row, c.GEMM_S] + cost[row, c.ATTENTION_S] + cost[row, c.ELEMENTWISE_S]


@lean_kernel
def again_seconds(model, plan, software, cost):
    """Return the GPU's seconds of what the backward pass of a layer computes again, without communication."""
    if plan.recompute == RECOMPUTE_LAYERS:
        return compute_seconds(cost, c.FORWARD) - not_again(model, software) * cost[c.FORWARD, c.GEMM_S]
    if plan.recompute == RECOMPUTE_LIGHT:
        return latent_share(model) * cost[c.FORWARD, c.GEMM_S] + cost[c.FORWARD, c.ELEMENTWISE_S]
    if keeps_products(plan, software):
        return products_again(model) * cost[c.FORWARD, c.GEMM_S] + cost[c.FORWARD, c.ELEMENTWISE_S]
    return cost[c.FORWARD, c.ATTENTION_S] if plan.recompute == RECOMPUTE_ATTENTION else 0.0


@lean_kernel
def not_again(model, software):
    """Return the share of a layer's matrix products that recomputation of whole layers leaves out: of its last one.

    What experts give is read again, for the router's gradient.
    """
    if model.experts > 0:
        return 0.0
    down = (1.0 - software.last_again) * model.hidden * model.ffn
    return down / (attention_parameters(model) + feed_forward_parameters(model, float(model.ffn)))


@lean_kernel
def products_again(model):
    """Return the share of a layer's matrix products that are computed again where every second is kept.

    Of query, key, value, output, gate, up and down those of even number: key, output and up, or down without a gate.
    """
    again = model.hidden * (model.kv_heads * model.head_dim + model.heads * model.v_dim + model.ffn)
    return again / (attention_parameters(model) + feed_forward_parameters(model, float(model.ffn)))


@lean_kernel
def latent_share(model):
    """Return the share of a layer's matrix products that are MLA's projections out of its compressed vectors."""
    up = model.heads * (model.q_rank * model.head_dim + model.kv_rank * (model.head_dim - model.rope_dim + model.v_dim))
    inner = float(model.ffn) if model.experts == 0 else float(model.top_k * model.expert_ffn + model.shared_ffn)
    return up / (attention_parameters(model) + feed_forward_parameters(model, inner)) if model.kv_rank > 0 else 0.0


@lean_kernel
def pass_seconds(cost, row, plan, software):
    """Return the GPU's seconds of one pass over a block, without communication that is hidden."""
    exposed = cost[row, c.TP_S] - hidden_seconds(cost, row, plan, software)
    exposed += exchange_seconds(cost, row, plan, software)
    return compute_seconds(cost, row) + cost[row, c.EP_S] + exposed


@lean_kernel
def parameter_add_seconds(plan, hardware, software):
    """Return the seconds in which the gradient of one parameter is added. Shards are small, and so are adapters."""
    if plan.zero >= SHARD_GRADIENTS or plan.lora > 0:
        return 0.0
    return software.add_bytes / (hardware.hbm_bandwidth * hardware.memory[1])


@lean_kernel
def add_seconds(model, plan, hardware, software):
    """Return the seconds in which a micro-batch's gradients are added to those before, of the parameters on a rank.

    Of a dense layer, a layer with experts, and a table of the vocabulary.
    """
    each = parameter_add_seconds(plan, hardware, software)
    dense, _ = layer_parameters(model, plan, False)
    shared, experts = layer_parameters(model, plan, True)
    return each * dense, each * (shared + experts), each * vocabulary(model, plan) * model.hidden / plan.tp


@lean_kernel
def chunk_seconds(model, plan, hardware, software, costs, chunks):
    """Write the seconds of a micro-batch on every chunk into `chunks`; `costs` is float64 [BLOCKS, PASSES, KINDS].

    The host runs ahead of the GPU within a micro-batch: the slower of both sets the pace, and where they are near each
    other neither hides wholly behind the other (`run_ahead`).
    """
    count = plan.pp * plan.vp
    collective_s = collective_host_s(plan, hardware, software)
    dense_s, expert_s, table_s = add_seconds(model, plan, hardware, software)
    micro_batches = plan.batch // (plan.dp * plan.micro_batch)
    for v in range(count):
        # Between the embedding and the head chunks of the same layers take the same.
        if (
            1 < v < count - 1
            and chunks[DENSE_LAYERS, v] == chunks[DENSE_LAYERS, v - 1]
            and chunks[EXPERT_LAYERS, v] == chunks[EXPERT_LAYERS, v - 1]
        ):
            for row in range(FORWARD_S, CHUNK_ROWS):
                chunks[row, v] = chunks[row, v - 1]
            continue
        forward, backward, weight, ep_forward, ep_backward = 0.0, 0.0, 0.0, 0.0, 0.0
        host = software.micro_batch_s / plan.vp
        if not software.step_waits:
            layers = chunks[DENSE_LAYERS, v] + chunks[EXPERT_LAYERS, v]
            host += (software.step_s / plan.vp + software.layer_step_s * layers) / micro_batches
        for block in range(BLOCKS):
            times = times_of(model, block, v, count, chunks)
            if times == 0.0:
                continue
            cost = costs[block]
            f = pass_seconds(cost, c.FORWARD, plan, software)
            b = pass_seconds(cost, c.BACKWARD_INPUT, plan, software)
            f_host = cost[c.FORWARD, c.LAUNCHES] * software.launch_s
            f_host += collectives_host_s(cost, c.FORWARD, collective_s, software)
            b_host = (
                cost[c.BACKWARD_INPUT, c.LAUNCHES] + cost[c.BACKWARD_WEIGHT, c.LAUNCHES]
            ) * software.backward_launch_s
            b_host += collectives_host_s(cost, c.BACKWARD_INPUT, collective_s, software)
            if block <= EXPERT:
                b += again_seconds(model, plan, software, cost)
                if plan.recompute == RECOMPUTE_LAYERS:
                    # Its communication comes again, too.
                    b += f - compute_seconds(cost, c.FORWARD)
                operators = plan.recompute == RECOMPUTE_LIGHT or keeps_products(plan, software)
                if plan.recompute == RECOMPUTE_LAYERS or operators:
                    b_host += f_host
            forward += times * f
            ep_forward += times * cost[c.FORWARD, c.EP_S]
            ep_backward += times * cost[c.BACKWARD_INPUT, c.EP_S]
            backward += times * b
            weight += times * pass_seconds(cost, c.BACKWARD_WEIGHT, plan, software)
            host += times * (f_host + b_host)
        tables = (1.0 if v == 0 else 0.0) + (1.0 if v == count - 1 else 0.0)
        added = chunks[DENSE_LAYERS, v] * dense_s + chunks[EXPERT_LAYERS, v] * expert_s + tables * table_s
        weight += added
        gpu = forward + backward + weight
        power = software.run_ahead
        # A balanced pipeline may run out of layers; then only the host has something to do.
        slower = ((host / gpu) ** power + 1.0) ** (1.0 / power) if gpu > 0.0 else 0.0
        routing = chunks[EXPERT_LAYERS, v] * software.routing_s
        # Who computes a layer again routes again.
        again = routing if plan.recompute == RECOMPUTE_LAYERS else 0.0
        chunks[FORWARD_S, v] = (forward * slower if gpu > 0.0 else host) + routing
        chunks[INPUT_S, v] = backward * slower + routing + again
        chunks[WEIGHT_S, v] = weight * slower
        chunks[HOST_S, v] = (gpu * (slower - 1.0) if gpu > 0.0 else host) + 2.0 * routing + again
        chunks[EP_FORWARD_S, v] = ep_forward
        chunks[EP_BACKWARD_S, v] = ep_backward
        chunks[ADD_S, v] = added
        chunks[HOST_BUSY_S, v] = host


@lean_kernel
def paired_seconds(forward, backward, ep, slowdown):
    """Return the seconds of a forward and a backward pass that run side by side.

    Exchanges with experts of the one run behind compute of the other, and slow it down (DualPipe, arXiv 2412.19437).

    Args:
        forward, backward: seconds of either pass, exchanges included.
        ep: seconds of the exchanges of both.
        slowdown: compute time added a second of communication that runs beside it.
    """
    both = forward + backward
    return both - (1.0 - min(slowdown, 1.0)) * min(ep, both - ep)
