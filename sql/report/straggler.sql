-- Who is late: for each rank and step, how often it reached a collective last, how long it waited, how long other ranks waited for it.
-- Collectives are those that `collectives` has matched, and where ranks without a trace take part those of `collective_records`, which say less: see `waiting_ns`.
CREATE VIEW straggler(
  -- Job.
  job,
  -- n of ProfilerStep#n in which the rank launched its part; null outside every step, and of records whose collective no trace has.
  step,
  -- Rank in the job.
  rank,
  -- Collectives, sends and receives matched across ranks.
  collectives,
  -- How often the rank was the last to arrive.
  times_last,
  -- How long it waited for other ranks, ns. From records: what a collective took longer than on the rank where it took least, else how much earlier it was issued.
  waiting_ns,
  -- How long other ranks waited for it, together, ns.
  made_others_wait_ns
) AS
WITH
record AS MATERIALIZED (
  FROM _collective_record
  WHERE tells_more AND members > 1 AND waiting_ns IS NOT NULL AND collective NOT IN ('send', 'recv', 'send_recv')
),
-- Ranks of which records say who was late among all, where traces know some ranks alone.
told AS (
  SELECT job, rank, list(DISTINCT group_name) FILTER (NOT is_record) AS group_names, bool_or(is_record) AS has_records
  FROM record
  GROUP BY job, rank
),
member AS (
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
  LEFT JOIN (SELECT job, max(world_size) AS world_size FROM traces GROUP BY job) AS world ON world.job = traces.job
  LEFT JOIN told ON told.job = traces.job AND told.rank = collectives.rank
  WHERE
    collectives.members > 1
    -- One of which some ranks have no trace is known from the records of all.
    AND NOT (
      collectives.members < coalesce(operators.group_size, world.world_size, 0)
      AND (coalesce(told.has_records, false) OR coalesce(list_contains(told.group_names, operators."group"), false))
    )
  UNION ALL
  SELECT
    job,
    step,
    rank,
    row_number() OVER (PARTITION BY job, group_name, collective, seq ORDER BY waiting_ns, rank) = 1,
    waiting_ns,
    sum(waiting_ns) OVER (PARTITION BY job, group_name, collective, seq)
  FROM record
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
