-- Every nanosecond of each step given to one operator: one row a piece of time; the pieces of a step add up to it exactly.
-- A compute kernel goes before communication, that before a copy, and of two alike the one that started first; idle time belongs to the GPU row that ends it.
CREATE VIEW step_piece(
  -- Job.
  job,
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- n of ProfilerStep#n; null in a trace without marks.
  step,
  -- Start, ns on the trace's clock.
  ts,
  -- Length, ns.
  dur,
  -- `compute`, `communication`, `memory`; `idle` where nothing runs on the GPU.
  state,
  -- The GPU row that runs, or that idle time ends with; null after the last one of the step.
  op_id,
  -- Family of that row; `idle` for idle time.
  family,
  -- Its phase; `other` after the last row.
  phase,
  -- Its layer, as `lumos-df describe` found it, else as module names say; null outside the layers.
  layer,
  -- Host operator that launched it, else its own name.
  operator,
  -- Its name as recorded.
  name,
  -- Part of a communication kernel's piece in which it only waited for other ranks, ns; null where that is unknown, and elsewhere.
  waiting_ns,
  -- Rank that came last to the collective; null where that is the rank itself, or was not recorded, and elsewhere.
  waits_for
) AS
WITH
-- What a row adds to the time of its class: the part of it after all rows of the class that started before it.
fresh AS (
  SELECT trace_id, class, op_id, begin_ts, end_ts
  FROM (
    SELECT
      trace_id,
      class,
      op_id,
      end_ts,
      greatest(
        ts,
        max(end_ts) OVER (PARTITION BY trace_id, class ORDER BY ts, op_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
      ) AS begin_ts
    FROM _gpu
  )
  WHERE end_ts > begin_ts
),
cut AS (
  SELECT trace_id, unnest([begin_ts, end_ts]) AS ts FROM fresh
  UNION
  SELECT trace_id, unnest([ts, end_ts]) FROM _step
),
stretch AS (
  SELECT step.trace_id, step.rank, step.step, cut.ts, cut.end_ts, step.end_ts AS step_end_ts
  FROM (SELECT trace_id, ts, lead(ts) OVER (PARTITION BY trace_id ORDER BY ts) AS end_ts FROM cut) AS cut
  ASOF JOIN _step AS step ON step.trace_id = cut.trace_id AND step.ts <= cut.ts
  WHERE cut.ts < step.end_ts AND cut.end_ts > cut.ts
),
held AS (
  SELECT
    stretch.*,
    CASE WHEN compute.end_ts > stretch.ts THEN compute.op_id END AS compute_id,
    CASE WHEN communication.end_ts > stretch.ts THEN communication.op_id END AS communication_id,
    CASE WHEN memory.end_ts > stretch.ts THEN memory.op_id END AS memory_id,
    CASE WHEN next.ts < stretch.step_end_ts THEN next.op_id END AS next_id
  FROM stretch
  ASOF LEFT JOIN (FROM fresh WHERE class = 'compute') AS compute
    ON compute.trace_id = stretch.trace_id AND compute.begin_ts <= stretch.ts
  ASOF LEFT JOIN (FROM fresh WHERE class = 'communication') AS communication
    ON communication.trace_id = stretch.trace_id AND communication.begin_ts <= stretch.ts
  ASOF LEFT JOIN (FROM fresh WHERE class = 'memory') AS memory
    ON memory.trace_id = stretch.trace_id AND memory.begin_ts <= stretch.ts
  ASOF LEFT JOIN (SELECT trace_id, ts, min(op_id) AS op_id FROM _gpu GROUP BY trace_id, ts) AS next
    ON next.trace_id = stretch.trace_id AND next.ts >= stretch.end_ts
),
piece AS (
  SELECT
    *,
    coalesce(compute_id, communication_id, memory_id, next_id) AS op_id,
    CASE
      WHEN compute_id IS NOT NULL THEN 'compute'
      WHEN communication_id IS NOT NULL THEN 'communication'
      WHEN memory_id IS NOT NULL THEN 'memory'
      ELSE 'idle'
    END AS state
  FROM held
)
SELECT
  _job.job,
  piece.trace_id,
  piece.rank,
  piece.step,
  piece.ts,
  piece.end_ts - piece.ts,
  piece.state,
  piece.op_id,
  CASE WHEN piece.state = 'idle' THEN 'idle' ELSE gpu.family END,
  coalesce(layers.phase, gpu.phase, 'other'),
  coalesce(layers.layer, gpu.layer),
  coalesce(host.name, gpu.name),
  gpu.name AS name,
  -- A communication kernel waits first, then it transfers.
  CASE
    WHEN piece.state = 'communication' AND member.transfer_ns IS NOT NULL THEN
      greatest(least(gpu.ts + gpu.dur - member.transfer_ns, piece.end_ts) - piece.ts, 0)
  END,
  CASE WHEN piece.state = 'communication' AND member.last_rank <> piece.rank THEN member.last_rank END
FROM piece
LEFT JOIN operators AS gpu ON gpu.trace_id = piece.trace_id AND gpu.op_id = piece.op_id
LEFT JOIN layers ON layers.trace_id = piece.trace_id AND layers.op_id = piece.op_id
LEFT JOIN collectives AS member ON member.trace_id = piece.trace_id AND member.op_id = piece.op_id
LEFT JOIN operators AS above ON above.trace_id = gpu.trace_id AND above.op_id = gpu.parent_id
LEFT JOIN operators AS host
  ON host.trace_id = gpu.trace_id
  AND host.op_id = CASE WHEN above.kind = 'runtime' THEN above.parent_id ELSE above.op_id END
  AND host.kind = 'cpu_op'
LEFT JOIN _job ON _job.trace_id = piece.trace_id;
