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
  ('b200', ['b200', 'b200sxm', 'b200180gb', 'b200sxm180gb', 'nvidiab200', 'nvidiablackwellgpub200sxm180gb', 'dgxb200'], MAP {'float32': 75000e0, 'float16': 2.25e+06, 'bfloat16': 2.25e+06, 'float8_e4m3fn': 4.5e+06, 'float8_e5m2': 4.5e+06}, 7700e0, 900e0, 0.464267e0, 2084e0, 0.85e0, 9000e0, 0.805e0, 1875e0, 0.917e0, 7544e0),
  ('b300', ['b300', 'b300sxm', 'nvidiab300', 'dgxb300'], MAP {'float32': 75000e0, 'float16': 2.25e+06, 'bfloat16': 2.25e+06, 'float8_e4m3fn': 4.5e+06, 'float8_e5m2': 4.5e+06}, 7750e0, 900e0, 0.470541e0, 2084e0, 0.85e0, 9000e0, 0.805e0, 1875e0, 0.917e0, 7544e0),
  ('gb200', ['gb200', 'gb200nvl72', 'nvidiagb200', 'nvidiablackwellgpugb200', 'dgxgb200'], MAP {'float32': 80000e0, 'float16': 2.5e+06, 'bfloat16': 2.5e+06, 'float8_e4m3fn': 5e+06, 'float8_e5m2': 5e+06}, 8000e0, 900e0, 0.736931e0, 2084e0, 0.85e0, 9000e0, 0.805e0, 1875e0, 0.917e0, 7544e0),
  ('gb300', ['gb300', 'gb300nvl72', 'nvidiagb300', 'dgxgb300'], MAP {'float32': 80000e0, 'float16': 2.5e+06, 'bfloat16': 2.5e+06, 'float8_e4m3fn': 5e+06, 'float8_e5m2': 5e+06}, 8000e0, 900e0, 0.621786e0, 2084e0, 0.85e0, 9000e0, 0.805e0, 1875e0, 0.917e0, 7544e0),
  ('h100-pcie', ['h100pcie', 'h100pcie80gb', 'nvidiah100pcie'], MAP {'float32': 51200e0, 'float16': 756000e0, 'bfloat16': 756000e0, 'float8_e4m3fn': 1.513e+06, 'float8_e5m2': 1.513e+06}, 2000e0, 64e0, 0.8357e0, 2364e0, 0.7628e0, 15420e0, 0.9012e0, 2794e0, 0.8168e0, 4738e0),
  ('h100-sxm', ['h100sxm', 'h100', 'h10080gb', 'h100sxm5', 'h100sxm580gb', 'nvidiah100sxm580gb', 'nvidiah100sxm80gb', 'nvidiah10080gbhbm3', 'nvidiah100', 'h10080gbhbm3', 'h100sxm80gb', 'dgxh100'], MAP {'float32': 66900e0, 'float16': 989400e0, 'bfloat16': 989400e0, 'float8_e4m3fn': 1.9789e+06, 'float8_e5m2': 1.9789e+06}, 3350e0, 450e0, 0.773796e0, 2364e0, 0.7628e0, 15420e0, 0.9012e0, 2794e0, 0.8168e0, 4738e0),
  ('h100-sxm-hbm2e-500w', ['h100sxmhbm2e500w', 'h10096gb', 'h10096gbhbm2e'], MAP {'float32': 66900e0, 'float16': 989400e0, 'bfloat16': 989400e0, 'float8_e4m3fn': 1.9789e+06, 'float8_e5m2': 1.9789e+06}, 2400e0, 450e0, 0.592695e0, 2364e0, 0.7628e0, 15420e0, 0.9012e0, 2794e0, 0.8168e0, 4738e0),
  ('h200-sxm', ['h200sxm', 'h200', 'h200sxm5', 'h200141gb', 'nvidiah200sxm5141gb', 'nvidiah200', 'dgxh200'], MAP {'float32': 66900e0, 'float16': 989400e0, 'bfloat16': 989400e0, 'float8_e4m3fn': 1.9789e+06, 'float8_e5m2': 1.9789e+06}, 4800e0, 450e0, 0.773796e0, 2364e0, 0.7628e0, 15420e0, 0.9012e0, 2794e0, 0.8168e0, 4738e0),
  ('h800', ['h800', 'h800sxm', 'h80080gb', 'nvidiah800'], MAP {'float32': 66900e0, 'float16': 989400e0, 'bfloat16': 989400e0, 'float8_e4m3fn': 1.9789e+06, 'float8_e5m2': 1.9789e+06}, 3350e0, 200e0, 0.773796e0, 2364e0, 0.7628e0, 15420e0, 0.9012e0, 2794e0, 0.8168e0, 4738e0),
  ('l40s', ['l40s', 'l40s48gb', 'nvidial40s'], MAP {'float32': 91600e0, 'float16': 362000e0, 'bfloat16': 362000e0, 'float8_e4m3fn': 733000e0, 'float8_e5m2': 733000e0}, 864e0, 32e0, 0.62e0, 3036e0, 0.7797e0, 13800e0, 0.7687e0, 3500e0, 0.15e0, 8082e0),
  ('mi300x', ['mi300x', 'mi300', 'amdmi300x', 'amdinstinctmi300x', 'amdinstinctmi300x192gbhbm3', 'mi300x192gb'], MAP {'float32': 163400e0, 'float16': 1.3074e+06, 'bfloat16': 1.3074e+06, 'float8_e4m3fn': 2.6149e+06, 'float8_e5m2': 2.6149e+06}, 5300e0, 448e0, 0.55e0, 2364e0, 0.49e0, 15420e0, 0.9012e0, 2794e0, 0.7e0, 4738e0),
  ('mi325x', ['mi325x', 'mi325', 'amdmi325x', 'amdinstinctmi325x', 'amdinstinctmi325x256gbhbm3e', 'amdinstinctmi325x256gbhbm3edlc'], MAP {'float32': 163400e0, 'float16': 1.3074e+06, 'bfloat16': 1.3074e+06, 'float8_e4m3fn': 2.6149e+06, 'float8_e5m2': 2.6149e+06}, 6000e0, 448e0, 0.64e0, 2364e0, 0.49e0, 15420e0, 0.9012e0, 2794e0, 0.7e0, 4738e0),
  ('mi355x', ['mi355x', 'mi355', 'amdmi355x', 'amdinstinctmi355x'], MAP {'float32': 157300e0, 'float16': 2.5e+06, 'bfloat16': 2.5e+06, 'float8_e4m3fn': 5e+06, 'float8_e5m2': 5e+06}, 8000e0, 537.6e0, 0.72e0, 2364e0, 0.49e0, 15420e0, 0.9012e0, 2794e0, 0.7e0, 4738e0),
  ('v100-sxm2-32', ['v100sxm232', 'v100', 'v100sxm232gb', 'teslav100sxm232gb', 'nvidiav100', 'dgx2v100', 'dgx2'], MAP {'float32': 15700e0, 'float16': 125000e0}, 900e0, 150e0, 0.8645e0, 3036e0, 0.7797e0, 13800e0, 0.7687e0, 3500e0, 0.7843e0, 8082e0);
