-- Where the time of every estimated step goes: exposed compute, exposed communication, overlapped, other.
-- Filled by `lumos-df estimate --corpus`; the four add up to the step to the nanosecond, as in `breakdown`.
CREATE VIEW estimate_breakdown(
  -- Job that it estimates; null where it stands for none.
  job,
  -- Estimate.
  trace_id,
  -- Model.
  model,
  -- GPU and its links.
  hardware,
  -- GPUs of the job.
  gpus,
  -- Duration of the step, ns.
  step_ns,
  -- Compute and optimizer while nothing communicates, ns.
  exposed_compute_ns,
  -- Communication that nothing hides, ns.
  exposed_communication_ns,
  -- Compute while something communicates, ns.
  overlapped_ns,
  -- Bubble and waiting for the host, ns.
  other_ns,
  -- Exposed compute over the step, percent.
  exposed_compute_pct,
  -- Exposed communication over the step, percent.
  exposed_communication_pct,
  -- Overlapped time over the step, percent.
  overlapped_pct,
  -- Other time over the step, percent.
  other_pct
) AS
SELECT
  job,
  trace_id,
  model,
  hardware,
  gpus,
  step_ns,
  exposed_compute_ns,
  exposed_communication_ns,
  overlapped_ns,
  other_ns,
  round(100.0 * exposed_compute_ns / nullif(step_ns, 0), 2),
  round(100.0 * exposed_communication_ns / nullif(step_ns, 0), 2),
  round(100.0 * overlapped_ns / nullif(step_ns, 0), 2),
  round(100.0 * other_ns / nullif(step_ns, 0), 2)
FROM estimates
ORDER BY trace_id;
