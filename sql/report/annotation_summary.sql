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
-- Few rows run beside others, and only their starts and ends have to be gone through.
neighbour AS (
  SELECT
    trace_id,
    device,
    op_id,
    launch_ts,
    launch_thread AS thread,
    ts,
    end_ts,
    coalesce(ts < gpu_end_ts OR end_ts > next_ts, false) AS shares
  FROM _gpu_launch
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
    neighbour.thread,
    neighbour.launch_ts,
    neighbour.end_ts - neighbour.ts AS gpu_ns,
    CASE WHEN neighbour.shares THEN lonely.alone_ns ELSE neighbour.end_ts - neighbour.ts END AS alone_ns
  FROM neighbour
  LEFT JOIN lonely ON lonely.trace_id = neighbour.trace_id AND lonely.op_id = neighbour.op_id
  WHERE neighbour.launch_ts IS NOT NULL
),
annotation AS (
  SELECT trace_id, rank, thread, ts, ts + dur AS end_ts, name, dur
  FROM operators
  WHERE kind = 'annotation' AND NOT starts_with(name, 'ProfilerStep#')
),
boundary AS (
  SELECT DISTINCT trace_id, thread, unnest([ts, end_ts]) AS ts FROM annotation
),
-- What is launched is found again as the difference between two boundaries: it counts from the next one on.
added AS (
  SELECT
    boundary.trace_id,
    boundary.thread,
    boundary.ts,
    count(*) AS gpu_rows,
    sum(launched.gpu_ns) AS gpu_ns,
    sum(launched.alone_ns) AS alone_ns
  FROM launched
  ASOF JOIN boundary
    ON boundary.trace_id = launched.trace_id
    AND boundary.thread IS NOT DISTINCT FROM launched.thread
    AND boundary.ts > launched.launch_ts
  GROUP BY boundary.trace_id, boundary.thread, boundary.ts
),
so_far AS (
  SELECT
    boundary.trace_id,
    boundary.thread,
    boundary.ts,
    coalesce(sum(added.gpu_rows) OVER before, 0) AS gpu_rows,
    coalesce(sum(added.gpu_ns) OVER before, 0) AS gpu_ns,
    coalesce(sum(added.alone_ns) OVER before, 0) AS alone_ns
  FROM boundary
  LEFT JOIN added
    ON added.trace_id = boundary.trace_id
    AND added.thread IS NOT DISTINCT FROM boundary.thread
    AND added.ts = boundary.ts
  WINDOW before AS (PARTITION BY boundary.trace_id, boundary.thread ORDER BY boundary.ts ROWS UNBOUNDED PRECEDING)
)
SELECT
  any_value(_job.job),
  annotation.trace_id,
  any_value(annotation.rank),
  annotation.name,
  count(*),
  try_cast(sum(annotation.dur) AS BIGINT),
  try_cast(sum(until.gpu_rows - since.gpu_rows) AS BIGINT),
  try_cast(sum(until.gpu_ns - since.gpu_ns) AS BIGINT) AS gpu_ns,
  try_cast(sum(until.alone_ns - since.alone_ns) AS BIGINT)
FROM annotation
JOIN so_far AS since
  ON since.trace_id = annotation.trace_id
  AND since.thread IS NOT DISTINCT FROM annotation.thread
  AND since.ts = annotation.ts
JOIN so_far AS until
  ON until.trace_id = annotation.trace_id
  AND until.thread IS NOT DISTINCT FROM annotation.thread
  AND until.ts = annotation.end_ts
LEFT JOIN _job ON _job.trace_id = annotation.trace_id
GROUP BY annotation.trace_id, annotation.name
ORDER BY annotation.trace_id, gpu_ns DESC, annotation.name;
