"""One configuration, (model, plan, hardware, software), to a step's time, its parts and its memory.

`lumos_df.model.evaluate` calls it for the rows of a table. The parts that are seconds add up to the step, and follow
its critical path: through the pipeline, where it runs by the stage that sets the pace, and from there through the
gradients and the optimizer that end last.
"""

from typing import Final

import numpy as np

from lumos_df.base.jit import kernel, lean_kernel
from lumos_df.model.kernels import cost as c
from lumos_df.model.kernels import data_parallel as dp
from lumos_df.model.kernels import layer_operators as op
from lumos_df.model.kernels.block_costs import (
    KEY_BEYOND_FIELDS,
    NOBODYS,
    OPERATORS,
    REMEMBERED,
    block_costs,
    same_key,
    write_key,
)
from lumos_df.model.kernels.memory import (
    adapter_parameters,
    communication_bytes,
    gathered_bytes,
    keeps_products,
    layer_activation_bytes,
    layer_parameters,
    recomputed_bytes,
    state_bytes,
)
from lumos_df.model.pipeline import schedule as pipeline
from lumos_df.model.pipeline import stages as st
from lumos_df.schema.collective_kinds import SEND
from lumos_df.schema.plan_words import DUALPIPE, PP, RECOMPUTE_ATTENTION, RECOMPUTE_LAYERS, RECOMPUTE_LIGHT

RESULTS: Final = (
    ("iteration_time_s", "seconds of a step"),
    ("gemm_s", "matrix products of the stage that sets the pace and conversions for them, recomputation aside"),
    ("attention_s", "attention, recomputation aside"),
    ("elementwise_s", "memory-bound kernels, recomputation aside"),
    ("recompute_s", "what the backward pass computes again"),
    ("optimizer_s", "the optimizer's step"),
    ("tp_exposed_s", "tensor-parallel communication that nothing hides"),
    ("cp_exposed_s", "context-parallel communication that nothing hides"),
    ("ep_exposed_s", "expert-parallel communication that nothing hides"),
    ("pp_exposed_s", "sends between stages that stop a stage"),
    ("dp_exposed_s", "gradient and parameter communication that nothing hides, and what the hidden rest slows down"),
    ("bubble_s", "that stage waits: others fill and drain the pipeline, or messages are on their way"),
    ("host_s", "the GPU waits for the host"),
    ("overlapped_s", "communication behind compute; part of the compute above"),
    ("weights_bytes", "parameters of the fullest GPU"),
    ("gradients_bytes", "gradients of it"),
    ("optimizer_bytes", "optimizer states of it"),
    ("activations_bytes", "activations of it at their most"),
    ("logits_bytes", "logits of it"),
    ("reserve_bytes", "libraries, buffers and fragments of it"),
    ("memory_bytes", "all of these"),
    ("memory_stage", "the pipeline stage of it"),
    ("model_flops", "FLOP of a step that the model asks for, all GPUs, all token pairs of attention counted"),
    ("hardware_flops", "the same with what is computed again"),
    ("first_stage_bytes", "memory of a GPU of the first pipeline stage, of which rank 0 is one"),
    ("host_busy_s", "the host's own time of the step's micro-batches, whether the GPU waits for it or not"),
)
"""Columns of a result: name, meaning."""

(
    STEP_S,
    GEMM_S,
    ATTENTION_S,
    ELEMENTWISE_S,
    RECOMPUTE_S,
    OPTIMIZER_S,
    TP_S,
    CP_S,
    EP_S,
    PP_S,
    DP_S,
    BUBBLE_S,
    HOST_S,
    OVERLAPPED_S,
    WEIGHTS_BYTES,
    GRADIENTS_BYTES,
    OPTIMIZER_BYTES,
    ACTIVATIONS_BYTES,
    LOGITS_BYTES,
    RESERVE_BYTES,
    MEMORY_BYTES,
    MEMORY_STAGE,
    MODEL_FLOPS,
    HARDWARE_FLOPS,
    FIRST_STAGE_BYTES,
    HOST_BUSY_S,
) = range(len(RESULTS))

LARGEST_PIPELINE: Final = 1024
"""Stages times chunks at most: what the working arrays hold."""

_FORWARD, _INPUT, _WEIGHT, _OVERLAPPED, _SEND, _SEND_BUSY = range(6)
"""Rows of `pipe`: seconds of a micro-batch on each chunk by pass and of DualPipe's pairs; seconds of each link."""


