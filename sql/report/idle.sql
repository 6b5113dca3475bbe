-- Why a GPU is idle: time in which no stream ran anything, by what the next row to start waited for; a gap counts to the step that launched that row.
-- Host wait: it had not been launched when the GPU fell idle; kernel wait: it had, yet it started later; other: the trace does not hold its launch.
CREATE VIEW idle(
  -- Job.
  job,
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- n of ProfilerStep#n; null outside every step.
  step,
  -- Idle intervals.
  gaps,
  -- No stream ran anything, ns: over a trace's steps this adds up to the idle_ns of gpu_time.
  idle_ns,
  -- Part spent waiting for the host to launch, ns.
  host_wait_ns,
  -- Part spent between a launch and its start: launch latency, events, other streams; ns.
  kernel_wait_ns,
  -- Part before rows whose launch is not in the trace, ns.
  other_ns,
  -- Host wait, percent of the idle time.
  host_wait_pct
) AS
SELECT
  any_value(job),
  trace_id,
  any_value(rank),
  step,
  count(*),
  try_cast(sum(ts - gpu_end_ts) AS BIGINT) AS idle_ns,
  coalesce(sum(ts - gpu_end_ts) FILTER (call_ts > gpu_end_ts), 0)::BIGINT AS host_wait_ns,
  coalesce(sum(ts - gpu_end_ts) FILTER (call_ts <= gpu_end_ts), 0)::BIGINT,
  coalesce(sum(ts - gpu_end_ts) FILTER (call_ts IS NULL), 0)::BIGINT,
  round(100.0 * host_wait_ns / idle_ns, 2)
FROM _gpu_launch
LEFT JOIN _job USING (trace_id)
WHERE ts > gpu_end_ts
GROUP BY trace_id, step
ORDER BY trace_id, step;
