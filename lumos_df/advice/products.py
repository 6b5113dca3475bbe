"""Operators of PyTorch that multiply matrices."""

import re
from typing import Final

PRODUCT: Final = re.compile(r"aten::(?:mm|addmm|bmm|baddbmm|convolution)$")
"""The inner ones: `aten::mm`, not the `aten::linear` around it."""
