-- What is known of each GPU: peak rates, what large kernels reach of them, and the time of a kernel that does nothing.
-- Generated from data/hardware by `make docs`; edit those files.
CREATE VIEW _gpu_figures(
  -- Name.
  name,
  -- How traces may call it: small letters, digits and points of its name and aliases.
  keys,
  -- Dense FLOP/ns of matrix products by element type.
  flops_per_ns,
  -- Bytes/ns of memory.
  memory_bytes_per_ns,
  -- Bytes/ns of the links to the GPUs of its node, one direction.
  link_bytes_per_ns,
  -- Share of the peak that large matrix products reach.
  gemm_efficiency,
  -- Time of the smallest matrix product, ns.
  gemm_floor_ns,
  -- Share of the peak that long attention reaches.
  attention_efficiency,
  -- Time of the smallest attention, ns.
  attention_floor_ns,
  -- Share of the memory's bandwidth that large kernels reach.
  memory_efficiency,
  -- Time of the smallest memory-bound kernel, ns.
  memory_floor_ns,
  -- Share of the links' bandwidth that a large all-reduce reaches.
  link_efficiency,
  -- Time of the smallest all-reduce, ns.
  link_floor_ns
) AS
VALUES
  ('a100-pcie-40', ['a100pcie40', 'a100pcie40gb', 'nvidiaa100pcie40gb'], MAP {'float32': 19500e0, 'float16': 312000e0, 'bfloat16': 312000e0}, 1555e0, 32e0, 0.8645e0, 3036e0, 0.7797e0, 13800e0, 0.7687e0, 3500e0, 0.7843e0, 8082e0),
  ('a100-pcie-80', ['a100pcie80', 'a100pcie', 'nvidiaa100pcie', 'a100pcie80gb', 'nvidiaa10080gbpcie'], MAP {'float32': 19500e0, 'float16': 312000e0, 'bfloat16': 312000e0}, 1935e0, 32e0, 0.8645e0, 3036e0, 0.7797e0, 13800e0, 0.7687e0, 3500e0, 0.7843e0, 8082e0),
  ('a100-sxm-40', ['a100sxm40', 'a10040gb', 'a100sxm440gb', 'nvidiaa100sxm440gb', 'a100sxm40gb'], MAP {'float32': 19500e0, 'float16': 312000e0, 'bfloat16': 312000e0}, 1555e0, 300e0, 0.897715e0, 3036e0, 0.7797e0, 13800e0, 0.7687e0, 3500e0, 0.7843e0, 8082e0),
  ('a100-sxm-80', ['a100sxm80', 'a100', 'a10080gb', 'a100sxm', 'a100sxm480gb', 'nvidiaa100sxm480gb', 'a100sxm80gb', 'nvidiaa100', 'dgxa100'], MAP {'float32': 19500e0, 'float16': 312000e0, 'bfloat16': 312000e0}, 2039e0, 300e0, 0.897715e0, 3036e0, 0.7797e0, 13800e0, 0.7687e0, 3500e0, 0.7843e0, 8082e0),
  ('a10g', ['a10g', 'nvidiaa10g', 'a10g24gb'], MAP {'float32': 35000e0, 'float16': 70000e0, 'bfloat16': 70000e0}, 600e0, 16e0, 0.8645e0, 3036e0, 0.7797e0, 13800e0, 0.7687e0, 3500e0, 0.7843e0, 8082e0),
  ('b200', ['b200', 'b200sxm', 'b200180gb', 'b200sxm180gb', 'nvidiab200', 'nvidiablackwellgpub200sxm180gb', 'dgxb200'], MAP {'float32': 75000e0, 'float16': 2.25e+06, 'bfloat16': 2.25e+06, 'float8_e4m3fn': 4.5e+06, 'float8_e5m2': 4.5e+06, 'float4_e2m1fn_x2': 9e+06}, 7700e0, 900e0, 0.6964e0, 2084e0, 0.85e0, 9000e0, 0.805e0, 1875e0, 0.917e0, 7544e0),
  ('b300', ['b300', 'nvidiablackwellultragpub300sxm270gb', 'b300sxm270gb', 'b300sxm288gb', 'nvidiablackwellgpub300sxm270gb', 'b300sxm', 'nvidiab300', 'dgxb300'], MAP {'float32': 75000e0, 'float16': 2.25e+06, 'bfloat16': 2.25e+06, 'float8_e4m3fn': 4.5e+06, 'float8_e5m2': 4.5e+06, 'float4_e2m1fn_x2': 1.35e+07}, 7750e0, 900e0, 0.6964e0, 2084e0, 0.85e0, 9000e0, 0.805e0, 1875e0, 0.917e0, 7544e0),
  ('gaudi3', ['gaudi3', 'intelgaudi3', 'hl325l'], MAP {'float32': 229000e0, 'float16': 1.678e+06, 'bfloat16': 1.678e+06, 'float8_e4m3fn': 1.678e+06, 'float8_e5m2': 1.678e+06}, 3670e0, 525e0, 0.738889e0, 3036e0, 0.7797e0, 13800e0, 0.7687e0, 3500e0, 0.7843e0, 8082e0),
  ('gb200', ['gb200', 'gb200nvl72', 'nvidiagb200', 'nvidiablackwellgpugb200', 'dgxgb200'], MAP {'float32': 80000e0, 'float16': 2.5e+06, 'bfloat16': 2.5e+06, 'float8_e4m3fn': 5e+06, 'float8_e5m2': 5e+06, 'float4_e2m1fn_x2': 1e+07}, 8000e0, 900e0, 0.6964e0, 2084e0, 0.85e0, 9000e0, 0.805e0, 1875e0, 0.917e0, 7544e0),
  ('gb300', ['gb300', 'nvidiablackwellgpugb300', 'nvidiablackwellultragpugb300', 'gb300nvl72', 'nvidiagb300', 'dgxgb300'], MAP {'float32': 80000e0, 'float16': 2.5e+06, 'bfloat16': 2.5e+06, 'float8_e4m3fn': 5e+06, 'float8_e5m2': 5e+06, 'float4_e2m1fn_x2': 1.5e+07}, 8000e0, 900e0, 0.6964e0, 2084e0, 0.85e0, 9000e0, 0.805e0, 1875e0, 0.917e0, 7544e0),
  ('gh200', ['gh200', 'gh20096gb', 'nvidiagh200', 'gh200480gb'], MAP {'float32': 66900e0, 'float16': 989400e0, 'bfloat16': 989400e0, 'float8_e4m3fn': 1.9789e+06, 'float8_e5m2': 1.9789e+06}, 4000e0, 450e0, 0.702269e0, 2364e0, 0.7628e0, 15420e0, 0.9012e0, 2794e0, 0.8168e0, 4738e0),
  ('h100-nvl', ['h100nvl', 'h10094gb', 'nvidiah100nvl', 'h100nvl94gb'], MAP {'float32': 60000e0, 'float16': 835000e0, 'bfloat16': 835000e0, 'float8_e4m3fn': 1.671e+06, 'float8_e5m2': 1.671e+06}, 3900e0, 300e0, 0.702269e0, 2364e0, 0.7628e0, 15420e0, 0.9012e0, 2794e0, 0.8168e0, 4738e0),
  ('h100-pcie', ['h100pcie', 'h100pcie80gb', 'nvidiah100pcie'], MAP {'float32': 51200e0, 'float16': 756000e0, 'bfloat16': 756000e0, 'float8_e4m3fn': 1.513e+06, 'float8_e5m2': 1.513e+06}, 2000e0, 64e0, 0.8357e0, 2364e0, 0.7628e0, 15420e0, 0.9012e0, 2794e0, 0.8168e0, 4738e0),
  ('h100-sxm', ['h100sxm', 'h100', 'h10080gb', 'h100sxm5', 'h100sxm580gb', 'nvidiah100sxm580gb', 'nvidiah100sxm80gb', 'nvidiah10080gbhbm3', 'nvidiah100', 'h10080gbhbm3', 'h100sxm80gb', 'dgxh100'], MAP {'float32': 66900e0, 'float16': 989400e0, 'bfloat16': 989400e0, 'float8_e4m3fn': 1.9789e+06, 'float8_e5m2': 1.9789e+06}, 3350e0, 450e0, 0.702269e0, 2364e0, 0.7628e0, 15420e0, 0.9012e0, 2794e0, 0.8168e0, 4738e0),
  ('h100-sxm-hbm2e-500w', ['h100sxmhbm2e500w', 'h10096gb', 'h10096gbhbm2e'], MAP {'float32': 66900e0, 'float16': 989400e0, 'bfloat16': 989400e0, 'float8_e4m3fn': 1.9789e+06, 'float8_e5m2': 1.9789e+06}, 2400e0, 450e0, 0.702269e0, 2364e0, 0.7628e0, 15420e0, 0.9012e0, 2794e0, 0.8168e0, 4738e0),
  ('h20', ['h20', 'h2096gb', 'nvidiah20', 'h20sxm'], MAP {'float32': 44000e0, 'float16': 148000e0, 'bfloat16': 148000e0, 'float8_e4m3fn': 296000e0, 'float8_e5m2': 296000e0}, 4000e0, 450e0, 0.702269e0, 2364e0, 0.7628e0, 15420e0, 0.9012e0, 2794e0, 0.8168e0, 4738e0),
  ('h200-nvl', ['h200nvl', 'nvidiah200nvl141gb', 'h200nvl141gb', 'nvidiah200nvl'], MAP {'float32': 60000e0, 'float16': 835000e0, 'bfloat16': 835000e0, 'float8_e4m3fn': 1.671e+06, 'float8_e5m2': 1.671e+06}, 4800e0, 450e0, 0.702269e0, 2364e0, 0.7628e0, 15420e0, 0.9012e0, 2794e0, 0.8168e0, 4738e0),
  ('h200-sxm', ['h200sxm', 'h200sxm5141gb', 'h200', 'h200sxm5', 'h200141gb', 'nvidiah200sxm5141gb', 'nvidiah200', 'dgxh200'], MAP {'float32': 66900e0, 'float16': 989400e0, 'bfloat16': 989400e0, 'float8_e4m3fn': 1.9789e+06, 'float8_e5m2': 1.9789e+06}, 4800e0, 450e0, 0.702269e0, 2364e0, 0.7628e0, 15420e0, 0.9012e0, 2794e0, 0.8168e0, 4738e0),
  ('h800', ['h800', 'h800sxm', 'h80080gb', 'nvidiah800'], MAP {'float32': 66900e0, 'float16': 989400e0, 'bfloat16': 989400e0, 'float8_e4m3fn': 1.9789e+06, 'float8_e5m2': 1.9789e+06}, 3350e0, 200e0, 0.702269e0, 2364e0, 0.7628e0, 15420e0, 0.9012e0, 2794e0, 0.8168e0, 4738e0),
  ('l4', ['l4', 'nvidial4', 'l424gb'], MAP {'float32': 30300e0, 'float16': 121000e0, 'bfloat16': 121000e0, 'float8_e4m3fn': 242500e0, 'float8_e5m2': 242500e0}, 300e0, 16e0, 0.62e0, 3036e0, 0.7797e0, 13800e0, 0.7687e0, 3500e0, 0.62e0, 8082e0),
  ('l40s', ['l40s', 'l40s48gb', 'nvidial40s'], MAP {'float32': 91600e0, 'float16': 362000e0, 'bfloat16': 362000e0, 'float8_e4m3fn': 733000e0, 'float8_e5m2': 733000e0}, 864e0, 32e0, 0.62e0, 3036e0, 0.7797e0, 13800e0, 0.7687e0, 3500e0, 0.62e0, 8082e0),
  ('mi300x', ['mi300x', 'mi300', 'amdmi300x', 'amdinstinctmi300x', 'amdinstinctmi300x192gbhbm3', 'mi300x192gb'], MAP {'float32': 163400e0, 'float16': 1.3074e+06, 'bfloat16': 1.3074e+06, 'float8_e4m3fn': 2.6149e+06, 'float8_e5m2': 2.6149e+06}, 5300e0, 448e0, 0.55e0, 2364e0, 0.49e0, 15420e0, 0.9012e0, 2794e0, 0.7e0, 4738e0),
  ('mi325x', ['mi325x', 'mi325', 'amdmi325x', 'amdinstinctmi325x', 'amdinstinctmi325x256gbhbm3e', 'amdinstinctmi325x256gbhbm3edlc'], MAP {'float32': 163400e0, 'float16': 1.3074e+06, 'bfloat16': 1.3074e+06, 'float8_e4m3fn': 2.6149e+06, 'float8_e5m2': 2.6149e+06}, 6000e0, 448e0, 0.64e0, 2364e0, 0.49e0, 15420e0, 0.9012e0, 2794e0, 0.7e0, 4738e0),
  ('mi350x', ['mi350x', 'mi350', 'amdmi350x', 'amdinstinctmi350x', 'mi350x288gb'], MAP {'float32': 144200e0, 'float16': 2.307e+06, 'bfloat16': 2.307e+06, 'float8_e4m3fn': 4.614e+06, 'float8_e5m2': 4.614e+06, 'float4_e2m1fn_x2': 9.227e+06}, 8000e0, 537.6e0, 0.65e0, 2364e0, 0.49e0, 15420e0, 0.9012e0, 2794e0, 0.7e0, 4738e0),
  ('mi355x', ['mi355x', 'amdinstinctmi355x288gbhbm3e', 'mi355', 'amdmi355x', 'amdinstinctmi355x'], MAP {'float32': 157300e0, 'float16': 2.5166e+06, 'bfloat16': 2.5166e+06, 'float8_e4m3fn': 5.0332e+06, 'float8_e5m2': 5.0332e+06, 'float4_e2m1fn_x2': 1.0066e+07}, 8000e0, 537.6e0, 0.65e0, 2364e0, 0.49e0, 15420e0, 0.9012e0, 2794e0, 0.7e0, 4738e0),
  ('rtx-4090', ['rtx4090', '4090', 'geforcertx4090', 'nvidiageforcertx4090'], MAP {'float32': 82600e0, 'float16': 165200e0, 'bfloat16': 165200e0, 'float8_e4m3fn': 330300e0, 'float8_e5m2': 330300e0}, 1008e0, 16e0, 0.62e0, 3036e0, 0.7797e0, 13800e0, 0.7687e0, 3500e0, 0.62e0, 8082e0),
  ('rtx-5090', ['rtx5090', '5090', 'geforcertx5090', 'nvidiageforcertx5090'], MAP {'float32': 104800e0, 'float16': 209500e0, 'bfloat16': 209500e0, 'float8_e4m3fn': 419000e0, 'float8_e5m2': 419000e0, 'float4_e2m1fn_x2': 1.676e+06}, 1792e0, 32e0, 0.62e0, 3036e0, 0.7797e0, 13800e0, 0.7687e0, 3500e0, 0.62e0, 8082e0),
  ('rtx-pro-6000', ['rtxpro6000', 'rtxpro6000blackwell', 'nvidiartxpro6000blackwellworkstationedition'], MAP {'float32': 125950e0, 'float16': 503800e0, 'bfloat16': 503800e0, 'float8_e4m3fn': 1.0076e+06, 'float8_e5m2': 1.0076e+06, 'float4_e2m1fn_x2': 2.015e+06}, 1792e0, 32e0, 0.62e0, 3036e0, 0.7797e0, 13800e0, 0.7687e0, 3500e0, 0.62e0, 8082e0),
  ('tpu-v5p', ['tpuv5p', 'tpuv5', 'cloudtpuv5p'], MAP {'float32': 29000e0, 'bfloat16': 459000e0}, 2765e0, 600e0, 0.8645e0, 3036e0, 0.7797e0, 13800e0, 0.7687e0, 3500e0, 0.7843e0, 8082e0),
  ('tpu-v6e', ['tpuv6e', 'tpuv6lite', 'trillium', 'cloudtpuv6e'], MAP {'float32': 57000e0, 'bfloat16': 918000e0}, 1638e0, 400e0, 0.8645e0, 3036e0, 0.7797e0, 13800e0, 0.7687e0, 3500e0, 0.7843e0, 8082e0),
  ('trainium2', ['trainium2', 'trn2', 'awstrainium2'], MAP {'float32': 181000e0, 'float16': 667000e0, 'bfloat16': 667000e0, 'float8_e4m3fn': 1.299e+06, 'float8_e5m2': 1.299e+06}, 2900e0, 640e0, 0.738889e0, 3036e0, 0.7797e0, 13800e0, 0.7687e0, 3500e0, 0.7843e0, 8082e0),
  ('v100-sxm2-32', ['v100sxm232', 'v100', 'v100sxm232gb', 'teslav100sxm232gb', 'nvidiav100', 'dgx2v100', 'dgx2'], MAP {'float32': 15700e0, 'float16': 125000e0}, 900e0, 150e0, 0.8645e0, 3036e0, 0.7797e0, 13800e0, 0.7687e0, 3500e0, 0.7843e0, 8082e0);
