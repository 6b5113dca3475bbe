"""What an operator does to the axes of its tensors, by its name."""

import re
from typing import Final

from lumos_df.structure.shapes import GROUPED as GROUPS_ROWS
from lumos_df.structure.shapes import Shape

LOOKS_UP: Final = re.compile(r"aten::embedding$")
TAKES_ROWS: Final = re.compile(r"aten::index_select$")
"""Does the work of a lookup where it runs inside one; elsewhere data picks rows of anything."""
ATTENDS: Final = re.compile(r"(?i).*(?:scaled_dot_product|(?:flash|efficient|cudnn)\w*attention)")
"""Fused attention, forward and backward."""
IDLE: Final = re.compile(r"aten::(?:as_strided|empty\w*|resize_\w*|result_type|set_|record_stream)$")
"""Operators that say nothing of axes: what they make is not among their inputs, or the operator around them says it."""
(SWAPS, RESHAPES, LOSES, BACK, LINEAR, CONVOLUTION, BATCHED, PRODUCT, GROUPED, LOOKUP, NORM, FUSED, POOL, ELEMENTS) = (
    range(14)
)
RULES: Final = (
    (SWAPS, re.compile(r"aten::(?:t_?|numpy_T|(?:transpose|swapaxes|swapdims)_?|permute|movedim|einsum)$")),
    (SWAPS, re.compile(r"(?:T|Transpose|Permute)Backward\d+$")),
    (
        RESHAPES,
        re.compile(r"aten::(?:_?(?:unsafe_)?view|_?reshape(?:_alias|_copy)?|(?:un)?flatten|(?:un)?squeeze_?)$"),
    ),
    (RESHAPES, re.compile(r"(?:\w*View|Reshape\w*|Unsqueeze|Squeeze)Backward\d+$")),
    (
        LOSES,
        re.compile(
            r"aten::(?:select|slice|narrow|index(?:_select)?|gather|split\w*|chunk|unbind|cat|stack|concat|sum|mean|amax"
            r"|amin|max|min|argmax|argmin|any|all|norm|linalg_\w*|var\w*|std\w*|repeat\w*|tile|pad|constant_pad_nd|unfold"
            r"|expand\w*|topk|sort|nll_loss\w*|cross_entropy\w*|one_hot|item|tril_indices)$"
        ),
    ),
    (BACK, re.compile(r"(?i).*backward")),
    (LINEAR, re.compile(r"(?:aten::linear|LinearWith\w+)$")),
    (CONVOLUTION, re.compile(r"aten::\w*conv(?:olution|\d?d)?\w*$")),
    (BATCHED, re.compile(r"aten::(?:bmm|baddbmm_?)$")),
    (PRODUCT, re.compile(r"aten::(?:mm|addmm_?|_addmm_activation|matmul|_scaled_mm|_int_mm)$")),
    (GROUPED, GROUPS_ROWS),
    (LOOKUP, LOOKS_UP),
    (POOL, re.compile(r"aten::\w*pool\d?d\w*$")),
    (NORM, re.compile(r"(?i).*(?:layer|rms|group|batch|instance)_?norm")),
    (FUSED, ATTENDS),
    (ELEMENTS, re.compile(r"")),
)
"""What an operator of a name does to axes: the first that fits."""
ANY_ORDER: Final = re.compile(r"(?i).*(?:permute|movedim|einsum)")
"""Of the operators that swap axes, those that may move more than two."""
OVER_CHANNELS: Final = re.compile(r"(?i).*(?:batch|group|instance)_?norm")
ADDS_UP: Final = re.compile(r".*AccumulateGrad$|torch::distributed::reducer::")
"""Operators of autograd and of DDP on the gradient of a parameter, which has its shape."""
SOFTMAX: Final = re.compile(r"aten::(?:softmax|_(?:safe_)?softmax(?:_backward_data)?)$")
JOINS: Final = re.compile(r"aten::(?:cat|stack|concat)$")


def sources(rule: int, shapes: tuple[Shape, ...]) -> tuple[tuple[int, int], ...] | None:
    """Return the tensor and axis that each axis of the result is from, None where shapes do not tell the result.

    Args:
        rule: what the operator does.
        shapes: of its tensors.
    """
    if not shapes:
        return None
    axes = [tuple((number, axis) for axis in range(len(shape))) for number, shape in enumerate(shapes)]
    taken: tuple[tuple[int, int], ...] | None = None
    if rule == SWAPS and len(shapes[0]) == 2:
        taken = axes[0][::-1]
    elif rule in (BACK, NORM, FUSED):
        taken = axes[0]
    elif rule == ELEMENTS:
        taken = _broadcast(shapes)
    elif rule == LINEAR and len(shapes) > 1:
        taken = (*axes[0][:-1], axes[1][0])
    elif rule in (PRODUCT, BATCHED) and len(shapes) > 1 and min(map(len, shapes[-2:])) > 1:
        taken = (*axes[-2][:-1], axes[-1][-1])
    elif rule == LOOKUP and len(shapes) > 1:
        taken = (*axes[1], axes[0][-1])
    return taken


def _broadcast(shapes: tuple[Shape, ...]) -> tuple[tuple[int, int], ...] | None:
    found = []
    for place in range(max(map(len, shapes)), 0, -1):
        sizes = {shape[-place]: number for number, shape in enumerate(shapes) if len(shape) >= place}
        if len(sizes.keys() - {1}) > 1:
            return None
        number = sizes[max(sizes)]
        found.append((number, len(shapes[number]) - place))
    return tuple(found)
