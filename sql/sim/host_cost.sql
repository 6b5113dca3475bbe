-- What the host takes for one kernel, by phase: time from one launch to the next on the same thread, in one step and phase.
-- Launches that took over 10 times the median are left out (they waited for a full queue), and the longest twentieth is not in the mean (waits, data loading).
CREATE VIEW host_cost(
  -- Job.
  job,
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- forward, backward, recompute, optimizer, communication, other.
  phase,
  -- Kernels whose launch was followed by another.
  launches,
  -- Mean of all but the longest twentieth, ns.
  mean_ns,
  -- Median, ns.
  p50_ns
) AS
WITH
gap AS (
  SELECT
    launch.job,
    launch.trace_id,
    launch.rank,
    call.phase,
    lead(launch.ts) OVER same - launch.ts AS gap_ns
  FROM launch
  JOIN operators AS call ON call.trace_id = launch.trace_id AND call.op_id = launch.op_id
  CROSS JOIN _thresholds
  WHERE launch.gpu_kind = 'kernel'
  WINDOW same AS (PARTITION BY launch.trace_id, call.thread, launch.step, call.phase ORDER BY launch.ts, launch.gpu_op_id)
  QUALIFY launch.dur <= long_calls * median(launch.dur) OVER (PARTITION BY launch.trace_id)
),
placed AS (
  SELECT *, percent_rank() OVER (PARTITION BY trace_id, phase ORDER BY gap_ns) AS place
  FROM gap
  CROSS JOIN _thresholds
  WHERE gap_ns IS NOT NULL
)
SELECT
  any_value(job),
  trace_id,
  any_value(rank),
  phase,
  count(*),
  round(avg(gap_ns) FILTER (place <= 1 - accident_share))::BIGINT,
  quantile_disc(gap_ns, 0.5)
FROM placed
GROUP BY trace_id, phase
ORDER BY trace_id, phase;
