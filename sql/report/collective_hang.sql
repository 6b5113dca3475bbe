-- Who a collective hangs on: for each group in which one is not over, the last collective that any rank issued, and how far each rank is.
-- From `collective_records`. A rank that has not issued it keeps the others waiting; sends and receives are left out, which not all ranks take part in.
CREATE VIEW collective_hang(
  -- Job.
  job,
  -- Process group.
  "group",
  -- What it was made for.
  group_description,
  -- Rank in the job: one with records of the group, or that the group lists.
  rank,
  -- `missing`: has not issued it; `unrecorded`: the corpus holds no records of the rank; `waiting`: has, and it is not over; `done`.
  verdict,
  -- Number of the last collective that any rank of the group issued.
  seq,
  -- Which collective that is.
  collective,
  -- Number of the last that this rank issued; null where it has none.
  issued_seq,
  -- Number of the last that is over on this rank; null where none is.
  completed_seq,
  -- When this rank issued its last, Unix time, ns.
  issued_unix_ns,
  -- Where this rank issued its last: lines `name (file:line)`, innermost first.
  stack
) AS
WITH
record AS (
  SELECT traces.job, traces.clock_origin_ns, collective_records.*
  FROM collective_records
  JOIN traces USING (trace_id)
  WHERE collective NOT IN ('send', 'recv', 'send_recv')
),
last AS (
  SELECT
    job,
    "group",
    any_value(group_description) AS group_description,
    max(seq) AS seq,
    arg_max(collective, seq) AS collective
  FROM record
  GROUP BY job, "group"
  HAVING bool_or(state <> 'completed')
),
each AS (
  SELECT
    job,
    "group",
    rank,
    max(seq) AS issued_seq,
    max(seq) FILTER (state = 'completed') AS completed_seq,
    arg_max(created_ts + clock_origin_ns, seq) AS issued_unix_ns,
    arg_max(stack, seq) AS stack
  FROM record
  GROUP BY job, "group", rank
),
member AS (
  SELECT job, "group", rank FROM each
  UNION
  SELECT job, "group", unnest(group_ranks) FROM record
)
SELECT
  job,
  "group",
  group_description,
  member.rank,
  CASE
    WHEN issued_seq IS NULL AND NOT EXISTS (FROM record WHERE record.job = member.job AND record.rank = member.rank) THEN 'unrecorded'
    WHEN issued_seq IS NULL OR issued_seq < last.seq THEN 'missing'
    WHEN completed_seq IS NULL OR completed_seq < last.seq THEN 'waiting'
    ELSE 'done'
  END,
  last.seq,
  collective,
  issued_seq,
  completed_seq,
  issued_unix_ns,
  stack
FROM last
JOIN member USING (job, "group")
LEFT JOIN each USING (job, "group", rank)
ORDER BY job, "group", rank;
