-- Who takes part in the collectives of `collective_records`: ranks by their records, and those that have none by the row of their trace with the number of the collective in its group.
-- A trace's row is taken where that number was recorded, and the group has one name in both: so of PyTorch's flight recorder.
CREATE VIEW _collective_record(
  -- Job.
  job,
  -- Trace with the record; the trace itself where a rank has none.
  trace_id,
  -- Rank in the job.
  rank,
  -- Process group.
  group_name,
  -- Ranks in the process group.
  group_size,
  -- Normalised name of the collective.
  collective,
  -- Number of the collective in its group; sends and receives are counted apart.
  seq,
  -- Step in which a traced rank launched it; null where no trace has its number.
  step,
  -- Element type.
  dtype,
  -- Bytes this rank gives, or the size of the message.
  message_bytes,
  -- How long it ran on the GPU, ns.
  duration_ns,
  -- Whether the rank is known from its record.
  is_record,
  -- Ranks of the collective that are here.
  members,
  -- Duration on the rank where it took least, ns.
  least_ns,
  -- Whether all ranks of the group are here, with durations.
  is_whole,
  -- What it took longer than on that rank, else how much earlier it was issued than on the last, ns.
  waiting_ns,
  -- Whether a rank takes part that has no trace, or one with which no other matches.
  tells_more
) AS
WITH
record AS (
  SELECT traces.job, traces.clock_origin_ns, record.*
  FROM collective_records AS record
  JOIN traces ON traces.trace_id = record.trace_id
),
known AS (
  SELECT DISTINCT job, "group", collective, seq FROM record WHERE "group" IS NOT NULL AND seq IS NOT NULL
),
-- The host's row comes first: when it was issued. One may be several kernels.
traced AS (
  SELECT
    known.job,
    operators.trace_id,
    any_value(operators.rank) AS rank,
    operators."group" AS group_name,
    operators.collective,
    operators.seq,
    max(operators.step) AS step,
    max(operators.ts + operators.dur) FILTER (kind = 'kernel') - min(operators.ts) FILTER (kind = 'kernel') AS duration_ns,
    min(operators.ts + traces.clock_origin_ns) AS created_ns
  FROM operators
  JOIN traces ON traces.trace_id = operators.trace_id
  JOIN known
    ON known.job = traces.job AND known."group" = operators."group" AND known.collective = operators.collective
    AND known.seq = operators.seq
  WHERE operators.seq_evidence = 'recorded' AND operators.collective NOT IN ('send', 'recv', 'send_recv')
  GROUP BY known.job, operators.trace_id, operators."group", operators.collective, operators.seq
),
member AS (
  SELECT
    job,
    trace_id,
    rank,
    "group" AS group_name,
    group_size,
    collective,
    seq,
    dtype,
    message_bytes,
    duration_ns,
    created_ts + clock_origin_ns AS created_ns,
    true AS is_record
  FROM record
  UNION ALL BY NAME
  SELECT * EXCLUDE (step), false AS is_record
  FROM traced
  ANTI JOIN record
    ON record.job = traced.job AND record.rank = traced.rank AND record."group" = traced.group_name
    AND record.collective = traced.collective AND record.seq = traced.seq
),
stepped AS (
  SELECT job, group_name, collective, seq, max(step) AS step FROM traced GROUP BY job, group_name, collective, seq
),
matched AS (
  SELECT DISTINCT traces.job, collectives.rank
  FROM collectives
  JOIN traces ON traces.trace_id = collectives.trace_id
  WHERE collectives.members > 1
)
SELECT
  member.job,
  member.trace_id,
  member.rank,
  member.group_name,
  member.group_size,
  member.collective,
  member.seq,
  stepped.step,
  member.dtype,
  member.message_bytes,
  member.duration_ns,
  member.is_record,
  count(*) OVER same,
  min(member.duration_ns) OVER same AS least,
  count(member.duration_ns) OVER same = max(member.group_size) OVER same,
  CASE
    WHEN count(member.duration_ns) OVER same = count(*) OVER same THEN member.duration_ns - least
    ELSE max(member.created_ns) OVER same - member.created_ns
  END,
  bool_or(matched.rank IS NULL) OVER same
FROM member
LEFT JOIN stepped
  ON stepped.job = member.job AND stepped.group_name = member.group_name AND stepped.collective = member.collective
  AND stepped.seq = member.seq
LEFT JOIN matched ON matched.job = member.job AND matched.rank = member.rank
WINDOW same AS (PARTITION BY member.job, member.group_name, member.collective, member.seq);
