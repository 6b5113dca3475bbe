-- Gaps: one row an idle interval between two rows of one GPU stream, with the rows around it and what the stream waited for.
-- host_wait: the next row was launched after the gap began; kernel_wait: before, yet it started later; other: launch not in the trace.
CREATE VIEW gap(
  -- Job.
  job,
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- Step in which the row after the gap was launched.
  step,
  -- Device index.
  device,
  -- Stream.
  stream,
  -- Start of the gap, ns on the trace's clock: the end of the row before.
  ts,
  -- Length of the gap, ns.
  dur,
  -- `host_wait`, `kernel_wait`, `other`.
  cause,
  -- Number of the row before: of those that started earlier on the stream, the last to end.
  before_op_id,
  -- Name of the row before.
  before_name,
  -- Number of the row after.
  after_op_id,
  -- Name of the row after.
  after_name
) AS
WITH placed AS (
  SELECT
    *,
    arg_max(op_id, end_ts) OVER (
      PARTITION BY trace_id, device, stream
      ORDER BY op_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS before_op_id
  FROM _gpu_launch
)
SELECT
  _job.job,
  after.trace_id,
  after.rank,
  after.step,
  after.device,
  after.stream,
  after.stream_end_ts,
  after.ts - after.stream_end_ts,
  CASE
    WHEN after.call_ts IS NULL THEN 'other'
    WHEN after.call_ts > after.stream_end_ts THEN 'host_wait'
    ELSE 'kernel_wait'
  END,
  after.before_op_id,
  before.name AS before_name,
  after.op_id,
  after.name AS after_name
FROM placed AS after
JOIN operators AS before ON before.trace_id = after.trace_id AND before.op_id = after.before_op_id
LEFT JOIN _job ON _job.trace_id = after.trace_id
WHERE after.ts > after.stream_end_ts;
