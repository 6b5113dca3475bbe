"""Names by which rules know what PyTorch runs, and what it annotates of a step."""

import re
from typing import Final

PRODUCT: Final = re.compile(r"aten::(?:mm|addmm|bmm|baddbmm|convolution)$")
"""Operators that multiply matrices. The inner ones: `aten::mm`, not the `aten::linear` around it."""
READS: Final = "aten::item"
"""What makes a number of Python of a tensor."""
DDP_FORWARD: Final = "DistributedDataParallel.forward"
"""The forward pass of what it wraps. It begins with buffers; a reduction after it is of its gradients."""
NODE: Final = "autograd::engine::evaluate_function"
"""A node of the backward pass, up to its name."""
