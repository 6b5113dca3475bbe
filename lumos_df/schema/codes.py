"""The numbers that arrays and kernels hold: for null, and for the words of `schema.words` a word's place in its list."""

from typing import Final

from lumos_df.schema.words import BINDS, EDGE_KINDS, EVIDENCE, FAMILIES, GPU_KINDS, KINDS, PHASES, PIECES

NONE: Final = -1
"""Stands for null in columns of places, rows and codes."""
NULL: Final = -(1 << 63)
"""Stands for null in int64 columns of recorded numbers, which may be negative."""
NULL32: Final = -(1 << 31)
"""Stands for null in int32 columns of recorded numbers."""
LATEST: Final = 7_258_118_400_000_000_000
"""Start of the year 2200, ns of Unix time. No time of a row is later or before `EARLIEST`: differences fit int64."""
EARLIEST: Final = -86_400_000_000_000
"""A day before 1970: clocks that count from a moment of the recording are a little below 0 before it."""

CPU_OP, RUNTIME, KERNEL, MEMCPY, MEMSET, SYNC, ANNOTATION, GPU_ANNOTATION, PYTHON, OTHER_KIND = range(len(KINDS))
"""`kind`, by KINDS."""
GPU: Final = tuple(map(KINDS.index, GPU_KINDS))
"""`kind` of what occupies a GPU stream, by GPU_KINDS."""

FORWARD, BACKWARD, RECOMPUTE, OPTIMIZER, COMMUNICATION_PHASE, OTHER_PHASE = range(len(PHASES))
"""`phase`, by PHASES."""

COMMUNICATION: Final = FAMILIES.index("communication")
GEMM: Final = FAMILIES.index("gemm")
ATTENTION: Final = FAMILIES.index("attention")
CONVOLUTION: Final = FAMILIES.index("convolution")
NORMALIZATION: Final = FAMILIES.index("normalization")
SOFTMAX: Final = FAMILIES.index("softmax")
EMBEDDING: Final = FAMILIES.index("embedding")
ELEMENTWISE: Final = FAMILIES.index("elementwise")
COPY: Final = FAMILIES.index("copy")
RANDOM: Final = FAMILIES.index("random")
"""`family`, by FAMILIES: those that the code tells apart."""

BY_ANNOTATION, BY_MODULE, BY_LINK, BY_REPETITION, BY_NAME, BY_SHAPE, BY_GROUP, BY_OVERRIDE, NOT_KNOWN = range(
    len(EVIDENCE)
)
"""`evidence` of layers, phases and micro-batches, by EVIDENCE."""

THREAD, HANDOFF, LAUNCH, STREAM, EVENT, SYNC_EDGE, COLLECTIVE = range(len(EDGE_KINDS))
"""`kind` of an edge, by EDGE_KINDS."""

END_START, START_START, END_END, START_END = range(len(BINDS))
"""`binds` of an edge, by BINDS."""

(
    HOST_PIECE,
    LAUNCH_PIECE,
    KERNEL_PIECE,
    TRANSFER_PIECE,
    MEMORY_PIECE,
    SYNC_PIECE,
    GAP_PIECE,
    UNKNOWN_PIECE,
    UNEXPLAINED_PIECE,
    WAIT_PIECE,
) = range(len(PIECES))
"""`kind` of a piece of the critical path, by PIECES."""
