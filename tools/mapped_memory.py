"""Run a Python program with its memory mapped beforehand: `python -m tools.mapped_memory -m MODULE ...`, or a file.

What memory costs that is touched for the first time is a matter of the machine's moment (1.6 to 16 us a page on one
virtual machine within minutes), and which operators pay for it one of what a profiler has put between the tensors.
`TUNABLES` in the environment keeps what is let go.
"""

import ctypes
import runpy
import sys
from pathlib import Path
from typing import Final

TUNABLES: Final = {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=17179869184:glibc.malloc.mmap_threshold=17179869184"}
"""What glibc's allocator must be told before a process begins: 16 GiB, to give back no less and map no less alone."""
_BYTES: Final = 1 << 29
"""Several times what a small net and the records of ten of its steps take."""


def main() -> None:
    """Map memory, let it go to the allocator, run the program."""
    library = ctypes.CDLL(None)
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.restype, library.free.argtypes = None, [ctypes.c_void_p]
    block = library.malloc(_BYTES)
    ctypes.memset(block, 1, _BYTES)
    library.free(block)
    sys.argv.pop(0)
    if sys.argv[0] == "-m":
        sys.argv.pop(0)
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(sys.argv[0]).parent)
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
