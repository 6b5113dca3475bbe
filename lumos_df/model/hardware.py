"""The hardware: a GPU, the links around it, and what was fitted to kernels measured on it."""

from typing import Final

from lumos_df.model.rows import REAL, Column, row_type

PRECISIONS: Final = ("fp32", "fp16", "bf16", "fp8")
"""Number formats of matrix products; a record holds the place in this table."""

TIERS: Final = ("scale_up", "scale_out")
"""Links: inside the domain of NVLink, xGMI or PCIe; between such domains."""

COLLECTIVES: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")
"""Operations on links; a record holds the place in this table."""

HARDWARE_COLUMNS: Final = (
    Column("peak_flops", "dense FLOP/s of matrix products by PRECISIONS; 0: the GPU has no such", REAL, (4,)),
    Column("hbm_bytes", "memory of a GPU", REAL),
    Column("hbm_bandwidth", "bytes/s of that memory", REAL),
    Column("sms", "streaming multiprocessors (AMD: compute units)"),
    Column("scale_up_gpus", "GPUs that fast links join: 8 of an HGX node, 72 of an NVL72 rack"),
    Column("scale_up_bandwidth", "bytes/s of a GPU in one direction inside that domain", REAL),
    Column("scale_up_latency", "seconds of one hop inside it", REAL),
    Column("scale_out_bandwidth", "bytes/s of a GPU in one direction between domains", REAL),
    Column("scale_out_nics", "network cards a GPU; below 1 where GPUs share one", REAL),
    Column("scale_out_latency", "seconds of one hop between domains", REAL),
    Column("pcie_bandwidth", "bytes/s to the host in one direction", REAL),
    Column("tdp_w", "power limit of a GPU", REAL),
    Column("idle_w", "power of a GPU that waits", REAL),
    Column("kernel_floor", "seconds that the shortest kernel takes", REAL),
    Column("gemm", "fitted: GEMM by PRECISIONS", REAL, (4, 16)),
    Column("attention", "fitted: attention by PRECISIONS", REAL, (4, 16)),
    Column("memory", "fitted: memory-bound kernels", REAL, (8,)),
    Column("network", "fitted: collectives by TIERS and COLLECTIVES", REAL, (2, 5, 8)),
)
"""What a kernel knows of a hardware."""

HARDWARE_ROW: Final = row_type(HARDWARE_COLUMNS)
"""Structured dtype of `Hardware.row()`."""
