"""Tables of what traces hold, written by `lumos-df ingest`."""

from typing import Final

from lumos_df.schema.collective_kinds import COLLECTIVES
from lumos_df.schema.dialects import DIALECTS
from lumos_df.schema.table import table
from lumos_df.schema.words import FAMILIES, KINDS, PHASES

TRACES: Final = table(
    "traces",
    "One row a trace: where it came from, what it holds, what was repaired or skipped.",
    ("path", "string", "File or URL the trace was read from, as given; `<stdin>` for standard input."),
    (
        "sha256",
        "string",
        "SHA-256 of the file's bytes as stored; null where the manifest names another digest, which `trace_id` begins with.",
    ),
    ("size_bytes", "int64", "Size of the file as stored."),
    (
        "json_bytes",
        "int64",
        "Size of the file's content after decompression; of a packed file of which not all could be used, up to there.",
    ),
    ("job", "string", "Job the trace belongs to: `--job`, else the name of its folder."),
    ("rank", "int32", "Rank in the job; the same for every operator of the trace."),
    (
        "rank_source",
        "string",
        "Where the rank came from: `distributedInfo`, `args`, `environment`, `NCCL` (its communicators), `records`, `process order`, `file name`, `process groups`, `process groups and GPU`, `option`, `assumed`.",
    ),
    ("ranks_in_file", "int32", "How many ranks the file holds; 1 unless ranks were merged into one file."),
    ("world_size", "int32", "Ranks in the job as the trace states it; null where it does not."),
    ("device_name", "string", "Name of the GPU, from deviceProperties."),
    ("device_count", "int32", "GPUs listed in deviceProperties."),
    ("backend", "string", "Backend of torch.distributed as stated (`nccl`, `gloo`, ...)."),
    ("nccl_version", "string", "NCCL or RCCL version as stated."),
    ("versions", "string", "JSON object of every other stated version (CUDA, CUPTI, HIP, schema)."),
    (
        "dialect",
        "string",
        f"What the file is written in: {', '.join(f'`{dialect}`' for dialect in DIALECTS)}.",
    ),
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

ORIGINS: Final = table(
    "origins",
    "One row a trace that was read from a store: what the store said of the file, so that it is not read again.",
    ("url", "string", "URL the file was read from."),
    ("etag", "string", "Its ETag; where the store has none, when it was written."),
    ("size_bytes", "int64", "Its size on the store."),
)

OPERATORS: Final = table(
    "operators",
    "One row an operator: every timed thing of the trace, ordered by ts, then -dur.",
    ("rank", "int32", "Rank in the job."),
    ("op_id", "int32", "Dense number of the row in its trace, from 0, ordered by ts, then -dur."),
    (
        "parent_id",
        "int32",
        "Host rows: op_id of the innermost enclosing row of the same thread. GPU rows: the call that launched them, else the CPU operator of their external id. Sync rows: the call that waited.",
    ),
    ("kind", "string", f"{', '.join(KINDS)}."),
    ("family", "string", f"GPU rows: {', '.join(FAMILIES)}; null on host rows."),
    ("name", "string", "Name as recorded."),
    ("ts", "int64", "Start, ns on the trace's clock."),
    ("dur", "int64", "Duration, ns."),
    (
        "inner_dur",
        "int64",
        "Host rows: part of `dur` in which a host row directly beneath ran; null for none. What is left is its own time, ns.",
    ),
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
    ("phase", "string", f"{', '.join(PHASES)}."),
    ("layer", "int32", "Index of the repeated model layer, where module names say so."),
    ("micro_batch", "int32", "Index of the micro-batch in its step, where known."),
    ("module", "string", "Path of the enclosing nn.Module calls, outermost first, joined by '/'."),
    ("input_dims", "string", "JSON list of the input shapes."),
    ("input_types", "string", "JSON list of the input types."),
    ("grid", "string", "JSON list: kernel grid."),
    ("block", "string", "JSON list: kernel block."),
    ("occupancy", "float32", "Estimated achieved occupancy of the kernel, percent."),
    ("collective", "string", f"{', '.join(COLLECTIVES)}."),
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

ARGS: Final = table(
    "args",
    "The raw `args` of every event that has any.",
    (
        "event",
        "int32",
        "Number of the event in its file, from 0; `operators.event` and `memory_events.event` refer to it.",
    ),
    ("args", "string", "JSON object as in the file (repaired where it was broken)."),
)

MEMORY_EVENTS: Final = table(
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

COUNTERS: Final = table(
    "counters",
    "One row a value of a counter event.",
    ("rank", "int32", "Rank in the job."),
    ("ts", "int64", "When, ns on the trace's clock."),
    ("name", "string", "Name of the counter."),
    ("series", "string", "Which of the counter's values."),
    ("value", "float64", "The value, in the trace's own unit."),
    ("event", "int32", "Number of the event in its file; the key into `args`."),
)

PROCESS_GROUPS: Final = table(
    "process_groups",
    "One row a process group that the trace names, in its metadata or on a collective.",
    ("rank", "int32", "Rank whose trace names the group."),
    ("group", "string", "Name of the group."),
    ("description", "string", "Description given when it was made."),
    ("backend", "string", "Backend configuration."),
    ("size", "int32", "Ranks in the group."),
    ("ranks", "list<int32>", "Global ranks of the group, in order; null where the trace does not list them."),
)

EXECUTION_NODES: Final = table(
    "execution_nodes",
    "One row an operator that the PyTorch execution trace paired with the file knows: what it read and wrote.",
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

_CATEGORIES: Final = (
    "What it is for, judged by its stack: weights, gradients, optimizer, activations, workspace, unknown."
)

MEMORY_SEGMENTS: Final = table(
    "memory_segments",
    "One row a block of a segment of PyTorch's CUDA allocator, when a memory snapshot was taken.",
    ("rank", "int32", "Rank in the job."),
    ("device", "int32", "Device index."),
    ("segment", "int64", "Address of the segment: memory that was asked of the driver at once."),
    ("segment_bytes", "int64", "Size of the segment."),
    ("stream", "int64", "Stream that the segment serves."),
    ("pool", "string", "`small` or `large`: which allocations the segment serves."),
    ("expandable", "bool", "Whether the segment may grow."),
    ("address", "int64", "Address of the block; -1 where not recorded."),
    ("bytes", "int64", "Size of the block."),
    ("requested_bytes", "int64", "Bytes of it that were asked for."),
    ("state", "string", "`active_allocated`, `active_pending_free`, `inactive`."),
    ("category", "string", _CATEGORIES),
    ("stack", "string", "Where it was allocated: lines `name (file:line)`, innermost first; null where not recorded."),
)

MEMORY_HISTORY: Final = table(
    "memory_history",
    "One row an event of PyTorch's CUDA allocator that a memory snapshot keeps, oldest first for each device.",
    ("rank", "int32", "Rank in the job."),
    ("device", "int32", "Device index."),
    ("event", "int32", "Number of the event among those of its device, from 0."),
    ("ts", "int64", "When, ns on the trace's clock."),
    ("action", "string", "`alloc`, `free_requested`, `free_completed`, `segment_alloc`, `segment_free`, `oom`, ..."),
    ("address", "int64", "Address of the block or segment."),
    ("bytes", "int64", "Bytes that were asked for."),
    ("stream", "int64", "Stream of the block."),
    ("allocated_bytes", "int64", "Total allocated after the event, counted back from the segments."),
    ("reserved_bytes", "int64", "Total reserved after the event, counted back from the segments."),
    ("freed_by", "int32", "Of an `alloc`: event that made the memory free again; null where none did until the end."),
    ("category", "string", _CATEGORIES),
    ("stack", "string", "Where it was asked for, as in `memory_segments`."),
)

COLLECTIVE_RECORDS: Final = table(
    "collective_records",
    "One row a collective, send or receive that a recorder of communication alone keeps: PyTorch's flight recorder, NCCL Inspector, NCCL's profiler plugin.",
    ("rank", "int32", "Rank in the job."),
    ("record", "int32", "Number of the record in its file, from 0."),
    ("group", "string", "Process group by its name; of NCCL Inspector and the plugin the communicator's id."),
    ("group_description", "string", "What the group was made for."),
    ("group_size", "int32", "Ranks in the group."),
    ("group_ranks", "list<int32>", "Global ranks of the group, in order; null where not recorded."),
    ("collective", "string", f"{', '.join(COLLECTIVES)}."),
    ("peer", "int32", "Of a send or receive the other side's place in the group; null where not recorded."),
    ("seq", "int64", "Number of the collective in its group; sends and receives are counted apart."),
    ("dtype", "string", "Element type, as in `operators`."),
    (
        "message_bytes",
        "int64",
        "Bytes this rank gives; of NCCL Inspector and the plugin the size of the message as NCCL counts it.",
    ),
    ("state", "string", "`scheduled`, `started` or `completed`."),
    ("created_ts", "int64", "When the host issued it, ns on the trace's clock; null where not recorded."),
    ("started_ts", "int64", "When the watchdog saw that it ran, ns; null where it did not."),
    ("completed_ts", "int64", "When the watchdog saw that it was over, ns; null where it did not."),
    ("duration_ns", "int64", "How long it ran on the GPU; null where the recorder was not told to measure it."),
    ("algorithm", "string", "NCCL's algorithm and protocol: `RING LL`; null where not recorded."),
    ("host", "string", "Host of the rank, where recorded."),
    ("stack", "string", "Where it was called: lines `name (file:line)`, innermost first; null where not recorded."),
)
