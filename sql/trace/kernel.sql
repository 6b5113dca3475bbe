-- Kernels: one row a kernel, with the call that launched it and the host operator that asked for it.
-- A kernel whose launch the trace does not hold has null in the columns of the launch.
CREATE VIEW kernel(
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
  operator_name
) AS
WITH placed AS (
  SELECT
    gpu.*,
    above.kind = 'runtime' AS launched,
    above.op_id AS above_id,
    above.ts AS above_ts,
    CASE WHEN launched THEN above.parent_id ELSE above.op_id END AS operator_id
  FROM operators AS gpu
  LEFT JOIN operators AS above ON above.trace_id = gpu.trace_id AND above.op_id = gpu.parent_id
  WHERE gpu.kind = 'kernel'
)
SELECT
  placed.trace_id,
  placed.rank,
  placed.step,
  placed.op_id,
  placed.name,
  placed.family,
  placed.phase,
  placed.layer,
  placed.module,
  placed.ts,
  placed.dur,
  placed.device,
  placed.stream,
  placed.grid,
  placed.block,
  placed.occupancy,
  CASE WHEN launched THEN above_id END,
  CASE WHEN launched THEN above_ts END,
  CASE WHEN launched THEN placed.ts - above_ts END,
  placed.operator_id,
  operator.name
FROM placed
LEFT JOIN operators AS operator ON operator.trace_id = placed.trace_id AND operator.op_id = placed.operator_id;
