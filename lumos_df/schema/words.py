"""The words that columns hold: kinds, phases, families, evidence; and marks that names bear."""

import re
from typing import Final

STEP_MARK: Final = re.compile(r"ProfilerStep#([0-9]{1,9})(?![0-9])")
"""How the name of a step's mark begins, and the step's number in it."""

OPTIMIZER_STEP: Final = "Optimizer.step#"
"""How the range begins that PyTorch puts around every call of an optimizer."""
GRADIENT: Final = "torch::autograd::AccumulateGrad"
"""What adds up the gradient of one parameter: how such a name ends."""

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

EDGE_KINDS: Final = ("thread", "handoff", "launch", "stream", "event", "sync", "collective")
"""What a dependency between two operators comes from."""

BINDS: Final = ("end-start", "start-start", "end-end", "start-end")
"""Which points an edge ties: the second point of `dst` comes no earlier than the first point of `src` plus the lag."""

PIECES: Final = ("host", "launch", "kernel", "transfer", "memory", "sync", "gap", "unknown", "unexplained", "wait")
"""What a piece of the critical path is: host work, launch latency, a kernel, a collective's transfer, a copy or clear, the
end of a synchronising call, a gap between kernels, time that stays as recorded because nothing explains it, by what the
replay is off, and time spent on another rank."""
