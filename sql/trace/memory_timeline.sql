-- Memory of the framework's allocator over time: the totals after each allocation and release, by device.
-- Where the trace records no total it is the sum of the changes so far, so it counts from what was held when the trace began.
CREATE VIEW memory_timeline(
  -- Job.
  job,
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- `cpu`, `gpu`, or the recorded number.
  device_type,
  -- Device index; -1 for the host.
  device,
  -- When, ns on the trace's clock.
  ts,
  -- Bytes allocated (positive) or released (negative).
  change_bytes,
  -- Total allocated after the event.
  allocated_bytes,
  -- Total reserved by the allocator after the event; null where not recorded.
  reserved_bytes,
  -- Most allocated so far.
  peak_allocated_bytes
) AS
WITH total AS (
  SELECT
    * REPLACE (
      coalesce(
        allocated_bytes,
        try_cast(
          sum(change_bytes) OVER (PARTITION BY trace_id, device_type, device ORDER BY ts, event ROWS UNBOUNDED PRECEDING)
          AS BIGINT
        )
      ) AS allocated_bytes
    )
  FROM memory_events
)
SELECT
  job,
  trace_id,
  rank,
  device_type,
  device,
  ts,
  change_bytes,
  allocated_bytes,
  reserved_bytes,
  max(allocated_bytes) OVER (PARTITION BY trace_id, device_type, device ORDER BY ts, event ROWS UNBOUNDED PRECEDING)
FROM total
LEFT JOIN _job USING (trace_id);
