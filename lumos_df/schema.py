"""Every stored table: column, Arrow type, and one line that says what it holds and in which unit.

The tables live in a corpus as `trace_id=<id>/<table>.parquet`; `trace_id` is the partition key, read back from the
folder name, so it is listed here for its documentation but not stored inside the files.
"""

import re
from dataclasses import dataclass
from typing import Final

FORMAT: Final = 1
"""Version of the corpus layout; a corpus made by another version is refused."""

ID_LENGTH: Final = 16
"""Hex digits of a file's SHA-256 that make its trace_id."""

STEP_MARK: Final = re.compile(r"ProfilerStep#([0-9]{1,9})(?![0-9])")
"""How the name of a step's mark begins, and the step's number in it."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a stored table."""

    name: str
    type: str
    """Arrow type by name: `int32`, `int64`, `float32`, `float64`, `bool`, `string`, `list<string>`, `list<int32>`."""
    doc: str


@dataclass(frozen=True, slots=True)
class Table:
    """One stored table."""

    name: str
    doc: str
    columns: tuple[Column, ...]


def within(value: object, bits: int) -> int | None:
    """Return `value` if it is an integer that a signed column of `bits` can hold, else None: traces may say anything."""
    fits = isinstance(value, int) and not isinstance(value, bool) and -(1 << bits - 1) <= value < 1 << bits - 1
    return value if fits and isinstance(value, int) else None


def _table(name: str, doc: str, *columns: tuple[str, str, str]) -> Table:
    key = Column(
        "trace_id", "string", "The trace: first 16 hex digits of the file's SHA-256 (and its rank, for merged files)."
    )
    return Table(name, doc, (key, *(Column(*column) for column in columns)))


KINDS: Final = (
    "cpu_op",
    "runtime",
    "kernel",
    "memcpy",
    "memset",
    "sync",
    "annotation",
    "gpu_annotation",
    "python",
    "other",
)
"""What an operator can be; the order is the code the reader uses."""

GPU_KINDS: Final = ("kernel", "memcpy", "memset")
"""Kinds that occupy a GPU stream."""

PHASES: Final = ("forward", "backward", "recompute", "optimizer", "communication", "other")

EVIDENCE: Final = ("annotation", "module", "fwdbwd", "repetition", "name", "shape", "group", "override", "unknown")
"""Where a layer, phase, micro-batch, dimension or degree is known from: annotations and autograd's own marks, module
names, links from backward to forward operators, repetition in the sequence of kernels, names of kernels and operators,
shapes, process groups and collectives, the user."""

FAMILIES: Final = (
    "communication",
    "gemm",
    "attention",
    "convolution",
    "normalization",
    "softmax",
    "embedding",
    "loss",
    "optimizer",
    "reduction",
    "elementwise",
    "copy",
    "fill",
    "index",
    "sort",
    "random",
    "fused",
    "other",
)
"""What a GPU operator does, judged by its name; `copy` and `fill` include memcpy and memset."""

COLLECTIVES: Final = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "send",
    "recv",
    "send_recv",
    "barrier",
    "unknown",
)
"""Normalised collective names; `send_recv` is a point-to-point kernel whose direction the trace does not say."""

