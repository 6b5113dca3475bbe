-- What the links of each group reach: latency and bandwidth of a kind of collective, through the transfers of all its sizes.
-- Robust: the median of the slopes between any two sizes, and of what is left. Nothing before the collectives are matched.
CREATE VIEW link(
  -- Job.
  job,
  -- all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, ...
  collective,
  -- Process group as named in the trace.
  "group",
  -- Ranks in the process group; those of the job where the trace does not say.
  group_size,
  -- Time of the smallest payload, us; null where not all are matched, one size was seen, or larger ones take no longer.
  latency_us,
  -- Bandwidth of large payloads as nccl-tests count busbw, GB/s; where latency is null the highest of any size. 1 GB/s is 10^9 bytes a second.
  bandwidth_gbps,
  -- Median distance of the sizes from that line, %; null where latency is.
  spread_pct,
  -- Sizes of its payload that were seen.
  sizes,
  -- Kernels of them, all ranks together.
  calls,
  -- Those of which a kernel of another rank was found: a transfer of others may hold waiting.
  matched
) AS
WITH size AS (
  SELECT
    traces.job,
    gpu.collective,
    gpu.group_name,
    gpu.group_size,
    -- What a rank sends.
    gpu.full_bytes * gpu.bus_factor AS wire_bytes,
    median(member.transfer_ns) AS transfer_ns,
    count(*) AS calls,
    count(*) FILTER (WHERE member.members > 1) AS matched
  FROM _collective AS gpu
  JOIN collectives AS member ON member.trace_id = gpu.trace_id AND member.op_id = gpu.op_id
  JOIN traces ON traces.trace_id = gpu.trace_id
  WHERE wire_bytes > 0 AND member.transfer_ns > 0
  GROUP BY ALL
),
slope AS (
  SELECT
    low.job,
    low.collective,
    low.group_name,
    low.group_size,
    median((high.transfer_ns - low.transfer_ns) / (high.wire_bytes - low.wire_bytes)) AS ns_a_byte
  FROM size AS low
  JOIN size AS high
    ON high.job = low.job
    AND high.collective = low.collective
    AND high.group_name IS NOT DISTINCT FROM low.group_name
    AND high.group_size = low.group_size
    AND high.wire_bytes > low.wire_bytes
  WHERE low.matched = low.calls AND high.matched = high.calls
  GROUP BY ALL
  HAVING ns_a_byte > 0
),
line AS (
  SELECT
    size.*,
    slope.ns_a_byte,
    median(size.transfer_ns - slope.ns_a_byte * size.wire_bytes) OVER (
      PARTITION BY size.job, size.collective, size.group_name, size.group_size
    ) AS left_ns,
    CASE WHEN left_ns > 0 THEN left_ns ELSE 0 * left_ns END AS start_ns
  FROM size
  LEFT JOIN slope
    ON slope.job = size.job
    AND slope.collective = size.collective
    AND slope.group_name IS NOT DISTINCT FROM size.group_name
    AND slope.group_size = size.group_size
)
SELECT
  job,
  collective,
  group_name,
  group_size,
  round(any_value(start_ns) / 1000, 3),
  round(coalesce(1 / any_value(ns_a_byte), max(wire_bytes / transfer_ns)), 3),
  round(100 * median(abs(transfer_ns / (start_ns + ns_a_byte * wire_bytes) - 1)), 3),
  count(*),
  try_cast(sum(calls) AS BIGINT),
  try_cast(sum(matched) AS BIGINT)
FROM line
GROUP BY job, collective, group_name, group_size
ORDER BY job, collective, group_name, group_size;
