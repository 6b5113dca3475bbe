-- What to change in a job, and what would not help: one row a change that was tried on it by replaying it.
-- Filled by `lumos-df advise` and `lumos-df report`; gains are of the mean step of all ranks, each change made by itself.
CREATE VIEW advice(
  -- Job.
  job,
  -- Number of the change in its job, from 1: what the job can change by gain, what money buys, then what is not worth it.
  place,
  -- What is wrong, and what to do.
  what,
  -- Whether it is advice; otherwise it is told since it would not help.
  worthwhile,
  -- Mean step in the replay, ns.
  step_ns,
  -- How much shorter that becomes, ns; below 0 it becomes longer.
  gain_ns,
  -- The same, percent of the step.
  gain_pct,
  -- Lower end of the interval that holds the gain 8 times of 10, ns.
  low_ns,
  -- Its upper end, ns.
  high_ns,
  -- measured (what goes was not there on other ranks or in like calls), replayed (simulated without it), modelled (how long the changed work takes is estimated from the hardware).
  known,
  -- What the gain is made of, counted.
  rests_on,
  -- What shows it, after `lumos-df `.
  command,
  -- Rule that proposed it.
  rule,
  -- First trace of the job, which tells runs of one name apart.
  trace_id
) AS
SELECT
  traces.job,
  advised.place,
  advised.what,
  advised.worthwhile,
  advised.step_ns,
  advised.gain_ns,
  round(100.0 * advised.gain_ns / nullif(advised.step_ns, 0), 3),
  advised.low_ns,
  advised.high_ns,
  advised.known,
  advised.rests_on,
  advised.command,
  advised.rule,
  advised.trace_id
FROM job_advice AS advised
JOIN traces ON traces.trace_id = advised.trace_id
ORDER BY traces.job, advised.place, advised.trace_id;
