-- How many GPU rows of a stream are launched and not yet started: one row an instant at which that changes, holding until the next.
-- A row counts from the start of its launching call to its own start; rows without a launch never queue.
CREATE VIEW queue_depth(
  -- Job.
  job,
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- Device index.
  device,
  -- Stream.
  stream,
  -- When, ns on the trace's clock.
  ts,
  -- GPU rows launched and not yet started from then on.
  depth
) AS
WITH
-- Two parts: the unnested lists of both took twice as long.
event AS (
  SELECT trace_id, rank, device, stream, call_ts AS at_ts, 1 AS change FROM _gpu_launch WHERE call_ts < ts
  UNION ALL
  SELECT trace_id, rank, device, stream, ts, -1 FROM _gpu_launch WHERE call_ts < ts
),
counted AS (
  SELECT
    trace_id,
    rank,
    device,
    stream,
    at_ts,
    sum(change) OVER so_far AS depth,
    lead(at_ts) OVER so_far AS next_ts
  FROM event
  WINDOW so_far AS (PARTITION BY trace_id, device, stream ORDER BY at_ts ROWS UNBOUNDED PRECEDING)
)
SELECT job, trace_id, rank, device, stream, at_ts, depth::BIGINT
FROM counted
LEFT JOIN _job USING (trace_id)
WHERE next_ts IS DISTINCT FROM at_ts;
