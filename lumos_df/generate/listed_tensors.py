"""Shapes of tensors in the lists of an optimizer, of which torch's profiler records nothing, by the gradients.

What an optimizer updates has the shapes of the gradients, which autograd's `AccumulateGrad` was recorded with, each
once a backward pass. Whether a list is all of them, the matrices or the rest alone is told by how much its kernels
read: they have a block for each part of a tensor (aten/src/ATen/native/cuda/MultiTensorApply.cuh). Where no such list
has exactly as many blocks, nothing is known.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import compress
from math import ceil, prod
from typing import Any, Final

import polars as pl

from lumos_df.generate.recorded_rows import RecordedRows

_GRADIENT: Final = "torch::autograd::AccumulateGrad"
_KERNEL: Final = "multi_tensor_apply_kernel"
_ELEMENTS: Final = 65_536
"""Of a tensor that a block handles, kChunkSize of torch."""
_TYPE: Final = re.compile(r"Functor<(c10::BFloat16|c10::Half|float|double)\b")
_LIST: Final = "TensorList"
_NUMBER_EACH: Final = "ScalarListMetadata"
"""In the name of a kernel that reads a number for each tensor."""
_ADAM: Final = re.compile(r"aten::_fused_adamw?_")
_LARGEST, _STEPS, _AMSGRAD = 4, 5, 11
"""Places of what Adam is given: the largest squares, a list that is empty without `amsgrad`; numbers of steps."""


@dataclass(frozen=True, slots=True)
class _Tensors:
    """A list of n tensors."""

    dims: list[list[int]]
    strides: list[list[int]]
    types: list[str]

    def blocks(self) -> int:
        return sum(ceil(prod(dims) / _ELEMENTS) for dims in self.dims)

    def picked(self, chosen: list[bool]) -> "_Tensors":
        dims, strides = (list(compress(column, chosen)) for column in (self.dims, self.strides))
        return _Tensors(dims, strides, list(compress(self.types, chosen)))


def with_listed_tensors(rows: RecordedRows) -> RecordedRows:
    """Return the rows of a step with dims, types and strides of the tensors in lists, where they are known.

    The type of such a list is a list of types, as its dims are a list of dims.
    """
    frame = rows.frame.with_row_index("place")
    gradients = frame.filter(
        pl.col("name") == _GRADIENT, pl.col("dims").str.starts_with("[["), pl.col("types").str.starts_with('["')
    )
    unknown = (frame["kind"] == "cpu_op") & frame["types"].str.contains(_LIST).fill_null(False)
    kernels = frame.with_columns(near=rows.innermost_around(unknown.to_numpy())).filter(
        pl.col("near") >= 0, pl.col("name").str.contains(_KERNEL, literal=True)
    )
    if not len(gradients) or not len(kernels):
        return rows
    asked = kernels.group_by("near").agg(pl.col("blocks").sum(), kernel=pl.col("name").first())
    of_blocks = {listed.blocks(): listed for listed in _lists(gradients)}
    asked = asked.filter(pl.col("blocks").is_in(of_blocks.keys()))
    operators = frame.select("name", "dims", "types", "strides", "concrete")
    described = [
        {"place": near, **_described(operators.row(near, named=True), of_blocks[blocks], kernel)}
        for near, blocks, kernel in asked.sort("near").iter_rows()
    ]
    if not described:
        return rows
    told = pl.DataFrame(described, schema_overrides={"place": frame["place"].dtype})
    return replace(rows, frame=frame.update(told, on="place").drop("place"))


def _lists(gradients: pl.DataFrame) -> Iterator[_Tensors]:
    """Yield the lists that an optimizer may have, the likeliest last."""
    columns = (
        [(json.loads(each or "[]") or [[]])[0] for each in gradients[name]] for name in ("dims", "strides", "types")
    )
    every = _one_pass(_Tensors(*(column[::-1] for column in columns)))  # parameters come in the other order
    yield _Tensors([[] for _ in every.dims], [[] for _ in every.dims], ["float" for _ in every.dims])
    for kind in dict.fromkeys(every.types):
        of_kind = every.picked([each == kind for each in every.types])
        # Biases and normalizations are often a group of their own, which does not decay.
        yield of_kind.picked([len(dims) <= 1 for dims in of_kind.dims])
        yield of_kind.picked([len(dims) > 1 for dims in of_kind.dims])
        yield of_kind


def _one_pass(tensors: _Tensors) -> _Tensors:
    """Return the tensors of one of several backward passes that are alike."""
    count = len(tensors.dims)
    length = next(
        each
        for each in range(1, count + 1)
        if count % each == 0 and tensors.dims[each:] == tensors.dims[: count - each]
    )
    return tensors.picked([place < length for place in range(count)])


def _described(operator: dict[str, Any], listed: _Tensors, kernel: str) -> dict[str, str]:
    """Return dims, types, strides and concrete inputs of an operator whose lists are like `listed`."""
    types = json.loads(operator["types"])
    dims, strides, concrete = (json.loads(operator[name] or "[]") for name in ("dims", "strides", "concrete"))
    strides, concrete = strides or [[] for _ in types], concrete or ["" for _ in types]
    found, count = _TYPE.search(kernel), len(listed.dims)
    like = (listed.dims, [found[1]] * count if found else listed.types, listed.strides)
    adam = _ADAM.fullmatch(operator["name"])
    for place in (place for place, kind in enumerate(types) if kind == _LIST and not dims[place]):
        if adam and place == _LARGEST and concrete[_AMSGRAD] == "False":
            dims[place], types[place], strides[place] = [], [], []
        elif adam and place == _STEPS:
            dims[place], types[place], strides[place] = [[]] * count, ["float"] * count, [[]] * count
        else:
            dims[place], types[place], strides[place] = like
    if _NUMBER_EACH in kernel and "" in types:
        concrete[types.index("")] = json.dumps([1.0] * count)
    return {
        name: json.dumps(value)
        for name, value in (("dims", dims), ("types", types), ("strides", strides), ("concrete", concrete))
    }
