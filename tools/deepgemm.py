"""Matrix products in 8 bits with a scale for each 128 elements, as DeepGEMM's authors and users published them.

On an H800, whose multiprocessors and memory are the H100's, with operands that are in 8 bits already.
`python -m tools.deepgemm` prints how far the stored figures are off them.
"""

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.model.fitted import GemmParameters, load, vector
from lumos_df.model.kernels.kernel_columns import products

PUBLISHED: Final = {
    "README, February 2025, m <= 128": (
        *((1, 64, 2112, 7168, 206), (1, 64, 24576, 1536, 289), (1, 64, 32768, 512, 219), (1, 64, 7168, 16384, 336)),
        *((1, 64, 4096, 7168, 287), (1, 64, 7168, 2048, 295), (1, 128, 2112, 7168, 352), (1, 128, 24576, 1536, 535)),
        *((1, 128, 32768, 512, 358), (1, 128, 7168, 16384, 645), (1, 128, 4096, 7168, 533), (1, 128, 7168, 2048, 510)),
    ),
    "README, February 2025, m = 4096": (
        *((1, 4096, 2112, 7168, 1058), (1, 4096, 24576, 1536, 990), (1, 4096, 32768, 512, 590)),
        *((1, 4096, 7168, 16384, 1358), (1, 4096, 4096, 7168, 1304), (1, 4096, 7168, 2048, 1025)),
    ),
    "pull 81, April 2025": (
        *((1, 4096, 24576, 1536, 1204), (1, 4096, 32768, 512, 801), (1, 4096, 7168, 16384, 1500)),
        *((1, 4096, 4096, 7168, 1377), (1, 4096, 7168, 2048, 1185)),
    ),
    "pull 168, August 2025, m = 128": (
        *((1, 128, 2112, 7168, 302), (1, 128, 24576, 1536, 443), (1, 128, 32768, 512, 338)),
        *((1, 128, 7168, 16384, 542), (1, 128, 4096, 7168, 399), (1, 128, 7168, 2048, 351)),
    ),
    "pull 168, August 2025, m = 4096": (
        *((1, 4096, 2112, 7168, 1296), (1, 4096, 24576, 1536, 1263), (1, 4096, 32768, 512, 938)),
        *((1, 4096, 7168, 16384, 1484), (1, 4096, 4096, 7168, 1424)),
    ),
    "pull 95, weight gradients": (
        *((1, 7168, 2112, 4096, 920), (1, 1536, 24576, 4096, 986), (1, 512, 32768, 4096, 878)),
        *((1, 16384, 7168, 4096, 994), (1, 7168, 4096, 4096, 942), (1, 2048, 7168, 4096, 920)),
        *((1, 7168, 2112, 8192, 1052), (1, 1536, 24576, 8192, 1092), (1, 512, 32768, 8192, 1014)),
    ),
    "pull 95, weight gradients of groups": (
        *((4, 7168, 4096, 4096, 939), (4, 2048, 7168, 4096, 900), (4, 7168, 4096, 8192, 1044)),
        *((4, 2048, 7168, 8192, 1033), (8, 7168, 4096, 4096, 942)),
    ),
    "issue 107, the same on an H200": (
        *((4, 7168, 4096, 4096, 813), (4, 2048, 7168, 4096, 814), (4, 7168, 4096, 8192, 858)),
        *((4, 2048, 7168, 8192, 873), (8, 7168, 4096, 4096, 816)),
    ),
}
"""Groups, m, n, k and TFLOP/s by where they stand in deepseek-ai/DeepGEMM: README, pull requests, an issue. In February
2025 tiles were of 128x128 alone, since April there are larger ones; of two tiles the faster is listed."""

CURRENT: Final = ("pull 81, April 2025", "pull 168, August 2025, m = 4096")
"""Large products of kernels with the larger tiles."""

WEIGHT_GRADIENTS: Final = (
    "pull 95, weight gradients",
    "pull 95, weight gradients of groups",
    "issue 107, the same on an H200",
)
"""Both operands have a scale for each 128 elements of k, and the sum goes to float32; the first is fitted to."""

_H800: Final = (1978.9e12, 3.35e12, 132.0)
"""Dense FLOP/s in 8 bits, bytes/s of the memory, multiprocessors."""


def ratios(source: str, parameters: GemmParameters, floor_s: float) -> NDArray[np.float64]:
    """Return modelled over published time of each product of a source of `PUBLISHED`.

    Args:
        source: key of `PUBLISHED`.
        parameters: as fitted, with the conversion of A, which is taken out.
        floor_s: seconds of a kernel that does nothing.
    """
    groups, m, n, k, tflops = np.array(PUBLISHED[source], np.float64).T
    peak, bandwidth, sms = _H800
    bare = vector(parameters.converted(floor_s))
    seconds = products(m, n, k, groups, 1.0, peak, bandwidth, sms, bare)
    if source in WEIGHT_GRADIENTS:
        seconds *= parameters.weight_gradient
    return np.asarray(seconds * tflops * 1e12 / (2.0 * groups * m * n * k))


def with_weight_gradient(parameters: GemmParameters, floor_s: float) -> GemmParameters:
    """Return the parameters with what a weight gradient takes over another product: the median of those published."""
    plain = replace(parameters, weight_gradient=1.0)
    return replace(plain, weight_gradient=1.0 / float(np.median(ratios(WEIGHT_GRADIENTS[0], plain, floor_s))))


def main() -> None:
    """Print the mean error of the products of each source, by the figures for scales of blocks and for one scale."""
    gemm = load("h100-sxm").gemm
    for source, published in PUBLISHED.items():
        off = [
            100 * float(np.abs(ratios(source, gemm[kind], gemm["bf16"].floor_s) - 1).mean())
            for kind in ("fp8_block", "fp8")
        ]
        print(f"{source:40} products {len(published):3}  fp8_block {off[0]:5.1f} %  fp8 {off[1]:5.1f} %")


if __name__ == "__main__":
    main()
