-- The replay against the recording: one row a step, its duration and breakdown as recorded and as simulated from durations and edges.
-- Filled by `lumos-df replay`; the four parts of a breakdown add up to the step.
CREATE VIEW replay_error(
  -- Job.
  job,
  -- Trace.
  trace_id,
  -- File the trace was read from.
  path,
  -- Rank in the job.
  rank,
  -- n of ProfilerStep#n; null in a trace without marks.
  step,
  -- Duration as recorded, ns: the GPU's where it falls behind the host.
  recorded_ns,
  -- Duration in the replay, ns.
  replayed_ns,
  -- By how much the replay is longer, percent.
  error_pct,
  -- Time along the chain that ended the recorded step which no edge explains and the replay lacks, ns.
  unexplained_ns,
  -- Host time on the critical path of the replayed step, also of ranks that it waits for, percent of it: as it was recorded, so a high share makes a low error easy.
  host_share_pct,
  -- Time on that path that inferred edges hand on (their lags, and how long that took whose end they wait for), percent of the step.
  inferred_share_pct,
  -- Time on that path that stays as recorded because nothing explains it, percent of the step: no change of anything makes it shorter.
  unknown_share_pct,
  -- How much later than recorded the step begins in the replay, where the rank's first step begins as recorded: what earlier steps hand on, ns.
  carried_ns,
  -- Median distance between recorded and simulated start of the step's operators, from the step's start, ns.
  start_error_p50_ns,
  -- 99th percentile of the same, ns.
  start_error_p99_ns,
  -- Edges to operators of the step.
  edges,
  -- Operators of the step that were placed.
  operators,
  -- Compute ran and no communication did, as recorded, ns.
  exposed_compute_ns_recorded,
  -- The same in the replay, ns.
  exposed_compute_ns_replayed,
  -- Compute and communication ran at once, as recorded, ns.
  overlapped_ns_recorded,
  -- The same in the replay, ns.
  overlapped_ns_replayed,
  -- Communication ran and no compute did, as recorded, ns.
  exposed_communication_ns_recorded,
  -- The same in the replay, ns.
  exposed_communication_ns_replayed,
  -- Part of that which only waited for other ranks, as recorded, ns; null where a wait is unknown.
  exposed_waiting_ns_recorded,
  -- The same in the replay, ns.
  exposed_waiting_ns_replayed,
  -- No kernel ran, as recorded, ns.
  other_ns_recorded,
  -- The same in the replay, ns.
  other_ns_replayed,
  -- What a reader should know about this replay, one sentence each.
  warnings
) AS
SELECT
  traces.job,
  replay.trace_id,
  traces.path,
  replay.rank,
  replay.step,
  replay.recorded_ns,
  replay.replayed_ns,
  round(100.0 * (replay.replayed_ns - replay.recorded_ns) / nullif(replay.recorded_ns, 0), 4),
  replay.unexplained_ns,
  round(100.0 * replay.host_ns / nullif(replay.replayed_ns, 0), 4),
  round(100.0 * replay.inferred_ns / nullif(replay.replayed_ns, 0), 4),
  round(100.0 * replay.unknown_ns / nullif(replay.replayed_ns, 0), 4),
  replay.carried_ns,
  replay.start_error_p50_ns,
  replay.start_error_p99_ns,
  replay.edges,
  replay.operators,
  replay.exposed_compute_ns_recorded,
  replay.exposed_compute_ns_replayed,
  replay.overlapped_ns_recorded,
  replay.overlapped_ns_replayed,
  replay.exposed_communication_ns_recorded,
  replay.exposed_communication_ns_replayed,
  replay.exposed_waiting_ns_recorded,
  replay.exposed_waiting_ns_replayed,
  replay.other_ns_recorded,
  replay.other_ns_replayed,
  replay.warnings
FROM replay_steps AS replay
JOIN traces ON traces.trace_id = replay.trace_id
ORDER BY traces.path, replay.rank, replay.step;
