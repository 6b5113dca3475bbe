-- How much of each step's communication hides behind compute.
-- Communication without overlap is exposed: a faster network, or better overlap, would shorten the step by up to that much.
CREATE VIEW overlap(
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- n of ProfilerStep#n; null in a trace without marks.
  step,
  -- A communication kernel ran, ns.
  communication_ns,
  -- A communication and a compute kernel ran at once, ns.
  overlapped_ns,
  -- Communication ran and no compute did, ns.
  exposed_communication_ns,
  -- Overlapped part of the communication, percent; null in a step without communication.
  overlap_pct
) AS
SELECT
  trace_id,
  rank,
  step,
  exposed_communication_ns + overlapped_ns AS communication_ns,
  overlapped_ns,
  exposed_communication_ns,
  round(100 * overlapped_ns / nullif(communication_ns, 0), 2)
FROM breakdown
ORDER BY ALL;
