"""GPUs whose kernels are measured: their names in the measured tables, and their figures as the vendor states them."""

from dataclasses import dataclass
from typing import Final

from lumos_df.model.fitted import AttentionParameters


@dataclass(frozen=True)
class Gpu:
    """A GPU with measured kernels, and its figures as the vendor states them."""

    table: str
    """Its name in the measured tables."""
    peak_flops: dict[str, float]
    """Dense peak by data type, operations a second."""
    hbm_bandwidth: float
    """Bytes a second."""
    sms: float
    """Multiprocessors."""
    link_bandwidth: float
    """One GPU's link inside the node, bytes a second and direction."""
    gemm: dict[str, str]
    """Data type -> data type in the measured tables."""
    attention: AttentionParameters | None = None
    """What is published, where the table does not measure full attention."""
    networks: tuple[tuple[str, float], ...] = ()
    """Two nodes of it in nccl_collectives.csv: name there, network a GPU in bytes a second; the first is fitted."""
    block_scaled: str | None = None
    """Products in fp8 with a scale for each 128 elements: their data type in the measured tables."""
    switch_reduces: bool = True
    """Whether NVLS is there: Hopper and later."""


GPUS: Final = {
    "a100-sxm-80": Gpu("a100_sxm", {"bf16": 312e12}, 2.039e12, 108, 300e9, {"bf16": "bfloat16"}, switch_reduces=False),
    "h100-sxm": Gpu(
        "h100_sxm",
        {"bf16": 989e12, "fp8": 1979e12},
        3.35e12,
        132,
        450e9,
        {"bf16": "bfloat16", "fp8": "fp8"},
        networks=(("H200", 50e9), ("H100 80GB HBM3 (GCP a3-mega)", 25e9)),
        block_scaled="fp8_block",
    ),
    "b200": Gpu(
        "b200_sxm",
        {"bf16": 2250e12, "fp8": 4500e12},
        7.7e12,
        148,
        900e9,
        {"bf16": "bfloat16", "fp8": "fp8_static"},
        attention=AttentionParameters(
            floor_s=9e-6, efficiency=0.85, half_head=39.0, overhead_keys=600.0, exposed=1.0, tail=0.44
        ),
    ),
}
"""NVIDIA's data sheets of A100 (80 GB SXM), H100 (SXM) and HGX B200.

B200's attention table grows linearly with length: it is of a sliding window, whatever its column says. So B200 takes
the shape of H100's curve and 0.65 of the peak for long rows with heads of 128, between cuDNN 9.13 and
FlashAttention-4, which reaches 1605 TFLOP/s, 1.3 times as many at most (together.ai/blog/flashattention-4).

B200's table of products with scales of blocks is left out: with 32,768 rows they take 1.0 to 1.2 ms more than those
with one scale, for k = 512 as for 2,048, and up to 19 times as long; a conversion that is no pass over memory.
"""
