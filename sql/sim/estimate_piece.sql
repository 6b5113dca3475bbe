-- Every nanosecond of each estimated step given to one operator and layer, as `step_piece` does it for measured steps.
-- A part of the step is shared out as its operators last; layers are those of the whole model. The pieces add up to the step exactly.
CREATE VIEW estimate_piece(
  -- Job that it estimates; null where it stands for none.
  job,
  -- Estimate.
  trace_id,
  -- Start, ns from the step's begin: pieces lie one after another, in no order that a step has.
  ts,
  -- Length, ns.
  dur,
  -- `compute`, `communication`; `idle` for the bubble and for waiting for the host.
  state,
  -- Row of `estimate_operators`; null for what has none there: optimizer, sends, gradients, bubble, host.
  op_id,
  -- Family as kernels of traces have it; `idle` for idle time.
  family,
  -- forward, backward, recompute, optimizer, communication, other.
  phase,
  -- Layer of the model; null outside the layers.
  layer,
  -- What it does: mlp_up, norm, tp all_reduce, optimizer, pipeline bubble, ...
  operator
) AS
WITH
part AS (
  UNPIVOT (
    SELECT
      job,
      trace_id,
      step_ns,
      gemm_ns AS gemm,
      attention_ns AS attention,
      elementwise_ns AS elementwise,
      recompute_ns AS recompute,
      optimizer_ns AS optimizer,
      tp_exposed_ns AS tp,
      cp_exposed_ns AS cp,
      ep_exposed_ns AS ep,
      pp_exposed_ns AS pp,
      dp_exposed_ns AS dp,
      bubble_ns AS bubble,
      host_ns AS host
    FROM estimates
  )
  ON gemm, attention, elementwise, recompute, optimizer, tp, cp, ep, pp, dp, bubble, host
  INTO NAME part VALUE part_ns
),
-- Operators by the part of the step that they are in. The first blocks of a model with experts are dense.
operator AS (
  SELECT
    trace_id,
    op_id,
    block,
    blocks,
    dur,
    CASE WHEN "group" IS NOT NULL THEN 'communication' ELSE phase END AS phase,
    CASE
      WHEN "group" IS NOT NULL THEN 'communication'
      WHEN family IN ('gemm', 'grouped_gemm') THEN 'gemm'
      WHEN family = 'attention' THEN 'attention'
      WHEN name = 'norm' THEN 'normalization'
      WHEN name IN ('embedding', 'loss') THEN name
      ELSE 'elementwise'
    END AS family,
    CASE
      WHEN "group" IS NOT NULL THEN "group" || ' ' || family
      ELSE name
    END AS operator,
    CASE
      WHEN "group" = 'etp' THEN 'ep'
      WHEN "group" IS NOT NULL THEN "group"
      WHEN phase = 'recompute' THEN 'recompute'
      WHEN family = 'grouped_gemm' THEN 'gemm'
      ELSE family
    END AS part,
    CASE
      WHEN block = 'experts' THEN max(CASE block WHEN 'mlp' THEN blocks END) OVER (PARTITION BY trace_id)
      ELSE 0
    END AS first_layer
  FROM estimate_operators
  WHERE blocks > 0 AND dur > 0
),
placed AS (
  SELECT
    *,
    unnest(range(blocks)) AS turn,
    sum(dur * blocks) OVER (PARTITION BY trace_id, part) AS whole
  FROM operator
),
share AS (
  SELECT
    part.job,
    part.trace_id,
    part.step_ns,
    part.part,
    placed.op_id,
    coalesce(
      placed.family,
      CASE
        WHEN part.part = 'optimizer' THEN 'optimizer'
        WHEN part.part IN ('bubble', 'host') THEN 'idle'
        WHEN part.part IN ('tp', 'cp', 'ep', 'pp', 'dp') THEN 'communication'
        WHEN part.part = 'recompute' THEN 'other'
        ELSE part.part
      END
    ) AS family,
    coalesce(
      placed.phase,
      CASE
        WHEN part.part IN ('optimizer', 'recompute') THEN part.part
        WHEN part.part IN ('tp', 'cp', 'ep', 'pp', 'dp') THEN 'communication'
        ELSE 'other'
      END
    ) AS phase,
    CASE WHEN placed.block IN ('attention', 'mlp', 'experts') THEN coalesce(placed.first_layer, 0) + placed.turn END AS layer,
    coalesce(
      placed.operator,
      CASE part.part
        WHEN 'pp' THEN 'sends between stages'
        WHEN 'dp' THEN 'gradients and parameters'
        WHEN 'bubble' THEN 'pipeline bubble'
        WHEN 'host' THEN 'waiting for the host'
        ELSE part.part
      END
    ) AS operator,
    part.part_ns::DOUBLE * coalesce(placed.dur::DOUBLE / placed.whole, 1) AS weight
  FROM part
  LEFT JOIN placed ON placed.trace_id = part.trace_id AND placed.part = part.part
  WHERE part.part_ns > 0
),
-- Shares are rounded where they end, so that nothing is lost between them.
ended AS (
  SELECT
    *,
    CASE
      WHEN lead(part) OVER run IS NULL THEN step_ns
      ELSE least(
        round(step_ns * sum(weight) OVER run / sum(weight) OVER (PARTITION BY trace_id))::BIGINT,
        step_ns
      )
    END AS end_ns
  FROM share
  WINDOW run AS (PARTITION BY trace_id ORDER BY part, op_id, layer ROWS UNBOUNDED PRECEDING)
),
begun AS (
  SELECT
    *,
    coalesce(lag(end_ns) OVER (PARTITION BY trace_id ORDER BY part, op_id, layer), 0) AS begin_ns
  FROM ended
)
SELECT
  job,
  trace_id,
  begin_ns,
  end_ns - begin_ns,
  CASE family WHEN 'idle' THEN 'idle' WHEN 'communication' THEN 'communication' ELSE 'compute' END,
  op_id,
  family,
  phase,
  layer::INTEGER,
  operator
FROM begun
WHERE end_ns > begin_ns;
