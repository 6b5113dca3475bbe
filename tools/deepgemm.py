"""Matrix products in 8 bits with a scale for each 128 elements, as DeepGEMM's authors and users published them.

All on an H800, whose multiprocessors and memory are the H100's, with operands that are in 8 bits already.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.model.fitted import GemmParameters, vector
from lumos_df.model.kernels.kernel_columns import products

PUBLISHED: Final = {
    "README, February 2025, m <= 128": (
        *((64, 2112, 7168, 206), (64, 24576, 1536, 289), (64, 32768, 512, 219), (64, 7168, 16384, 336)),
        *((64, 4096, 7168, 287), (64, 7168, 2048, 295), (128, 2112, 7168, 352), (128, 24576, 1536, 535)),
        *((128, 32768, 512, 358), (128, 7168, 16384, 645), (128, 4096, 7168, 533), (128, 7168, 2048, 510)),
    ),
    "the same, m = 4096": (
        *((4096, 2112, 7168, 1058), (4096, 24576, 1536, 990), (4096, 32768, 512, 590)),
        *((4096, 7168, 16384, 1358), (4096, 4096, 7168, 1304), (4096, 7168, 2048, 1025)),
    ),
    "pull 81, April 2025": (
        *((4096, 24576, 1536, 1204), (4096, 32768, 512, 801), (4096, 7168, 16384, 1500)),
        *((4096, 4096, 7168, 1377), (4096, 7168, 2048, 1185)),
    ),
    "pull 168, August 2025, m = 128": (
        *((128, 2112, 7168, 302), (128, 24576, 1536, 443), (128, 32768, 512, 338)),
        *((128, 7168, 16384, 542), (128, 4096, 7168, 399), (128, 7168, 2048, 351)),
    ),
    "the same, m = 4096 ": (
        *((4096, 2112, 7168, 1296), (4096, 24576, 1536, 1263), (4096, 32768, 512, 938)),
        *((4096, 7168, 16384, 1484), (4096, 4096, 7168, 1424)),
    ),
}
"""m, n, k and TFLOP/s by where they stand in deepseek-ai/DeepGEMM: its README, and descriptions of pull requests. In
February tiles are of 128x128 alone, since April there are larger ones; of two tiles the faster is listed."""

CURRENT: Final = ("pull 81, April 2025", "the same, m = 4096 ")
"""Large products of kernels with the larger tiles."""

_H800: Final = (1978.9e12, 3.35e12, 132.0)
"""Dense FLOP/s in 8 bits, bytes/s of the memory, multiprocessors."""


def ratios(source: str, parameters: GemmParameters, floor_s: float) -> NDArray[np.float64]:
    """Return modelled over published time of each product of a source of `PUBLISHED`.

    Args:
        source: key of `PUBLISHED`.
        parameters: as fitted, with the conversion of A, which is taken out.
        floor_s: seconds of a kernel that does nothing.
    """
    m, n, k, tflops = np.array(PUBLISHED[source], np.float64).T
    peak, bandwidth, sms = _H800
    bare = vector(parameters.converted(floor_s))
    seconds = products(m, n, k, np.ones(len(m)), 1.0, peak, bandwidth, sms, bare)
    return np.asarray(seconds * tflops * 1e12 / (2.0 * m * n * k))
