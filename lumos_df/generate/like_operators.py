"""The operator of any torch that does what one of an old torch, or of one vendor's library, does.

Arguments are in the order of aten/src/ATen/native/native_functions.yaml; of what later ones lack, that of torch 1.8.
"""

from dataclasses import dataclass
from typing import Any, Final

from lumos_df.generate.recorded_inputs import Inputs

_TRUE, _FALSE, _ONE = {"value": True}, {"value": False}, {"value": 1}
_ALL: Final = {"value": [True, True, True]}
_NO_BIAS: Final = {"value": [True, True, False]}


@dataclass(frozen=True, slots=True)
class _Like:
    name: str
    order: tuple[int | dict[str, Any] | None, ...]
    """Of each argument: the place of the recorded one, a value, or None for the default."""
    removed: bool = False
    """Whether no torch since 1.11 has the recorded operator."""


_CONVOLUTION: Final = "aten::convolution"
_CONVOLUTION_BACKWARD: Final = "aten::convolution_backward"
_FIRST_IS_INPUT: Final = _Like(_CONVOLUTION_BACKWARD, (1, 0, 2, None, 4, 3, 5, _FALSE, None, 6, _NO_BIAS), removed=True)
_FIRST_IS_GRADIENT: Final = _Like(
    _CONVOLUTION_BACKWARD, (0, 1, 2, None, 4, 5, None, _FALSE, None, _ONE, _NO_BIAS), removed=True
)
_WITH_BIAS: Final = _Like(_CONVOLUTION, (0, 1, 2, 4, 3, 5, _FALSE, None, 6))
_BATCH_NORM: Final = _Like("aten::native_batch_norm", (0, 1, 2, 3, 4, 5, 6, 7))
_BATCH_NORM_BACKWARD: Final = _Like("aten::native_batch_norm_backward", (1, 0, 2, 3, 4, 5, 6, _TRUE, 7, _ALL))
_ATTENTION: Final = "aten::scaled_dot_product_attention"
_ATTENTION_BACKWARD: Final = "aten::_scaled_dot_product_flash_attention_for_cpu_backward"
_LIKE: Final = {
    "cudnn_convolution_backward": _FIRST_IS_INPUT,
    "miopen_convolution_backward": _FIRST_IS_INPUT,
    "mkldnn_convolution_backward": _FIRST_IS_INPUT,
    "thnn_conv2d_backward": _FIRST_IS_GRADIENT,
    "cudnn_convolution": _Like(_CONVOLUTION, (0, 1, None, 3, 2, 4, _FALSE, None, 5)),
    "miopen_convolution": _WITH_BIAS,
    "mkldnn_convolution": _WITH_BIAS,
    "thnn_conv2d": _Like(_CONVOLUTION, (0, 1, 3, 4, 5, None, _FALSE, None, _ONE)),
    "cudnn_batch_norm": _BATCH_NORM,
    "miopen_batch_norm": _BATCH_NORM,
    "cudnn_batch_norm_backward": _BATCH_NORM_BACKWARD,
    "miopen_batch_norm_backward": _BATCH_NORM_BACKWARD,
    # Torch has none for a CPU: the one that also subtracts a mean, of the same bytes.
    "_fused_rms_norm_backward": _Like("aten::native_layer_norm_backward", (0, 1, 2, 3, 3, 4, None, _NO_BIAS)),
    "_scaled_dot_product_efficient_attention": _Like(_ATTENTION, (0, 1, 2, 3, 5, 6, 7)),
    "_scaled_dot_product_flash_attention": _Like(_ATTENTION, (0, 1, 2, None, 3, 4, 6)),
    "_scaled_dot_product_cudnn_attention": _Like(_ATTENTION, (0, 1, 2, 3, 5, 6, 8)),
    "_scaled_dot_product_efficient_attention_backward": _Like(_ATTENTION_BACKWARD, (0, 1, 2, 3, 5, 6, 9, 11, 4, 12)),
    "_scaled_dot_product_flash_attention_backward": _Like(_ATTENTION_BACKWARD, (0, 1, 2, 3, 4, 5, 10, 11, None, 14)),
    "_scaled_dot_product_cudnn_attention_backward": _Like(_ATTENTION_BACKWARD, (0, 1, 2, 3, 4, 5, 13, 14, 8, 15)),
}


def as_recorded_or_alike(operator: dict[str, Any]) -> dict[str, Any]:
    """Return an operator of a plan with what stands for it.

    One that no torch of today has gets the inputs of another and `by`, its name. One that only a vendor's devices run
    gets `otherwise`: the other's name and inputs, for where it does not run.
    """
    like = _LIKE.get(operator["name"].removeprefix("aten::"))
    if like is None:
        return operator
    inputs = _ordered(operator["inputs"], like)
    if like.removed:
        return operator | {"by": like.name, "inputs": inputs}
    return operator | {"otherwise": {"name": like.name, "inputs": inputs}}


def _ordered(recorded: Inputs, like: _Like) -> Inputs:
    given = [
        (recorded[place] if place < len(recorded) else None) if isinstance(place, int) else place
        for place in like.order
    ]
    if like.name == _CONVOLUTION_BACKWARD:
        gradient, image, kernel = (_dims(each) for each in given[:3])
        return given[:3] + _filled(given[3:], image, kernel, gradient)
    if like.name == _CONVOLUTION:
        image, kernel = (_dims(each) for each in given[:2])
        return given[:2] + _filled(given[2:], image, kernel, None)
    return given


def _dims(given: dict[str, Any] | None) -> list[int]:
    dims: list[int] = (given or {}).get("dims", [])
    return dims


def _filled(given: Inputs, image: list[int], kernel: list[int], result: list[int] | None) -> Inputs:
    """Return the arguments behind a convolution's tensors: bias, stride, padding, dilation, transposed, ..., groups.

    What was not recorded is told by the shapes: the stride by how much smaller the result is, where that is known, the
    padding as what keeps the size at stride 1, groups by the channels that one filter reads.
    """
    sides = len(kernel) - 2
    if sides < 1 or len(image) != len(kernel):
        return given
    strides = [round(a / max(1, b)) for a, b in zip(image[2:], result[2:], strict=False)] if result else [1] * sides
    told = {
        1: [max(1, stride) for stride in strides],
        2: [size // 2 for size in kernel[2:]],
        3: [1] * sides,
        5: [0] * sides,
        6: max(1, image[1] // max(1, kernel[1])),
    }
    return [{"value": told[place]} if each is None and place in told else each for place, each in enumerate(given)]
