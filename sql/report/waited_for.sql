-- Which ranks a job waits for: one row a rank, the most waited for first; times are of a mean step.
-- Sums of `straggler` over all steps, and what collectives outside of them add; not of records beside traces, which go back longer than the steps.
CREATE VIEW waited_for(
  -- Job.
  job,
  -- Rank in the job.
  rank,
  -- How long each other rank waited for it, ns a step: their mean.
  each_waited_ns,
  -- How long it waited for other ranks, ns a step.
  waiting_ns,
  -- How often it was the last to arrive, of all steps.
  times_last,
  -- Collectives, sends and receives matched across ranks, of all steps.
  collectives,
  -- Steps of the rank that has the most; 1 where all that is known is from records without steps.
  steps
) AS
WITH
-- It is read twice, and is small.
late_row AS MATERIALIZED (FROM straggler),
-- Jobs of which records tell more than traces, and whether any of it lies in steps.
told AS (
  SELECT job, bool_or(step IS NOT NULL) AS in_steps
  FROM late_row
  WHERE job IN (SELECT job FROM _collective_record WHERE tells_more)
  GROUP BY job
),
stepped AS (
  SELECT job, max(steps) AS steps
  FROM (SELECT _job.job, count(*) AS steps FROM _step JOIN _job ON _job.trace_id = _step.trace_id GROUP BY _job.job, _step.trace_id)
  WHERE job NOT IN (SELECT job FROM told WHERE NOT in_steps)
  GROUP BY job
),
late AS (
  SELECT
    job,
    rank,
    sum(made_others_wait_ns) AS waited_ns,
    sum(waiting_ns) AS waiting_ns,
    sum(times_last) AS times_last,
    sum(collectives) AS collectives,
    count(*) OVER (PARTITION BY job) AS ranks
  FROM late_row
  WHERE step IS NOT NULL OR job NOT IN (SELECT job FROM told WHERE in_steps)
  GROUP BY job, rank
)
SELECT
  late.job,
  late.rank,
  try_cast(late.waited_ns / (coalesce(stepped.steps, 1) * nullif(late.ranks - 1, 0)) AS BIGINT),
  try_cast(late.waiting_ns / coalesce(stepped.steps, 1) AS BIGINT),
  try_cast(late.times_last AS BIGINT),
  try_cast(late.collectives AS BIGINT),
  coalesce(stepped.steps, 1)
FROM late
LEFT JOIN stepped ON stepped.job = late.job
ORDER BY late.job, late.waited_ns DESC, late.rank;
