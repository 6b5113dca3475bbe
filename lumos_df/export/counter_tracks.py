"""Counters of a timeline: queues, busy GPU, bytes that copies and collectives move, memory."""

from typing import Final

_RATE: Final = 1_000_000
"""Rates are summed in bytes a millisecond, so that they end at 0 to the digit; a GB/s is so many of them."""

COUNTERS: Final = f"""
WITH moved AS (
  SELECT device, split_part(name, ' (', 1) || ' GB/s' AS series, ts, dur, greatest(in_bytes, out_bytes) AS bytes
  FROM operators
  WHERE trace_id = $trace AND kind IN ('memcpy', 'memset')
  UNION ALL
  -- Who waits does so first; where the wait is unknown, the bytes spread over the whole kernel.
  SELECT c.device, c.collective || ' busbw GB/s', c.ts + c.dur - coalesce(m.transfer_ns, c.dur),
    coalesce(m.transfer_ns, c.dur), try_cast(round(c.full_bytes * c.bus_factor) AS BIGINT)
  FROM _collective c
  LEFT JOIN collectives m ON m.trace_id = c.trace_id AND m.op_id = c.op_id
  WHERE c.trace_id = $trace
),
rate AS (
  SELECT 'GPU ' || device AS track, series, unnest([ts, ts + dur]) AS ts,
    unnest([1, -1]) * (bytes::HUGEINT * {_RATE} // dur) AS change
  FROM moved
  WHERE dur > 0 AND bytes > 0 AND device IS NOT NULL
),
summed AS (
  SELECT track, series, ts, sum(change) OVER so_far AS rate, lead(ts) OVER so_far AS next_ts
  FROM rate
  WINDOW so_far AS (PARTITION BY track, series ORDER BY ts ROWS UNBOUNDED PRECEDING)
),
held AS (
  SELECT CASE device_type WHEN 'gpu' THEN 'GPU ' || device ELSE 'host' END AS track, ts, allocated_bytes, reserved_bytes
  FROM memory_timeline
  WHERE trace_id = $trace AND (device_type = 'cpu' OR device_type = 'gpu' AND device IS NOT NULL)
  QUALIFY lead(ts) OVER (PARTITION BY device_type, device ORDER BY ts) IS DISTINCT FROM ts
)
SELECT track, series, ts - $zero AS ts, round((rate / {_RATE})::DOUBLE, 3)::VARCHAR AS value
FROM summed
WHERE next_ts IS DISTINCT FROM ts
UNION ALL
SELECT 'GPU ' || device || ' stream ' || stream, 'queue depth', ts - $zero, depth::VARCHAR
FROM queue_depth
WHERE trace_id = $trace AND device IS NOT NULL AND stream IS NOT NULL
UNION ALL
SELECT 'GPU', 'a kernel runs %', ts - $zero, busy_pct::VARCHAR
FROM sm_utilization
WHERE trace_id = $trace
UNION ALL
SELECT 'GPU', 'a kernel runs %', max(ts) + 1000000 - $zero, '0'
FROM sm_utilization
WHERE trace_id = $trace
HAVING count(*) > 0
UNION ALL
SELECT track, 'allocated bytes', ts - $zero, allocated_bytes::VARCHAR
FROM held
WHERE allocated_bytes IS NOT NULL
UNION ALL
SELECT track, 'reserved bytes', ts - $zero, reserved_bytes::VARCHAR
FROM held
WHERE reserved_bytes IS NOT NULL
ORDER BY ts, track, series
"""
"""What a trace counts: track, series, moment (ns, `$zero` is 0) and the value that holds from then on, as text."""
