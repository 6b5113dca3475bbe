-- Who is late: for each rank and step, how often it reached a collective last, how long it waited, how long other ranks waited for it.
-- Collectives are those that `collectives` has matched, and of ranks of which it matched none those of `collective_records`, which say less: see `waiting_ns`.
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
  -- How long it waited for other ranks, ns. From records: what a collective took longer than on the rank where it took least, else how much earlier it was issued.
  waiting_ns,
  -- How long other ranks waited for it, together, ns.
  made_others_wait_ns
) AS
WITH
record AS (
  SELECT
    traces.job,
    record.rank,
    min(record.duration_ns) OVER same AS least_ns,
    count(record.duration_ns) OVER same = count(*) OVER same AS measured,
    CASE
      WHEN measured THEN record.duration_ns - least_ns
      ELSE max(record.created_ts + traces.clock_origin_ns) OVER same - (record.created_ts + traces.clock_origin_ns)
    END AS waiting_ns,
    count(*) OVER same AS members,
    concat_ws('|', record."group", record.collective, record.seq) AS instance
  FROM collective_records AS record
  JOIN traces ON traces.trace_id = record.trace_id
  WHERE
    record.collective NOT IN ('send', 'recv', 'send_recv') AND NOT EXISTS (
      -- One traced rank alone is matched with none: who is late among all then is known from the records.
      FROM collectives AS matched
      JOIN traces AS own ON own.trace_id = matched.trace_id
      WHERE own.job = traces.job AND own.rank = record.rank AND matched.members > 1
    )
  WINDOW same AS (PARTITION BY traces.job, record."group", record.collective, record.seq)
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
  WHERE collectives.members > 1
  UNION ALL
  SELECT
    job,
    NULL,
    rank,
    row_number() OVER (PARTITION BY job, instance ORDER BY waiting_ns, rank) = 1,
    waiting_ns,
    sum(waiting_ns) OVER (PARTITION BY job, instance)
  FROM record
  WHERE members > 1 AND waiting_ns IS NOT NULL
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