TRACES: Final = _table(
    "traces",
    "One row a trace: where it came from, what it holds, what was repaired or skipped.",
    ("path", "string", "File or URL the trace was read from, as given; `<stdin>` for standard input."),
    ("sha256", "string", "SHA-256 of the file's bytes as stored (compressed, where it is)."),
    ("size_bytes", "int64", "Size of the file as stored."),
    ("json_bytes", "int64", "Size of the JSON text after decompression."),
    ("job", "string", "Job the trace belongs to: `--job`, else the name of its folder."),
    ("rank", "int32", "Rank in the job; the same for every operator of the trace."),
    ("rank_source", "string", "Where the rank came from: `distributedInfo`, `args`, `file name`, `option`, `assumed`."),
    ("ranks_in_file", "int32", "How many ranks the file holds; 1 unless ranks were merged into one file."),
    ("world_size", "int32", "Ranks in the job as the trace states it; null where it does not."),
    ("device_name", "string", "Name of the GPU, from deviceProperties."),
    ("device_count", "int32", "GPUs listed in deviceProperties."),
    ("backend", "string", "Backend of torch.distributed as stated (`nccl`, `gloo`, ...)."),
    ("nccl_version", "string", "NCCL or RCCL version as stated."),
    ("versions", "string", "JSON object of every other stated version (CUDA, CUPTI, HIP, schema)."),
    ("dialect", "string", "Dialect of the file: `kineto`, `kineto-2021`, `chrome`."),
    ("clock_origin_ns", "int64", "baseTimeNanoseconds: add it to `ts` to get Unix time; 0 where the file has none."),
    ("resolution_ns", "int64", "Finest step of the file's clock: 1, or 1000 where every time is a whole microsecond."),
    ("first_ts", "int64", "Earliest start of an operator, ns."),
    ("last_ts", "int64", "Latest end of an operator, ns."),
    ("events", "int64", "Events read from the file for this trace, of any kind."),
    ("operators", "int64", "Rows in `operators`."),
    ("cpu_ops", "int64", "Operators of kind `cpu_op`."),
    ("runtime_calls", "int64", "Operators of kind `runtime`."),
    ("kernels", "int64", "Operators of kind `kernel`."),
    ("memcpys", "int64", "Operators of kind `memcpy`."),
    ("memsets", "int64", "Operators of kind `memset`."),
    ("syncs", "int64", "Operators of kind `sync`."),
    ("annotations", "int64", "Operators of kind `annotation` or `gpu_annotation`."),
    ("python_functions", "int64", "Operators of kind `python`."),
    (
        "others",
        "int64",
        "Operators of kind `other`: a category this version does not know, or the profiler's own span.",
    ),
    ("flows", "int64", "Flow events (launch and forward-backward arrows)."),
    ("instants", "int64", "Instant events other than memory events."),
    ("memory_events", "int64", "Rows in `memory_events`."),
    ("counters", "int64", "Rows in `counters`."),
    ("metadata_events", "int64", "Metadata events (process and thread names)."),
    ("repaired_numbers", "int64", "NaN and Infinity values read as null."),
    ("repaired_controls", "int64", "Raw control characters inside strings, escaped."),
    ("repaired_utf8", "int64", "Broken UTF-8 sequences inside strings, replaced by U+FFFD."),
    ("skipped", "int64", "Events that could not become a row (no start time, unknown phase); the warnings say why."),
    ("truncated", "bool", "The file ended in the middle; every complete event before that point was read."),
    ("warnings", "list<string>", "What a reader should know about this trace, one sentence each."),
    ("metadata", "string", "JSON object of the file's top-level values other than the events."),
)

