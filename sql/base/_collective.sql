-- Communication on the GPU with what nccl-tests count of it.
-- Its full size over the time it transfers is algbw, that times the factor busbw.
CREATE VIEW _collective(
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- Number of the row in its trace.
  op_id,
  -- Start, ns.
  ts,
  -- Duration, ns.
  dur,
  -- Device index.
  device,
  -- Normalised name of the collective; `unknown` for a communication kernel that does not say.
  collective,
  -- Process group of the collective.
  group_name,
  -- Ranks in the process group; those of the job where the trace does not say.
  group_size,
  -- Element type.
  dtype,
  -- Bytes this rank gives.
  in_bytes,
  -- Bytes this rank gets.
  out_bytes,
  -- Full size, bytes: what all ranks of a gather or scatter hold together, else what a rank gives.
  full_bytes,
  -- busbw over algbw: 2(n-1)/n for all_reduce, (n-1)/n for gathers, scatters and all_to_all, else 1; null without a size of the group.
  bus_factor
) AS
SELECT
  gpu.trace_id,
  gpu.rank,
  gpu.op_id,
  gpu.ts,
  gpu.dur,
  gpu.device,
  gpu.collective,
  gpu.group_name,
  coalesce(gpu.group_size, traces.world_size) AS size,
  gpu.dtype,
  gpu.in_bytes,
  gpu.out_bytes,
  CASE gpu.collective
    WHEN 'all_gather' THEN gpu.out_bytes
    WHEN 'gather' THEN try(gpu.in_bytes * size)
    WHEN 'scatter' THEN try(gpu.out_bytes * size)
    ELSE gpu.in_bytes
  END,
  CASE
    WHEN known.rounds > 0 THEN known.rounds * ((size - 1) / size)
    WHEN size IS NOT NULL THEN 1
  END
FROM _gpu AS gpu
LEFT JOIN traces ON traces.trace_id = gpu.trace_id
LEFT JOIN _collective_kinds AS known ON known.collective = gpu.collective
WHERE gpu.class = 'communication';
