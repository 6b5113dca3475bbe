-- How fast every kernel family ran, by GPU, operator and shape: in each job, and in all jobs together.
-- As the view `kernel_efficiency` tells it; what estimates kernels goes by the rows of all jobs.
CREATE VIEW _kernel_efficiency(
  -- Job; null in the rows of all jobs.
  job,
  -- Whether the row is of all jobs.
  of_all_jobs,
  -- The GPU as the traces call it; `unknown` where they do not.
  device_name,
  -- Its name in `data/hardware`; null where it is none of them.
  gpu,
  -- What it does: gemm, attention, communication, elementwise, ...
  family,
  -- Host operator that launched it; the kind of a collective.
  operator,
  -- Element type as torch names it: of a product's first matrix, else of the first tensor.
  dtype,
  -- Rows of a matrix product; queries of attention.
  m,
  -- Columns of the product; keys of attention; of a memory-bound kernel the last dimension of its largest tensor.
  n,
  -- Inner length of the product; width of a head.
  k,
  -- Products in one kernel; sequences times heads of attention.
  batch,
  -- Ranks of a collective.
  ranks,
  -- Memory-bound: bytes of the tensors read, and of one as large as the largest written (a reduction only reads, a fill only writes). Collectives: size as nccl-tests count it.
  bytes,
  -- How often it ran.
  calls,
  -- Shortest, ns.
  min_ns,
  -- Median, ns; of a collective the transfer alone where it was matched with other ranks', else with the wait for late ranks.
  p50_ns,
  -- Rate of products and attention at the median, 10^12 operations a second; attention counts in full, as if not causal.
  tflops,
  -- Rate of the rest at the median, 10^9 bytes a second; of collectives nccl-tests' busbw.
  gbps,
  -- That rate as a share of the GPU's peak, percent: dense peak of the type (float32: without TF32), memory or link bandwidth; null where unknown.
  peak_pct
) AS
WITH shape AS (
  SELECT
    job,
    grouping(job) = 1 AS of_all_jobs,
    device AS device_name,
    any_value(gpu) AS gpu,
    family,
    operator,
    dtype,
    m,
    n,
    k,
    batch,
    ranks,
    bytes,
    count(*) AS calls,
    min(dur) AS min_ns,
    round(median(dur))::BIGINT AS p50_ns
  FROM _kernel_call
  LEFT JOIN _job USING (trace_id)
  GROUP BY GROUPING SETS (
    (job, device, family, operator, dtype, m, n, k, batch, ranks, bytes),
    (device, family, operator, dtype, m, n, k, batch, ranks, bytes)
  )
),
rated AS (
  SELECT
    shape.*,
    2.0::DOUBLE * m * n * k * batch
    * CASE WHEN family <> 'attention' THEN 1 WHEN operator ILIKE '%backward%' THEN 5 ELSE 2 END AS flops,
    bytes * CASE
      WHEN family <> 'communication' THEN 1::DOUBLE
      WHEN rounds > 0 THEN rounds * ((ranks - 1) / ranks)
      ELSE 1
    END AS moved_bytes
  FROM shape
  LEFT JOIN _collective_kinds AS known ON known.collective = shape.operator
)
SELECT
  rated.* EXCLUDE (flops, moved_bytes),
  round(flops / nullif(p50_ns, 0) / 1000, 3) AS tflops,
  round(moved_bytes / nullif(p50_ns, 0), 3) AS gbps,
  round(
    100 * coalesce(
      flops / figures.flops_per_ns[rated.dtype],
      moved_bytes / CASE
        WHEN rated.family = 'communication' THEN figures.link_bytes_per_ns
        ELSE figures.memory_bytes_per_ns
      END
    ) / nullif(p50_ns, 0),
    2
  )
FROM rated
LEFT JOIN _gpu_figures AS figures ON figures.name = rated.gpu;