OPERATORS: Final = _table(
    "operators",
    "One row an operator: every timed thing of the trace, ordered by ts, then -dur.",
    ("rank", "int32", "Rank in the job."),
    ("op_id", "int32", "Dense number of the row in its trace, from 0, ordered by ts, then -dur."),
    (
        "parent_id",
        "int32",
        "Host rows: op_id of the innermost enclosing row of the same thread. GPU rows: the call that launched them, else the CPU operator of their external id. Sync rows: the call that waited.",
    ),
    ("kind", "string", "cpu_op, runtime, kernel, memcpy, memset, sync, annotation, gpu_annotation, python, other."),
    ("family", "string", "GPU rows: gemm, attention, communication, elementwise, ...; null on host rows."),
    ("name", "string", "Name as recorded."),
    ("ts", "int64", "Start, ns on the trace's clock."),
    ("dur", "int64", "Duration, ns."),
    ("thread", "int64", "Host rows: thread id as recorded; null on GPU rows."),
    ("device", "int32", "GPU rows: device index."),
    ("stream", "int64", "GPU and sync rows: stream."),
    ("correlation", "int64", "Ties a runtime call to the GPU rows that it launched."),
    ("external_id", "int64", "Ties runtime calls and GPU rows to the CPU operator that issued them."),
    (
        "step",
        "int32",
        "n of the ProfilerStep#n it belongs to (GPU rows: that of their launch); null outside every step.",
    ),
    ("phase", "string", "forward, backward, recompute, optimizer, communication, other."),
    ("layer", "int32", "Index of the repeated model layer, where module names say so."),
    ("micro_batch", "int32", "Index of the micro-batch in its step, where known."),
    ("module", "string", "Path of the enclosing nn.Module calls, outermost first, joined by '/'."),
    ("input_dims", "string", "JSON list of the input shapes."),
    ("input_types", "string", "JSON list of the input types."),
    ("grid", "string", "JSON list: kernel grid."),
    ("block", "string", "JSON list: kernel block."),
    ("occupancy", "float32", "Estimated achieved occupancy of the kernel, percent."),
    (
        "collective",
        "string",
        "all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce, gather, scatter, send, recv, send_recv, barrier, unknown.",
    ),
    ("group", "string", "Process group of the collective as named in the trace."),
    ("group_size", "int32", "Ranks in the process group."),
    ("seq", "int64", "Number of the collective in its group: recorded, else counted from the start of the trace."),
    ("seq_evidence", "string", "`recorded` or `inferred`: where `seq` came from."),
    ("dtype", "string", "Element type of the collective, lower case, as torch names it (float32, bfloat16, ...)."),
    ("in_bytes", "int64", "Bytes this rank gives to the collective; bytes moved by a memcpy or memset."),
    ("out_bytes", "int64", "Bytes this rank gets from the collective; bytes moved by a memcpy or memset."),
    ("flops", "int64", "Floating-point operations of a matrix product or attention operator, from its shapes."),
    ("forward_id", "int32", "Backward operators: op_id of the forward operator whose gradient this is."),
    ("sequence_number", "int64", "Autograd sequence number that ties forward and backward operators."),
    ("wait_stream", "int64", "Sync rows: the stream that was waited for."),
    ("wait_correlation", "int64", "Sync rows: correlation of the event record that was waited for."),
    ("event", "int32", "Number of the event in its file, from 0; the key into `args`."),
)

ARGS: Final = _table(
    "args",
    "The raw `args` of every event that has any.",
    (
        "event",
        "int32",
        "Number of the event in its file, from 0; `operators.event` and `memory_events.event` refer to it.",
    ),
    ("args", "string", "JSON object as in the file (repaired where it was broken)."),
)

MEMORY_EVENTS: Final = _table(
    "memory_events",
    "One row an allocation or release seen by the framework's allocator.",
    ("rank", "int32", "Rank in the job."),
    ("ts", "int64", "When, ns on the trace's clock."),
    ("thread", "int64", "Thread id as recorded."),
    ("device_type", "string", "`cpu`, `gpu`, or the recorded number."),
    ("device", "int32", "Device index; -1 for the host."),
    ("address", "int64", "Address of the block; null where not recorded."),
    ("change_bytes", "int64", "Bytes allocated (positive) or released (negative)."),
    ("allocated_bytes", "int64", "Total allocated after the event; null where not recorded."),
    ("reserved_bytes", "int64", "Total reserved by the allocator after the event; null where not recorded."),
    ("event", "int32", "Number of the event in its file; the key into `args`."),
)

COUNTERS: Final = _table(
    "counters",
    "One row a value of a counter event.",
    ("rank", "int32", "Rank in the job."),
    ("ts", "int64", "When, ns on the trace's clock."),
    ("name", "string", "Name of the counter."),
    ("series", "string", "Which of the counter's values."),
    ("value", "float64", "The value, in the trace's own unit."),
    ("event", "int32", "Number of the event in its file; the key into `args`."),
)

