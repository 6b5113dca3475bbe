-- What the gain of each change in `advice` is made of: the operators, calls and kernels from which it takes time, by name.
-- Times are of a mean step of all ranks; a row without a name holds all of its side together.
CREATE VIEW advice_evidence(
  -- Job.
  job,
  -- Number of the change in its job, as in `advice`.
  place,
  -- Rule that proposed it.
  rule,
  -- `gpu`; `launch`: what passes before GPU rows; `host`; `wait`: calls that wait for the GPU.
  side,
  -- Kernel, operator or call; `before X`: host work between rows that leads to X; null: all of the side together.
  name,
  -- Rows, of all steps and ranks.
  rows,
  -- What they take, ns a step: their own time, a transfer, or what a call waits.
  taken_ns,
  -- How much less that is with the change, ns a step.
  less_ns,
  -- What GPU rows among them give, bytes a step; 0 where that is not known.
  moved_bytes,
  -- First trace of the job, which tells runs of one name apart.
  trace_id
) AS
SELECT
  traces.job,
  evidence.place,
  any_value(advised.rule),
  evidence.side,
  evidence.name,
  sum(evidence.rows)::BIGINT,
  sum(evidence.taken_ns)::BIGINT,
  sum(evidence.less_ns)::BIGINT,
  sum(evidence.moved_bytes)::BIGINT,
  evidence.trace_id
FROM advice_rows AS evidence
JOIN job_advice AS advised ON advised.trace_id = evidence.trace_id AND advised.place = evidence.place
JOIN traces ON traces.trace_id = evidence.trace_id
GROUP BY
  GROUPING SETS (
    (traces.job, evidence.trace_id, evidence.place, evidence.side, evidence.name),
    (traces.job, evidence.trace_id, evidence.place, evidence.side)
  )
ORDER BY traces.job, evidence.trace_id, evidence.place, evidence.side, grouping(evidence.name) DESC, sum(evidence.less_ns) DESC, evidence.name;
