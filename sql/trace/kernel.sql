-- Kernels: one row a kernel, with the call that launched it and the host operator that asked for it.
-- A kernel whose launch the trace does not hold has null in the columns of the launch.
CREATE VIEW kernel(
  -- Job.
  job,
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- Step in which it was launched.
  step,
  -- Number of the kernel in its trace.
  op_id,
  -- Name as recorded.
  name,
  -- What it does: gemm, attention, communication, elementwise, ...
  family,
  -- forward, backward, recompute, optimizer, communication, other.
  phase,
  -- Index of the repeated model layer.
  layer,
  -- Path of the enclosing nn.Module calls.
  module,
  -- Start, ns on the trace's clock.
  ts,
  -- Duration, ns.
  dur,
  -- Device index.
  device,
  -- Stream.
  stream,
  -- JSON list: grid.
  grid,
  -- JSON list: block.
  block,
  -- Estimated achieved occupancy, percent.
  occupancy_pct,
  -- Number of the launching call in its trace.
  launch_id,
  -- Start of the launching call, ns.
  launch_ts,
  -- From the start of the launching call to the start of the kernel, ns.
  launch_delay_ns,
  -- Number of the innermost host row around the launch, else of the CPU operator of its external id.
  operator_id,
  -- Name of that host row.
  operator
) AS
SELECT
  _job.job,
  gpu.trace_id,
  gpu.rank,
  gpu.step,
  gpu.op_id,
  gpu.name,
  gpu.family,
  gpu.phase,
  gpu.layer,
  gpu.module,
  gpu.ts,
  gpu.dur,
  gpu.device,
  gpu.stream,
  gpu.grid,
  gpu.block,
  gpu.occupancy,
  launch.call_id,
  launch.call_ts,
  gpu.ts - launch.call_ts,
  launch.operator_id,
  host.name AS operator
FROM operators AS gpu
JOIN _gpu_launch AS launch ON launch.trace_id = gpu.trace_id AND launch.op_id = gpu.op_id
LEFT JOIN operators AS host ON host.trace_id = launch.trace_id AND host.op_id = launch.operator_id
LEFT JOIN _job ON _job.trace_id = gpu.trace_id
WHERE gpu.kind = 'kernel';
