-- Why a step took as long as it did: the pieces of its critical path, summed by what they are; they add up to the recorded step.
-- Filled by `lumos-df critical-path`; `wait` is time in which the path runs on another rank of the job, recorded or not.
CREATE VIEW critical_path_summary(
  -- Job.
  job,
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- n of ProfilerStep#n; null in a trace without marks.
  step,
  -- host, launch, kernel, transfer, memory, sync, gap, wait, unknown, unexplained.
  kind,
  -- Rank on which these pieces run; for a wait the one that was waited for, null where no kernel of it was found.
  on_rank,
  -- Kernels, transfers and memory: their family; null elsewhere.
  family,
  -- Host work: the operator, call or Python function, or `nothing recorded, before X`; null elsewhere.
  operator,
  -- Pieces of the path.
  pieces,
  -- Time on the path, ns.
  total_ns,
  -- The same, percent of the step.
  share_pct
) AS
SELECT
  any_value(job),
  trace_id,
  any_value(rank),
  step,
  kind,
  on_rank,
  CASE WHEN kind IN ('kernel', 'transfer', 'memory') THEN family END AS gpu_family,
  CASE WHEN kind = 'host' THEN operator END AS host_operator,
  count(*),
  try_cast(sum(dur) AS BIGINT),
  round(100.0 * sum(dur) / nullif(sum(sum(dur)) OVER (PARTITION BY trace_id, step), 0), 3)
FROM critical_path
LEFT JOIN _job USING (trace_id)
GROUP BY trace_id, step, kind, on_rank, gpu_family, host_operator
ORDER BY trace_id, step, sum(dur) DESC, kind, on_rank, gpu_family, host_operator;
