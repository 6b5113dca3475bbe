"""One operator as a script of a page: its tensors, its call, a loop that times it, what was recorded."""

from math import prod
from typing import Any, Final

from lumos_df.generate.recorded_inputs import Inputs, tensors
from lumos_df.model.library import data_folder
from lumos_df.schema.dtypes import element_type

_PLACE: Final = 'RECORDED, RECORDED_US, NAME, INPUTS = "", 0.0, "", []\n'
_SMALLEST_INTEGERS: Final = 127
"""Largest value of the smallest integers that hold negative ones."""
_HEADS_DIMS: Final = 4


def operator_page(operator: dict[str, Any], recorded_ns: int) -> str:
    """Return the script of an operator of a plan, or of what stands for it."""
    name, inputs = _called(operator)
    sizes = [size for each in inputs if each for size in each.get("dims", ())]
    below = operator.get("below", min(sizes, default=1))
    lines = [f"    {_written(each, max(1, below))},{'' if each else '  # not recorded'}" for each in inputs]
    text = (data_folder() / "benchmark" / "one_operator.py").read_text("utf-8")
    recorded = (
        f"RECORDED, RECORDED_US = {operator['name']!r}, {recorded_ns / 1e3}\nNAME = {name!r}\nINPUTS = [\n"
        + "\n".join(lines)
        + "\n]\n"
    )
    return text.replace(_PLACE, recorded, 1)


def _called(operator: dict[str, Any]) -> tuple[str, Inputs]:
    """Return the operator of torch that is called, and its inputs."""
    by, inputs = operator.get("by"), operator["inputs"]
    if by == "copy":
        length = max(1, sum(map(_bytes, tensors(inputs))))
        return "aten::copy_", [{"dims": [length], "dtype": "uint8"}] * 2
    if by == "matmul":
        side = max(1, round((operator["flops"] / 2) ** (1 / 3)))
        dtype = next((each["dtype"] for each in tensors(inputs) if "float" in each["dtype"]), "float32")
        square = {"dims": [side, side], "dtype": "bfloat16" if dtype.startswith("float8") else dtype}
        return "aten::mm", [square] * 2
    if by == "attention":
        return "aten::scaled_dot_product_attention", _attention(operator["name"], inputs)
    return by or operator["name"], inputs


def _attention(name: str, inputs: Inputs) -> Inputs:
    """Return query, key and value as (batch, heads, tokens, width), and whether heads share keys."""
    turned = [_heads_first(each, turn="flash_attn" in name) for each in inputs if each]
    return [*turned, None, None, None, None, {"value": turned[0]["dims"][1] != turned[1]["dims"][1]}]


def _heads_first(tensor: dict[str, Any], *, turn: bool) -> dict[str, Any]:
    dims, strides = tensor["dims"], _strides(tensor)
    if len(dims) < _HEADS_DIMS:  # (tokens of all sequences, heads, width)
        dims, strides, turn = [1, *dims], [prod(dims), *strides], True
    order = (0, 2, 1, 3) if turn else (0, 1, 2, 3)
    return tensor | {"dims": [dims[place] for place in order], "strides": [strides[place] for place in order]}


def _written(given: dict[str, Any] | None, below: int) -> str:
    """Return the Python of an input."""
    if given is None:
        return "None"
    if "list" in given:
        return f"[{', '.join(_written(each, below) for each in given['list'])}]"
    if "dims" not in given:
        return repr(given["value"])
    dtype = given["dtype"]
    words = [repr(given["dims"]), repr(_strides(given)), f"torch.{dtype}"]
    if "int" in dtype:
        words.append(f"below={below if dtype in {'int32', 'int64'} else min(below, _SMALLEST_INTEGERS)}")
    if "at" in given:
        words.append(f"at={given['at']!r}")
    return f"tensor({', '.join(words)})"


def _strides(tensor: dict[str, Any]) -> list[int]:
    """Return the recorded strides, or those of a tensor without gaps."""
    dims = tensor["dims"]
    told: list[int] = tensor.get("strides") or [prod(dims[place + 1 :]) for place in range(len(dims))]
    return told


def _bytes(tensor: dict[str, Any]) -> int:
    """Return the bytes of a tensor; an expanded one has those of what is there."""
    known = element_type(tensor["dtype"])
    elements: int = prod(size for size, stride in zip(tensor["dims"], _strides(tensor), strict=True) if stride)
    return elements * int(known.bytes if known else 1)
