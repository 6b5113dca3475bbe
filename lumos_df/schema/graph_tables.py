"""Tables of the graph, written by `lumos-df replay` and `critical-path`: dependencies, simulated steps, what binds them.

`collectives` and `clocks` are written by whatever asks for them first.
"""

from typing import Final

from lumos_df.schema.parts import STEP_PARTS
from lumos_df.schema.table import table

EDGES: Final = table(
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

COLLECTIVE_MEMBERS: Final = table(
    "collectives",
    "One row a communication kernel: which collective of its job it takes part in, and how long it waits there.",
    ("rank", "int32", "Rank of the kernel."),
    ("instance_id", "int32", "Number of the collective in its job, from 0: the same on all its ranks."),
    ("op_id", "int32", "The kernel."),
    ("members", "int32", "Ranks of which a kernel was found: 1 where it was not matched with any other's."),
    (
        "last_rank",
        "int32",
        "Rank that came last: that of the shortest member, of equally short ones the last to start; null without others.",
    ),
    ("arrival_ns", "int64", "Start of the kernel after the first one of the collective, clocks aligned, ns."),
    ("waiting_ns", "int64", "Part of the kernel's duration before the last member came, ns."),
    (
        "waiting_unseen_ns",
        "int64",
        "Part that waits for members of which no kernel was found: the shortest member less transfer_ns; null where nothing tells, ns.",
    ),
    (
        "transfer_ns",
        "int64",
        "The rest: the shortest member, or where not all ranks of the group were found the least that others of its kind and group allow (one of as many bytes or more takes no less, fewer can be sent again); null where nothing tells, ns.",
    ),
    ("waiting_replayed_ns", "int64", "The same as waiting_ns in the replay; null before `lumos-df replay`."),
    ("replayed_end", "int64", "End in the replay, ns of job time: the same on all ranks; null as above."),
)

CLOCKS: Final = table(
    "clocks",
    "One row a rank of a job: its clock against that of the job's first rank, from the ends of collectives.",
    ("rank", "int32", "Rank in the job."),
    ("offset_ns", "int64", "What the rank's clock shows more, at the start of its trace."),
    ("drift_ppm", "float64", "How much faster it runs, in parts per million."),
    ("residual_ns", "int64", "Median distance of the ends of common collectives that is left, ns."),
    ("collectives", "int32", "Collectives it was estimated from; 0 on the first rank, and where none is common."),
)

REPLAYS: Final = table(
    "replays",
    "One row an operator in the replay; join it with `operators` by trace_id and op_id.",
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

REPLAY_STEPS: Final = table(
    "replay_steps",
    "One row a step, as recorded and as replayed.",
    ("rank", "int32", "Rank in the job."),
    ("step", "int32", "n of ProfilerStep#n; null in a trace without marks."),
    ("recorded_ns", "int64", "Duration of the step as recorded: the GPU's where it falls behind the host."),
    ("replayed_ns", "int64", "Duration of the step in the replay."),
    (
        "unexplained_ns",
        "int64",
        "Time along the chain that ended the recorded step which no edge explains and the replay lacks, ns.",
    ),
    (
        "host_ns",
        "int64",
        "Part of the replayed step's critical path that is the host's: calls and the work between them, on any rank, taken over from the recording, ns.",
    ),
    (
        "inferred_ns",
        "int64",
        "Part of that path that inferred edges hand on: their lags, and how long that took whose end they wait for, ns.",
    ),
    (
        "unknown_ns",
        "int64",
        "Part of that path that stays as recorded because nothing explains it: the pieces `unknown` of `critical_path`, ns.",
    ),
    (
        "carried_ns",
        "int64",
        "How much later than recorded the step begins in the replay, where the rank's first step begins as recorded: what earlier steps hand on, ns.",
    ),
    (
        "start_error_p50_ns",
        "int64",
        "Median distance between recorded and simulated start of the step's operators, from the step's start.",
    ),
    ("start_error_p99_ns", "int64", "99th percentile of the same."),
    ("edges", "int64", "Edges to operators of the step."),
    ("operators", "int64", "Operators of the step that were placed."),
    *(
        (f"{part.name}_ns_{when}", "int64", f"{part.simulated}, ns, {when}.")
        for when in ("recorded", "replayed")
        for part in STEP_PARTS
    ),
    *(
        (
            f"exposed_waiting_ns_{when}",
            "int64",
            f"Part of the exposed communication that only waits for other ranks, ns, {when}; null where a wait is unknown.",
        )
        for when in ("recorded", "replayed")
    ),
    ("warnings", "list<string>", "What a reader should know about this replay, one sentence each."),
)

CRITICAL_PATH: Final = table(
    "critical_path",
    "One row a piece of a step's critical path; the pieces add up to the recorded step exactly, all but `unexplained` to the replayed one.",
    ("rank", "int32", "Rank whose step it is."),
    ("step", "int32", "n of ProfilerStep#n; null in a trace without marks."),
    ("piece", "int32", "Number of the piece in its step, from 0, by time."),
    (
        "kind",
        "string",
        "host, launch, kernel, transfer, memory, sync, gap, wait (the path runs on another rank, or a collective waits for ranks of which no kernel was found), unknown (it stays as recorded because nothing explains it), unexplained (by what the replay is off).",
    ),
    ("on_rank", "int32", "Rank on which the piece runs; null of a wait for ranks of which no kernel was found."),
    ("on_trace_id", "string", "Trace of that rank, else of the one that waits."),
    ("op_id", "int32", "Operator that runs, or waits to begin; null where none is known."),
    (
        "operator",
        "string",
        "What ran: the operator, call or Python function; `nothing recorded, before X` where none did.",
    ),
    ("family", "string", "GPU rows: gemm, attention, communication, ..."),
    ("ts", "int64", "Start in the replay, ns."),
    ("dur", "int64", "Duration, ns; an unexplained piece may be negative."),
    ("slack_ns", "int64", "How much later the operator could start without any step ending later."),
)

GAINS: Final = table(
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

STALLS: Final = table(
    "stalls",
    "One row a call, or a stretch of host work, that once took over twice as long as the longest like it.",
    ("rank", "int32", "Rank in the job."),
    ("step", "int32", "n of ProfilerStep#n; null in a trace without marks."),
    ("op_id", "int32", "The call; or the operator before which the host worked."),
    ("what", "string", "What took so long: a call and its operator, an operator, `a silence before X`."),
    ("dur", "int64", "How long it took, ns."),
    ("longest_ns", "int64", "What the longest like it takes in the other steps, or else in the same one, ns."),
)

JOB_ADVICE: Final = table(
    "job_advice",
    "One row a change that was tried on a job by replaying it; the rows lie with the job's first trace.",
    ("place", "int32", "Number of the change in its job, from 1: what is worth it by gain, then what is not."),
    ("rule", "string", "Rule that proposed it."),
    ("what", "string", "What is wrong, and what to do."),
    ("step_ns", "int64", "Mean step of all ranks in the replay, ns."),
    ("gain_ns", "int64", "How much shorter that becomes, ns; below 0 it becomes longer."),
    ("low_ns", "int64", "Lower end of the interval that holds the gain 8 times of 10, ns."),
    ("high_ns", "int64", "Its upper end, ns."),
    ("worthwhile", "bool", "Whether it is advice; otherwise it is told since it would not help."),
    ("known", "string", "measured, replayed, modelled."),
    ("rests_on", "string", "What the gain is made of, counted."),
    ("command", "string", "What shows it, after `lumos-df `."),
)

ADVISED_JOBS: Final = table(
    "advised_jobs",
    "One row a job of which `job_advice` says what to change; it lies with the job's first trace.",
    ("error_pct", "float64", "How far its replayed steps are off the recorded ones, on the mean, percent of these."),
)

ADVICE_ROWS: Final = table(
    "advice_rows",
    "One row a change in `job_advice` that is worth it, and a name from which it takes time; with the job's first trace.",
    ("place", "int32", "Number of the change in its job, as in `job_advice`."),
    ("side", "string", "`gpu`; `launch`: what passes before GPU rows; `host`; `wait`: calls that wait for the GPU."),
    ("name", "string", "Kernel, operator or call; `before X`: host work between rows that leads to X."),
    ("rows", "int64", "Rows of that name, of all steps and ranks."),
    ("taken_ns", "int64", "What they take, ns a mean step: their own time, a transfer, or what a call waits."),
    ("less_ns", "int64", "How much less that is with the change, ns a mean step."),
    ("moved_bytes", "int64", "What GPU rows among them give, bytes a mean step; 0 where that is not known."),
)
