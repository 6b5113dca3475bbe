-- What PyTorch's allocator held when it held most, by category and stack, of memory snapshots; most bytes first.
-- What was allocated before the first recorded event and freed until the end is unknown: its category is `unknown`, its stack null.
CREATE VIEW memory_peak(
  -- Job.
  job,
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- Device index.
  device,
  -- When it held most, ns on the trace's clock; null where no history was kept: then it is what was held when the snapshot was taken.
  ts,
  -- All that it held then.
  peak_bytes,
  -- What it had reserved then.
  reserved_bytes,
  -- What it is for: weights, gradients, optimizer, activations, workspace, unknown.
  category,
  -- Where it was allocated: lines `name (file:line)`, innermost first; null where not recorded.
  stack,
  -- Blocks of that category and stack; null where they are unknown.
  blocks,
  -- Their bytes.
  bytes,
  -- Share of all that was held, percent.
  share_pct
) AS
WITH
peak AS (
  SELECT trace_id, rank, device, event, ts, allocated_bytes, reserved_bytes
  FROM memory_history
  QUALIFY row_number() OVER (PARTITION BY trace_id, device ORDER BY allocated_bytes DESC, event) = 1
  UNION ALL
  SELECT
    trace_id,
    rank,
    device,
    NULL,
    NULL,
    coalesce(sum(requested_bytes) FILTER (starts_with(state, 'active')), 0)::BIGINT,
    sum(bytes)::BIGINT
  FROM memory_segments
  WHERE NOT EXISTS (
    FROM memory_history WHERE memory_history.trace_id = memory_segments.trace_id AND memory_history.device = memory_segments.device
  )
  GROUP BY trace_id, rank, device
),
held AS (
  SELECT peak.trace_id, peak.device, own.category, own.stack, own.bytes
  FROM peak
  JOIN memory_history AS own ON own.trace_id = peak.trace_id AND own.device = peak.device
  WHERE own.action = 'alloc' AND own.event <= peak.event AND (own.freed_by IS NULL OR own.freed_by > peak.event)
  UNION ALL
  -- Older than the first event, and there at the end.
  SELECT block.trace_id, block.device, block.category, block.stack, block.requested_bytes
  FROM memory_segments AS block
  JOIN peak ON peak.trace_id = block.trace_id AND peak.device = block.device
  WHERE
    starts_with(block.state, 'active') AND NOT EXISTS (
      FROM memory_history AS own
      WHERE
        own.trace_id = block.trace_id AND own.device = block.device AND own.action = 'alloc'
        AND own.address = block.address AND own.freed_by IS NULL
    )
),
grouped AS (
  SELECT trace_id, device, category, stack, count(*) AS blocks, sum(bytes)::BIGINT AS bytes
  FROM held
  GROUP BY trace_id, device, category, stack
  UNION ALL
  SELECT peak.trace_id, peak.device, 'unknown', NULL, NULL, peak.allocated_bytes - coalesce(sum(held.bytes), 0)::BIGINT AS bytes
  FROM peak
  LEFT JOIN held ON held.trace_id = peak.trace_id AND held.device = peak.device
  GROUP BY peak.trace_id, peak.device, peak.allocated_bytes
  HAVING bytes > 0
)
SELECT
  job,
  trace_id,
  peak.rank,
  device,
  ts,
  allocated_bytes,
  reserved_bytes,
  category,
  stack,
  blocks,
  bytes,
  100 * bytes / nullif(allocated_bytes, 0)
FROM grouped
JOIN peak USING (trace_id, device)
LEFT JOIN _job USING (trace_id)
ORDER BY trace_id, device, bytes DESC, stack;
