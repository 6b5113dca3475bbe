-- Every estimate that names a job of the corpus against that job's measured steps: medians over ranks and steps.
-- Errors are positive where the estimate is longer; the parts of a median need not add up to it.
CREATE VIEW estimate_vs_measured(
  -- Job.
  job,
  -- Estimate.
  trace_id,
  -- Steps of the job's ranks that were measured.
  steps,
  -- Median step as measured, ns.
  measured_ns,
  -- Step as estimated, ns.
  estimated_ns,
  -- By how much the estimate is longer, percent.
  error_pct,
  -- Whether the measured step lies within low_ns and high_ns of the estimate.
  inside_interval,
  -- Exposed compute as measured, ns.
  exposed_compute_ns_measured,
  -- The same as estimated, ns.
  exposed_compute_ns_estimated,
  -- Exposed communication as measured, ns.
  exposed_communication_ns_measured,
  -- The same as estimated, ns.
  exposed_communication_ns_estimated,
  -- Overlapped as measured, ns.
  overlapped_ns_measured,
  -- The same as estimated, ns.
  overlapped_ns_estimated,
  -- Other as measured, ns.
  other_ns_measured,
  -- The same as estimated, ns.
  other_ns_estimated
) AS
WITH measured AS (
  SELECT
    job,
    count(*) AS steps,
    median(breakdown.step_ns)::BIGINT AS step_ns,
    median(breakdown.exposed_compute_ns)::BIGINT AS exposed_compute_ns,
    median(breakdown.exposed_communication_ns)::BIGINT AS exposed_communication_ns,
    median(breakdown.overlapped_ns)::BIGINT AS overlapped_ns,
    median(breakdown.other_ns)::BIGINT AS other_ns
  FROM breakdown
  GROUP BY job
)
SELECT
  estimate.job,
  estimate.trace_id,
  measured.steps,
  measured.step_ns AS step_ns_measured,
  estimate.step_ns AS step_ns_estimated,
  round(100.0 * (estimate.step_ns - measured.step_ns) / nullif(measured.step_ns, 0), 2),
  measured.step_ns BETWEEN estimate.low_ns AND estimate.high_ns,
  measured.exposed_compute_ns AS exposed_compute_ns_measured,
  estimate.exposed_compute_ns AS exposed_compute_ns_estimated,
  measured.exposed_communication_ns AS exposed_communication_ns_measured,
  estimate.exposed_communication_ns AS exposed_communication_ns_estimated,
  measured.overlapped_ns AS overlapped_ns_measured,
  estimate.overlapped_ns AS overlapped_ns_estimated,
  measured.other_ns AS other_ns_measured,
  estimate.other_ns AS other_ns_estimated
FROM estimates AS estimate
JOIN measured ON measured.job = estimate.job
ORDER BY estimate.job, estimate.trace_id;
