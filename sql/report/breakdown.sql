-- Where the time of each step goes, seen from the GPU: exposed compute, exposed communication, both at once, or neither.
-- The four add up to the step to the nanosecond, waiting and transfer to the exposed communication; what runs outside the host's step is not counted.
CREATE VIEW breakdown(
  -- Job.
  job,
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- n of ProfilerStep#n; null in a trace without marks.
  step,
  -- Duration of the step, ns.
  step_ns,
  -- Compute ran and no communication did, ns.
  exposed_compute_ns,
  -- Communication ran and no compute did, ns.
  exposed_communication_ns,
  -- Part of that in which communication only waited for ranks that came late, or were not recorded, ns; null where a wait is unknown.
  exposed_waiting_ns,
  -- The rest of it: something was transferred, ns; null as above.
  exposed_transfer_ns,
  -- Compute and communication ran at once, ns.
  overlapped_ns,
  -- No kernel ran, ns.
  other_ns,
  -- Part of the other time in which a memcpy or memset ran, ns.
  memory_ns,
  -- Part of the other time in which nothing ran, ns.
  idle_ns
) AS
SELECT
  _job.job,
  step.trace_id,
  step.rank,
  step.step,
  step.end_ts - step.ts,
  coalesce(gpu.kernel_ns - gpu.communication_ns, 0),
  coalesce(gpu.kernel_ns - gpu.compute_ns, 0),
  CASE WHEN coalesce(gpu.unmatched_ns, 0) = 0 THEN coalesce(gpu.kernel_ns - gpu.working_ns, 0) END,
  CASE WHEN coalesce(gpu.unmatched_ns, 0) = 0 THEN coalesce(gpu.working_ns - gpu.compute_ns, 0) END,
  coalesce(gpu.communication_ns - (gpu.kernel_ns - gpu.compute_ns), 0),
  step.end_ts - step.ts - coalesce(gpu.kernel_ns, 0),
  coalesce(gpu.busy_ns - gpu.kernel_ns, 0),
  step.end_ts - step.ts - coalesce(gpu.busy_ns, 0)
FROM _step AS step
LEFT JOIN _gpu_stretch AS gpu
  ON gpu.trace_id = step.trace_id AND gpu.step IS NOT DISTINCT FROM step.step AND gpu.in_step
LEFT JOIN _job ON _job.trace_id = step.trace_id
ORDER BY step.trace_id, step.ts;
