-- What recording cost: one row a trace of `lumos-df capture`, its steps with the profiler, without it, and replayed.
-- Times of recorded and unprofiled steps are by one clock, read at the end of each step; medians.
CREATE VIEW profiling_overhead(
  -- Job.
  job,
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- Steps recorded.
  steps,
  -- A recorded step, ns.
  profiled_ns,
  -- A step before the profiler started, ns.
  unprofiled_before_ns,
  -- A step after the profiler ended, ns.
  unprofiled_after_ns,
  -- A step without the profiler, before or after, ns.
  unprofiled_ns,
  -- By how much a recorded step is longer than one without the profiler, percent.
  overhead_pct,
  -- A step in the replay, ns; null before `lumos-df replay`.
  replayed_ns,
  -- By how much the replay is longer than a step without the profiler, percent.
  replay_error_pct,
  -- Whether all steps that were asked for are recorded.
  complete,
  -- What was not measured, as a JSON list: `collectives` where one process stood for many ranks.
  unmeasured
) AS
WITH
stated AS (
  SELECT
    trace_id,
    json_extract(metadata, '$.lumosCapture') AS capture,
    json_extract(metadata, '$.lumosCapture.profiledNs')::BIGINT[] AS profiled,
    json_extract(metadata, '$.lumosCapture.unprofiledBeforeNs')::BIGINT[] AS before,
    json_extract(metadata, '$.lumosCapture.unprofiledAfterNs')::BIGINT[] AS after
  FROM traces
  WHERE json_exists(metadata, '$.lumosCapture')
),
replayed AS (
  SELECT trace_id, median(replayed_ns) AS ns
  FROM replay_steps
  GROUP BY trace_id
),
typical AS (
  SELECT
    trace_id,
    capture,
    len(profiled) AS steps,
    list_aggregate(profiled, 'median') AS profiled_ns,
    list_aggregate(before, 'median') AS before_ns,
    list_aggregate(after, 'median') AS after_ns,
    list_aggregate(list_concat(before, after), 'median') AS unprofiled_ns
  FROM stated
)
SELECT
  traces.job,
  typical.trace_id,
  traces.rank,
  typical.steps,
  round(typical.profiled_ns)::BIGINT,
  round(typical.before_ns)::BIGINT,
  round(typical.after_ns)::BIGINT,
  round(typical.unprofiled_ns)::BIGINT,
  round(100 * (typical.profiled_ns / nullif(typical.unprofiled_ns, 0) - 1), 2),
  round(replayed.ns)::BIGINT,
  round(100 * (replayed.ns / nullif(typical.unprofiled_ns, 0) - 1), 2),
  json_extract(typical.capture, '$.complete')::BOOLEAN,
  json_extract(typical.capture, '$.unmeasured')::VARCHAR
FROM typical
JOIN traces ON traces.trace_id = typical.trace_id
LEFT JOIN replayed ON replayed.trace_id = typical.trace_id
ORDER BY traces.job, traces.rank;
