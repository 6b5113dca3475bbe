"""The finer parts of every step of a replayed job: kernels by what they do, communication by what it is for."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.collective_instances import Instances
from lumos_df.graph.replay import Replay
from lumos_df.graph.simulate.forward import share
from lumos_df.schema import FAMILIES
from lumos_df.schema.codes import COMMUNICATION, KERNEL, NONE, OPTIMIZER, RECOMPUTE
from lumos_df.schema.plan_words import DIMENSIONS, DP

_COMPUTE: Final = ("gemm", "attention", "optimizer", "recompute", "elementwise")
_COMMUNICATION: Final = ("tp_exposed", "cp_exposed", "ep_exposed", "dp_exposed", "pp_exposed", "bubble")
NAMES: Final = (*_COMPUTE, *_COMMUNICATION, "host")
"""Parts of a step: `host` is when no kernel runs, all others are kernels. They add up to the step.

Of kernels that run at once, the time is that of the first in this order. `bubble` is what a send or receive waits for
the other stage.
"""
_GEMM, _ATTENTION = (FAMILIES.index(name) for name in ("gemm", "attention"))
_OF_GROUP: Final = np.array([_COMMUNICATION.index(f"{name}_exposed") for name in DIMENSIONS])
"""Part of a step by the dimension that communicates; no recorded collective is told to be cp's."""


def parts(
    replay: Replay,
    phase: NDArray[np.int8],
    degree: NDArray[np.int8],
    instances: Instances | None,
    trace: int,
) -> dict[str, NDArray[np.int64]]:
    """Return the parts of one rank's steps, ns [s] by `NAMES`.

    Args:
        replay: the rank.
        phase: phase of every row [n].
        degree: what every collective is for, a place in `schema.plan_words.DIMENSIONS` [n]; NONE where that is unknown,
            which is taken for dp.
        instances: the job's collectives.
        trace: number of the rank among them.
    """
    rows = replay.graph.rows
    kernel = np.flatnonzero((rows.kind == KERNEL) & (rows.stream >= 0))
    family = rows.family[kernel]
    part = np.full(len(kernel), _COMPUTE.index("elementwise"))
    part[family == _GEMM] = _COMPUTE.index("gemm")
    part[family == _ATTENTION] = _COMPUTE.index("attention")
    part[phase[kernel] == OPTIMIZER] = _COMPUTE.index("optimizer")
    part[phase[kernel] == RECOMPUTE] = _COMPUTE.index("recompute")
    used = np.where(degree[kernel] == NONE, DP, degree[kernel])
    part = np.where(family == COMMUNICATION, len(_COMPUTE) + _OF_GROUP[used], part)
    start, end = replay.start[kernel], replay.end[kernel]
    begun = start.copy()
    if instances is not None:
        mine = instances.trace == trace
        transfer = np.full(len(rows), np.iinfo(np.int64).max)
        transfer[instances.row[mine]] = instances.transfer[instances.instance[mine]]
        sent = part == NAMES.index("pp_exposed")
        begun[sent] = np.maximum(start, end - np.minimum(transfer[kernel], end - start))[sent]
    waits = np.flatnonzero(begun > start)
    low = np.concatenate((begun, start[waits]))
    high = np.concatenate((end, begun[waits]))
    part = np.concatenate((part, np.full(len(waits), NAMES.index("bubble"))))
    order = np.argsort(low, kind="stable")
    low, high, part = low[order], high[order], part[order]
    lengths: dict[str, NDArray[np.int64]] = {}
    before = np.zeros(len(replay.low), np.int64)
    for place, name in enumerate(NAMES[:-1]):
        upto = part <= place
        covered = share(low[upto], high[upto], replay.low, replay.high) if (part == place).any() else before
        lengths[name] = covered - before
        before = covered
    return {**lengths, "host": replay.high - replay.low - before}
