-- How much of each step's communication hides behind compute.
-- A faster network would shorten the step by up to the exposed transfer, ranks that come together by up to the exposed waiting.
CREATE VIEW overlap(
  -- Job.
  job,
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
  -- Part of that in which communication only waited for ranks that came late, or were not recorded, ns; null where a wait is unknown.
  exposed_waiting_ns,
  -- The rest of it: something was transferred, ns; null as above.
  exposed_transfer_ns,
  -- Overlapped part of the communication, percent; null in a step without communication.
  overlap_pct
) AS
SELECT
  job,
  trace_id,
  rank,
  step,
  exposed_communication_ns + overlapped_ns AS communication_ns,
  overlapped_ns,
  exposed_communication_ns,
  exposed_waiting_ns,
  exposed_transfer_ns,
  round(100.0 * overlapped_ns / nullif(communication_ns, 0), 2)
FROM breakdown
ORDER BY ALL;
