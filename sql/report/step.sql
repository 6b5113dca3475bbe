-- Steps: one row a trace and step, the host's time between the marks of torch.profiler (ProfilerStep#n).
-- A trace without marks is one step without a number, from its first operator to the end of its last.
CREATE VIEW step(
  -- Job.
  job,
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- n of ProfilerStep#n; null in a trace without marks.
  step,
  -- Start, ns on the trace's clock.
  ts,
  -- Duration, ns; a step ends at the latest where the next one starts.
  dur,
  -- Kernels, memcpys and memsets launched in the step.
  gpu_rows,
  -- Start of the first of them, ns; it may lie after the step's end.
  gpu_first_ts,
  -- End of the last of them, ns; it may lie after the step's end.
  gpu_last_ts
) AS
WITH launched AS (
  SELECT trace_id, step, count(*) AS gpu_rows, min(ts) AS first_ts, max(end_ts) AS last_ts
  FROM _gpu
  GROUP BY trace_id, step
)
SELECT
  _job.job,
  host.trace_id,
  host.rank,
  host.step,
  host.ts,
  host.end_ts - host.ts,
  coalesce(launched.gpu_rows, 0),
  launched.first_ts,
  launched.last_ts
FROM _step AS host
LEFT JOIN launched
  ON launched.trace_id = host.trace_id AND launched.step IS NOT DISTINCT FROM host.step
LEFT JOIN _job ON _job.trace_id = host.trace_id
ORDER BY host.trace_id, host.ts;
