-- Time of each rank's GPU: how long something ran on it, and what; every *_ns is the length of a union of intervals.
-- Communication is every kernel of that family or with a collective, memory is memcpy and memset, compute any other kernel.
CREATE VIEW gpu_time(
  -- Job.
  job,
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- Kernels, memcpys and memsets.
  gpu_rows,
  -- From the first start to the last end, ns.
  span_ns,
  -- Something ran, ns.
  busy_ns,
  -- Nothing ran, ns: the span less the busy time.
  idle_ns,
  -- A compute kernel ran, ns.
  compute_ns,
  -- A communication kernel ran, ns.
  communication_ns,
  -- A memcpy or memset ran, ns.
  memory_ns,
  -- Compute and communication kernels ran at once, ns.
  overlap_ns,
  -- Communication ran and no compute kernel did, ns.
  exposed_communication_ns
) AS
WITH total AS (
  SELECT
    trace_id,
    any_value(rank) AS rank,
    try_cast(sum(gpu_rows) AS BIGINT) AS gpu_rows,
    max(last_ts) - min(first_ts) AS span_ns,
    try_cast(sum(busy_ns) AS BIGINT) AS busy_ns,
    try_cast(sum(kernel_ns) AS BIGINT) AS kernel_ns,
    try_cast(sum(compute_ns) AS BIGINT) AS compute_ns,
    try_cast(sum(communication_ns) AS BIGINT) AS communication_ns,
    try_cast(sum(memory_ns) AS BIGINT) AS memory_ns
  FROM _gpu_stretch
  GROUP BY trace_id
  HAVING sum(gpu_rows) > 0
)
SELECT
  job,
  trace_id,
  rank,
  gpu_rows,
  span_ns,
  busy_ns,
  span_ns - busy_ns,
  compute_ns,
  communication_ns,
  memory_ns,
  communication_ns - (kernel_ns - compute_ns),
  kernel_ns - compute_ns
FROM total
LEFT JOIN _job USING (trace_id)
ORDER BY trace_id;