PROCESS_GROUPS: Final = _table(
    "process_groups",
    "One row a process group that the trace names, in its metadata or on a collective.",
    ("rank", "int32", "Rank whose trace names the group."),
    ("group", "string", "Name of the group."),
    ("description", "string", "Description given when it was made."),
    ("backend", "string", "Backend configuration."),
    ("size", "int32", "Ranks in the group."),
    ("ranks", "list<int32>", "Global ranks of the group, in order; null where the trace does not list them."),
)

EXECUTION_NODES: Final = _table(
    "execution_nodes",
    "One row an operator that a PyTorch execution trace beside the file knows: what it read and wrote.",
    ("rank", "int32", "Rank in the job."),
    ("op_id", "int32", "The operator, by the record function id that both files have."),
    ("node", "int64", "id of the node in the execution trace."),
    ("parent_node", "int64", "id of the node around it (ctrl_deps)."),
    (
        "inputs",
        "string",
        "JSON list of the inputs' values; a tensor is [tensor, storage, offset, elements, bytes of one, device].",
    ),
    ("input_dims", "string", "JSON list of the inputs' shapes."),
    ("input_types", "string", "JSON list of the inputs' types."),
    ("input_strides", "string", "JSON list of the inputs' strides, in elements."),
    ("outputs", "string", "JSON list of the outputs' values, as `inputs`."),
    ("output_dims", "string", "JSON list of the outputs' shapes."),
    ("output_types", "string", "JSON list of the outputs' types."),
    ("op_schema", "string", "Signature of the operator."),
    (
        "reads_from",
        "list<int32>",
        "op_ids of the last operators that wrote the storages it reads; null where none did in the trace.",
    ),
)

EDGES: Final = _table(
    "edges",
    "One row a dependency between two operators, as rebuilt by `lumos-df replay`.",
    ("rank", "int32", "Rank of the operator that waits."),
    ("src", "int32", "op_id of the operator that is waited for."),
    ("dst", "int32", "op_id of the operator that waits."),
    ("kind", "string", "thread, handoff, launch, stream, event, sync, collective."),
    (
        "binds",
        "string",
        "Which points it ties: `end-start`, `start-start`, `end-end`; for a collective, start of src to end of dst.",
    ),
    ("lag", "int64", "The second point comes at least this much after the first, ns."),
    ("evidence", "string", "`recorded` or `inferred`."),
    ("src_trace_id", "string", "Trace of src: another rank's for a collective, where it is the member that came last."),
)

COLLECTIVE_MEMBERS: Final = _table(
    "collectives",
    "One row a kernel that takes part in a collective matched across the ranks of a job.",
    ("rank", "int32", "Rank of the kernel."),
    ("instance_id", "int32", "Number of the collective in its job, from 0: the same on all its ranks."),
    ("op_id", "int32", "The kernel."),
    ("members", "int32", "Ranks of which a kernel was found."),
    ("arrival_ns", "int64", "Start of the kernel after the first one of the collective, clocks aligned, ns."),
    ("waiting_ns", "int64", "Part of the kernel's duration before the last member came, ns."),
    ("transfer_ns", "int64", "The rest: the shortest member, ns."),
    ("waiting_replayed_ns", "int64", "The same as waiting_ns in the replay."),
    ("replayed_end", "int64", "End in the replay, ns of job time: the same on all ranks."),
)

CLOCKS: Final = _table(
    "clocks",
    "One row a rank of a job: its clock against that of the job's first rank, from the ends of collectives.",
    ("rank", "int32", "Rank in the job."),
    ("offset_ns", "int64", "What the rank's clock shows more, at the start of its trace."),
    ("drift_ppm", "float64", "How much faster it runs, in parts per million."),
    ("residual_ns", "int64", "Median distance of the ends of common collectives that is left, ns."),
    ("collectives", "int32", "Collectives it was estimated from; 0 on the first rank, and where none is common."),
)

