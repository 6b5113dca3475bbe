-- Time in which the host was blocked because a launch queue was full: launch calls that had to wait until a row further ahead ended.
-- Which calls these are is said by the edges that `lumos-df replay` stores (a sync edge from a GPU row to a call that launches another one): before a replay there is no row.
CREATE VIEW full_queue(
  -- Job.
  job,
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- n of ProfilerStep#n; null outside every step.
  step,
  -- Device index.
  device,
  -- Stream whose queue was full.
  stream,
  -- Launch calls that waited for it.
  blocked_calls,
  -- Time from the start of these calls to the end of the row that they waited for, ns.
  blocked_ns,
  -- The longest of these waits, ns.
  max_blocked_ns
) AS
WITH
-- Distinct, so that these few rows are found first: joined in one go, calls and GPU rows of a trace met each other.
blocked AS (
  SELECT DISTINCT
    edges.trace_id,
    edges.rank,
    edges.src,
    edges.dst,
    call.step,
    call.ts,
    call.ts + call.dur AS end_ts
  FROM edges
  JOIN operators AS call ON call.trace_id = edges.trace_id AND call.op_id = edges.dst
  WHERE edges.kind = 'sync' AND edges.binds = 'end-end' AND call.kind = 'runtime'
),
wait AS (
  SELECT
    blocked.trace_id,
    blocked.rank,
    blocked.step,
    ahead.device,
    ahead.stream,
    least(ahead.end_ts, blocked.end_ts) - blocked.ts AS blocked_ns
  FROM blocked
  JOIN _gpu AS ahead ON ahead.trace_id = blocked.trace_id AND ahead.op_id = blocked.src
  SEMI JOIN _gpu AS launched ON launched.trace_id = blocked.trace_id AND launched.parent_id = blocked.dst
  -- A copy that the call itself waits for is no queue.
  WHERE ahead.parent_id IS DISTINCT FROM blocked.dst
)
SELECT
  any_value(job),
  trace_id,
  any_value(rank),
  step,
  device,
  stream,
  count(*),
  try_cast(sum(blocked_ns) AS BIGINT) AS blocked_ns,
  max(blocked_ns)
FROM wait
LEFT JOIN _job USING (trace_id)
WHERE blocked_ns > 0
GROUP BY trace_id, step, device, stream
ORDER BY trace_id, step, blocked_ns DESC, device, stream;
