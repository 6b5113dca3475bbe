"""Loop over the operators of a trace in their order: where each tensor that one reads was last, and as what."""

import numpy as np

from lumos_df.base.jit import kernel
from lumos_df.schema.codes import NONE

SAME, MOVED, NEXT, PICKED = range(4)
"""How a tensor is tied to where it was: of the same shape; behind an operator that moves axes; read right after
another; rows that an operator took of it."""
CUT, SWAPPED, PICKS, SPLITS = 1, 2, 3, 4
"""What an operator does to the axes of its first tensor."""


@kernel
def feeds(order, thread, parent, forward, kind, first_site, shape_of_site, elements, axes, widths, moves, rows, linear):
    """Return for every tensor that an operator reads a place that it was at before, and how it is tied to that.

    A kind's places are its tensors, then its result. A tensor is one that the forward partner has, else the
    last of its shape on its thread, else, behind an operator that moves axes, one of as many elements; else something
    of the operator before, and, if there is one, the first tensor of the last operator that took rows of its width
    and whose result was not read before. A linear layer reads what was turned right before also where the axes that
    changed places are of one size. What the operator around reads is not behind one that moved axes inside of it, such
    as the second of two matrices in front of which the first was cut. Where two results of as many elements were not
    read yet, and one operator reads both, as a product of heads does, the first that it reads may be either.

    Args:
        order: operators with shapes, thread by thread, each in its order [k].
        thread: thread of every row [n].
        parent: row around every row, which comes before it; NONE where none [n].
        forward: row of the forward operator that a row belongs to, NONE where none [n].
        kind: kind of every row, NONE where it has none [n].
        first_site: first place of every kind, and their number [kinds + 1].
        shape_of_site: number of the shape at every place, NONE where it is not known.
        elements: number of the count of elements of every shape.
        axes: number of the sizes of every shape in any order, above those of `elements`.
        widths: number of the last size of every shape, above those of `axes`; NONE of a vector.
        moves: whether the result of a kind is its first tensor cut into other axes (CUT), with its axes in another
            order (SWAPPED), some of its rows (PICKS), several such (SPLITS), or none of these (0) [kinds].
        linear: whether a kind is a linear layer [kinds].
        rows: whether a tensor may be rows that were taken, as parameters are not, by its place.

    Returns:
        Place of the reader, of the source (NONE: nowhere), and how, one or two a tensor.
    """
    shapes = len(elements)
    partner = np.full(len(kind), NONE, np.int32)
    for i in range(len(kind)):
        if forward[i] >= 0:
            partner[i] = forward[i]
        elif parent[i] >= 0:
            partner[i] = partner[parent[i]]
    total = 0
    for i in order:
        total += first_site[kind[i] + 1] - first_site[kind[i]] - 1
    reader = np.empty(2 * total, np.int32)
    source = np.empty(2 * total, np.int32)
    how = np.empty(2 * total, np.int8)
    last = np.full(shapes, NONE, np.int32)
    seen = np.full(shapes, -1, np.int64)
    keys = 0
    for shape in range(shapes):
        keys = max(keys, axes[shape] + 1, widths[shape] + 1)
    moved = np.full(keys, NONE, np.int32)
    moved_at = np.full(keys, -1, np.int64)
    by = np.full(keys, NONE, np.int32)
    turns = np.zeros(keys, np.bool_)
    earlier = np.full(keys, NONE, np.int32)
    splits = np.zeros(keys, np.bool_)
    before = NONE
    on = NONE
    filled = 0
    for moment in range(len(order)):
        i = order[moment]
        if thread[i] != on:
            on = thread[i]
            last[:] = NONE
            seen[:] = -1
            moved[:] = NONE
            moved_at[:] = -1
            earlier[:] = NONE
            before = NONE
        k = kind[i]
        shared = NONE
        for site in range(first_site[k], first_site[k + 1] - 1):
            shape = shape_of_site[site]
            at = elements[shape]
            if moved_at[axes[shape]] > moved_at[at]:
                at = axes[shape]
            reader[filled] = site
            source[filled] = before
            how[filled] = NEXT
            also = NONE
            turned = linear[k] and site == first_site[k] and seen[shape] == moved_at[at] and turns[at]
            around = kind[parent[i]] if parent[i] >= 0 else NONE
            given = False
            if around != NONE:
                for other in range(first_site[around], first_site[around + 1] - 1):
                    given = given or shape_of_site[other] == shape
            if last[shape] != NONE and (given or seen[shape] >= moved_at[at]) and not turned:
                source[filled] = last[shape]
                how[filled] = SAME
            elif moved[at] != NONE:
                source[filled] = moved[at]
                how[filled] = MOVED
                # What has been read once is known by its shape from now on.
                also = earlier[at]
                earlier[at] = NONE
                if also == NONE:
                    moved[at] = NONE
                    moved_at[at] = -1
                else:
                    shared = at
            elif last[shape] != NONE:
                source[filled] = last[shape]
                how[filled] = SAME
            if partner[i] >= 0 and kind[partner[i]] >= 0:
                of = kind[partner[i]]
                for other in range(first_site[of], first_site[of + 1]):
                    if shape_of_site[other] == shape:
                        source[filled] = other
                        how[filled] = SAME
                        break
            filled += 1
            if also != NONE and how[filled - 1] == MOVED:
                reader[filled] = site
                source[filled] = also
                how[filled] = MOVED
                filled += 1
            width = widths[shape]
            if rows[site] and width != NONE and moved[width] != NONE:
                taken = moved[width]
                above = parent[i]
                while above > by[width]:
                    above = parent[above]
                # What the operator calls itself is not what reads its result first.
                if not splits[width] and above != by[width]:
                    moved[width] = NONE
                if how[filled - 1] == NEXT:
                    reader[filled] = site
                    source[filled] = taken
                    how[filled] = PICKED
                    filled += 1
        if shared != NONE:
            moved[shared] = NONE
            moved_at[shared] = -1
        for site in range(first_site[k], first_site[k + 1]):
            shape = shape_of_site[site]
            if shape != NONE:
                last[shape] = site
                seen[shape] = moment
        if moves[k] and first_site[k + 1] - first_site[k] > 1:
            shape = shape_of_site[first_site[k]]
            at = elements[shape] if moves[k] == CUT else axes[shape] if moves[k] == SWAPPED else widths[shape]
            if at != NONE:
                earlier[at] = moved[at] if moves[k] == CUT else NONE
                moved[at] = first_site[k]
                moved_at[at] = moment
                by[at] = i
                turns[at] = moves[k] == SWAPPED
                splits[at] = moves[k] == SPLITS
        before = first_site[k]
    return reader[:filled], source[:filled], how[:filled]