REPLAYS: Final = _table(
    "replays",
    "One row an operator in the replay, beside `operators`: join them by trace_id and op_id.",
    ("rank", "int32", "Rank in the job."),
    ("op_id", "int32", "The operator."),
    ("step", "int32", "Step in which it was recorded; null outside every step."),
    ("ts", "int64", "Simulated start, ns on the trace's clock."),
    ("dur", "int64", "Simulated duration, ns."),
    (
        "slack_ns",
        "int64",
        "How much later it could start without any step ending later; null where nothing depends on it, and on what does not simulate by itself.",
    ),
)

REPLAY_STEPS: Final = _table(
    "replay_steps",
    "One row a step: recorded beside replayed.",
    ("rank", "int32", "Rank in the job."),
    ("step", "int32", "n of ProfilerStep#n; null in a trace without marks."),
    ("recorded_ns", "int64", "Duration of the step as recorded."),
    ("replayed_ns", "int64", "Duration of the step in the replay."),
    ("unexplained_ns", "int64", "Time along the chain that ended the recorded step which no edge explains."),
    (
        "start_error_p50_ns",
        "int64",
        "Median distance between recorded and simulated start of the step's operators, from the step's start.",
    ),
    ("start_error_p99_ns", "int64", "99th percentile of the same."),
    ("edges", "int64", "Edges to operators of the step."),
    ("operators", "int64", "Operators of the step that were placed."),
    *(
        (f"{part}_ns_{when}", "int64", f"{doc}, {when}.")
        for when in ("recorded", "replayed")
        for part, doc in (
            ("exposed_compute", "Compute ran and no communication did, ns"),
            ("overlapped", "Compute and communication ran at once, ns"),
            ("exposed_communication", "Communication ran and no compute did, ns"),
            ("other", "No kernel ran, ns"),
        )
    ),
    ("warnings", "list<string>", "What a reader should know about this replay, one sentence each."),
)

CRITICAL_PATH: Final = _table(
    "critical_path",
    "One row a piece of a step's critical path; the pieces add up to the recorded step exactly, all but `unexplained` to the replayed one.",
    ("rank", "int32", "Rank whose step it is."),
    ("step", "int32", "n of ProfilerStep#n; null in a trace without marks."),
    ("piece", "int32", "Number of the piece in its step, from 0, by time."),
    (
        "kind",
        "string",
        "host, launch, kernel, transfer, memory, sync, gap, wait (the path runs on another rank), unexplained.",
    ),
    ("on_rank", "int32", "Rank on which the piece runs."),
    ("on_trace_id", "string", "Trace of that rank."),
    ("op_id", "int32", "Operator that runs, or waits to begin; null where unexplained."),
    ("operator", "string", "Its name; for host work that of the operator around it."),
    ("family", "string", "GPU rows: gemm, attention, communication, ..."),
    ("ts", "int64", "Start in the replay, ns."),
    ("dur", "int64", "Duration, ns; an unexplained piece may be negative."),
    ("slack_ns", "int64", "How much later the operator could start without any step ending later."),
)

GAINS: Final = _table(
    "gains",
    "One row a kernel family or operator name and step: what the step would gain if that took no time, or half, simulated again.",
    ("rank", "int32", "Rank in the job."),
    ("step", "int32", "n of ProfilerStep#n; null in a trace without marks."),
    ("what", "string", "`family` or `name`."),
    ("value", "string", "The family or name."),
    ("time_ns", "int64", "Time of these operators in the step, ns."),
    ("gain_ns", "int64", "How much shorter the step is when they take no time, ns."),
    ("half_gain_ns", "int64", "How much shorter it is when they take half their time, ns."),
)

_EVIDENCE: Final = "annotation, module, fwdbwd, repetition, name, shape, group, override, unknown"

