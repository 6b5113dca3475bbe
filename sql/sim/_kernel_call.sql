-- What each host operator took on the GPU, by family of its kernels, with the shape it was called with; collectives one by one.
-- Matrix products have m, n, k and batch, so has fused attention (queries, keys, head, sequences times heads); the rest has bytes and a width n.
CREATE VIEW _kernel_call(
  -- Trace.
  trace_id,
  -- Step in which it was launched.
  step,
  -- forward, backward, recompute, optimizer, communication, other.
  phase,
  -- The GPU as the trace calls it.
  device,
  -- Its name in `_gpu_figures`.
  gpu,
  -- What the kernels do.
  family,
  -- Host operator that launched them; the kind of a collective.
  operator,
  -- Element type as torch names it: of a product's first matrix, else of the first tensor.
  dtype,
  -- Rows of the product; queries.
  m,
  -- Columns of the product; keys; of a memory-bound kernel the last dimension of its largest tensor.
  n,
  -- Inner length of the product; width of a head.
  k,
  -- Products in one kernel; sequences times heads.
  batch,
  -- Ranks of the collective.
  ranks,
  -- Memory-bound: tensors read, and one as large as the largest written; a reduction only reads, a fill only writes. Collectives: size as nccl-tests count it.
  bytes,
  -- Kernels.
  kernels,
  -- Sum of their durations, ns; of a collective the transfer alone, where it was matched with other ranks'.
  dur
) AS
WITH
device AS (
  SELECT trace_id, coalesce(device_name, 'unknown') AS device, gpu.name AS gpu, world_size
  FROM traces
  LEFT JOIN _gpu_figures AS gpu
    ON list_contains(gpu.keys, regexp_replace(lower(traces.device_name), '[^a-z0-9.]', '', 'g'))
),
compute AS (
  SELECT
    gpu.trace_id,
    any_value(gpu.step) AS step,
    any_value(gpu.phase) AS phase,
    gpu.family,
    any_value(host.name) AS operator,
    any_value(host.input_dims) AS input_dims,
    any_value(host.input_types) AS input_types,
    count(*) AS kernels,
    try_cast(sum(gpu.dur) AS BIGINT) AS dur
  FROM operators AS gpu
  LEFT JOIN operators AS above ON above.trace_id = gpu.trace_id AND above.op_id = gpu.parent_id
  LEFT JOIN operators AS host
    ON host.trace_id = gpu.trace_id
    AND host.op_id = CASE WHEN above.kind = 'runtime' THEN above.parent_id ELSE above.op_id END
    AND host.kind = 'cpu_op'
  WHERE gpu.kind = 'kernel' AND gpu.family <> 'communication' AND gpu.collective IS NULL
  GROUP BY gpu.trace_id, gpu.family, coalesce(host.op_id, -1 - gpu.op_id)
),
-- Each distinct call once: its tensors with their type and the size of an element, null where no tensor is meant.
tensors AS (
  SELECT
    operator,
    input_dims,
    input_types,
    list_transform(
      list_zip(json_extract(input_dims, '$[*]'), json_extract_string(input_types, '$[*]')),
      lambda pair: {
        'dims': try_cast(pair[1] AS BIGINT[]),
        'dtype': dtype_of_spelling[lower(pair[2])],
        'size': bytes_of[dtype_of_spelling[lower(pair[2])]],
        'listed': pair[2] = 'TensorList'
      }
    ) AS inputs
  FROM (SELECT DISTINCT operator, input_dims, input_types FROM compute WHERE json_valid(input_dims) AND json_valid(input_types))
  CROSS JOIN _element_types
),
sized AS (
  SELECT
    operator,
    input_dims,
    input_types,
    list_filter(inputs, lambda tensor: tensor.size IS NOT NULL AND tensor.dims IS NOT NULL) AS given,
    list_transform(
      given, lambda tensor: coalesce(list_product(tensor.dims::DOUBLE[]), 1) * tensor.size
    ) AS tensor_bytes,
    list_filter(given, lambda tensor: len(tensor.dims) = 2) AS flat,
    list_filter(given, lambda tensor: len(tensor.dims) = 3) AS batched,
    list_filter(given, lambda tensor: len(tensor.dims) = 4) AS heads,
    regexp_matches(operator, '(?i)(^|::|_)(add|badd)?b?mm_?$|matmul$') AS multiplies,
    CASE
      WHEN multiplies AND len(flat) >= 2 THEN flat[-2:]
      WHEN multiplies AND len(batched) >= 2 THEN batched[-2:]
    END AS factors,
    regexp_matches(operator, '(?i)attention|attn|sdpa') AND len(heads) >= 3 AS attends,
    -- torch's own operators have heads before the sequence, FlashAttention after it.
    CASE WHEN regexp_matches(operator, '(?i)scaled_dot_product') THEN 3 ELSE 2 END AS along,
    CASE WHEN NOT list_bool_or(list_transform(inputs, lambda tensor: coalesce(tensor.listed, false))) THEN
      list_sum(tensor_bytes)::BIGINT
    END AS read_bytes,
    list_max(tensor_bytes)::BIGINT AS written_bytes,
    given[list_position(tensor_bytes, list_max(tensor_bytes))].dims[-1] AS width
  FROM tensors
),
shaped AS (
  SELECT
    operator,
    input_dims,
    input_types,
    CASE WHEN attends THEN 'attention' WHEN factors IS NOT NULL THEN 'gemm' END AS by_size_of,
    coalesce(factors[1].dtype, CASE WHEN attends THEN heads[1].dtype END, given[1].dtype) AS dtype,
    CASE WHEN attends THEN heads[1].dims[along] ELSE factors[1].dims[-2] END AS m,
    CASE WHEN attends THEN heads[3].dims[along] ELSE factors[2].dims[-1] END AS n,
    CASE WHEN attends THEN heads[1].dims[4] ELSE factors[1].dims[-1] END AS k,
    CASE
      WHEN attends THEN heads[1].dims[1] * heads[1].dims[5 - along]
      WHEN len(factors[1].dims) = 3 THEN factors[1].dims[1]
      WHEN factors IS NOT NULL THEN 1
    END AS batch,
    read_bytes,
    written_bytes,
    width
  FROM sized
)
SELECT
  compute.trace_id,
  compute.step,
  compute.phase,
  device.device,
  device.gpu,
  compute.family,
  compute.operator,
  shaped.dtype,
  CASE WHEN by_size_of = compute.family THEN shaped.m END,
  CASE WHEN by_size_of = compute.family THEN shaped.n ELSE shaped.width END,
  CASE WHEN by_size_of = compute.family THEN shaped.k END,
  CASE WHEN by_size_of = compute.family THEN shaped.batch END,
  NULL::BIGINT,
  CASE
    WHEN by_size_of = compute.family THEN NULL
    WHEN compute.family = 'fill' THEN shaped.written_bytes
    WHEN compute.family = 'reduction' THEN shaped.read_bytes
    ELSE shaped.read_bytes + shaped.written_bytes
  END,
  compute.kernels,
  compute.dur
FROM compute
JOIN device ON device.trace_id = compute.trace_id
LEFT JOIN shaped USING (operator, input_dims, input_types)
UNION ALL
SELECT
  gpu.trace_id,
  gpu.step,
  'communication',
  device.device,
  device.gpu,
  'communication',
  gpu.collective,
  gpu.dtype,
  NULL,
  NULL,
  NULL,
  NULL,
  coalesce(gpu.group_size, device.world_size),
  CASE gpu.collective
    WHEN 'all_gather' THEN gpu.out_bytes
    WHEN 'gather' THEN try(gpu.in_bytes * coalesce(gpu.group_size, device.world_size))
    WHEN 'scatter' THEN try(gpu.out_bytes * coalesce(gpu.group_size, device.world_size))
    ELSE gpu.in_bytes
  END,
  1,
  coalesce(member.transfer_ns, gpu.dur)
FROM _gpu AS gpu
JOIN device ON device.trace_id = gpu.trace_id
LEFT JOIN collectives AS member
  ON member.trace_id = gpu.trace_id AND member.op_id = gpu.op_id AND member.members IS DISTINCT FROM 1
WHERE gpu.class = 'communication';
