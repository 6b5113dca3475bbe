"""Counters of a timeline: what waits in the queue of each stream, and how fast copies and collectives move bytes."""

from typing import Final

_RATE: Final = 1_000_000
"""Rates are summed in bytes a millisecond, so that they end at 0 to the digit; a GB/s is so many of them."""

COUNTERS: Final = f"""
WITH moved AS (
  SELECT 'GPU ' || device AS track,
    CASE WHEN kind = 'kernel' THEN collective ELSE split_part(name, ' (', 1) END || ' GB/s' AS series,
    unnest([ts, ts + dur]) AS ts, unnest([1, -1]) * (greatest(in_bytes, out_bytes)::HUGEINT * {_RATE} // dur) AS change
  FROM operators
  WHERE trace_id = $trace AND kind IN ('memcpy', 'memset', 'kernel') AND dur > 0 AND device IS NOT NULL
    AND greatest(in_bytes, out_bytes) > 0 AND (kind <> 'kernel' OR collective IS NOT NULL)
),
summed AS (
  SELECT track, series, ts, sum(change) OVER so_far AS rate, lead(ts) OVER so_far AS next_ts
  FROM moved
  WINDOW so_far AS (PARTITION BY track, series ORDER BY ts ROWS UNBOUNDED PRECEDING)
)
SELECT track, series, ts - $zero AS ts, round((rate / {_RATE})::DOUBLE, 3)::VARCHAR AS value
FROM summed
WHERE next_ts IS DISTINCT FROM ts
UNION ALL
SELECT 'GPU ' || device || ' stream ' || stream, 'queue depth', ts - $zero, depth::VARCHAR
FROM queue_depth
WHERE trace_id = $trace AND device IS NOT NULL AND stream IS NOT NULL
ORDER BY ts, track, series
"""
"""What a trace counts: track, series, moment (ns, `$zero` is 0) and the value that holds from then on, as text.

Of a collective the larger of what its rank gives and gets counts, over the whole duration: algbw of nccl-tests.
"""