@lean_kernel
def _write_times(model, plan, hardware, software, chunks, pipe):
    """Write what the schedule is simulated with into `pipe`: the passes, their overlap and the links."""
    for v in range(plan.pp * plan.vp):
        pipe[_FORWARD, v] = chunks[st.FORWARD_S, v]
        pipe[_INPUT, v] = chunks[st.INPUT_S, v]
        pipe[_WEIGHT, v] = chunks[st.WEIGHT_S, v]
    if plan.schedule == DUALPIPE:
        # Both directions: a device also has the chunk that the device opposite to it has.
        for s in range(plan.pp):
            for row in (_FORWARD, _INPUT, _WEIGHT):
                pipe[row, plan.pp + s] = pipe[row, plan.pp - 1 - s]
        for i in range(2 * plan.pp):
            opposite = (i + plan.pp) % (2 * plan.pp)
            there, here = min(i, 2 * plan.pp - 1 - i), min(opposite, 2 * plan.pp - 1 - opposite)
            exchanged = chunks[st.EP_FORWARD_S, there] + chunks[st.EP_BACKWARD_S, here]
            backward = pipe[_INPUT, opposite] + pipe[_WEIGHT, opposite]
            pipe[_OVERLAPPED, i] = st.paired_seconds(pipe[_FORWARD, i], backward, exchanged, software.slowdown)
    send = 0.0
    if plan.pp > 1:
        tokens = plan.micro_batch * model.seq / plan.cp
        payload = tokens * model.hidden * op.activation_bytes(plan) / plan.tp
        send = c.group_seconds(SEND, payload, PP, plan, hardware, software) + software.send_s
    for s in range(plan.pp):
        pipe[_SEND, s] = send
        pipe[_SEND_BUSY, s] = send if software.blocking_send and not plan.overlap_pp else 0.0


@lean_kernel
def _finish(model, plan, hardware, software, makespan, costs, chunks, pipe, stages, out):
    """Fill `out` from the schedule's result: what follows the pipeline, and the fullest stage."""
    out[:] = 0.0
    micro_batches = plan.batch // (plan.dp * plan.micro_batch)
    directions = 2 if plan.schedule == DUALPIPE else 1
    table = op.vocabulary(model, plan) * model.hidden / plan.tp
    dense_bytes = layer_activation_bytes(model, plan, software, False)
    expert_bytes = layer_activation_bytes(model, plan, software, True) if model.experts > 0 else 0.0
    dense_parameters, _ = layer_parameters(model, plan, False)
    shared_parameters, expert_parameters = layer_parameters(model, plan, True)
    # The pipeline is done with its links.
    added = pipe[_SEND]
    states = pipe[_SEND_BUSY]
    before = (-1.0, 0.0, 0.0, 0.0, 0.0)
    last = -1.0
    fullest = -1.0
    for s in range(plan.pp):
        shared, expert, dense_layers, expert_layers = 0.0, 0.0, 0.0, 0.0
        compute, backward, waiting = 0.0, 0.0, 0.0
        for direction in range(directions):
            place = s if direction == 0 else plan.pp - 1 - s
            for v in range(place, plan.pp * plan.vp, plan.pp):
                dense_layers += chunks[st.DENSE_LAYERS, v]
                expert_layers += chunks[st.EXPERT_LAYERS, v]
                chunk_backward = chunks[st.INPUT_S, v] + chunks[st.WEIGHT_S, v]
                backward += chunk_backward
                compute += chunk_backward + chunks[st.FORWARD_S, v]
                waiting += chunks[st.HOST_S, v]
            if place == 0:
                shared += table + model.learned_positions * model.hidden
            if place == plan.pp - 1 and not (model.tied and plan.pp == 1):
                shared += table
        layers = dense_layers + expert_layers
        shared += dense_layers * dense_parameters + expert_layers * shared_parameters
        expert = expert_layers * expert_parameters
        trained, trained_expert = shared, expert
        if plan.lora > 0:
            dense_adapters, _ = adapter_parameters(model, plan, False)
            shared_adapters, expert_adapters = adapter_parameters(model, plan, True)
            trained = dense_layers * dense_adapters + expert_layers * shared_adapters
            trained_expert = expert_layers * expert_adapters
            shared += trained
            expert += trained_expert
        this = (shared, expert, layers, compute, backward)
        if this != before:
            before = this
            dp.data_parallel_seconds(
                shared,
                expert,
                trained,
                trained_expert,
                layers,
                compute,
                backward,
                micro_batches,
                plan,
                hardware,
                software,
                added,
            )
        beside = software.step_s + software.layer_step_s * layers
        if not software.step_waits:
            # The host is with the GPU by then, or ahead of it. In what it let the GPU wait the optimizer finds room.
            beside = -min(added[dp.OPTIMIZER_S], micro_batches * waiting)
        end = added[dp.EXPOSED_S] + added[dp.OPTIMIZER_S] + beside
        if end > last:
            last = end
            out[DP_S] = added[dp.EXPOSED_S]
            out[OVERLAPPED_S] = added[dp.HIDDEN_S]
            out[OPTIMIZER_S] = added[dp.OPTIMIZER_S]
            out[HOST_S] = beside
        state_bytes(plan, software, shared, expert, trained, trained_expert, states)
        head = table if s == plan.pp - 1 else 0.0
        if expert_layers > 0.0:
            states[0] += gathered_bytes(shared_parameters, expert_parameters, head, plan, software)
        else:
            states[0] += gathered_bytes(dense_parameters, 0.0, head, plan, software)
        waiting_share = waiting / compute if compute > 0.0 else 0.0
        in_flight = stages[s, pipeline.KEPT] / (plan.vp * directions)
        activations = in_flight * (dense_layers * dense_bytes + expert_layers * expert_bytes)
        activations += communication_bytes(model, plan, software, micro_batches > in_flight, waiting_share)
        if plan.recompute == RECOMPUTE_LAYERS:
            activations += recomputed_bytes(model, plan, software)
        logits = 0.0
        if s == plan.pp - 1 or (directions == 2 and s == 0):
            tokens = plan.micro_batch * model.seq / plan.cp
            logits = (1 + model.mtp_layers) * tokens * table / model.hidden * software.logits_bytes
        tensors = states[0] + states[1] + states[2] + activations + logits
        memory = tensors * (1.0 + software.reserve_fraction) + software.reserve_bytes
        if s == 0:
            out[FIRST_STAGE_BYTES] = memory
        if memory > fullest:
            fullest = memory
            out[WEIGHTS_BYTES] = states[0]
            out[GRADIENTS_BYTES] = states[1]
            out[OPTIMIZER_BYTES] = states[2]
            out[ACTIVATIONS_BYTES] = activations
            out[LOGITS_BYTES] = logits
            out[RESERVE_BYTES] = memory - tensors
            out[MEMORY_BYTES] = memory
            out[MEMORY_STAGE] = s
    out[STEP_S] = makespan + last
    pace = pipeline.pace_stage(plan.pp, stages)
    _parts(model, plan, software, micro_batches, makespan, pace, costs, chunks, stages, out)
    _flops(model, plan, software, out)


