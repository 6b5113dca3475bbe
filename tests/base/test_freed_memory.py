"""What is freed is used again."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource
import numpy as np
from lumos_df.base import freed_memory

freed_memory.keep()
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    # Larger than glibc lets anybody set the limit above which it maps each array by itself.
    array = np.empty(200 << 20, np.uint8)
    array[:: 1 << 12] = 1
    del array
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library does as it does")
def test_a_large_array_is_laid_where_the_last_one_was() -> None:
    told = subprocess.run([sys.executable, "-c", FAULTS], check=True, capture_output=True, text=True).stdout
    first, again = map(int, told.split())
    assert again < first / 10
