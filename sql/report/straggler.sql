-- Who is late: for each rank and step, how often it reached a collective last, how long it waited, how long other ranks waited for it.
-- Collectives are those that `collectives` has matched; waits for ranks that were not recorded are not counted.
CREATE VIEW straggler(
  -- Job.
  job,
  -- n of ProfilerStep#n in which the rank launched its part; null outside every step.
  step,
  -- Rank in the job.
  rank,
  -- Collectives, sends and receives matched across ranks.
  collectives,
  -- How often the rank was the last to arrive.
  times_last,
  -- How long it waited for other ranks, ns.
  waiting_ns,
  -- How long other ranks waited for it, together, ns.
  made_others_wait_ns
) AS
WITH member AS (
  SELECT
    traces.job,
    operators.step,
    collectives.rank,
    collectives.rank = collectives.last_rank AS is_last,
    collectives.waiting_ns,
    sum(collectives.waiting_ns) OVER (PARTITION BY traces.job, collectives.instance_id) AS together_ns
  FROM collectives
  JOIN traces ON traces.trace_id = collectives.trace_id
  JOIN operators ON operators.trace_id = collectives.trace_id AND operators.op_id = collectives.op_id
  WHERE collectives.members > 1
)
SELECT
  job,
  step,
  rank,
  count(*),
  count(*) FILTER (is_last),
  try_cast(sum(waiting_ns) AS BIGINT),
  try_cast(coalesce(sum(together_ns) FILTER (is_last), 0) AS BIGINT)
FROM member
GROUP BY job, step, rank
ORDER BY job, step, rank;
