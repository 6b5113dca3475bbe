-- Time cut at every start and end of a step: one row a stretch, and for how much of it the GPU did what.
-- Each *_ns is the length of a union of intervals, cut at the stretch's ends; the stretches of a trace hold all its GPU time.
CREATE VIEW _gpu_stretch(
  -- Trace.
  trace_id,
  -- Rank in the job.
  rank,
  -- Number of the stretch in its trace, from 0, which lies before the first step.
  stretch,
  -- Whether the stretch is a step.
  in_step,
  -- Number of the step, where the stretch is one that has a number.
  step,
  -- GPU rows that start in it.
  gpu_rows,
  -- Earliest start of these, ns.
  first_ts,
  -- Latest end of these, ns.
  last_ts,
  -- Anything ran, ns.
  busy_ns,
  -- A kernel ran, ns.
  kernel_ns,
  -- A compute kernel ran, ns.
  compute_ns,
  -- A communication kernel ran, ns.
  communication_ns,
  -- A memcpy or memset ran, ns.
  memory_ns,
  -- Of communication kernels the transfer, or a compute kernel ran, ns.
  working_ns,
  -- A communication kernel ran of which the transfer is unknown, ns.
  unmatched_ns
) AS
WITH
-- Stretches begin at the starts and ends of steps: at one instant a step ends before the next one starts, and that before
-- a GPU row starts.
boundary AS (
  SELECT *, row_number() OVER (PARTITION BY trace_id ORDER BY ts, turn) AS stretch
  FROM (
    SELECT trace_id, rank, unnest([end_ts, ts]) AS ts, unnest([0, 1]) AS turn, unnest([NULL, step]) AS step
    FROM _step
    WHERE end_ts > ts
  )
),
cut AS (
  SELECT trace_id, ts, max(stretch) AS stretch, lead(ts) OVER (PARTITION BY trace_id ORDER BY ts) AS next_cut
  FROM (
    SELECT trace_id, ts, stretch FROM boundary
    UNION ALL
    -- What lies before the first of them, from the first row on.
    SELECT trace_id, min(ts), 0
    FROM (SELECT trace_id, ts FROM boundary UNION ALL SELECT trace_id, ts FROM _gpu)
    GROUP BY trace_id
  )
  GROUP BY trace_id, ts
),
placed AS (
  SELECT
    trace_id,
    rank,
    op_id,
    class,
    ts,
    end_ts,
    dur,
    coalesce(
      ts < max(end_ts) OVER (started ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) OR end_ts > lead(ts) OVER started,
      false
    ) AS shares
  FROM _gpu
  WINDOW started AS (PARTITION BY trace_id ORDER BY op_id)
),
gpu AS (
  SELECT
    placed.*,
    coalesce(cut.stretch, 0) AS stretch,
    -- Few rows run beside others or through a cut: only these have to be gone through one after another.
    placed.shares OR coalesce(placed.end_ts > cut.next_cut, false) AS meets,
    CASE
      WHEN class <> 'communication' THEN NULL
      WHEN member.transfer_ns > placed.dur THEN placed.dur
      ELSE member.transfer_ns
    END AS transfer_ns
  FROM placed
  ASOF LEFT JOIN cut ON cut.trace_id = placed.trace_id AND cut.ts <= placed.ts
  LEFT JOIN collectives AS member ON member.trace_id = placed.trace_id AND member.op_id = placed.op_id
),
event AS (
  SELECT
    trace_id,
    ts,
    turn,
    NULL AS class,
    NULL AS busy_end,
    NULL AS kernel_end,
    NULL AS compute_end,
    NULL AS communication_end,
    NULL AS memory_end,
    NULL AS working_end,
    NULL AS unmatched_end
  FROM boundary
  UNION ALL
  SELECT
    trace_id,
    ts,
    2,
    class,
    end_ts,
    CASE WHEN class <> 'memory' THEN end_ts END,
    CASE WHEN class = 'compute' THEN end_ts END,
    CASE WHEN class = 'communication' THEN end_ts END,
    CASE WHEN class = 'memory' THEN end_ts END,
    CASE WHEN class = 'compute' THEN end_ts END,
    CASE WHEN class = 'communication' AND transfer_ns IS NULL THEN end_ts END
  FROM gpu
  WHERE meets
  UNION ALL
  SELECT trace_id, end_ts - transfer_ns, 3, NULL, NULL, NULL, NULL, NULL, NULL, end_ts, NULL
  FROM gpu
  WHERE meets AND transfer_ns IS NOT NULL
),
seen AS (
  SELECT
    *,
    sum((turn < 2)::INTEGER) OVER (PARTITION BY trace_id ORDER BY ts, turn ROWS UNBOUNDED PRECEDING)::BIGINT AS stretch,
    max(busy_end) OVER before AS busy_until,
    max(kernel_end) OVER before AS kernel_until,
    max(compute_end) OVER before AS compute_until,
    max(communication_end) OVER before AS communication_until,
    max(memory_end) OVER before AS memory_until,
    max(working_end) OVER before AS working_until,
    max(unmatched_end) OVER before AS unmatched_until
  FROM event
  WINDOW before AS (PARTITION BY trace_id ORDER BY ts, turn ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
),
-- What a row adds to a union is the part of it after all that came before; what runs on at a boundary is paid back there.
part AS (
  SELECT
    trace_id,
    stretch,
    sum(greatest(0, busy_end - greatest(ts, busy_until))) FILTER (busy_end > ts) AS busy_added,
    sum(greatest(0, kernel_end - greatest(ts, kernel_until))) FILTER (kernel_end > ts) AS kernel_added,
    sum(greatest(0, compute_end - greatest(ts, compute_until))) FILTER (compute_end > ts) AS compute_added,
    sum(greatest(0, communication_end - greatest(ts, communication_until))) FILTER (communication_end > ts) AS communication_added,
    sum(greatest(0, memory_end - greatest(ts, memory_until))) FILTER (memory_end > ts) AS memory_added,
    sum(greatest(0, working_end - greatest(ts, working_until))) FILTER (working_end > ts) AS working_added,
    sum(greatest(0, unmatched_end - greatest(ts, unmatched_until))) FILTER (unmatched_end > ts) AS unmatched_added,
    max(greatest(0, busy_until - ts)) FILTER (turn < 2) AS busy_over,
    max(greatest(0, kernel_until - ts)) FILTER (turn < 2) AS kernel_over,
    max(greatest(0, compute_until - ts)) FILTER (turn < 2) AS compute_over,
    max(greatest(0, communication_until - ts)) FILTER (turn < 2) AS communication_over,
    max(greatest(0, memory_until - ts)) FILTER (turn < 2) AS memory_over,
    max(greatest(0, working_until - ts)) FILTER (turn < 2) AS working_over,
    max(greatest(0, unmatched_until - ts)) FILTER (turn < 2) AS unmatched_over
  FROM seen
  GROUP BY trace_id, stretch
),
met AS (
  SELECT
    trace_id,
    stretch,
    coalesce(busy_added, 0) + coalesce(busy_over, 0) - coalesce(lead(busy_over) OVER next, 0) AS busy_ns,
    coalesce(kernel_added, 0) + coalesce(kernel_over, 0) - coalesce(lead(kernel_over) OVER next, 0) AS kernel_ns,
    coalesce(compute_added, 0) + coalesce(compute_over, 0) - coalesce(lead(compute_over) OVER next, 0) AS compute_ns,
    coalesce(communication_added, 0) + coalesce(communication_over, 0) - coalesce(lead(communication_over) OVER next, 0) AS communication_ns,
    coalesce(memory_added, 0) + coalesce(memory_over, 0) - coalesce(lead(memory_over) OVER next, 0) AS memory_ns,
    coalesce(working_added, 0) + coalesce(working_over, 0) - coalesce(lead(working_over) OVER next, 0) AS working_ns,
    coalesce(unmatched_added, 0) + coalesce(unmatched_over, 0) - coalesce(lead(unmatched_over) OVER next, 0) AS unmatched_ns
  FROM part
  WINDOW next AS (PARTITION BY trace_id ORDER BY stretch)
),
held AS (
  SELECT
    trace_id,
    stretch,
    any_value(rank) AS rank,
    count(*) AS gpu_rows,
    min(ts) AS first_ts,
    max(end_ts) AS last_ts,
    sum(dur) FILTER (NOT meets) AS busy_ns,
    sum(dur) FILTER (NOT meets AND class <> 'memory') AS kernel_ns,
    sum(dur) FILTER (NOT meets AND class = 'compute') AS compute_ns,
    sum(dur) FILTER (NOT meets AND class = 'communication') AS communication_ns,
    sum(dur) FILTER (NOT meets AND class = 'memory') AS memory_ns,
    sum(CASE class WHEN 'compute' THEN dur WHEN 'communication' THEN transfer_ns END) FILTER (NOT meets) AS working_ns,
    sum(dur) FILTER (NOT meets AND class = 'communication' AND transfer_ns IS NULL) AS unmatched_ns
  FROM gpu
  GROUP BY trace_id, stretch
)
SELECT
  trace_id,
  coalesce(boundary.rank, held.rank),
  stretch,
  coalesce(boundary.turn = 1, false),
  boundary.step,
  coalesce(held.gpu_rows, 0),
  held.first_ts,
  held.last_ts,
  (coalesce(held.busy_ns, 0) + coalesce(met.busy_ns, 0))::BIGINT,
  (coalesce(held.kernel_ns, 0) + coalesce(met.kernel_ns, 0))::BIGINT,
  (coalesce(held.compute_ns, 0) + coalesce(met.compute_ns, 0))::BIGINT,
  (coalesce(held.communication_ns, 0) + coalesce(met.communication_ns, 0))::BIGINT,
  (coalesce(held.memory_ns, 0) + coalesce(met.memory_ns, 0))::BIGINT,
  (coalesce(held.working_ns, 0) + coalesce(met.working_ns, 0))::BIGINT,
  (coalesce(held.unmatched_ns, 0) + coalesce(met.unmatched_ns, 0))::BIGINT
FROM boundary
FULL JOIN held USING (trace_id, stretch)
LEFT JOIN met USING (trace_id, stretch);
