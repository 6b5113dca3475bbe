-- What the host runs: CPU operators, runtime calls, annotations and Python functions by name, longest own time first.
-- Own time leaves out what runs inside: a row's duration less the time in which some row directly beneath it runs.
CREATE VIEW operator_summary(
  -- Job.
  job,
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- `cpu_op`, `runtime`, `annotation`, `python`.
  kind,
  -- Name as recorded.
  name,
  -- Rows of that name.
  calls,
  -- Sum of their durations, ns; rows of one name inside one another count each.
  total_ns,
  -- Sum of their own time, ns.
  self_ns,
  -- Sum of the durations of the GPU rows launched directly beneath it, by no operator in between, ns.
  gpu_ns
) AS
WITH
host AS (
  SELECT
    trace_id,
    rank,
    op_id,
    parent_id,
    kind,
    name,
    ts,
    dur,
    ts + dur AS end_ts,
    -- Clocks that round, or differ between calls and operators, make siblings overlap.
    max(ts + dur) OVER (
      PARTITION BY trace_id, parent_id ORDER BY op_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS sibling_end_ts
  FROM operators
  WHERE kind IN ('cpu_op', 'runtime', 'annotation', 'python')
),
named AS (
  SELECT trace_id, any_value(rank) AS rank, kind, name, count(*) AS calls, try_cast(sum(dur) AS BIGINT) AS total_ns
  FROM host
  GROUP BY trace_id, kind, name
),
beneath AS (
  SELECT
    above.trace_id,
    above.kind,
    above.name,
    try_cast(sum(greatest(
      0,
      least(inner_row.end_ts, above.end_ts) - greatest(inner_row.ts, inner_row.sibling_end_ts)
    )) AS BIGINT) AS inner_ns
  FROM host AS inner_row
  JOIN host AS above ON above.trace_id = inner_row.trace_id AND above.op_id = inner_row.parent_id
  GROUP BY above.trace_id, above.kind, above.name
),
launched AS (
  SELECT above.trace_id, above.kind, above.name, try_cast(sum(gpu.end_ts - gpu.ts) AS BIGINT) AS gpu_ns
  FROM _gpu_launch AS gpu
  JOIN host AS above ON above.trace_id = gpu.trace_id AND above.op_id = gpu.operator_id
  GROUP BY above.trace_id, above.kind, above.name
)
SELECT
  _job.job,
  named.trace_id,
  named.rank,
  named.kind,
  named.name,
  named.calls,
  named.total_ns,
  named.total_ns - coalesce(beneath.inner_ns, 0) AS self_ns,
  coalesce(launched.gpu_ns, 0)
FROM named
LEFT JOIN beneath USING (trace_id, kind, name)
LEFT JOIN launched USING (trace_id, kind, name)
LEFT JOIN _job ON _job.trace_id = named.trace_id
ORDER BY named.trace_id, self_ns DESC, named.name;
