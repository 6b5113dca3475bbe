"""Tensors that grow by one `torch.cat` after another, each of which copies all that came before: what if one did."""

import json
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.host_stretches import learns, outermost, runs_of, with_backward, without_stretches
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph import typical_values
from lumos_df.graph.packed_keys import dense, packed
from lumos_df.schema.codes import NONE

_PUTS_TOGETHER: Final = "aten::cat"


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that the pieces of a tensor be put together once, behind the loop that makes them."""
    found = [_growing(advised, place) for place in range(len(advised.ranks))]
    if not any(len(call) for call, _, _ in found):
        return
    taken, apply = without_stretches(advised, [call for call, _, _ in found], [run for _, run, _ in found])
    often, lasts = max(each for _, _, each in found), format_ns(round(taken / len(advised.steps_ns)))
    yield Remedy(
        rule="growing_cat",
        what=f"a tensor grows {often} times by aten::cat, which copies all before it again, {lasts} a step more than "
        "once: put the pieces together behind the loop, or write into a tensor of the last size",
        known=Known.REPLAYED,
        rests_on=format_count(sum(len(call) for call, _, _ in found), "operator"),
        apply=apply,
    )


def _growing(advised: AdvisedJob, place: int) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Return all but the last of the operators of a rank that let a tensor grow, and what goes back through them.

    In a step they add pieces of one size, and each begins with the size that another one ends with. Where a backward
    pass goes through them and other operators get tensors of most of their sizes, as in a DenseNet, each is needed.

    Returns:
        (the operators in their order [k], the run of each [k], how many pieces are added).
    """
    rows = advised.ranks[place]
    outer = outermost(rows)
    code, words = advised.texts(place, "input_dims")
    is_cat = rows.named(lambda text: text == _PUTS_TOGETHER)[outer]
    cat = np.flatnonzero(is_cat & (code[outer] >= 0))
    dims = [json.loads(word) for word in words]
    parts = [_parts(each) for each in dims]
    # What each operator makes, if it is such a one, and what it gets first.
    tensors = [(_made(*each), _first(of)) for each, of in zip(parts, dims, strict=True)]
    numbers = {sizes: number for number, sizes in enumerate({sizes for both in tensors for sizes in both})}
    makes, gets = np.array([*([numbers[sizes] for sizes in both] for both in tensors), [NONE, NONE]]).T
    kinds = {kind: number for number, kind in enumerate({kind for kind, _, _ in parts})}
    of_word = np.array([*((kinds[kind], before, piece) for kind, before, piece in parts), (NONE, 0, 0)], np.int64)
    kind, before, piece = of_word[code[outer[cat]]].T
    known = piece > 0
    cat, before, piece = cat[known], before[known], piece[known]
    group = dense(packed(rows.thread[outer[cat]], rows.step[outer[cat]], kind[known]))
    low, high = np.full(len(cat), np.iinfo(np.int64).max), np.zeros(len(cat), np.int64)
    np.minimum.at(low, group, before)
    np.maximum.at(high, group, before)
    pairs = np.unique(np.stack((group, before)), axis=1)
    sizes = np.bincount(pairs[0], minlength=len(cat))
    grows = (sizes > typical_values.FEW)[group] & ((high - low)[group] == (sizes[group] - 1) * piece)
    needed = np.isin(makes[code[outer[cat]]], gets[code[outer[~is_cat]]]) & learns(rows)[outer[cat]]
    grows &= (2 * np.bincount(group, needed, len(cat)) <= np.bincount(group, minlength=len(cat)))[group]
    chosen = np.zeros(len(outer), np.bool_)
    chosen[cat[grows & (before < high[group])]] = True
    chosen = with_backward(rows, outer, chosen)
    run = runs_of(packed(rows.thread[outer], rows.step[outer]), chosen)
    return outer[chosen], run[chosen], int(sizes[group[grows]].max(initial=0))


def _parts(dims: Any) -> tuple[tuple[int, ...], int, int]:
    """Return of two tensors that are put together the sizes that they share, the larger other one and the smaller.

    The sizes that are shared have NONE where they differ, and the smaller size at their end; 0 of anything else.
    """
    nothing = (), 0, 0
    both = dims[0] if dims and isinstance(dims[0], list) else []
    if len(both) != 2 or not all(isinstance(each, list) for each in both) or len(both[0]) != len(both[1]):
        return nothing
    differ = [at for at, (one, other) in enumerate(zip(*both, strict=True)) if one != other]
    if len(differ) != 1:
        return nothing
    smaller, larger = sorted((both[0][differ[0]], both[1][differ[0]]))
    shared = (*(NONE if at == differ[0] else size for at, size in enumerate(both[0])), smaller)
    return shared, larger, smaller


def _made(kind: tuple[int, ...], before: int, piece: int) -> tuple[int, ...]:
    """Return the sizes of the tensor that two make."""
    return tuple(before + piece if size == NONE else size for size in kind[:-1])


def _first(dims: Any) -> tuple[int, ...]:
    """Return the sizes of the first tensor of some shapes."""
    tensor = dims[0] if dims and isinstance(dims[0], list) else []
    return tuple(size for size in tensor if isinstance(size, int))
