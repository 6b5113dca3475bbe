-- What each pair of hosts reaches: collectives of groups on just two hosts, and sends between them; the slowest pair first.
-- From `collective_records` with a host, durations and sizes (NCCL Inspector). A collective over more hosts says nothing of one pair.
CREATE VIEW host_link(
  -- Job.
  job,
  -- One host.
  host,
  -- The other one.
  other_host,
  -- Collectives and sends between them.
  calls,
  -- Median bandwidth of their largest message as nccl-tests count busbw, GB/s; 1 GB/s is 10^9 bytes a second.
  bandwidth_gbps,
  -- Median time of a call over that of like ones (kind, ranks and bytes) on all pairs of the job: 2 is half as fast.
  times_slower
) AS
WITH
record AS (
  SELECT traces.job, traces.world_size, own.*
  FROM collective_records AS own
  JOIN traces ON traces.trace_id = own.trace_id
  WHERE own.host IS NOT NULL AND own.duration_ns > 0
),
host_of AS (
  SELECT job, rank, any_value(host) AS host
  FROM record
  GROUP BY job, rank
),
call AS (
  -- The member that took least waited for nobody.
  SELECT
    job,
    collective,
    group_size,
    max(message_bytes) AS message_bytes,
    min(duration_ns) AS duration_ns,
    min(host) AS host,
    max(host) AS other_host
  FROM record
  WHERE collective NOT IN ('send', 'recv', 'send_recv')
  GROUP BY job, "group", group_size, collective, seq
  HAVING count(DISTINCT host) = 2 AND count(*) = group_size
  UNION ALL
  SELECT
    record.job,
    record.collective,
    2,
    record.message_bytes,
    record.duration_ns,
    least(record.host, far.host),
    greatest(record.host, far.host)
  FROM record
  -- The peer is a place in the group: in that of the whole job it is the rank.
  JOIN host_of AS far
    ON far.job = record.job AND far.host <> record.host
    AND far.rank = coalesce(record.group_ranks[record.peer + 1], CASE WHEN record.group_size = record.world_size THEN record.peer END)
  WHERE record.collective = 'send'
),
rated AS (
  SELECT
    call.*,
    message_bytes * CASE WHEN known.rounds > 0 THEN known.rounds * (group_size - 1) / group_size ELSE 1 END / duration_ns AS gbps,
    duration_ns / median(duration_ns) OVER (PARTITION BY job, call.collective, group_size, message_bytes) AS slower,
    message_bytes = max(message_bytes) OVER (PARTITION BY job, host, other_host) AS is_largest
  FROM call
  LEFT JOIN _collective_kinds AS known ON known.collective = call.collective
)
SELECT
  job,
  host,
  other_host,
  count(*),
  median(gbps) FILTER (is_largest),
  median(slower) AS slower
FROM rated
GROUP BY job, host, other_host
ORDER BY job, slower DESC, host, other_host;
