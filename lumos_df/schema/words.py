"""The words that columns hold: kinds, phases, families, collectives, evidence; and marks that names bear."""

import re
from typing import Final

STEP_MARK: Final = re.compile(r"ProfilerStep#([0-9]{1,9})(?![0-9])")
"""How the name of a step's mark begins, and the step's number in it."""

KINDS: Final = (
    "cpu_op",
    "runtime",
    "kernel",
    "memcpy",
    "memset",
    "sync",
    "annotation",
    "gpu_annotation",
    "python",
    "other",
)
"""What an operator can be; the order is the code the reader uses."""

GPU_KINDS: Final = ("kernel", "memcpy", "memset")
"""Kinds that occupy a GPU stream."""

PHASES: Final = ("forward", "backward", "recompute", "optimizer", "communication", "other")

EVIDENCE: Final = ("annotation", "module", "fwdbwd", "repetition", "name", "shape", "group", "override", "unknown")
"""Where a layer, phase, micro-batch, dimension or degree is known from: annotations and autograd's own marks, module
names, links from backward to forward operators, repetition in the sequence of kernels, names of kernels and operators,
shapes, process groups and collectives, the user."""

FAMILIES: Final = (
    "communication",
    "gemm",
    "attention",
    "convolution",
    "normalization",
    "softmax",
    "embedding",
    "loss",
    "optimizer",
    "reduction",
    "elementwise",
    "copy",
    "fill",
    "index",
    "sort",
    "random",
    "fused",
    "other",
)
"""What a GPU operator does, judged by its name; `copy` and `fill` include memcpy and memset."""

COLLECTIVES: Final = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "send",
    "recv",
    "send_recv",
    "barrier",
    "unknown",
)
"""Normalised collective names; `send_recv` is a point-to-point kernel whose direction the trace does not say."""
