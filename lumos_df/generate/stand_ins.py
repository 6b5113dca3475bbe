"""What stands for an operator that torch alone does not have, and what a collective moves."""

from math import prod
from typing import Any, Final

from lumos_df.generate.recorded_inputs import Inputs, tensors
from lumos_df.schema.dtypes import element_type

_ATTENTION_INPUTS: Final = 3
"""Query, key and value."""
_HEADS_DIMS: Final = (3, 4)
"""Dimensions of each: (tokens, heads, width), or with the batch."""


def stand_in(row: dict[str, Any], inputs: Inputs) -> dict[str, Any]:
    """Return torch's attention, a matrix product of as many FLOP, or a copy of as many bytes.

    Args:
        row: name, family and flops of the operator; flops are null where they are not known.
        inputs: as recorded.
    """
    operator = {"name": row["name"], "family": row["family"], "inputs": [each for each in inputs if each]}
    real = [each for each in tensors(inputs) if "float" in each["dtype"]]
    if row["family"] == "attention" and _attends(real):
        return operator | {"by": "attention", "inputs": real[:_ATTENTION_INPUTS]}
    flops = row["flops"] or (_product_flops(real) if row["family"] == "gemm" else 0)
    if flops:
        return operator | {"by": "matmul", "flops": flops}
    return operator | {"by": "copy"}


def _attends(real: list[dict[str, Any]]) -> bool:
    first = [each["dims"] for each in real[:_ATTENTION_INPUTS]]
    return len(first) == _ATTENTION_INPUTS and all(
        len(dims) in _HEADS_DIMS and len(dims) == len(first[0]) for dims in first
    )


def _product_flops(real: list[dict[str, Any]]) -> int:
    """Return 2 m n k of the first two matrices that share a size: a is (.., m, k), b has k and n."""
    matrices = [each["dims"] for each in real if len(each["dims"]) >= 2]
    if len(matrices) < 2 or matrices[0][-1] not in matrices[1][-2:]:
        return 0
    return int(2 * prod(matrices[0]) * prod(matrices[1][-2:]) // max(1, matrices[0][-1]))


def collective_operator(row: dict[str, Any], inputs: Inputs) -> dict[str, Any]:
    """Return a collective: its word, group, element type and bytes, of the tensors where the profiler says none.

    Args:
        row: name, collective, group, dtype, in_bytes, out_bytes of the collective, each of which may be null.
        inputs: those of the outermost operator that is the collective.
    """
    listed = tensors(inputs)
    sizes = [prod(each["dims"]) * kind.bytes for each in listed if (kind := element_type(each["dtype"]))]
    most = max(row["in_bytes"] or 0, row["out_bytes"] or 0) or max(sizes, default=0)
    dtype = row["dtype"] or next((each["dtype"] for each in listed), "float32")
    known = element_type(dtype)
    return {
        "name": row["name"],
        "family": "communication",
        "collective": row["collective"],
        "group": row["group"] or "",
        "dtype": known.name if known else "uint8",
        "bytes": [row["in_bytes"] or most, row["out_bytes"] or most],
        "inputs": [],
    }