LAYERS: Final = _table(
    "layers",
    "One row an operator, beside `operators`: what part of the model it is, as `lumos-df describe` found it.",
    ("rank", "int32", "Rank in the job."),
    ("op_id", "int32", "The operator."),
    ("phase", "string", "As in `operators`, and told by repetition where nothing else tells it."),
    ("layer", "int32", "Layer of the model, from 0; null outside the layers, and on host rows that lead to several."),
    ("micro_batch", "int32", "Micro-batch of the step, from 0; null outside the passes."),
    ("stage", "int32", "Pipeline stage of the rank, from 0."),
    ("phase_evidence", "string", f"Where the phase is known from: {_EVIDENCE}."),
    ("layer_evidence", "string", "The same for the layer."),
    ("micro_batch_evidence", "string", "The same for the micro-batch."),
    ("stage_evidence", "string", "The same for the stage."),
)

DIMENSIONS: Final = _table(
    "dimensions",
    "One row a dimension of the model or degree of its plan, as `lumos-df describe` found it.",
    ("rank", "int32", "Rank in the job."),
    (
        "name",
        "string",
        "model, dtype, layers, hidden, heads, kv_heads, head_dim, ffn, sequence, micro_batch, micro_batches, vocabulary, world, tp, dp, pp, ep, stage.",
    ),
    ("value", "int64", "The number; null where unknown, or where it is a word."),
    ("word", "string", "The word, of `model` and `dtype`."),
    ("evidence", "string", f"Where it is known from: {_EVIDENCE}."),
    ("reason", "string", "How it was found, or why it was not."),
)

ESTIMATES: Final = _table(
    "estimates",
    "One row an estimated job: what a step would take by `lumos-df estimate`; nothing of it was measured.",
    ("job", "string", "Job of the corpus that it estimates (`traces.job`); null where it stands for none."),
    ("model", "string", "Model."),
    ("hardware", "string", "GPU and its links."),
    ("software", "string", "Software profile."),
    ("provenance", "string", "Where the times came from: `modelled`."),
    ("gpus", "int64", "GPUs of the job."),
    *(
        (name, "int64", doc)
        for name, doc in (
            ("tp", "Tensor-parallel ranks."),
            ("pp", "Pipeline stages."),
            ("vp", "Virtual stages of a stage."),
            ("dp", "Data-parallel ranks."),
            ("cp", "Context-parallel ranks."),
            ("ep", "Expert-parallel ranks."),
            ("etp", "Tensor-parallel ranks of an expert."),
            ("micro_batch", "Sequences of a micro-batch of one data-parallel rank."),
            ("batch", "Sequences of a step, all ranks together."),
            ("zero", "ZeRO stage."),
        )
    ),
    ("sequence_parallel", "bool", "Norms and dropout are split along the sequence."),
    ("recompute", "string", "What the backward pass computes again: none, selective, full."),
    ("schedule", "string", "Pipeline schedule."),
    ("precision", "string", "Number format of matrix products."),
    ("flash", "bool", "Attention never stores its scores."),
    ("overlap_tp", "bool", "Tensor-parallel communication runs beside GEMMs."),
    ("overlap_dp", "bool", "Gradient and parameter communication runs beside compute."),
    ("overlap_pp", "bool", "Pipeline communication runs beside compute."),
    ("offload_optimizer", "bool", "Optimizer states and step are on the host."),
    ("placement", "string", "Order of dimensions on ranks, innermost first."),
    *(
        (f"{name}_ns", "int64", f"{doc}, ns.")
        for name, doc in (
            ("step", "Duration of a step"),
            ("low", "Lower end of the interval that holds the truth 8 times of 10"),
            ("high", "Upper end of that interval"),
            ("exposed_compute", "Compute and optimizer, less what runs beside communication"),
            ("overlapped", "Compute with communication beside it"),
            ("exposed_communication", "Communication that nothing hides"),
            ("other", "Bubble and waiting for the host; the four add up to the step"),
            ("gemm", "Matrix products, recomputation aside"),
            ("attention", "Attention, recomputation aside"),
            ("elementwise", "Memory-bound kernels, recomputation aside"),
            ("recompute", "What the backward pass computes again"),
            ("optimizer", "The optimizer's step"),
            ("tp_exposed", "Tensor-parallel communication that nothing hides"),
            ("cp_exposed", "Context-parallel communication that nothing hides"),
            ("ep_exposed", "Expert-parallel communication that nothing hides"),
            ("pp_exposed", "Sends between stages that stop a stage"),
            ("dp_exposed", "Gradient and parameter communication that nothing hides"),
            ("bubble", "The stage waits for others"),
            ("host", "The GPU waits for the host"),
        )
    ),
    ("tokens_per_s_per_gpu", "float64", "Tokens a second and GPU."),
    ("mfu_pct", "float64", "FLOP that the model asks for over the peak of its precision, percent."),
    ("hfu_pct", "float64", "The same with what is computed again, percent."),
    *(
        (f"{name}_bytes", "int64", doc)
        for name, doc in (
            ("memory", "Memory of the fullest GPU."),
            ("weights", "Of it: parameters."),
            ("gradients", "Of it: gradients."),
            ("optimizer", "Of it: optimizer states."),
            ("activations", "Of it: activations at their most."),
            ("logits", "Of it: logits."),
            ("reserve", "Of it: libraries, buffers and fragments."),
            ("memory_margin", "What is left on it; negative where it does not fit."),
        )
    ),
    ("memory_stage", "int64", "Pipeline stage of the fullest GPU."),
    ("fits", "bool", "The memory is at most that of the GPU."),
    ("energy_j", "float64", "Joules of all GPUs, from power limit and idle power; not measured."),
)

