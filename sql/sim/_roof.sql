-- The roofline of each GPU, of the corpus or of `data/hardware`: what its large kernels reach, and its smallest ones take.
-- For a GPU that is not in `data/hardware` the best rates and the shortest kernels of the corpus stand in.
CREATE VIEW _roof(
  -- Name in `data/hardware`, else as the traces call it.
  gpu,
  -- Small letters, digits and points of all its names.
  keys,
  -- FLOP/ns that large matrix products reach, by element type.
  gemm_flops_per_ns,
  -- The same of attention.
  attention_flops_per_ns,
  -- Bytes/ns that large memory-bound kernels reach.
  memory_bytes_per_ns,
  -- Bytes/ns of busbw that large collectives reach.
  link_bytes_per_ns,
  -- Time of the smallest matrix product, ns.
  gemm_floor_ns,
  -- Time of the smallest attention, ns.
  attention_floor_ns,
  -- Time of the smallest memory-bound kernel, ns.
  memory_floor_ns,
  -- Time of the smallest collective, ns.
  link_floor_ns
) AS
WITH
best AS (
  SELECT
    device_name,
    family,
    dtype,
    max(tflops) * 1000 AS flops_per_ns,
    max(gbps) AS bytes_per_ns,
    min(min_ns) AS floor_ns
  FROM _kernel_efficiency
  WHERE of_all_jobs AND gpu IS NULL
  GROUP BY device_name, family, dtype
)
SELECT
  name,
  keys,
  map_from_entries(list_transform(map_entries(flops_per_ns), lambda peak: (peak.key, peak.value * gemm_efficiency))),
  map_from_entries(list_transform(map_entries(flops_per_ns), lambda peak: (peak.key, peak.value * attention_efficiency))),
  memory_bytes_per_ns * memory_efficiency,
  link_bytes_per_ns * link_efficiency,
  gemm_floor_ns,
  attention_floor_ns,
  memory_floor_ns,
  link_floor_ns
FROM _gpu_figures
UNION ALL
SELECT
  device_name,
  [regexp_replace(lower(device_name), '[^a-z0-9.]', '', 'g')],
  map_from_entries(list((dtype, flops_per_ns)) FILTER (family = 'gemm' AND flops_per_ns IS NOT NULL AND dtype IS NOT NULL)),
  map_from_entries(list((dtype, flops_per_ns)) FILTER (family = 'attention' AND flops_per_ns IS NOT NULL AND dtype IS NOT NULL)),
  max(bytes_per_ns) FILTER (family <> 'communication'),
  max(bytes_per_ns) FILTER (family = 'communication'),
  min(floor_ns) FILTER (family = 'gemm'),
  min(floor_ns) FILTER (family = 'attention'),
  min(floor_ns) FILTER (family NOT IN ('gemm', 'attention', 'communication')),
  min(floor_ns) FILTER (family = 'communication')
FROM best
GROUP BY device_name;
