"""What an estimate says: one row a rank and step, the changed job beside the one that ran."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lumos_df.estimate.anchored import host_compute
from lumos_df.estimate.anchored.timing import PROVENANCE
from lumos_df.graph.replay import Replay
from lumos_df.graph.rows import NONE
from lumos_df.graph.simulate import UNSET, share
from lumos_df.graph.steps import breakdown

if TYPE_CHECKING:
    from lumos_df.estimate.anchored.estimate import Estimated

_PARTS: Final = ("exposed_compute", "overlapped", "exposed_communication", "other")


def rows(of: "Estimated", only: int | None = None) -> pa.Table:
    """Return one row a rank and step; `only`: of this step."""
    found: list[dict[str, Any]] = []
    low, high = _bounds(of)
    for k, after in enumerate(of.after.replays):
        before = of.played.replays[of.ranks[k]]
        replay = settled(after, before)
        shares = _shares(of, k, replay)
        for place, number in enumerate(replay.steps.number.tolist()):
            if only is not None and number != only:
                continue
            new, old = _numbers(replay, place), _numbers(before, place)
            found.append(
                {
                    "job": of.anchor.about.job,
                    "trace_id": replay.graph.rows.trace_id,
                    "rank": replay.graph.rows.rank,
                    "step": None if number == NONE else number,
                    "iteration_time_s": new["step_ns"] * 1e-9,
                    "low_s": min(low[k][place], new["step_ns"]) * 1e-9,
                    "high_s": max(high[k][place], new["step_ns"]) * 1e-9,
                    **_rates(of, new["step_ns"]),
                    **new,
                    **{f"original_{name}": value for name, value in old.items()},
                    **{f"{name}_pct": value for name, value in zip(PROVENANCE, shares, strict=True)},
                    "warnings": of.warnings,
                }
            )
    return pa.Table.from_pylist(found, SCHEMA)


_NANOSECONDS: Final = ("step_ns", "gpu_busy_ns", *(f"{part}_ns" for part in _PARTS))
SCHEMA: Final = pa.schema(
    [
        ("job", pa.string()),
        ("trace_id", pa.string()),
        ("rank", pa.int32()),
        ("step", pa.int32()),
        ("iteration_time_s", pa.float64()),
        ("low_s", pa.float64()),
        ("high_s", pa.float64()),
        ("tokens_per_s_per_gpu", pa.float64()),
        *((name, pa.int64()) for name in _NANOSECONDS),
        *((f"original_{name}", pa.int64()) for name in _NANOSECONDS),
        *((f"{name}_pct", pa.float64()) for name in PROVENANCE),
        ("warnings", pa.list_(pa.string())),
    ]
)


def empty() -> pa.Table:
    """Return no rows."""
    return SCHEMA.empty_table()


def _numbers(replay: Replay, place: int) -> dict[str, int]:
    low, high = int(replay.low[place]), int(replay.high[place])
    return {
        "step_ns": high - low,
        "gpu_busy_ns": _busy(replay, low, high),
        **{f"{part}_ns": int(getattr(replay.replayed, part)[place]) for part in _PARTS},
    }


def _busy(replay: Replay, low: int, high: int) -> int:
    """Return how long any kernel, copy or clear runs in a step, ns."""
    row = replay.graph.gpu.row
    start, end = replay.start[row], replay.end[row]
    order = np.argsort(start, kind="stable")
    return int(share(start[order], end[order], np.array([low]), np.array([high]))[0])


def _rates(of: "Estimated", step_ns: int) -> dict[str, float | None]:
    sizes = of.plan.new
    if not (sizes.seq and sizes.micro_batch and sizes.batch and step_ns):
        return {"tokens_per_s_per_gpu": None}
    tokens = sizes.seq * sizes.micro_batch * sizes.batch / ((sizes.tp or 1) * (sizes.pp or 1))
    return {"tokens_per_s_per_gpu": tokens / (step_ns * 1e-9)}


def _shares(of: "Estimated", k: int, replay: Replay) -> list[float]:
    """Return what part of a rank's operator time each provenance makes up, per cent."""
    graph, time = replay.graph, of.times[k]
    nodes = graph.order
    lasted = np.where(replay.start[nodes] != UNSET, replay.end[nodes] - replay.start[nodes], 0)
    total = np.bincount(time.provenance[nodes], lasted, len(PROVENANCE))
    return [round(100 * float(part) / max(float(total.sum()), 1.0), 3) for part in total]


def settled(after: Replay, before: Replay) -> Replay:
    """Return a replay whose steps include the GPU work by which they fall behind the host more than they did.

    A host that waits for nothing runs ahead, and a step of slower kernels is as long on it as before; but what one step
    leaves behind, the next one finds. So a step ends that much later, and begins later where the one before it does.
    """
    growth = np.maximum(_tail(after) - np.maximum(_tail(before), 0), 0)
    low = after.low + np.append(0, growth[:-1])
    high = np.maximum(after.high + growth, low)
    parts = breakdown(after.graph.rows, after.start, after.end, low, high)
    return replace(after, low=low, high=high, replayed=parts)


def _tail(replay: Replay) -> NDArray[np.int64]:
    """Return by how much the GPU's work of each step ends after it, ns; 0 where the trace has no marks."""
    row = replay.graph.gpu.row
    step = replay.graph.rows.step[row]
    if replay.steps.number[0] == NONE:
        return np.zeros(len(replay.low), np.int64)
    last = np.full(int(replay.steps.number.max()) + 1, np.iinfo(np.int64).min)
    inside = (step >= 0) & (step < len(last))
    np.maximum.at(last, step[inside], replay.end[row][inside])
    end = last[replay.steps.number]
    return np.where(end > np.iinfo(np.int64).min, end - replay.high, 0)


def _bounds(of: "Estimated") -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
    """Return how long each step of each rank is when all durations err one way, ns."""
    return _played(of, -1.0), _played(of, 1.0)


def _played(of: "Estimated", sign: float) -> list[NDArray[np.int64]]:
    net = of.job.network
    error = [
        np.where(graph.rows.on_gpu | host_compute.works(graph), time.error, 0)
        for graph, time in zip(of.job.graphs, of.times, strict=True)
    ]
    own = np.round(net.own * (1 + sign * np.concatenate(error))).astype(np.int64)
    transfer = np.round(net.transfer * (1 + sign * of.transfer_error)).astype(np.int64)
    played = of.job.replay(replace(net, own=own, transfer=transfer))
    before = [of.played.replays[rank] for rank in of.ranks]
    ended = [settled(after, one) for after, one in zip(played.replays, before, strict=True)]
    return [one.high - one.low for one in ended]
