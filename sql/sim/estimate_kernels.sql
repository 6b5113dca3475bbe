-- What kernels of new shapes would take: as measured, by the efficiency of the nearest measured shapes, or modelled where there are none.
-- One row a shape and GPU: `FROM estimate_kernels('shapes', hardware := 'h100')`; where the catalogue is attached, `USE` it first.
CREATE MACRO estimate_kernels(
  -- Name of a table, view or file with the columns family, dtype and m, n, k (batch) or bytes; count, operator, ranks and of memory-bound kernels n, the last dimension, where they matter.
  shapes,
  -- The GPU, as traces or `data/hardware` call it; by default every GPU of the corpus.
  hardware := NULL
) AS TABLE
SELECT
  -- GPU: its name in `data/hardware`, else as the traces call it.
  gpu,
  -- As asked.
  family,
  -- As asked: host operator, or kind of a collective.
  operator,
  -- Element type as torch names it.
  dtype,
  -- As asked.
  m,
  -- As asked.
  n,
  -- As asked.
  k,
  -- As asked; 1 for a product that does not say.
  batch,
  -- As asked.
  ranks,
  -- As asked.
  bytes,
  -- As asked; 1 where it is not said.
  count,
  -- `measured`: this shape; `interpolated`: between a smaller and a larger measured shape; `rescaled`: from one such shape, or from another operator, GPU or 16-bit type; `modelled`: by the GPU's figures alone; `unknown`.
  provenance,
  -- One kernel, ns; null where unknown.
  kernel_ns,
  -- All `count` of them, ns.
  total_ns,
  -- How far the nearest measured shape is: sum over dimensions of how often they double or halve; null where there is none.
  octaves
