-- Launches: one row a GPU row with the runtime call that started it, and how long it took to start.
-- One graph launch starts many GPU rows; GPU rows without a launch and calls that start nothing are not here.
CREATE VIEW launch(
  -- Job.
  job,
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- Step in which it was launched.
  step,
  -- Number of the call in its trace.
  op_id,
  -- Name of the call.
  name,
  -- Start of the call, ns on the trace's clock.
  ts,
  -- Duration of the call, ns.
  dur,
  -- Number of the GPU row in its trace.
  gpu_op_id,
  -- `kernel`, `memcpy`, `memset`.
  gpu_kind,
  -- Name of the GPU row.
  gpu_name,
  -- Device index.
  device,
  -- Stream.
  stream,
  -- Start of the GPU row, ns on the trace's clock.
  gpu_ts,
  -- Duration of the GPU row, ns.
  gpu_dur,
  -- From the start of the call to the start of the GPU row, ns; below 0 where the clock of GPU rows is behind that of the host (docs/graph.md, One clock).
  delay_ns,
  -- Whether everything before it on its stream had ended when the call began; else it had to queue.
  stream_was_idle
) AS
SELECT
  job,
  trace_id,
  rank,
  step,
  call_id,
  call_name,
  call_ts,
  call_dur,
  op_id,
  kind,
  name,
  device,
  stream,
  ts,
  end_ts - ts,
  ts - call_ts,
  stream_end_ts IS NULL OR stream_end_ts <= call_ts
FROM _gpu_launch
LEFT JOIN _job USING (trace_id)
WHERE call_id IS NOT NULL;
