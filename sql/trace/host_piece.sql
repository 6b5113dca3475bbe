-- Every nanosecond of each step of a trace without GPU rows given to one host operator, as `step_piece` gives it to GPU rows.
-- Time goes to the innermost operator; where several threads work at once, to the stretch that began first; time in which none runs belongs to the one that ends it.
CREATE VIEW host_piece(
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
  -- `compute`, `communication`; `idle` where no operator runs.
  state,
  -- The operator that runs, or that idle time ends with; null after the last one of the step.
  op_id,
  -- What it does, judged by its name; `idle` for idle time.
  family,
  -- Its phase; `other` after the last operator.
  phase,
  -- Its layer, as `lumos-df describe` found it, else as module names say; null outside the layers.
  layer,
  -- Its name.
  operator
) AS
WITH RECURSIVE
host AS (
  SELECT trace_id, thread, op_id, parent_id, ts, ts + dur AS end_ts
  FROM operators
  WHERE
    kind = 'cpu_op'
    AND dur > 0
    AND NOT starts_with(name, 'ProfilerStep#')
    AND trace_id NOT IN (SELECT trace_id FROM _gpu)
),
-- What lies around each operator, up to the next operator: frames of Python and annotations are passed by.
above AS (
  SELECT trace_id, op_id, parent_id FROM host
  UNION ALL
  SELECT above.trace_id, above.op_id, outer_row.parent_id
  FROM above
  JOIN operators AS outer_row ON outer_row.trace_id = above.trace_id AND outer_row.op_id = above.parent_id
  WHERE outer_row.kind <> 'cpu_op'
),
inside AS (
  SELECT above.trace_id, above.op_id, host.op_id AS outer_id, host.end_ts AS outer_end
  FROM above
  JOIN host ON host.trace_id = above.trace_id AND host.op_id = above.parent_id
),
-- An operator has the time from its begin to the next one's, and what is around it that from its end on.
turn AS (
  SELECT
    *,
    lead(ts) OVER (PARTITION BY trace_id, thread ORDER BY ts, end_ts DESC, op_id) AS next_ts
  FROM host
),
turn_piece AS (
  SELECT trace_id, op_id, ts, least(end_ts, coalesce(next_ts, end_ts)) AS end_ts FROM turn
  UNION ALL
  SELECT turn.trace_id, inside.outer_id, turn.end_ts, least(inside.outer_end, coalesce(resumes.ts, inside.outer_end))
  FROM turn
  JOIN inside ON inside.trace_id = turn.trace_id AND inside.op_id = turn.op_id
  ASOF LEFT JOIN (SELECT DISTINCT trace_id, thread, ts FROM host) AS resumes
    ON resumes.trace_id = turn.trace_id AND resumes.thread = turn.thread AND resumes.ts >= turn.end_ts
),
fresh AS (
  SELECT
    trace_id,
    op_id,
    greatest(
      ts,
      max(end_ts) OVER (PARTITION BY trace_id ORDER BY ts, end_ts, op_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
    ) AS ts,
    end_ts
  FROM turn_piece
  WHERE end_ts > ts
),
window_of AS (
  SELECT * FROM _step WHERE trace_id NOT IN (SELECT trace_id FROM _gpu)
),
busy AS (
  SELECT
    step.trace_id,
    step.rank,
    step.step,
    step.ts AS step_ts,
    greatest(fresh.ts, step.ts) AS ts,
    least(fresh.end_ts, step.end_ts) AS end_ts,
    fresh.op_id
  FROM window_of AS step
  JOIN fresh ON fresh.trace_id = step.trace_id AND fresh.ts < step.end_ts AND fresh.end_ts > step.ts
  WHERE fresh.end_ts > fresh.ts
  UNION ALL
  SELECT trace_id, rank, step, ts, end_ts, end_ts, NULL FROM window_of
),
before AS (
  SELECT *, coalesce(lag(end_ts) OVER (PARTITION BY trace_id, step_ts ORDER BY ts, end_ts), step_ts) AS idle_ts FROM busy
),
piece AS (
  SELECT trace_id, rank, step, ts, end_ts - ts AS dur, op_id, false AS idle FROM before WHERE end_ts > ts
  UNION ALL
  SELECT trace_id, rank, step, idle_ts, ts - idle_ts, op_id, true FROM before WHERE ts > idle_ts
)
SELECT
  _job.job,
  piece.trace_id,
  piece.rank,
  piece.step,
  piece.ts,
  piece.dur,
  CASE WHEN piece.idle THEN 'idle' WHEN host.collective IS NOT NULL THEN 'communication' ELSE 'compute' END,
  piece.op_id,
  CASE
    WHEN piece.idle THEN 'idle'
    WHEN host.collective IS NOT NULL OR regexp_matches(host.name, 'c10d|gloo|record_param_comms') THEN 'communication'
    WHEN regexp_matches(host.name, '(?i)attention|attn|sdpa') THEN 'attention'
    WHEN regexp_matches(host.name, '(?i)(^|::|_)(add|badd)?b?mm_?$|addmv|matmul$|linear$') THEN 'gemm'
    WHEN regexp_matches(host.name, '(?i)conv') THEN 'convolution'
    WHEN regexp_matches(host.name, '(?i)_norm') THEN 'normalization'
    WHEN regexp_matches(host.name, '(?i)softmax') THEN 'softmax'
    WHEN regexp_matches(host.name, '(?i)embedding') THEN 'embedding'
    WHEN regexp_matches(host.name, '(?i)loss|cross_entropy') THEN 'loss'
    WHEN regexp_matches(host.name, '(?i)optimizer|_foreach|_fused_(adam|sgd)|addcmul|addcdiv|lerp') THEN 'optimizer'
    WHEN regexp_matches(host.name, '(?i)::_?(sum|mean|amax|amin|argmax|argmin|max|min|norm|linalg_vector_norm)$') THEN 'reduction'
    WHEN regexp_matches(host.name, '(?i)copy|clone|contiguous|::_?to$|::_to_copy$|::cat$') THEN 'copy'
    WHEN regexp_matches(host.name, '(?i)fill|zero|ones|full') THEN 'fill'
    WHEN regexp_matches(host.name, '(?i)index|gather|scatter|::where$') THEN 'index'
    WHEN regexp_matches(host.name, '(?i)sort|topk') THEN 'sort'
    WHEN regexp_matches(host.name, '(?i)rand|dropout|bernoulli|normal_|uniform_') THEN 'random'
    WHEN regexp_matches(host.name, '(?i)::(add|sub|mul|div|pow|sqrt|rsqrt|exp|log|tanh|gelu|relu|silu|sigmoid|neg|abs|clamp|threshold)') THEN 'elementwise'
    ELSE 'other'
  END,
  coalesce(layers.phase, host.phase, 'other'),
  coalesce(layers.layer, host.layer),
  host.name AS operator
FROM piece
LEFT JOIN operators AS host ON host.trace_id = piece.trace_id AND host.op_id = piece.op_id
LEFT JOIN layers ON layers.trace_id = piece.trace_id AND layers.op_id = piece.op_id
LEFT JOIN _job ON _job.trace_id = piece.trace_id;
