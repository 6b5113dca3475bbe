-- Collectives on the GPU by kind, group, element type and size, with the bandwidth they reach.
-- Durations are waiting and transfer; bandwidths are of the transfer, null before the collectives are matched, and of `collective_records`, which stand for ranks without a row on the GPU.
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
  -- algbw times nccl-tests' factor, GB/s (10^9 bytes a second): 2(n-1)/n for all_reduce, (n-1)/n for gathers, scatters and all_to_all, else 1.
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
),
-- A member waited for as long as it took longer than the one that came last, where all of the group are recorded.
record AS (
  SELECT * EXCLUDE (least_ns), CASE WHEN is_whole THEN least_ns END AS least_ns
  FROM _collective_record AS own
  WHERE
    is_record AND NOT EXISTS (
      FROM _gpu JOIN traces AS other ON other.trace_id = _gpu.trace_id WHERE other.job = own.job AND other.rank = own.rank
    )
),
either AS (
  SELECT
    * EXCLUDE (moved_ns, algbw_gbps, bus_factor),
    round(algbw_gbps, 3) AS algbw_gbps,
    round(algbw_gbps * bus_factor, 3) AS busbw_gbps
  FROM total
  UNION ALL BY NAME
  SELECT
    any_value(job) AS job,
    trace_id,
    any_value(rank) AS rank,
    collective,
    group_name,
    group_size,
    dtype,
    message_bytes AS in_bytes,
    count(*) AS calls,
    sum(duration_ns)::BIGINT AS total_ns,
    round(avg(duration_ns))::BIGINT AS mean_ns,
    min(duration_ns) AS min_ns,
    max(duration_ns) AS max_ns,
    CASE WHEN count(least_ns) = count(*) THEN sum(duration_ns - least_ns)::BIGINT END AS waiting_ns,
    CASE WHEN count(least_ns) = count(*) THEN sum(duration_ns - least_ns)::BIGINT END AS waiting_recorded_ns,
    CASE WHEN count(least_ns) = count(*) THEN sum(least_ns)::BIGINT END AS transfer_ns
  FROM record
  GROUP BY trace_id, collective, group_name, group_size, dtype, message_bytes
)
FROM either
ORDER BY trace_id, total_ns DESC, collective, group_name, in_bytes, out_bytes, group_size, dtype;
