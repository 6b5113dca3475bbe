-- How much of what PyTorch's allocator has reserved is of use, by device, pool and stream, when a memory snapshot was taken.
-- Free memory in a segment that is partly held cannot go back to the driver; a request larger than the largest free block needs a new segment.
CREATE VIEW memory_fragmentation(
  -- Job.
  job,
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- Device index.
  device,
  -- `small` or `large`: which allocations the segments serve.
  pool,
  -- Stream that the segments serve.
  stream,
  -- Segments.
  segments,
  -- Bytes reserved.
  reserved_bytes,
  -- Bytes of blocks that are held.
  allocated_bytes,
  -- Bytes of these that were asked for: the rest is rounding.
  requested_bytes,
  -- Bytes free in segments of which nothing is held: they can go back.
  empty_bytes,
  -- Bytes free in segments that are partly held.
  stuck_bytes,
  -- Largest free block.
  largest_free_bytes,
  -- Share of the reserved bytes that is stuck, percent.
  stuck_pct
) AS
WITH segment AS (
  SELECT
    trace_id,
    rank,
    device,
    pool,
    stream,
    segment,
    any_value(segment_bytes) AS reserved,
    coalesce(sum(bytes) FILTER (starts_with(state, 'active')), 0) AS allocated,
    coalesce(sum(requested_bytes) FILTER (starts_with(state, 'active')), 0) AS requested,
    max(bytes) FILTER (state = 'inactive') AS largest_free
  FROM memory_segments
  GROUP BY trace_id, rank, device, pool, stream, segment
)
SELECT
  any_value(job),
  trace_id,
  any_value(segment.rank),
  device,
  pool,
  stream,
  count(*),
  sum(reserved)::BIGINT AS reserved_bytes,
  sum(allocated)::BIGINT,
  sum(requested)::BIGINT,
  coalesce(sum(reserved) FILTER (allocated = 0), 0)::BIGINT,
  coalesce(sum(reserved - allocated) FILTER (allocated > 0), 0)::BIGINT AS stuck_bytes,
  max(largest_free),
  100 * stuck_bytes / nullif(reserved_bytes, 0)
FROM segment
LEFT JOIN _job USING (trace_id)
GROUP BY trace_id, device, pool, stream
ORDER BY trace_id, device, pool, stream;
