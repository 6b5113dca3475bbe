"""Whether the width of a tensor inside a layer is the model's or that of its MLP.

Where a rank's share of the MLP is as wide as the model (12288 over tp=2 is 6144), no shape tells. The order of a layer
does: attention, the product behind it, then those into the MLP's width, then the one out of it; backward the other way
round, each product twice.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.packed_keys import dense, packed
from lumos_df.schema import FAMILIES
from lumos_df.schema.codes import FORWARD, RECOMPUTE
from lumos_df.structure.layers import Structure
from lumos_df.structure.passes import Passes

UNKNOWN, MODEL, MLP, INTO_MLP, OUT_OF_MLP, INTO_HEADS, OUT_OF_HEADS = range(7)
"""What a kernel's widths are: nothing tells; the model's; the MLP's; of a product, the first size the model's and the
second the MLP's; the other way round; and both of these with that of a rank's heads."""
_ATTENTION: Final = tuple(FAMILIES.index(family) for family in ("attention", "softmax"))


def widths(structure: Structure, family: NDArray[np.int8], product: NDArray[np.bool_]) -> NDArray[np.int8]:
    """Return what the widths of every row are [n].

    Args:
        structure: the layers of the trace.
        family: place in `schema.FAMILIES` of every row [n].
        product: whether a row multiplies two matrices, neither of them a batch [n].
    """
    kinds = np.full(len(family), UNKNOWN, np.int8)
    for passes in (structure.forward, structure.backward):
        _of_passes(kinds, structure, passes, family, product)
    return kinds


def _of_passes(
    kinds: NDArray[np.int8],
    structure: Structure,
    passes: Passes,
    family: NDArray[np.int8],
    product: NDArray[np.bool_],
) -> None:
    inside = np.flatnonzero(passes.layer >= 0)
    if not len(inside):
        return
    row = structure.kernels.row[passes.place[inside]]
    ahead = np.isin(structure.phase[row], (FORWARD, RECOMPUTE))
    group = dense(packed(passes.number[inside], passes.layer[inside], ahead))
    order = np.lexsort((np.arange(len(row)), group))
    row, ahead, group = row[order], ahead[order], group[order]
    is_product, attends = product[row], np.isin(family[row], _ATTENTION)
    group_count = int(group.max()) + 1
    bounds = np.searchsorted(group, np.arange(group_count + 1))
    place = np.arange(len(row))
    # Where the half with attention ends: behind its last kernel forward, at its first backward.
    last = np.full(group_count, -1)
    np.maximum.at(last, group[attends], place[attends])
    first = np.full(group_count, len(row))
    np.minimum.at(first, group[attends], place[attends])
    behind = np.where(ahead, place > last[group], place < first[group])
    counted = np.cumsum(is_product & behind)
    begun = np.append(0, counted)[bounds[:-1]]
    so_far = counted - begun[group]
    total = (np.append(0, counted)[bounds[1:]] - begun)[group]
    known = (last >= 0)[group]
    each = np.where(ahead, 1, 2)
    # Forward the product behind attention comes first, backward it comes last; there must be one in and one out.
    known &= (total >= 3 * each) & (total % each == 0)
    out = np.where(ahead, so_far == total, so_far <= each)
    attention = np.where(ahead, so_far <= each, so_far > total - each)
    of_product = np.where(
        attention,
        np.where(ahead, OUT_OF_HEADS, INTO_HEADS),
        np.where(out, np.where(ahead, OUT_OF_MLP, INTO_MLP), np.where(ahead, INTO_MLP, OUT_OF_MLP)),
    )
    between = np.where(ahead, (so_far > 1) & (so_far < total), so_far == 2)
    kind = np.where(is_product, of_product, np.where(between, MLP, MODEL))
    of_heads = np.where(is_product, np.where(ahead, INTO_HEADS, OUT_OF_HEADS), MODEL)
    kinds[row] = np.where(known, np.where(behind, kind, of_heads), UNKNOWN)
