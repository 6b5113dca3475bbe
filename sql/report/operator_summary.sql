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
launched AS (
  SELECT trace_id, operator_id AS op_id, sum(end_ts - ts) AS gpu_ns FROM _gpu_launch GROUP BY trace_id, operator_id
),
named AS (
  SELECT
    host.trace_id,
    any_value(host.rank) AS rank,
    host.kind,
    host.name,
    count(*) AS calls,
    try_cast(sum(host.dur) AS BIGINT) AS total_ns,
    try_cast(sum(host.inner_dur) AS BIGINT) AS inner_ns,
    try_cast(sum(launched.gpu_ns) AS BIGINT) AS gpu_ns
  FROM operators AS host
  LEFT JOIN launched ON launched.trace_id = host.trace_id AND launched.op_id = host.op_id
  WHERE host.kind IN ('cpu_op', 'runtime', 'annotation', 'python')
  GROUP BY host.trace_id, host.kind, host.name
)
SELECT
  _job.job,
  named.trace_id,
  named.rank,
  named.kind,
  named.name,
  named.calls,
  named.total_ns,
  named.total_ns - coalesce(named.inner_ns, 0) AS self_ns,
  coalesce(named.gpu_ns, 0)
FROM named
LEFT JOIN _job ON _job.trace_id = named.trace_id
ORDER BY named.trace_id, self_ns DESC, named.name;
