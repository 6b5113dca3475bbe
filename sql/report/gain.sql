-- What a step would gain from faster operators: each kernel family and operator name at no time and at half its time, simulated.
-- Filled by `lumos-df critical-path --gains`; names that take less than a thousandth of all steps are left out.
CREATE VIEW gain(
  -- Job.
  job,
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- n of ProfilerStep#n; null in a trace without marks.
  step,
  -- `family` or `name`.
  what,
  -- The family or name.
  value,
  -- Time of these operators in the step, ns.
  total_ns,
  -- How much shorter the step is when they take no time, ns.
  gain_ns,
  -- The same, percent of the replayed step.
  gain_pct,
  -- How much shorter it is when they take half their time, ns.
  half_gain_ns
) AS
SELECT
  _job.job,
  gains.trace_id,
  gains.rank,
  gains.step,
  gains.what,
  gains.value,
  gains.time_ns,
  gains.gain_ns,
  round(100.0 * gains.gain_ns / nullif(replay.replayed_ns, 0), 3),
  gains.half_gain_ns
FROM gains
JOIN replay_steps AS replay ON replay.trace_id = gains.trace_id AND replay.step IS NOT DISTINCT FROM gains.step
LEFT JOIN _job ON _job.trace_id = gains.trace_id
ORDER BY gains.trace_id, gains.step, gains.gain_ns DESC;
