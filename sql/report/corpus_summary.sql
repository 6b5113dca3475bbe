-- The jobs of a corpus: one row each, with its size, its mean step and where that goes.
-- Shares are of the summed duration of the steps of all its ranks and add up to 100, but for rounding.
CREATE VIEW corpus_summary(
  -- Job.
  job,
  -- Traces.
  traces,
  -- Distinct ranks among them.
  ranks,
  -- Ranks of the job as the traces state it; null where they do not.
  world_size,
  -- Name of the GPU.
  device_name,
  -- Steps of the rank that has the most.
  steps,
  -- Rows in `operators`.
  operators,
  -- Kernels, memcpys and memsets.
  gpu_rows,
  -- Mean duration of a step, rounded to ns; the GPU's where it falls behind its host, once the job was replayed.
  mean_step_ns,
  -- Exposed compute, percent of the steps' time.
  exposed_compute_pct,
  -- Exposed communication, percent of the steps' time.
  exposed_communication_pct,
  -- Part of that which only waited for other ranks, percent of the steps' time; null where a wait is unknown.
  exposed_waiting_pct,
  -- The rest of it, percent of the steps' time; null as above.
  exposed_transfer_pct,
  -- Compute and communication at once, percent of the steps' time.
  overlapped_pct,
  -- No kernel on the GPU, percent of the steps' time.
  other_pct,
  -- Collectives on its GPUs: each matched one once, and every communication kernel that was not matched; null where there is none, or before they are looked for.
  collectives,
  -- Those of which kernels of several ranks were found.
  matched_collectives,
  -- Values and strings that had to be repaired.
  repaired,
  -- Events that could not become a row.
  skipped,
  -- Sentences in the traces' warnings.
  warnings
) AS
WITH
timed AS (
  SELECT
    breakdown.trace_id,
    replay.recorded_ns IS NOT NULL AS on_gpu,
    CASE WHEN on_gpu THEN replay.recorded_ns ELSE breakdown.step_ns END AS step_ns,
    CASE WHEN on_gpu THEN replay.exposed_compute_ns_recorded ELSE breakdown.exposed_compute_ns END
      AS exposed_compute_ns,
    CASE WHEN on_gpu THEN replay.exposed_communication_ns_recorded ELSE breakdown.exposed_communication_ns END
      AS exposed_communication_ns,
    CASE WHEN on_gpu THEN replay.exposed_waiting_ns_recorded ELSE breakdown.exposed_waiting_ns END
      AS exposed_waiting_ns,
    CASE WHEN on_gpu THEN replay.overlapped_ns_recorded ELSE breakdown.overlapped_ns END AS overlapped_ns,
    CASE WHEN on_gpu THEN replay.other_ns_recorded ELSE breakdown.other_ns END AS other_ns
  FROM breakdown
  -- A replay has the steps of the host, too, but where the GPU falls behind.
  LEFT JOIN replay_steps AS replay ON replay.trace_id = breakdown.trace_id
    AND replay.step = breakdown.step
    AND replay.recorded_ns != breakdown.step_ns
),
spent AS (
  SELECT
    trace_id,
    count(*) AS steps,
    sum(step_ns) AS step_ns,
    sum(exposed_compute_ns) AS exposed_compute_ns,
    sum(exposed_communication_ns) AS exposed_communication_ns,
    -- Nothing is said of a sum that lacks one.
    CASE WHEN count(exposed_waiting_ns) = count(*) THEN sum(exposed_waiting_ns) END AS exposed_waiting_ns,
    sum(overlapped_ns) AS overlapped_ns,
    sum(other_ns) AS other_ns
  FROM timed
  GROUP BY trace_id
),
matched AS (
  SELECT
    traces.job,
    -- Runs of one rank, which were not matched, number their collectives each from 0.
    count(*) FILTER (members = 1) + count(DISTINCT instance_id) FILTER (members > 1) AS collectives,
    count(DISTINCT instance_id) FILTER (members > 1) AS matched_collectives
  FROM collectives
  JOIN traces ON traces.trace_id = collectives.trace_id
  GROUP BY traces.job
)
SELECT
  traces.job,
  count(*),
  count(DISTINCT traces.rank),
  max(traces.world_size),
  any_value(traces.device_name),
  max(spent.steps),
  try_cast(sum(traces.operators) AS BIGINT),
  try_cast(sum(traces.kernels + traces.memcpys + traces.memsets) AS BIGINT),
  round(sum(spent.step_ns) / sum(spent.steps))::BIGINT,
  round(100 * sum(spent.exposed_compute_ns) / nullif(sum(spent.step_ns), 0), 2),
  round(100 * sum(spent.exposed_communication_ns) / nullif(sum(spent.step_ns), 0), 2),
  CASE
    WHEN count(spent.exposed_waiting_ns) = count(spent.steps)
    THEN round(100 * sum(spent.exposed_waiting_ns) / nullif(sum(spent.step_ns), 0), 2)
  END,
  CASE
    WHEN count(spent.exposed_waiting_ns) = count(spent.steps)
    THEN round(100 * sum(spent.exposed_communication_ns - spent.exposed_waiting_ns) / nullif(sum(spent.step_ns), 0), 2)
  END,
  round(100 * sum(spent.overlapped_ns) / nullif(sum(spent.step_ns), 0), 2),
  round(100 * sum(spent.other_ns) / nullif(sum(spent.step_ns), 0), 2),
  any_value(matched.collectives),
  any_value(matched.matched_collectives),
  try_cast(sum(traces.repaired_numbers + traces.repaired_controls + traces.repaired_utf8) AS BIGINT),
  try_cast(sum(traces.skipped) AS BIGINT),
  try_cast(sum(len(traces.warnings)) AS BIGINT)
FROM traces
LEFT JOIN spent ON spent.trace_id = traces.trace_id
LEFT JOIN matched ON matched.job = traces.job
GROUP BY traces.job
ORDER BY traces.job;
