-- Every row on a GPU stream with the call that launched it and the end of what ran on its stream before.
-- A row whose launch the trace does not hold has null in the columns of the call.
CREATE VIEW _gpu_launch(
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- Step in which it was launched.
  step,
  -- Number of the GPU row in its trace.
  op_id,
  -- `kernel`, `memcpy`, `memset`.
  kind,
  -- Name of the GPU row.
  name,
  -- Device index.
  device,
  -- Stream.
  stream,
  -- Start on the GPU, ns.
  ts,
  -- End on the GPU, ns.
  end_ts,
  -- Latest end on the same stream among the rows that started before; null for the first.
  stream_end_ts,
  -- Latest end on any stream among the rows that started before; null for the first.
  gpu_end_ts,
  -- Number of the launching call in its trace.
  call_id,
  -- Name of the launching call.
  call_name,
  -- Start of the launching call, ns.
  call_ts,
  -- Duration of the launching call, ns.
  call_dur,
  -- Innermost host row around the launching call, else the CPU operator of the row's external id.
  operator_id,
  -- Start of the call, or of the operator where there is none, ns.
  launch_ts,
  -- Thread that it runs on.
  launch_thread,
  -- Start of the row that comes next on the GPU, ns.
  next_ts
) AS
WITH
-- Sorted without names: to carry them along took four times as long.
before AS (
  SELECT
    trace_id,
    op_id,
    max(end_ts) OVER (
      PARTITION BY trace_id, device, stream ORDER BY op_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS stream_end_ts,
    max(end_ts) OVER (
      PARTITION BY trace_id ORDER BY op_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS gpu_end_ts,
    lead(ts) OVER (PARTITION BY trace_id ORDER BY op_id) AS next_ts
  FROM _gpu
)
SELECT
  gpu.trace_id,
  gpu.rank,
  gpu.step,
  gpu.op_id,
  gpu.kind,
  gpu.name,
  gpu.device,
  gpu.stream,
  gpu.ts,
  gpu.end_ts,
  before.stream_end_ts,
  before.gpu_end_ts,
  CASE WHEN above.kind = 'runtime' THEN above.op_id END,
  CASE WHEN above.kind = 'runtime' THEN above.name END,
  CASE WHEN above.kind = 'runtime' THEN above.ts END,
  CASE WHEN above.kind = 'runtime' THEN above.dur END,
  CASE WHEN above.kind = 'runtime' THEN above.parent_id ELSE above.op_id END,
  above.ts AS launch_ts,
  above.thread AS launch_thread,
  before.next_ts
FROM _gpu AS gpu
JOIN before ON before.trace_id = gpu.trace_id AND before.op_id = gpu.op_id
LEFT JOIN operators AS above ON above.trace_id = gpu.trace_id AND above.op_id = gpu.parent_id;
