-- Who is late: for each rank and step, how often it reached a collective last, how long it waited, how long other ranks waited for it.
-- A rank's wait is its kernel's duration less the shortest in the collective, that of the last to arrive, so clocks need not agree.
CREATE VIEW straggler(
  -- Job.
  job,
  -- n of ProfilerStep#n in which the rank launched its part; null outside every step.
  step,
  -- Rank in the job.
  rank,
  -- Collectives matched across ranks: all_reduce, all_gather, reduce_scatter, all_to_all, barrier.
  collectives,
  -- How often the rank was the last to arrive.
  times_last,
  -- How long it waited for other ranks, ns.
  waited_ns,
  -- How long other ranks waited for it, together, ns.
  made_others_wait_ns
) AS
WITH
numbered AS (
  SELECT
    traces.job,
    gpu.group_name,
    gpu.collective,
    gpu.rank,
    gpu.step,
    gpu.dur,
    gpu.ts + coalesce(traces.clock_origin_ns, 0) AS unix_ns,
    gpu.seq_evidence = 'recorded' AS has_number,
    gpu.seq,
    row_number() OVER (PARTITION BY gpu.trace_id, gpu.step, gpu.group_name, gpu.collective ORDER BY gpu.ts, gpu.op_id) AS nth,
    count(*) OVER (PARTITION BY gpu.trace_id, gpu.step, gpu.group_name, gpu.collective) AS of
  FROM _gpu AS gpu
  JOIN traces ON traces.trace_id = gpu.trace_id
  WHERE gpu.collective IN (SELECT collective FROM _collective_kinds WHERE together)
),
-- Without recorded numbers a collective is known by its place in its step, if all ranks have as many of them there.
member AS (
  SELECT
    job,
    rank,
    step,
    dur,
    unix_ns,
    {
      job: job,
      group_name: group_name,
      collective: collective,
      step: CASE WHEN NOT has_number THEN step END,
      number: CASE WHEN has_number THEN seq ELSE nth END
    } AS instance
  FROM numbered
  WINDOW everywhere AS (PARTITION BY job, group_name, collective, step)
  QUALIFY has_number OR min(of) OVER everywhere = max(of) OVER everywhere
),
-- Several runs of one rank under one job cannot be told apart: what holds a rank twice is left out.
arrival AS (
  SELECT
    instance,
    min(dur) AS shortest_ns,
    (sum(dur) - count(*) * min(dur))::BIGINT AS waited_ns,
    arg_min(rank, {dur: dur, earliness_ns: -unix_ns, rank: rank}) AS last_rank
  FROM member
  GROUP BY instance
  HAVING count(*) > 1 AND count(*) = count(DISTINCT rank)
)
SELECT
  member.job,
  member.step,
  member.rank,
  count(*),
  count(*) FILTER (member.rank = arrival.last_rank),
  sum(member.dur - arrival.shortest_ns)::BIGINT,
  coalesce(sum(arrival.waited_ns) FILTER (member.rank = arrival.last_rank), 0)::BIGINT
FROM member
JOIN arrival ON arrival.instance = member.instance
GROUP BY member.job, member.step, member.rank
ORDER BY member.job, member.step, member.rank;
