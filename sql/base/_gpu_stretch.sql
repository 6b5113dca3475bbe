-- Time cut at every start and end of a step: one row a stretch, and for how much of it the GPU did what.
-- Each *_ns is the length of a union of intervals, cut at the stretch's ends; the stretches of a trace hold all its GPU time.
CREATE VIEW _gpu_stretch(
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- Number of the stretch in its trace, from 0, which lies before the first step.
  stretch,
  -- Whether the stretch is a step.
  in_step,
  -- Number of the step, where the stretch is one that has a number.
  step,
  -- GPU rows that start in it.
  gpu_rows,
  -- Earliest start of these, ns.
  first_ts,
  -- Latest end of these, ns.
  last_ts,
  -- Anything ran, ns.
  busy_ns,
  -- A kernel ran, ns.
  kernel_ns,
  -- A compute kernel ran, ns.
  compute_ns,
  -- A communication kernel ran, ns.
  communication_ns,
  -- A memcpy or memset ran, ns.
  memory_ns,
  -- Of communication kernels the transfer, or a compute kernel ran, ns.
  working_ns,
  -- A communication kernel ran of which the transfer is unknown, ns.
  unmatched_ns
) AS
WITH
gpu AS (
  SELECT _gpu.*, CASE WHEN member.transfer_ns > _gpu.dur THEN _gpu.dur ELSE member.transfer_ns END AS transfer_ns
  FROM _gpu
  LEFT JOIN collectives AS member ON member.trace_id = _gpu.trace_id AND member.op_id = _gpu.op_id
),
-- At one instant a step ends before the next one starts, and that before a GPU row starts.
event AS (
  SELECT
    trace_id,
    rank,
    unnest([end_ts, ts]) AS ts,
    unnest([0, 1]) AS turn,
    unnest([NULL, step]) AS step,
    NULL AS class,
    NULL AS busy_end,
    NULL AS kernel_end,
    NULL AS compute_end,
    NULL AS communication_end,
    NULL AS memory_end,
    NULL AS working_end,
    NULL AS unmatched_end
  FROM _step
  WHERE end_ts > ts
  UNION ALL
  SELECT
    trace_id,
    rank,
    ts,
    2,
    NULL,
    class,
    end_ts,
    CASE WHEN class <> 'memory' THEN end_ts END,
    CASE WHEN class = 'compute' THEN end_ts END,
    CASE WHEN class = 'communication' THEN end_ts END,
    CASE WHEN class = 'memory' THEN end_ts END,
    CASE WHEN class = 'compute' THEN end_ts END,
    CASE WHEN class = 'communication' AND transfer_ns IS NULL THEN end_ts END
  FROM gpu
  UNION ALL
  -- A communication kernel waits first, then it transfers.
  SELECT trace_id, rank, end_ts - transfer_ns, 3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, end_ts, NULL
  FROM gpu
  WHERE class = 'communication' AND transfer_ns IS NOT NULL
),
seen AS (
  SELECT
    *,
    sum((turn < 2)::INTEGER) OVER (PARTITION BY trace_id ORDER BY ts, turn ROWS UNBOUNDED PRECEDING)::BIGINT AS stretch,
    max(busy_end) OVER before AS busy_until,
    max(kernel_end) OVER before AS kernel_until,
    max(compute_end) OVER before AS compute_until,
    max(communication_end) OVER before AS communication_until,
    max(memory_end) OVER before AS memory_until,
    max(working_end) OVER before AS working_until,
    max(unmatched_end) OVER before AS unmatched_until
  FROM event
  WINDOW before AS (PARTITION BY trace_id ORDER BY ts, turn ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
),
-- What a row adds to a union is the part of it after all that came before; what runs on at a boundary is paid back there.
part AS (
  SELECT
    trace_id,
    any_value(rank) AS rank,
    stretch,
    bool_or(turn = 1) AS in_step,
    max(step) AS step,
    count(*) FILTER (turn = 2) AS gpu_rows,
    min(ts) FILTER (turn = 2) AS first_ts,
    max(busy_end) AS last_ts,
    sum(greatest(0, busy_end - greatest(ts, busy_until))) FILTER (busy_end > ts) AS busy_added,
    sum(greatest(0, kernel_end - greatest(ts, kernel_until))) FILTER (kernel_end > ts) AS kernel_added,
    sum(greatest(0, compute_end - greatest(ts, compute_until))) FILTER (compute_end > ts) AS compute_added,
    sum(greatest(0, communication_end - greatest(ts, communication_until))) FILTER (communication_end > ts) AS communication_added,
    sum(greatest(0, memory_end - greatest(ts, memory_until))) FILTER (memory_end > ts) AS memory_added,
    sum(greatest(0, working_end - greatest(ts, working_until))) FILTER (working_end > ts) AS working_added,
    sum(greatest(0, unmatched_end - greatest(ts, unmatched_until))) FILTER (unmatched_end > ts) AS unmatched_added,
    max(greatest(0, busy_until - ts)) FILTER (turn < 2) AS busy_over,
    max(greatest(0, kernel_until - ts)) FILTER (turn < 2) AS kernel_over,
    max(greatest(0, compute_until - ts)) FILTER (turn < 2) AS compute_over,
    max(greatest(0, communication_until - ts)) FILTER (turn < 2) AS communication_over,
    max(greatest(0, memory_until - ts)) FILTER (turn < 2) AS memory_over,
    max(greatest(0, working_until - ts)) FILTER (turn < 2) AS working_over,
    max(greatest(0, unmatched_until - ts)) FILTER (turn < 2) AS unmatched_over
  FROM seen
  GROUP BY trace_id, stretch
)
SELECT
  trace_id,
  rank,
  stretch,
  in_step,
  step,
  gpu_rows,
  first_ts,
  last_ts,
  (coalesce(busy_added, 0) + coalesce(busy_over, 0) - coalesce(lead(busy_over) OVER next, 0))::BIGINT,
  (coalesce(kernel_added, 0) + coalesce(kernel_over, 0) - coalesce(lead(kernel_over) OVER next, 0))::BIGINT,
  (coalesce(compute_added, 0) + coalesce(compute_over, 0) - coalesce(lead(compute_over) OVER next, 0))::BIGINT,
  (coalesce(communication_added, 0) + coalesce(communication_over, 0) - coalesce(lead(communication_over) OVER next, 0))::BIGINT,
  (coalesce(memory_added, 0) + coalesce(memory_over, 0) - coalesce(lead(memory_over) OVER next, 0))::BIGINT,
  (coalesce(working_added, 0) + coalesce(working_over, 0) - coalesce(lead(working_over) OVER next, 0))::BIGINT,
  (coalesce(unmatched_added, 0) + coalesce(unmatched_over, 0) - coalesce(lead(unmatched_over) OVER next, 0))::BIGINT
FROM part
WINDOW next AS (PARTITION BY trace_id ORDER BY stretch);