FROM (
  WITH
  asked AS (
    SELECT
      row_number() OVER () AS row,
      family,
      operator,
      coalesce((SELECT dtype_of_word FROM _element_types)[lower(dtype)], lower(dtype)) AS dtype,
      m,
      n,
      k,
      coalesce(batch, CASE WHEN m IS NOT NULL THEN 1 END) AS batch,
      ranks,
      bytes,
      coalesce(count, 1) AS count,
      CASE
        WHEN family IS NULL THEN error('a shape has no family: gemm, attention, communication, elementwise, ...')
        WHEN (m IS NULL) <> (k IS NULL) OR (m IS NOT NULL AND n IS NULL)
          THEN error(family || ': a shape has some of m, n and k: give all three, or bytes')
        WHEN (m IS NULL) = (bytes IS NULL) THEN error(family || ': a shape needs m, n and k, or bytes, and not both')
        WHEN least(m, n, k, batch, ranks, bytes) < 1 OR count < 0
          THEN error(family || ': sizes of a shape must be at least 1')
        WHEN m IS NOT NULL AND family NOT IN ('gemm', 'attention')
          THEN error(family || ': only gemm and attention have m, n and k; give bytes')
        WHEN family = 'communication' AND (operator IS NULL OR ranks IS NULL)
          THEN error('communication: a shape needs the operator, such as all_reduce, and ranks')
        ELSE true
      END AS sound
    FROM (
      SELECT
        NULL::VARCHAR AS family,
        NULL::VARCHAR AS operator,
        NULL::VARCHAR AS dtype,
        NULL::BIGINT AS m,
        NULL::BIGINT AS n,
        NULL::BIGINT AS k,
        NULL::BIGINT AS batch,
        NULL::BIGINT AS ranks,
        NULL::BIGINT AS bytes,
        NULL::BIGINT AS count
      WHERE false
      UNION ALL BY NAME
      FROM query_table(shapes)
    )
  ),
  measured AS (SELECT * EXCLUDE (gpu), coalesce(gpu, device_name) AS gpu FROM _kernel_efficiency WHERE of_all_jobs),
  wanted AS (
    SELECT DISTINCT gpu FROM measured WHERE hardware IS NULL
    UNION ALL
    SELECT gpu FROM _roof WHERE list_contains(keys, regexp_replace(lower(hardware::VARCHAR), '[^a-z0-9.]', '', 'g'))
  ),
  -- Shapes that were measured and shapes that were asked for, side by side: one roofline for both.
  every AS (
    SELECT
      NULL::BIGINT AS row, gpu, family, operator, dtype, m, n, k, batch, ranks, bytes, calls, p50_ns::DOUBLE AS measured_ns
    FROM measured
    WHERE (m IS NOT NULL OR bytes IS NOT NULL) AND p50_ns > 0 AND least(m, n, k, batch, ranks, bytes) >= 1
    UNION ALL
    SELECT row, gpu, family, operator, dtype, m, n, k, batch, ranks, bytes, NULL, NULL
    FROM asked
    CROSS JOIN (
      FROM wanted
      UNION ALL
      SELECT error('no GPU ''' || hardware || ''' in the corpus or in data/hardware') WHERE hardware IS NOT NULL AND NOT EXISTS (FROM wanted)
    )
    WHERE sound
  ),
  worked AS (
    SELECT
      every.*,
      2.0::DOUBLE * m * n * k * batch
      * CASE WHEN family <> 'attention' THEN 1 WHEN operator ILIKE '%backward%' THEN 5 ELSE 2 END AS flops,
      CASE
        WHEN family = 'attention' AND m IS NOT NULL THEN 4.0::DOUBLE * (m + n) * k * batch
        WHEN m IS NOT NULL THEN (m::DOUBLE * k + k::DOUBLE * n + m::DOUBLE * n) * batch
          * coalesce(bytes_of[dtype], bytes_of['bfloat16'])
        WHEN family <> 'communication' THEN bytes::DOUBLE
        WHEN rounds > 0 THEN bytes * (rounds::DOUBLE * (ranks - 1) / ranks)
        ELSE bytes::DOUBLE
      END AS moved_bytes,
      coalesce(flops, moved_bytes) AS work
    FROM every
    LEFT JOIN _collective_kinds AS known ON known.collective = every.operator
    CROSS JOIN _element_types
    CROSS JOIN _thresholds
  ),
  roofed AS (
    SELECT
      worked.*,
      CASE
        WHEN family = 'communication' THEN link_floor_ns + moved_bytes / link_bytes_per_ns
        WHEN m IS NULL THEN memory_floor_ns + moved_bytes / memory_bytes_per_ns
        -- An unknown peak is no peak of nought, and greatest() would pass over it.
        WHEN flops_per_ns IS NOT NULL
          THEN CASE family WHEN 'gemm' THEN gemm_floor_ns ELSE attention_floor_ns END
            + greatest(flops / flops_per_ns, moved_bytes / coalesce(memory_bytes_per_ns, 'inf'))
      END AS roof_ns
    FROM (
      SELECT
        worked.*,
        roof.* EXCLUDE (gpu, keys),
        CASE family WHEN 'gemm' THEN gemm_flops_per_ns[dtype] ELSE attention_flops_per_ns[dtype] END AS flops_per_ns
      FROM worked
      LEFT JOIN _roof AS roof ON roof.gpu = worked.gpu
    ) AS worked
  ),
  nearest AS (
    SELECT
      new.row,
      new.gpu,
      old.calls,
      old.measured_ns,
      old.measured_ns / old.roof_ns AS slowness,
      -- What is slower than the roof comes nearer to it as it grows.
      CASE
        WHEN slowness > 1 AND new.work > old.work THEN 1 + (slowness - 1) * pow(new.work / old.work, -nearing)
        ELSE slowness
      END AS slowness_beyond,
      old.work > new.work AS larger,
      -- What sets apart more than size does: another GPU, type, operator, width of a memory-bound kernel, in this order.
      8 * (old.gpu <> new.gpu)::INTEGER
      + 4 * (old.dtype IS DISTINCT FROM new.dtype)::INTEGER
      + 2 * coalesce(old.operator <> new.operator, new.operator IS NOT NULL)::INTEGER
      + (new.m IS NULL AND new.n IS NOT NULL AND old.n IS DISTINCT FROM new.n)::INTEGER AS strangeness,
      round(
        CASE
          WHEN new.m IS NOT NULL
            THEN abs(log2(old.m / new.m)) + abs(log2(old.n / new.n)) + abs(log2(old.k / new.k)) + abs(log2(old.batch / new.batch))
          ELSE abs(log2(old.bytes / new.bytes))
            + coalesce(abs(log2(old.ranks / new.ranks)), 0)
            + coalesce(abs(log2(old.n / new.n)), 0)
        END,
        6
      ) AS octaves
    FROM roofed AS new
    JOIN roofed AS old
      ON old.family = new.family
      AND (
        old.dtype IS NOT DISTINCT FROM new.dtype
        OR (old.dtype IN ('float16', 'bfloat16') AND new.dtype IN ('float16', 'bfloat16'))
      )
      AND (old.m IS NULL) = (new.m IS NULL)
      AND (new.family <> 'communication' OR old.operator = new.operator)
    CROSS JOIN _thresholds
    WHERE new.row IS NOT NULL AND old.row IS NULL AND old.roof_ns > 0
    QUALIFY strangeness = min(strangeness) OVER (PARTITION BY new.row, new.gpu)
  ),
  -- Of the nearest on a side there may be several, by other operators: their mean, by how often they ran.
  side AS (
    SELECT
      row,
      gpu,
      larger,
      octaves,
      strangeness,
      sum(calls * slowness) / sum(calls) AS slowness,
      sum(calls * slowness_beyond) / sum(calls) AS slowness_beyond,
      sum(calls * measured_ns) / sum(calls) AS measured_ns
    FROM nearest
    GROUP BY row, gpu, larger, octaves, strangeness
    QUALIFY octaves = min(octaves) OVER (PARTITION BY row, gpu, larger)
  ),
  -- A measured shape of the same size, on another GPU or by another operator, outweighs all of another size.
  known AS (
    SELECT
      row,
      gpu,
      any_value(strangeness) AS strangeness,
      count(*) AS sides,
      min(octaves) AS octaves,
      any_value(measured_ns) FILTER (octaves = 0) AS measured_ns,
      CASE
        WHEN count(*) = 1 THEN any_value(slowness_beyond)
        ELSE exp(sum(ln(slowness) / greatest(octaves, 1e-9)) / sum(1 / greatest(octaves, 1e-9)))
      END AS slowness
    FROM side
    GROUP BY row, gpu
  )
  SELECT
    new.* EXCLUDE (row),
    asked.count,
    CASE
      WHEN known.strangeness = 0 AND known.octaves = 0 THEN 'measured'
      WHEN new.roof_ns IS NULL THEN 'unknown'
      WHEN known.row IS NULL THEN 'modelled'
      WHEN known.strangeness <= 1 AND known.sides = 2 THEN 'interpolated'
      ELSE 'rescaled'
    END AS provenance,
    round(
      CASE
        WHEN known.strangeness = 0 AND known.octaves = 0 THEN known.measured_ns
        ELSE new.roof_ns * coalesce(known.slowness, 1)
      END
    )::BIGINT AS kernel_ns,
    (asked.count * kernel_ns)::BIGINT AS total_ns,
    known.octaves
  FROM roofed AS new
  JOIN asked ON asked.row = new.row
  LEFT JOIN known ON known.row = new.row AND known.gpu = new.gpu
  ORDER BY new.gpu, new.row
);
