"""By how much operators of a host without a GPU last longer than others that do the same: others had the core."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph import host, typical_values
from lumos_df.graph.packed_keys import dense, packed
from lumos_df.graph.replay import Replay
from lumos_df.graph.same_rows import ordinals, usual
from lumos_df.schema.codes import CPU_OP


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorDelays:
    """k operators of all ranks of a job that last far longer than most of their name and shapes."""

    node: NDArray[np.int64]
    """Nodes of the job."""
    over_ns: NDArray[np.int64]
    """How much longer each lasts than the one in the middle of its like."""
    step: NDArray[np.int64]
    """Place of its step among those of all ranks."""
    lost_ns: NDArray[np.int64]
    """What each step of each rank loses so [steps]."""
    usual_ns: NDArray[np.int64]
    """What the step in the middle of its rank loses so [steps]."""


def of_job(replays: Sequence[Replay], shapes: Sequence[NDArray[np.int32]]) -> OperatorDelays:
    """Return the delays of a job that last as long as what is worth an advice takes of a step.

    Ranks with a GPU, whose operators wait for it, and operators without recorded shapes have none.

    Args:
        replays: the replay of each rank.
        shapes: number of the shapes of each row's inputs, NONE where none were recorded [n]; rank by rank.
    """
    mean_ns = np.concatenate([replay.high - replay.low for replay in replays]).mean()
    least = max(host.IDLE_NS, typical_values.LEAST_PCT / 100 * float(mean_ns))
    nodes, overs, places, lost, usual = [], [], [], [], []
    first_node = first_step = 0
    for replay, shape in zip(replays, shapes, strict=True):
        node, over = _of_rank(replay, shape, least)
        place = replay.steps.place(replay.graph.rows.step[node])
        nodes.append(node + first_node)
        overs.append(over)
        places.append(place + first_step)
        lost.append(np.bincount(place, over, len(replay.low)).astype(np.int64))
        usual.append(np.full(len(replay.low), int(np.median(lost[-1]))))
        first_node += len(replay.graph.rows)
        first_step += len(replay.low)
    columns = (np.concatenate(column) for column in (nodes, overs, places, lost, usual))
    return OperatorDelays(**dict(zip(("node", "over_ns", "step", "lost_ns", "usual_ns"), columns, strict=True)))


def _of_rank(replay: Replay, shape: NDArray[np.int32], least: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    graph, rows = replay.graph, replay.graph.rows
    node = graph.order[(rows.kind == CPU_OP)[graph.order]].astype(np.int64)
    known = (replay.steps.place(rows.step[node]) >= 0) & (shape[node] >= 0) & (not rows.on_gpu.any())
    node = node[known]
    if not len(node):
        return node, node
    own, like = graph.own[node], dense(packed(rows.name[node], shape[node], rows.thread[node]))
    middle, enough = typical_values.medians(own, like)
    if len(replay.low) > 2:
        # What is late at its place in most steps, as memory that is touched first, is of the program.
        in_turn = np.argsort(rows.ts[node], kind="stable")
        turn = np.empty(len(node), np.int64)
        turn[in_turn] = ordinals(packed(like, rows.step[node])[in_turn])
        place = packed(like, turn)
        middle = np.maximum(middle, usual(place, own, place))
    late = enough & (own - np.maximum(typical_values.highest_usual_of(own, like), middle) >= least)
    return node[late], (own - middle)[late]
