-- How fast every kernel family of a job ran, by GPU, operator and shape: count, time, and the rate it reached.
-- Transfers are those of `collectives`, which commands fill before they read this; other readers of a new corpus ask `straggler` by `lumos-df sql` first. One row a job and distinct shape; a shape that the trace does not record is null. Kernels of one family that an operator launched count together.
CREATE VIEW kernel_efficiency(
  -- Job.
  job,
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
SELECT * EXCLUDE (of_all_jobs)
FROM _kernel_efficiency
WHERE NOT of_all_jobs
ORDER BY job, device_name, calls * p50_ns::DOUBLE DESC, family, operator;
