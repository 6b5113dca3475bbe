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

ADDRESSES = """
import os
import threading
from pathlib import Path
from lumos_df.base import freed_memory

def size():
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")

def work():
    meet.wait()
    bytes(1 << 16)
    meet.wait()

freed_memory.keep()
threading.stack_size(1 << 18)
meet = threading.Barrier(4 * os.cpu_count() + 1)
threads = [threading.Thread(target=work) for _ in range(4 * os.cpu_count())]
before = size()
for thread in threads:
    thread.start()
for _ in range(2):
    meet.wait()
print(size() - before, os.cpu_count())
"""
GLIBC = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library does as it does")


@GLIBC
def test_a_large_array_is_laid_where_the_last_one_was() -> None:
    told = subprocess.run([sys.executable, "-c", FAULTS], check=True, capture_output=True, text=True).stdout
    first, again = map(int, told.split())
    assert again < first / 10


@GLIBC
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_threads_share_as_many_arenas_as_there_are_processors() -> None:
    told = subprocess.run([sys.executable, "-c", ADDRESSES], check=True, capture_output=True, text=True).stdout
    grown, processors = map(int, told.split())
    assert grown < (processors + 1) * (64 << 20)
