-- How long launching takes, by the name of the call: in the call itself, and from its start to the start of the GPU row.
-- The delay is split by whether the stream was idle (pure latency) or busy (the row had to queue); of a graph launch, its first GPU row counts.
CREATE VIEW launch_latency(
  -- Job.
  job,
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- Name of the runtime call.
  name,
  -- Calls that started something on the GPU.
  calls,
  -- Shortest call, ns.
  min_call_ns,
  -- Median call, ns.
  p50_call_ns,
  -- 90th percentile of the calls, ns.
  p90_call_ns,
  -- 99th percentile of the calls, ns.
  p99_call_ns,
  -- Calls that found their stream idle.
  idle_calls,
  -- Shortest delay on an idle stream, ns; below 0 where the clock of GPU rows is behind that of the host: then all delays are short by as much.
  min_idle_delay_ns,
  -- Median delay on an idle stream, ns.
  p50_idle_delay_ns,
  -- 90th percentile of the delay on an idle stream, ns.
  p90_idle_delay_ns,
  -- 99th percentile of the delay on an idle stream, ns.
  p99_idle_delay_ns,
  -- Calls that found their stream busy.
  queued_calls,
  -- Shortest delay on a busy stream, ns.
  min_queued_delay_ns,
  -- Median delay on a busy stream, ns.
  p50_queued_delay_ns,
  -- 90th percentile of the delay on a busy stream, ns.
  p90_queued_delay_ns,
  -- 99th percentile of the delay on a busy stream, ns.
  p99_queued_delay_ns
) AS
WITH
call AS (
  SELECT job, trace_id, rank, name, dur, delay_ns, stream_was_idle AS idle
  FROM launch
  QUALIFY lag(op_id) OVER (PARTITION BY trace_id ORDER BY op_id, gpu_ts) IS DISTINCT FROM op_id
),
spread AS (
  SELECT
    any_value(job) AS job,
    trace_id,
    any_value(rank) AS rank,
    name,
    count(*) AS calls,
    min(dur) AS min_call_ns,
    quantile_disc(dur, [0.5, 0.9, 0.99]) AS call_ns,
    count(*) FILTER (idle) AS idle_calls,
    min(delay_ns) FILTER (idle) AS min_idle_delay_ns,
    quantile_disc(delay_ns, [0.5, 0.9, 0.99]) FILTER (idle) AS idle_delay_ns,
    count(*) FILTER (NOT idle) AS queued_calls,
    min(delay_ns) FILTER (NOT idle) AS min_queued_delay_ns,
    quantile_disc(delay_ns, [0.5, 0.9, 0.99]) FILTER (NOT idle) AS queued_delay_ns
  FROM call
  GROUP BY trace_id, name
)
SELECT
  job,
  trace_id,
  rank,
  name,
  calls,
  min_call_ns,
  call_ns[1],
  call_ns[2],
  call_ns[3],
  idle_calls,
  min_idle_delay_ns,
  idle_delay_ns[1],
  idle_delay_ns[2],
  idle_delay_ns[3],
  queued_calls,
  min_queued_delay_ns,
  queued_delay_ns[1],
  queued_delay_ns[2],
  queued_delay_ns[3]
FROM spread
ORDER BY trace_id, calls DESC, name;
