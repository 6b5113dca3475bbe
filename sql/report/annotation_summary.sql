-- GPU time by annotation: what was launched while an annotation of that name was open on the launching thread, most GPU time first.
-- Annotations inside one another count each, steps are left out; work that another thread launches, as autograd does in a backward pass, is not inside.
CREATE VIEW annotation_summary(
  -- Job.
  job,
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- Name as recorded.
  name,
  -- Annotations of that name.
  calls,
  -- Sum of their durations on the host, ns.
  host_ns,
  -- GPU rows launched inside.
  gpu_rows,
  -- Sum of the durations of these rows, ns.
  gpu_ns,
  -- Part in which nothing else ran on the device, ns.
  alone_ns
) AS
WITH
-- Few rows run beside others on most devices, and only their starts and ends have to be gone through.
neighbour AS (
  SELECT
    trace_id,
    device,
    op_id,
    parent_id,
    ts,
    end_ts,
    coalesce(
      ts < max(end_ts) OVER (started ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) OR end_ts > lead(ts) OVER started,
      false
    ) AS shares
  FROM _gpu
  WINDOW started AS (PARTITION BY trace_id, device ORDER BY ts, op_id)
),
change AS (
  SELECT trace_id, device, op_id, unnest([ts, end_ts]) AS ts, unnest([1, -1]) AS more FROM neighbour WHERE shares
),
running AS (
  SELECT
    *,
    sum(more) OVER so_far AS depth,
    lead(ts) OVER so_far AS next_ts
  FROM change
  WINDOW so_far AS (PARTITION BY trace_id, device ORDER BY ts, op_id, more ROWS UNBOUNDED PRECEDING)
),
lone AS (
  SELECT
    *,
    sum(CASE WHEN depth = 1 THEN next_ts - ts END) OVER (
      PARTITION BY trace_id, device ORDER BY ts, op_id, more ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS lone_ns
  FROM running
),
-- What passes with one row on the device while a row runs is the row's own.
lonely AS (
  SELECT trace_id, op_id, sum(-more * coalesce(lone_ns, 0)) AS alone_ns FROM lone GROUP BY trace_id, op_id
),
launched AS (
  SELECT
    neighbour.trace_id,
    neighbour.parent_id,
    count(*) AS gpu_rows,
    sum(neighbour.end_ts - neighbour.ts) AS gpu_ns,
    sum(CASE WHEN neighbour.shares THEN lonely.alone_ns ELSE neighbour.end_ts - neighbour.ts END) AS alone_ns
  FROM neighbour
  LEFT JOIN lonely ON lonely.trace_id = neighbour.trace_id AND lonely.op_id = neighbour.op_id
  GROUP BY neighbour.trace_id, neighbour.parent_id
),
-- At one instant an annotation ends before the next one begins, and that before anything is launched.
event AS (
  SELECT
    trace_id,
    rank,
    thread,
    unnest([ts + dur, ts]) AS ts,
    unnest([0, 1]) AS turn,
    unnest([1, -1]) AS sign,
    name,
    dur,
    0 AS gpu_rows,
    0 AS gpu_ns,
    0 AS alone_ns
  FROM operators
  WHERE kind = 'annotation' AND NOT starts_with(name, 'ProfilerStep#')
  UNION ALL
  SELECT
    above.trace_id,
    above.rank,
    above.thread,
    above.ts,
    2,
    0,
    NULL,
    NULL,
    launched.gpu_rows,
    launched.gpu_ns,
    launched.alone_ns
  FROM launched
  JOIN operators AS above ON above.trace_id = launched.trace_id AND above.op_id = launched.parent_id
),
so_far AS (
  SELECT
    trace_id,
    rank,
    turn,
    sign,
    name,
    dur,
    sum(gpu_rows) OVER before AS gpu_rows,
    sum(gpu_ns) OVER before AS gpu_ns,
    sum(alone_ns) OVER before AS alone_ns
  FROM event
  WINDOW before AS (PARTITION BY trace_id, thread ORDER BY ts, turn ROWS UNBOUNDED PRECEDING)
)
SELECT
  any_value(job),
  trace_id,
  any_value(rank),
  name,
  count(*) FILTER (turn = 1),
  try_cast(sum(dur) FILTER (turn = 1) AS BIGINT),
  try_cast(sum(sign * gpu_rows) AS BIGINT),
  try_cast(sum(sign * gpu_ns) AS BIGINT) AS gpu_ns,
  try_cast(sum(sign * alone_ns) AS BIGINT)
FROM so_far
LEFT JOIN _job USING (trace_id)
WHERE turn < 2
GROUP BY trace_id, name
ORDER BY trace_id, gpu_ns DESC, name;