@lean_kernel
def _parts(model, plan, software, micro_batches, makespan, s, costs, chunks, stages, out):
    """Split the pipeline's time by what stage `s` does: the parts add up to it."""
    directions = 2 if plan.schedule == DUALPIPE else 1
    count = plan.pp * plan.vp
    # DualPipe sends half of the micro-batches each way, through both chunks of a device.
    runs = micro_batches / directions
    for direction in range(directions):
        place = s if direction == 0 else plan.pp - 1 - s
        for v in range(place, count, plan.pp):
            out[HOST_S] += runs * chunks[st.HOST_S, v]
            out[HOST_BUSY_S] += runs * chunks[st.HOST_BUSY_S, v]
            out[ELEMENTWISE_S] += runs * chunks[st.ADD_S, v]
            for block in range(st.BLOCKS):
                times = runs * st.times_of(model, block, v, count, chunks)
                if times == 0.0:
                    continue
                cost = costs[block]
                for row in range(c.PASSES):
                    hidden = st.hidden_seconds(cost, row, plan, software)
                    out[GEMM_S] += times * cost[row, c.GEMM_S]
                    out[ATTENTION_S] += times * cost[row, c.ATTENTION_S]
                    out[ELEMENTWISE_S] += times * cost[row, c.ELEMENTWISE_S]
                    out[TP_S] += times * (cost[row, c.TP_S] - hidden)
                    passed_on = st.passed_on_seconds(cost, row, plan, software)
                    out[CP_S] += times * st.exchange_seconds(cost, row, plan, software)
                    out[OVERLAPPED_S] += times * (hidden + passed_on)
                    out[EP_S] += times * cost[row, c.EP_S]
                if block > st.EXPERT:
                    continue
                out[RECOMPUTE_S] += times * st.again_seconds(model, plan, software, cost)
                if plan.recompute == RECOMPUTE_LAYERS:
                    hidden = st.hidden_seconds(cost, c.FORWARD, plan, software)
                    out[TP_S] += times * (cost[c.FORWARD, c.TP_S] - hidden)
                    passed_on = st.passed_on_seconds(cost, c.FORWARD, plan, software)
                    out[CP_S] += times * st.exchange_seconds(cost, c.FORWARD, plan, software)
                    out[OVERLAPPED_S] += times * (hidden + passed_on)
                    out[EP_S] += times * cost[c.FORWARD, c.EP_S]
    if plan.schedule == DUALPIPE:
        # Exchanges that ran behind the other direction's compute.
        busy = runs * (_chunk_seconds(chunks, s) + _chunk_seconds(chunks, plan.pp - 1 - s))
        behind = min(max(busy - stages[s, pipeline.COMPUTE], 0.0), out[EP_S])
        out[EP_S] -= behind
        out[OVERLAPPED_S] += behind
    out[PP_S] = stages[s, pipeline.BLOCKED]
    # A stage that never waits has none, whatever the sums round to.
    out[BUBBLE_S] = max(makespan - stages[s, pipeline.COMPUTE] - out[PP_S], 0.0)


