-- Why a step took as long as it did: the pieces of its critical path, summed by what they are; they add up to the recorded step.
-- Filled by `lumos-df critical-path`; `wait` is time in which the path runs on another rank of the job.
CREATE VIEW critical_path_summary(
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- n of ProfilerStep#n; null in a trace without marks.
  step,
  -- host, launch, kernel, transfer, memory, sync, gap, wait, unexplained.
  kind,
  -- The family of a kernel, what ran in host work or `nothing recorded, before X`; for a wait the rank that was waited for.
  what,
  -- Pieces of the path.
  pieces,
  -- Time on the path, ns.
  time_ns,
  -- The same, percent of the step.
  share_pct
) AS
SELECT
  trace_id,
  any_value(rank),
  step,
  kind,
  CASE WHEN kind = 'wait' THEN 'rank ' || on_rank WHEN kind IN ('kernel', 'memory', 'transfer') THEN family WHEN kind = 'host' THEN operator END
    AS what,
  count(*),
  sum(dur)::BIGINT,
  round(100.0 * sum(dur) / nullif(sum(sum(dur)) OVER (PARTITION BY trace_id, step), 0), 3)
FROM critical_path
GROUP BY trace_id, step, kind, what
ORDER BY trace_id, step, sum(dur) DESC;
