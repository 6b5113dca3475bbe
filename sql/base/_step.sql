-- The host's window of each step, between the marks of torch.profiler (ProfilerStep#n); windows of a trace do not overlap.
-- A trace without marks is one step without a number, from its first row of work (call, operator, row of the GPU) to the end of its last.
CREATE VIEW _step(
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- n of ProfilerStep#n; null in a trace without marks.
  step,
  -- Start, ns.
  ts,
  -- End, ns: at the latest where the next step starts.
  end_ts
) AS
WITH
mark AS (
  SELECT
    trace_id,
    any_value(rank) AS rank,
    try_cast(regexp_extract(name, '^ProfilerStep#([0-9]{1,9})([^0-9]|$)', 1) AS INTEGER) AS number,
    min(ts) AS ts,
    max(ts + dur) AS end_ts
  FROM operators
  WHERE kind IN ('annotation', 'cpu_op') AND starts_with(name, 'ProfilerStep#')
  GROUP BY trace_id, number
  HAVING number IS NOT NULL
),
-- Most traces are marked, and of these no row has to be looked at again.
unmarked AS (
  SELECT trace_id FROM (SELECT DISTINCT trace_id FROM operators) WHERE trace_id NOT IN (SELECT trace_id FROM mark)
),
-- Python frames wait in their thread as long as it lives, the profiler has a row of its own, watchdogs ask now and then
-- whether an event is over, and libraries for their settings when they are loaded: none of it is work.
whole AS (
  SELECT
    trace_id,
    any_value(rank) AS rank,
    min(ts) FILTER (kind IN ('cpu_op', 'runtime', 'kernel', 'memcpy', 'memset') AND NOT asks) AS work_ts,
    max(ts + dur) FILTER (kind IN ('cpu_op', 'runtime', 'kernel', 'memcpy', 'memset') AND NOT asks) AS work_end,
    min(ts) FILTER (kind <> 'other') AS any_ts,
    max(ts + dur) FILTER (kind <> 'other') AS any_end
  FROM (SELECT *, kind = 'runtime' AND regexp_full_match(name, '(cuda|cu|hip)\w*(Get[A-Z]\w*|EventQuery)') AS asks FROM operators)
  WHERE trace_id IN (SELECT trace_id FROM unmarked)
  GROUP BY trace_id
)
SELECT trace_id, rank, number, ts, least(end_ts, lead(ts) OVER (PARTITION BY trace_id ORDER BY ts, number))
FROM mark
UNION ALL
SELECT trace_id, rank, NULL, coalesce(work_ts, any_ts), coalesce(work_end, any_end)
FROM whole
WHERE any_ts IS NOT NULL;
