-- Collectives on the GPU by kind, group, element type and size, with the bandwidth they reach.
-- Durations are waiting and transfer; bandwidths are of the transfer, null before the collectives are matched; 1 GB/s is 10^9 bytes a second.
CREATE VIEW collective_summary(
  -- Job.
  job,
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, ..., unknown.
  collective,
  -- Process group as named in the trace.
  "group",
  -- Ranks in the process group; those of the job where the trace does not say.
  group_size,
  -- Element type.
  dtype,
  -- Bytes this rank gives.
  in_bytes,
  -- Bytes this rank gets.
  out_bytes,
  -- Kernels.
  calls,
  -- Sum of their durations, ns.
  total_ns,
  -- Mean duration, rounded to ns.
  mean_ns,
  -- Shortest, ns.
  min_ns,
  -- Longest, ns.
  max_ns,
  -- Waiting for ranks that came late, or were not recorded, ns; null where that is unknown of any of them.
  waiting_ns,
  -- Part of it for ranks that were recorded, ns: known, too, where the rest is not; null before the collectives are matched.
  waiting_recorded_ns,
  -- The rest of their durations without waiting_ns, ns; null as that.
  transfer_ns,
  -- Full size over mean transfer, GB/s (nccl-tests' algbw): what all ranks of a gather or scatter hold together, else what a rank gives.
  algbw_gbps,
  -- algbw times nccl-tests' factor, GB/s: 2(n-1)/n for all_reduce, (n-1)/n for gathers, scatters and all_to_all, else 1.
  busbw_gbps
) AS
WITH total AS (
  SELECT
    any_value(traces.job) AS job,
    gpu.trace_id,
    any_value(gpu.rank) AS rank,
    gpu.collective,
    gpu.group_name,
    gpu.group_size,
    gpu.dtype,
    gpu.in_bytes,
    gpu.out_bytes,
    count(*) AS calls,
    try_cast(sum(gpu.dur) AS BIGINT) AS total_ns,
    round(avg(gpu.dur))::BIGINT AS mean_ns,
    min(gpu.dur) AS min_ns,
    max(gpu.dur) AS max_ns,
    -- Nothing is said of a sum that lacks one.
    CASE WHEN count(member.transfer_ns) = count(*) THEN try_cast(sum(member.transfer_ns) AS BIGINT) END AS moved_ns,
    total_ns - moved_ns AS waiting_ns,
    CASE WHEN count(member.waiting_ns) = count(*) THEN try_cast(sum(member.waiting_ns) AS BIGINT) END AS waiting_recorded_ns,
    moved_ns AS transfer_ns,
    sum(gpu.full_bytes) / nullif(moved_ns, 0) AS algbw_gbps,
    any_value(gpu.bus_factor) AS bus_factor
  FROM _collective AS gpu
  LEFT JOIN collectives AS member ON member.trace_id = gpu.trace_id AND member.op_id = gpu.op_id
  LEFT JOIN traces ON traces.trace_id = gpu.trace_id
  GROUP BY gpu.trace_id, gpu.collective, gpu.group_name, gpu.group_size, gpu.dtype, gpu.in_bytes, gpu.out_bytes
)
SELECT
  * EXCLUDE (moved_ns, algbw_gbps, bus_factor),
  round(algbw_gbps, 3),
  round(algbw_gbps * bus_factor, 3)
FROM total
ORDER BY trace_id, total_ns DESC, collective, group_name, in_bytes;