@lean_kernel
def _chunk_seconds(chunks, v):
    return chunks[st.FORWARD_S, v] + chunks[st.INPUT_S, v] + chunks[st.WEIGHT_S, v]


@lean_kernel
def _flops(model, plan, software, out):
    tokens = float(plan.batch) * model.seq
    forward = model.flops * tokens
    attention = 2.0 * model.attention_layers * model.seq * model.heads * (model.head_dim + model.v_dim) * tokens
    # Frozen weights have no gradient; attention has no weights.
    out[MODEL_FLOPS] = c.PASSES * forward - (forward - attention if plan.lora > 0 else 0.0)
    again = 0.0
    if plan.recompute == RECOMPUTE_LAYERS:
        products = forward - attention - 2.0 * model.vocab * model.hidden * tokens
        again = attention + (1.0 - st.not_again(model, software)) * products
    elif keeps_products(plan, software):
        again = st.products_again(model) * (forward - attention - 2.0 * model.vocab * model.hidden * tokens)
    elif plan.recompute == RECOMPUTE_ATTENTION:
        again = attention
    elif plan.recompute == RECOMPUTE_LIGHT:
        again = st.latent_share(model) * (forward - attention - 2.0 * model.vocab * model.hidden * tokens)
    out[HARDWARE_FLOPS] = out[MODEL_FLOPS] + again


@kernel
def evaluate_all(models, hardware, software, plans, fields, blocks_by, model_of, hardware_of, out):
    """Estimate every plan, legal as it is, into `out`; one whose schedule cannot run is a row of nan.

    Args:
        models, hardware, software, plans, model_of, hardware_of: as `lumos_df.model.evaluate.evaluate_rows` has them.
        fields: the plans as int64 [n, fields].
        blocks_by: int64, the columns of `fields` that the cost of a block depends on.
        out: float64 [n, RESULTS].
    """
    ops = np.zeros((OPERATORS, op.COLUMNS))
    chunks = np.zeros((st.CHUNK_ROWS + 1, LARGEST_PIPELINE))
    pipe = np.zeros((6, LARGEST_PIPELINE))
    stages = np.zeros((LARGEST_PIPELINE, pipeline.COLUMNS))
    work = np.zeros(pipeline.work_size(LARGEST_PIPELINE, 1))
    key = np.zeros(len(blocks_by) + KEY_BEYOND_FIELDS, np.int64)
    keys = np.empty((REMEMBERED, len(key)), np.int64)
    keys[:, 0] = NOBODYS
    remembered = np.empty((REMEMBERED, st.BLOCKS, c.PASSES, c.KINDS))
    times = pipeline.PipelineTimes(
        pipe[_FORWARD], pipe[_INPUT], pipe[_WEIGHT], pipe[_OVERLAPPED], pipe[_SEND], pipe[_SEND_BUSY]
    )
    for i in range(len(plans)):
        plan, model, gpu = plans[i], models[model_of[i]], hardware[hardware_of[i]]
        profile = software[plan.software]
        # DualPipe has two chunks a stage whatever vp says; the working arrays end somewhere.
        if plan.pp * max(plan.vp, 2) > LARGEST_PIPELINE:
            out[i, :] = np.nan
            continue
        place = write_key(fields[i], blocks_by, model_of[i], hardware_of[i], plan, key)
        costs = remembered[place]
        if not same_key(key, keys[place]):
            block_costs(model, plan, gpu, profile, ops, costs)
        st.cut(model, plan, profile, chunks)
        st.chunk_seconds(model, plan, gpu, profile, costs, chunks)
        _write_times(model, plan, gpu, profile, chunks, pipe)
        makespan = pipeline.simulate(
            plan.schedule,
            plan.pp,
            2 if plan.schedule == DUALPIPE else plan.vp,
            plan.batch // (plan.dp * plan.micro_batch),
            times,
            work,
            stages,
            chunks[st.CHUNK_ROWS],
        )
        if makespan < 0.0:
            out[i, :] = np.nan
            continue
        _finish(model, plan, gpu, profile, makespan, costs, chunks, pipe, stages, out[i])
