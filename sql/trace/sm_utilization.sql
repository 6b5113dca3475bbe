-- How busy the GPU is over time: the share of each millisecond in which at least one kernel runs.
-- Milliseconds count from the start of the trace's first kernel to the end of its last, and to the 4,000,000th at most.
CREATE VIEW sm_utilization(
  -- Job.
  job,
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- Start of the millisecond, ns on the trace's clock.
  ts,
  -- At least one kernel ran, ns.
  busy_ns,
  -- The same as a share of the millisecond, percent.
  busy_pct
) AS
WITH
-- The part of each kernel that runs after all kernels that started before it have ended.
fresh AS (
  SELECT
    trace_id,
    rank,
    greatest(ts, max(end_ts) OVER before) AS ts,
    end_ts,
    min(ts) OVER (PARTITION BY trace_id) AS origin_ts
  FROM _gpu
  WHERE kind = 'kernel'
  WINDOW before AS (PARTITION BY trace_id ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
),
piece AS (
  SELECT
    trace_id,
    ts - origin_ts AS ts,
    end_ts - origin_ts AS end_ts,
    unnest(range(least(4000000, (ts - origin_ts) // 1000000), least(4000000, (end_ts - origin_ts - 1) // 1000000 + 1))) AS bucket
  FROM fresh
  WHERE end_ts > ts
),
busy AS (
  SELECT trace_id, bucket, try_cast(sum(least(end_ts, (bucket + 1) * 1000000) - greatest(ts, bucket * 1000000)) AS BIGINT) AS busy_ns
  FROM piece
  GROUP BY trace_id, bucket
),
every AS (
  SELECT
    trace_id,
    any_value(rank) AS rank,
    any_value(origin_ts) AS origin_ts,
    unnest(range(least(4000000, greatest(1, (max(end_ts) - any_value(origin_ts) + 999999) // 1000000)))) AS bucket
  FROM fresh
  GROUP BY trace_id
)
SELECT
  _job.job,
  every.trace_id,
  every.rank,
  every.origin_ts + every.bucket * 1000000,
  coalesce(busy.busy_ns, 0),
  coalesce(busy.busy_ns, 0) / 10000
FROM every
LEFT JOIN busy ON busy.trace_id = every.trace_id AND busy.bucket = every.bucket
LEFT JOIN _job ON _job.trace_id = every.trace_id;
