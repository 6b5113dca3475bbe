-- The rows that occupy a GPU stream, each with its end and its class.
-- Communication is a kernel of that family, or one that states a collective; memory is memcpy and memset, compute any other kernel.
CREATE VIEW _gpu(
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- Number of the row in its trace.
  op_id,
  -- The call that launched it, else the CPU operator of its external id.
  parent_id,
  -- `kernel`, `memcpy`, `memset`.
  kind,
  -- `communication`, `memory`, `compute`.
  class,
  -- What it does: gemm, attention, communication, elementwise, ...
  family,
  -- Name as recorded.
  name,
  -- Start, ns.
  ts,
  -- End, ns.
  end_ts,
  -- Duration, ns.
  dur,
  -- Device index.
  device,
  -- Stream.
  stream,
  -- Step in which it was launched.
  step,
  -- Normalised name of the collective; `unknown` for a communication kernel that does not say.
  collective,
  -- Process group of the collective.
  group_name,
  -- Ranks in the process group.
  group_size,
  -- Number of the collective in its group.
  seq,
  -- `recorded` or `inferred`: where `seq` came from.
  seq_evidence,
  -- Element type of the collective.
  dtype,
  -- Bytes this rank gives.
  in_bytes,
  -- Bytes this rank gets.
  out_bytes
) AS
SELECT
  trace_id,
  rank,
  op_id,
  parent_id,
  kind,
  CASE
    WHEN kind <> 'kernel' THEN 'memory'
    WHEN family = 'communication' OR collective IS NOT NULL THEN 'communication'
    ELSE 'compute'
  END AS class,
  family,
  name,
  ts,
  ts + dur,
  dur,
  device,
  stream,
  step,
  CASE WHEN class = 'communication' THEN coalesce(collective, 'unknown') END,
  "group",
  group_size,
  seq,
  seq_evidence,
  dtype,
  in_bytes,
  out_bytes
FROM operators
WHERE kind IN ('kernel', 'memcpy', 'memset');
