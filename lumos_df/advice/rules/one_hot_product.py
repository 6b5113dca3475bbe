"""Products of a host without a GPU with vectors that have a single one: what if they looked rows up."""

import json
from collections.abc import Iterator
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.host_calls import without_calls
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.torch_names import PRODUCT
from lumos_df.base.units import format_count, format_ns
from lumos_df.schema.codes import CPU_OP

_MAKES: Final = "aten::one_hot"
"""What makes such vectors."""
_SETS: Final = "aten::scatter_"
"""What sets the ones within it; its first tensor is all vectors."""
_CASTS: Final = ("aten::to", "aten::type_as")


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose an embedding: neither the vectors are made, nor the products and those of their gradients."""
    if any(rows.on_gpu.any() for rows in advised.ranks):
        return
    found = [_rows(advised, place) for place in range(len(advised.ranks))]
    count = sum(map(len, found))
    if not count:
        return
    taken, apply = without_calls(advised, found)
    yield Remedy(
        rule="one_hot_product",
        what=f"products with one-hot vectors take {format_ns(round(taken / len(advised.steps_ns)))} a step: look the "
        "rows up, as torch.nn.Embedding does",
        known=Known.REPLAYED,
        rests_on=format_count(count, "operator"),
        apply=apply,
    )


def _rows(advised: AdvisedJob, place: int) -> NDArray[np.int64]:
    """Return what makes one-hot vectors, casts them and multiplies by them; nothing where no product does [k]."""
    rows = advised.ranks[place]
    operator = (rows.kind == CPU_OP) & (rows.step >= 0)
    makes = operator & rows.named(lambda text: text == _MAKES)
    if not makes.any():
        return np.empty(0, np.int64)
    code, words = advised.texts(place, "input_dims")
    sets = np.flatnonzero(operator & rows.named(lambda text: text == _SETS) & (code >= 0))
    sets = sets[rows.nearest(makes, sets.astype(np.int32)) >= 0]
    vectors = {tuple(_first(json.loads(words[each]))) for each in np.unique(code[sets]).tolist()}
    # Of any number of sizes before the last a product makes one.
    matrices = {(prod(sizes[:-1]), sizes[-1]) for sizes in vectors if len(sizes) > 1}
    matrices |= {(last, first) for first, last in matrices}
    multiplies = np.array([*(not matrices.isdisjoint(_of_two(json.loads(word))) for word in words), False])[code]
    casts = np.array([*(tuple(_first(json.loads(word))) in vectors for word in words), False])[code]
    products = operator & rows.named(PRODUCT.match) & multiplies
    if not products.any():
        return np.empty(0, np.int64)
    return np.flatnonzero(products | makes | (operator & rows.named(lambda text: text in _CASTS) & casts))


def _first(dims: Any) -> list[int]:
    """Return the sizes of the first tensor of some inputs."""
    return [size for size in dims[0] if isinstance(size, int)] if dims and isinstance(dims[0], list) else []


def _of_two(dims: Any) -> set[tuple[int, int]]:
    """Return the sizes of the matrices among some inputs."""
    sizes = (tuple(each) for each in dims if isinstance(each, list))
    return {each for each in sizes if len(each) == 2 and isinstance(each[0], int)}