ESTIMATE_OPERATORS: Final = _table(
    "estimate_operators",
    "One row an operator and phase of one block of each kind, for one micro-batch on one rank: what an estimate is made of.",
    ("op_id", "int32", "Number of the row in its estimate, from 0."),
    ("block", "string", "attention, mlp, experts, embedding, head."),
    ("blocks", "int64", "Blocks of this kind in the whole model."),
    ("kind", "string", "`kernel`, as in `operators`."),
    ("family", "string", "gemm, grouped_gemm, attention, elementwise, or the collective."),
    ("name", "string", "What it does: norm, query_key_value, mlp_up, ..."),
    ("phase", "string", "forward, backward, recompute, as in `operators`."),
    ("dur", "int64", "Duration, ns; the backward pass of a matrix product is both of its products."),
    ("group", "string", "Collectives: tp, cp, ep, etp; null elsewhere."),
    ("group_size", "int64", "Ranks of the group."),
    ("m", "float64", "Matrix products: rows. Attention: queries of a sequence."),
    ("n", "float64", "Matrix products: columns. Attention: keys of a sequence."),
    ("k", "float64", "Matrix products: inner length. Attention: width of a head."),
    ("batch", "float64", "Products in one kernel. Attention: sequences times heads."),
    ("bytes", "float64", "Collectives: payload as nccl-tests count it. Memory-bound kernels: bytes moved."),
    ("flops", "int64", "Floating-point operations of matrix products, no mask taken off."),
)

OPERATOR_SOURCES: Final = _table(
    "operator_sources",
    "One row an operator of an estimated trace, beside `operators`: which measured one it is made from, and how its time is known.",
    ("rank", "int32", "Rank in the job."),
    ("op_id", "int32", "The operator."),
    ("source_trace_id", "string", "Trace of the measured operator."),
    ("source_op_id", "int32", "That operator; null where none was measured."),
    ("provenance", "string", "measured, rescaled, interpolated, modelled."),
    ("error_pct", "float64", "Likely error of its duration, per cent."),
)

TABLES: Final = (
    TRACES,
    OPERATORS,
    ARGS,
    MEMORY_EVENTS,
    COUNTERS,
    PROCESS_GROUPS,
    EXECUTION_NODES,
    EDGES,
    COLLECTIVE_MEMBERS,
    CLOCKS,
    REPLAYS,
    REPLAY_STEPS,
    CRITICAL_PATH,
    GAINS,
    LAYERS,
    DIMENSIONS,
    ESTIMATES,
    ESTIMATE_OPERATORS,
    OPERATOR_SOURCES,
)
"""Every stored table, in the order a reader would want them."""
