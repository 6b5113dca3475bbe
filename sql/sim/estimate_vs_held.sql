-- Every estimate that names a job of which there is a memory snapshot: its memory by what it is for, beside what the fullest device held at its peak.
-- Memory of libraries did not come from PyTorch's allocator: no snapshot holds it, and here no estimate.
CREATE VIEW estimate_vs_held(
  -- Job.
  job,
  -- Estimate.
  trace_id,
  -- Rank whose device held most.
  rank,
  -- That device.
  device,
  -- What it is for: weights, gradients, optimizer, activations (with the logits), workspace, unknown; `all` for the sum.
  category,
  -- What was held at the peak; null where nothing of it was.
  held_bytes,
  -- What is estimated; null where the estimate knows nothing of the kind.
  estimated_bytes,
  -- By how much the estimate is more; a kind that only one of them has counts as 0 in the other.
  difference_bytes
) AS
WITH
fullest AS (
  SELECT DISTINCT job, trace_id, rank, device, peak_bytes
  FROM memory_peak
  QUALIFY row_number() OVER (PARTITION BY job ORDER BY peak_bytes DESC, rank, trace_id, device) = 1
),
held AS (
  SELECT fullest.job, fullest.rank, fullest.device, category, sum(bytes)::BIGINT AS bytes
  FROM memory_peak
  JOIN fullest USING (trace_id, device)
  GROUP BY fullest.job, fullest.rank, fullest.device, category
  UNION ALL
  SELECT job, rank, device, 'all', peak_bytes
  FROM fullest
),
estimated AS (
  UNPIVOT (
    SELECT
      job,
      trace_id,
      weights_bytes AS weights,
      gradients_bytes AS gradients,
      optimizer_bytes AS optimizer,
      activations_bytes + logits_bytes AS activations,
      weights_bytes + gradients_bytes + optimizer_bytes + activations_bytes + logits_bytes AS "all"
    FROM estimates
  )
  ON weights, gradients, optimizer, activations, "all"
  INTO NAME category VALUE bytes
),
named AS (
  SELECT estimates.job, estimates.trace_id, fullest.rank, fullest.device, kinds.category
  FROM estimates
  JOIN fullest ON fullest.job = estimates.job
  JOIN (
    SELECT job, category
    FROM held
    UNION
    SELECT job, category
    FROM estimated
  ) AS kinds ON kinds.job = estimates.job
)
SELECT
  named.job,
  named.trace_id,
  named.rank,
  named.device,
  named.category,
  held.bytes AS held_bytes,
  estimated.bytes AS estimated_bytes,
  coalesce(estimated.bytes, 0) - coalesce(held.bytes, 0)
FROM named
LEFT JOIN held ON held.job = named.job AND held.category = named.category
LEFT JOIN estimated ON estimated.trace_id = named.trace_id AND estimated.category = named.category
ORDER BY named.job, named.trace_id, named.category = 'all' DESC, greatest(held.bytes, estimated.bytes) DESC, named.category;
