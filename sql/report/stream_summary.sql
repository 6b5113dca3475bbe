-- The streams of each GPU: how busy each is, what it waits for when it is not, and how much work queues on it.
-- Waits are those of `gap`; the queue is that of `queue_depth`.
CREATE VIEW stream_summary(
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
  -- Kernels, memcpys and memsets.
  gpu_rows,
  -- From the first start to the last end on the stream, ns.
  span_ns,
  -- Something ran on the stream, ns.
  busy_ns,
  -- Nothing ran on the stream within its span, ns.
  idle_ns,
  -- Part of the idle time spent waiting for the host to launch, ns.
  host_wait_ns,
  -- Part between a launch and its start, ns.
  kernel_wait_ns,
  -- Part before rows whose launch is not in the trace, ns.
  other_ns,
  -- Mean number of rows launched and not yet started, from the first launch to the last start.
  mean_queue_depth,
  -- Most rows launched and not yet started at once.
  max_queue_depth
) AS
WITH
work AS (
  SELECT
    trace_id,
    any_value(rank) AS rank,
    device,
    stream,
    count(*) AS gpu_rows,
    max(end_ts) - min(ts) AS span_ns,
    coalesce(sum(ts - stream_end_ts) FILTER (ts > stream_end_ts), 0)::BIGINT AS idle_ns,
    coalesce(sum(ts - stream_end_ts) FILTER (ts > stream_end_ts AND call_ts > stream_end_ts), 0)::BIGINT AS host_wait_ns,
    coalesce(sum(ts - stream_end_ts) FILTER (ts > stream_end_ts AND call_ts <= stream_end_ts), 0)::BIGINT AS kernel_wait_ns,
    coalesce(sum(ts - stream_end_ts) FILTER (ts > stream_end_ts AND call_ts IS NULL), 0)::BIGINT AS other_ns,
    sum(ts - call_ts) FILTER (ts > call_ts) / nullif(max(ts) FILTER (ts > call_ts) - min(call_ts) FILTER (ts > call_ts), 0) AS mean_queue_depth
  FROM _gpu_launch
  GROUP BY trace_id, device, stream
),
queue AS (
  SELECT trace_id, device, stream, max(depth) AS max_queue_depth
  FROM queue_depth
  GROUP BY trace_id, device, stream
)
SELECT
  _job.job,
  work.trace_id,
  work.rank,
  work.device,
  work.stream,
  work.gpu_rows,
  work.span_ns,
  work.span_ns - work.idle_ns,
  work.idle_ns,
  work.host_wait_ns,
  work.kernel_wait_ns,
  work.other_ns,
  round(work.mean_queue_depth, 2),
  queue.max_queue_depth
FROM work
LEFT JOIN queue
  ON queue.trace_id = work.trace_id
  AND queue.device IS NOT DISTINCT FROM work.device
  AND queue.stream IS NOT DISTINCT FROM work.stream
LEFT JOIN _job ON _job.trace_id = work.trace_id
ORDER BY work.trace_id, work.device, work.stream;
