-- What the GPU runs: time by name and family, longest first; memcpys are of family `copy`, memsets of family `fill`.
-- Durations are added up, so rows that run at once on several streams count each.
CREATE VIEW kernel_summary(
  -- Job.
  job,
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- Name as recorded.
  name,
  -- What it does: gemm, attention, communication, elementwise, ...
  family,
  -- Rows of that name.
  calls,
  -- Sum of their durations, ns.
  total_ns,
  -- Mean duration, rounded to ns.
  mean_ns,
  -- Shortest, ns.
  min_ns,
  -- Median: the shorter of the middle two where there are two, ns.
  p50_ns,
  -- Longest, ns.
  max_ns,
  -- Share of the summed duration of all GPU rows of the trace, percent.
  gpu_pct
) AS
SELECT
  any_value(job),
  trace_id,
  any_value(rank),
  name,
  family,
  count(*),
  try_cast(sum(dur) AS BIGINT) AS total_ns,
  round(avg(dur))::BIGINT,
  min(dur),
  quantile_disc(dur, 0.5),
  max(dur),
  round(100.0 * total_ns / nullif(sum(total_ns) OVER (PARTITION BY trace_id), 0), 2)
FROM _gpu
LEFT JOIN _job USING (trace_id)
GROUP BY trace_id, name, family
ORDER BY trace_id, total_ns DESC, name;
