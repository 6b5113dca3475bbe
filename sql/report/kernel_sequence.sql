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
    gpu.end_ts - gpu.ts AS dur,
    greatest(0, gpu.ts - gpu.stream_end_ts) AS gap,
    CASE WHEN gpu.kind = 'kernel' THEN kernel_name.number END AS number
  FROM _gpu_launch AS gpu
  LEFT JOIN kernel_name ON kernel_name.trace_id = gpu.trace_id AND kernel_name.name = gpu.name
),
-- From each row on: the kernels, their durations and the gaps before them. Columns, since lists took five times as long.
ahead AS (
  SELECT
    trace_id,
    rank,
    device,
    stream,
    dur,
    gap,
    row_number() OVER next AS place,
    lag(number) OVER next AS before,
    number AS n1,
    lead(number, 1) OVER next AS n2,
    lead(number, 2) OVER next AS n3,
    lead(number, 3) OVER next AS n4,
    lead(number, 4) OVER next AS n5
  FROM placed
  WINDOW next AS (PARTITION BY trace_id, device, stream ORDER BY op_id)
),
-- Where the kernel before a run is also its last one, the run before is of the same kernels in turn: `begun` of each length is
-- the first of these. What is not asked before is made here: rows are sorted with the columns that they have.
turn AS (
  SELECT
    trace_id,
    rank,
    place,
    n1,
    n2,
    n3,
    n4,
    n5,
    lead(n5, 1) OVER so_far AS n6,
    lead(n5, 2) OVER so_far AS n7,
    lead(n5, 3) OVER so_far AS n8,
    lead(n5, 4) OVER so_far AS n9,
    dur AS dur1,
    lead(dur, 1) OVER so_far AS dur2,
    lead(dur, 2) OVER so_far AS dur3,
    lead(dur, 3) OVER so_far AS dur4,
    lead(dur, 4) OVER so_far AS dur5,
    lead(gap, 1) OVER so_far AS gap2,
    lead(gap, 2) OVER so_far AS gap3,
    lead(gap, 3) OVER so_far AS gap4,
    lead(gap, 4) OVER so_far AS gap5,
    CASE WHEN n1 IS NULL THEN 0 WHEN n2 IS NULL THEN 1 WHEN n3 IS NULL THEN 2 WHEN n4 IS NULL THEN 3 WHEN n5 IS NULL THEN 4 ELSE 5 END AS kernels,
    last_value(CASE WHEN before = n2 THEN NULL ELSE place END IGNORE NULLS) OVER so_far AS begun2,
    last_value(CASE WHEN before = n3 THEN NULL ELSE place END IGNORE NULLS) OVER so_far AS begun3,
    last_value(CASE WHEN before = n4 THEN NULL ELSE place END IGNORE NULLS) OVER so_far AS begun4,
    last_value(CASE WHEN before = n5 THEN NULL ELSE place END IGNORE NULLS) OVER so_far AS begun5
  FROM ahead
  WINDOW so_far AS (PARTITION BY trace_id, device, stream ORDER BY place ROWS UNBOUNDED PRECEDING)
),
-- Rows from which the same five kernels follow are added up first, fewer where a copy or the end comes before. A run overlaps
-- itself where it begins again, two or more kernels on, before it has ended.
alike AS (
  SELECT
    trace_id,
    any_value(rank) AS rank,
    n1,
    n2,
    CASE WHEN kernels >= 3 THEN n3 END AS n3,
    CASE WHEN kernels >= 4 THEN n4 END AS n4,
    CASE WHEN kernels >= 5 THEN n5 END AS n5,
    count(*) AS places,
    count(*) FILTER ((place - begun2) % 2 = 0) AS calls2,
    count(*) FILTER ((place - begun3) % 3 = 0) AS calls3,
    count(*) FILTER ((place - begun4) % 4 = 0) AS calls4,
    count(*) FILTER ((place - begun5) % 5 = 0) AS calls5,
    sum(dur1::HUGEINT + dur2) FILTER ((place - begun2) % 2 = 0) AS dur2,
    sum(dur1::HUGEINT + dur2 + dur3) FILTER ((place - begun3) % 3 = 0) AS dur3,
    sum(dur1::HUGEINT + dur2 + dur3 + dur4) FILTER ((place - begun4) % 4 = 0) AS dur4,
    sum(dur1::HUGEINT + dur2 + dur3 + dur4 + dur5) FILTER ((place - begun5) % 5 = 0) AS dur5,
    sum(gap2::HUGEINT) FILTER ((place - begun2) % 2 = 0) AS gap2,
    sum(gap2::HUGEINT + gap3) FILTER ((place - begun3) % 3 = 0) AS gap3,
    sum(gap2::HUGEINT + gap3 + gap4) FILTER ((place - begun4) % 4 = 0) AS gap4,
    sum(gap2::HUGEINT + gap3 + gap4 + gap5) FILTER ((place - begun5) % 5 = 0) AS gap5,
    bool_or(n3 = n1 AND n4 = n2 AND n5 = n3) AS overlapping3,
    bool_or(n4 = n1 AND n5 = n2 AND n6 = n3 AND n7 = n4) AS overlapping4,
    bool_or(
      (n3 = n1 AND n4 = n2 AND n5 = n3 AND n6 = n4 AND n7 = n5)
      OR (n4 = n1 AND n5 = n2 AND n6 = n3 AND n7 = n4 AND n8 = n5)
      OR (n5 = n1 AND n6 = n2 AND n7 = n3 AND n8 = n4 AND n9 = n5)
    ) AS overlapping5
  FROM turn
  WHERE kernels >= 2
  GROUP BY ALL
),
run AS (
  SELECT
    trace_id, rank, n1, n2, NULL AS n3, NULL AS n4, NULL AS n5,
    places, calls2 AS calls, dur2 AS dur, gap2 AS gap, false AS overlapping
  FROM alike
  WHERE n1 <> n2
  UNION ALL
  SELECT trace_id, rank, n1, n2, n3, NULL, NULL, places, calls3, dur3, gap3, overlapping3
  FROM alike
  WHERE n3 IS NOT NULL AND (n1 <> n2 OR n1 <> n3)
  UNION ALL
  SELECT trace_id, rank, n1, n2, n3, n4, NULL, places, calls4, dur4, gap4, overlapping4
  FROM alike
  WHERE n4 IS NOT NULL AND (n1 <> n3 OR n2 <> n4)
  UNION ALL
  SELECT trace_id, rank, n1, n2, n3, n4, n5, places, calls5, dur5, gap5, overlapping5
  FROM alike
  WHERE n5 IS NOT NULL AND (n1 <> n2 OR n1 <> n3 OR n1 <> n4 OR n1 <> n5)
),
frequent AS (
  SELECT
    trace_id,
    any_value(rank) AS rank,
    list_filter([n1, n2, n3, n4, n5], lambda number: number IS NOT NULL) AS numbers,
    sum(places) AS places,
    sum(calls)::BIGINT AS calls,
    try_cast(sum(dur) AS BIGINT) AS total_ns,
    try_cast(sum(gap) AS BIGINT) AS gap_ns
  FROM run
  GROUP BY trace_id, n1, n2, n3, n4, n5
  HAVING sum(places) > 1 AND NOT coalesce(bool_or(overlapping), false)
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
