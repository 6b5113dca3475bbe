-- What once took what like ones never take: code loaded late, memory that grows, garbage collected, a data loader that starts.
-- The largest of each job first. Found when it is first asked for; a changed job (`lumos-df estimate --set`) leaves it out unless told --keep-stalls.
CREATE VIEW stall(
  -- Job.
  job,
  -- Rank in the job.
  rank,
  -- What took so long: a call and its operator, an operator, `a silence before X`.
  what,
  -- How much longer it took than the longest like it takes, ns.
  over_ns,
  -- Trace.
  trace_id,
  -- The call; or the operator before which the host worked or was silent.
  op_id,
  -- Start of the call or operator, ns.
  ts,
  -- n of ProfilerStep#n; null in a trace without marks.
  step,
  -- How long it took, ns.
  dur,
  -- What the longest like it takes, in the other steps or else in the same one, ns.
  longest_ns,
  -- How much longer, percent of the recorded step.
  over_pct
) AS
SELECT
  _job.job,
  stalls.rank,
  stalls.what,
  stalls.dur - stalls.longest_ns,
  stalls.trace_id,
  stalls.op_id,
  operators.ts,
  stalls.step,
  stalls.dur,
  stalls.longest_ns,
  round(100.0 * (stalls.dur - stalls.longest_ns) / nullif(_step.end_ts - _step.ts, 0), 3)
FROM stalls
JOIN operators ON operators.trace_id = stalls.trace_id AND operators.op_id = stalls.op_id
LEFT JOIN _step ON _step.trace_id = stalls.trace_id AND _step.step IS NOT DISTINCT FROM stalls.step
LEFT JOIN _job ON _job.trace_id = stalls.trace_id
ORDER BY _job.job, stalls.dur - stalls.longest_ns DESC, stalls.rank, operators.ts, stalls.op_id;
