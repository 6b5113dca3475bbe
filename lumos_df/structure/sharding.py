"""What ranks share out that hold the same layer or the same replica, as their collectives show it."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumos_df.schema.collective_kinds import UNKNOWN
from lumos_df.schema.plan_words import DP, SHARD_NOTHING, SHARD_OPTIMIZER, SHARD_PARAMETERS, TP
from lumos_df.structure import dimensions, parallelism, shapes
from lumos_df.structure.labelled_rows import Trace
from lumos_df.structure.layers import Structure


@dataclass(frozen=True, slots=True)
class Sharding:
    """What a rank shows of it."""

    zero: int | None
    """What data-parallel ranks share out, a place in `plan_words.ZERO_STAGES`; None: nothing tells. Whether they share
    gradients, too, no collective tells: that is said to be `SHARD_OPTIMIZER`."""
    sequence: bool
    """Whether tensor-parallel ranks share the tokens between their products: sequence parallelism."""


def collectives(
    trace: Trace, structure: Structure, given: Mapping[str, int]
) -> tuple[NDArray[np.int32], NDArray[np.int8]]:
    """Return the collective kernels of a rank and the degree of each, a place in `plan_words.GROUPS` or NONE; [k].

    Dimensions that are `given` hold whatever the shapes say.
    """
    operations = shapes.operations(trace, structure.phase, structure.layer)
    row, degree = parallelism.roles(trace, structure, dimensions.local(structure, operations, given))
    kept = trace.rows.on_gpu[row]
    return row[kept], degree[kept]


def of_rank(trace: Trace, structure: Structure, given: Mapping[str, int]) -> Sharding:
    """Return what a rank shows: parameters gathered for a layer, gradients scattered, or neither; see `collectives`."""
    row, degree = collectives(trace, structure, given)
    names = np.array([*trace.rows.collectives, ""])[trace.rows.collective[row]]
    data, scatters, gathers = degree == DP, names == "reduce_scatter", names == "all_gather"
    if structure.kind == "recommender":
        # There what is looked up is gathered and scattered.
        data &= ~(scatters | gathers)
    known = names[data] != UNKNOWN
    zero: int | None = SHARD_NOTHING
    if (data & gathers & (structure.layer[row] >= 0)).any():
        zero = SHARD_PARAMETERS
    elif (data & scatters).any():
        zero = SHARD_OPTIMIZER
    elif len(known) and not known.any():
        zero = None
    return Sharding(zero, bool(((degree == TP) & scatters).any()))
