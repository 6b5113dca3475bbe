-- Runs of 2 to 5 kernels that follow one another on a stream again and again, the most time first: what a fused kernel or a CUDA graph could replace.
-- Left out: runs inside a longer one that is as frequent, runs that come once, and one kernel after itself. What repeats without a break counts by its first run (A B of A B A B, not B A); runs that overlap themselves are left out; a copy parts the kernels around it.
CREATE VIEW kernel_sequence(
  -- Job.
  job,
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- Kernels in the run.
  kernels,
  -- Their names, in the order in which they run.
  names,
  -- Times that it runs.
  calls,
  -- Sum of the durations of its kernels, ns.
  total_ns,
  -- Sum of the time between them in which their stream is idle, ns.
  gap_ns
) AS
WITH
kernel_name AS (
  SELECT trace_id, name, min(op_id) AS number FROM _gpu WHERE kind = 'kernel' GROUP BY trace_id, name
),
placed AS (
  SELECT
    gpu.trace_id,
    gpu.rank,
    gpu.device,
    gpu.stream,
    gpu.op_id,
    gpu.ts,
    gpu.end_ts - gpu.ts AS dur,
    greatest(0, gpu.ts - gpu.stream_end_ts) AS gap_ns,
    row_number() OVER (PARTITION BY gpu.trace_id, gpu.device, gpu.stream ORDER BY gpu.ts, gpu.op_id) AS place,
    CASE WHEN gpu.kind = 'kernel' THEN kernel_name.number END AS number
  FROM _gpu_launch AS gpu
  LEFT JOIN kernel_name ON kernel_name.trace_id = gpu.trace_id AND kernel_name.name = gpu.name
),
-- From each row on: the kernels, the sum of their durations and of the gaps between them.
ahead AS (
  SELECT
    trace_id,
    rank,
    device,
    stream,
    place,
    lag(number) OVER next AS before,
    [number, lead(number, 1) OVER next, lead(number, 2) OVER next, lead(number, 3) OVER next, lead(number, 4) OVER next] AS numbers,
    [dur, lead(dur, 1) OVER next, lead(dur, 2) OVER next, lead(dur, 3) OVER next, lead(dur, 4) OVER next] AS durs,
    [0, lead(gap_ns, 1) OVER next, lead(gap_ns, 2) OVER next, lead(gap_ns, 3) OVER next, lead(gap_ns, 4) OVER next] AS gaps
  FROM placed
  WINDOW next AS (PARTITION BY trace_id, device, stream ORDER BY place)
),
-- Where the kernel before is the last one, too, the run before is of the same kernels in turn: `begun` is the first of these.
turn AS (
  SELECT
    * EXCLUDE (numbers, durs, gaps),
    numbers[:length] AS numbers,
    list_sum(durs[:length]) AS dur,
    list_sum(gaps[:length]) AS gap_ns,
    max(CASE WHEN before = numbers[length] THEN 0 ELSE place END) OVER (
      PARTITION BY trace_id, device, stream, length ORDER BY place
    ) AS begun
  FROM ahead, (SELECT unnest([2, 3, 4, 5]) AS length)
  WHERE len(list_filter(numbers[:length], lambda number: number IS NULL)) = 0
),
run AS (
  SELECT
    trace_id,
    rank,
    numbers,
    dur,
    gap_ns,
    (place - begun) % length = 0 AS counts,
    place - lag(place) OVER (PARTITION BY trace_id, device, stream, numbers ORDER BY place) < length AS overlapping
  FROM turn
  WHERE list_unique(numbers) > 1 AND NOT (length = 4 AND numbers[:2] = numbers[3:])
),
frequent AS (
  SELECT
    trace_id,
    any_value(rank) AS rank,
    numbers,
    count(*) AS places,
    count(*) FILTER (counts) AS calls,
    try_cast(sum(dur) FILTER (counts) AS BIGINT) AS total_ns,
    try_cast(sum(gap_ns) FILTER (counts) AS BIGINT) AS gap_ns
  FROM run
  GROUP BY trace_id, numbers
  HAVING count(*) > 1 AND NOT coalesce(bool_or(overlapping), false)
),
inside AS (
  SELECT trace_id, unnest([numbers[:-2], numbers[2:]]) AS numbers, places FROM frequent
),
kept AS (
  SELECT * FROM frequent ANTI JOIN inside USING (trace_id, numbers, places) WHERE calls > 1
),
spelled AS (
  SELECT trace_id, numbers, list(name ORDER BY place) AS names
  FROM (SELECT trace_id, numbers, unnest(numbers) AS number, generate_subscripts(numbers, 1) AS place FROM kept)
  JOIN kernel_name USING (trace_id, number)
  GROUP BY trace_id, numbers
)
SELECT job, trace_id, rank, len(numbers), names, calls, total_ns, gap_ns
FROM kept
JOIN spelled USING (trace_id, numbers)
LEFT JOIN _job USING (trace_id)
ORDER BY trace_id, total_ns DESC, names;
