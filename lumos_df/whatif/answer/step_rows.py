"""What an estimate says: one row a rank and step, the changed job beside the one that ran."""

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lumos_df.graph.collective_waits import waits
from lumos_df.graph.exposed_waiting import recorded_waits, simulated_waiting
from lumos_df.graph.replay import Replay
from lumos_df.graph.simulate.forward import UNSET, share
from lumos_df.graph.unseen_waits import said, waits_unseen
from lumos_df.schema import STEP_PARTS
from lumos_df.schema.codes import NONE, OTHER_PHASE, RECOMPUTE
from lumos_df.whatif import answerable
from lumos_df.whatif.answer.finer_parts import NAMES, parts
from lumos_df.whatif.answer.interval import interval
from lumos_df.whatif.answer.job_usage import MEMORY, RATES, JobOnMachine, JobUsage, StepFlops
from lumos_df.whatif.answer.settled_steps import settled
from lumos_df.whatif.changed_job import ChangedJob
from lumos_df.whatif.durations.added_kernels import used_for
from lumos_df.whatif.durations.kernel_times import MODELLED, PROVENANCE
from lumos_df.whatif.durations.operator_times import collectives

_PARTS: Final = tuple(part.name for part in STEP_PARTS)
_FINER: Final = tuple(f"{name}_s" for name in NAMES)
"""Finer parts."""
_WAITING: Final = ("exposed_waiting", "exposed_transfer")
"""Parts of the exposed communication; null where a wait is unknown."""
_NANOSECONDS: Final = ("step_ns", "gpu_busy_ns", *(f"{part}_ns" for part in (*_PARTS, *_WAITING)))
_FIGURES: Final = (
    ("iteration_time_s", pa.float64()),
    *((name, pa.float64()) for name in RATES),
    *((f"{part}_s", pa.float64()) for part in (*_PARTS, *_WAITING)),
    *((name, pa.float64()) for name in _FINER),
    *((name, pa.float64()) for name in MEMORY),
    ("memory_stage", pa.int64()),
    ("fits", pa.bool_()),
    ("gpus", pa.int64()),
)
"""Figures of both jobs, besides `_NANOSECONDS`; named as in the estimate of a job that no trace is of."""
_UNSCALED: Final = ("unscaled_gpu", "unscaled_host")
SCHEMA: Final = pa.schema(
    [
        ("job", pa.string()),
        ("trace_id", pa.string()),
        ("rank", pa.int32()),
        ("step", pa.int32()),
        _FIGURES[0],
        ("left_out_ns", pa.int64()),
        ("waits_unseen", pa.bool_()),
        ("low_s", pa.float64()),
        ("high_s", pa.float64()),
        ("interval_from", pa.string()),
        ("causes", pa.list_(pa.string())),
        *_FIGURES[1:],
        *((name, pa.int64()) for name in _NANOSECONDS),
        *((f"original_{name}", pa.int64()) for name in _NANOSECONDS),
        *((f"original_{name}", kind) for name, kind in _FIGURES),
        *((f"{name}_pct", pa.float64()) for name in (*PROVENANCE, *_UNSCALED)),
        ("flops_from", pa.string()),
        ("memory_from", pa.string()),
        ("warnings", pa.list_(pa.string())),
    ]
)


def rows(changed: ChangedJob, only: int | None = None) -> pa.Table:
    """Return one row a rank and step; `only`: of this step."""
    records: list[dict[str, Any]] = []
    usage = JobUsage(changed)
    warnings = [*changed.warnings, *usage.warnings()]
    memory, original_memory, memory_from = usage.memory
    ends = interval(changed)
    recorded = [graph.rows for graph in changed.anchor.job.graphs]
    collective_waits = waits(recorded, changed.anchor.job.instances)
    waited = [recorded_waits(collective_waits, rank, len(of_rank)) for rank, of_rank in enumerate(recorded)]
    for new_rank, after in enumerate(changed.after.replays):
        rank = changed.ranks[new_rank]
        host = changed.played.replays[rank]
        before = settled(host, host)
        usual = before if changed.usual is changed.played else settled(changed.usual.replays[rank], host)
        original = settled(_recorded(host), _recorded(host)) if answerable.is_off(host) else usual
        replay = settled(after, host)
        makers, sources = changed.makers[new_rank], changed.sources[new_rank]
        work = usage.work(replay, makers, sources, changed.again[new_rank])
        was = usage.work(original, (rank,))
        # What was inserted waits for nobody unseen.
        waited_here = np.hstack((*(waited[maker] for maker in makers), np.zeros((2, 1), np.int64)))
        unseen = waits_unseen(before)
        waiting = simulated_waiting(changed.after, new_rank, replay, waited_here[:, sources])
        new = _figures(replay, usage.new, work, _parts(changed, new_rank, replay), waiting)
        original_waiting = simulated_waiting(changed.usual, rank, original, waited[rank])
        old = _figures(original, usage.old, was, _original_parts(changed, rank, original), original_waiting)
        least = _least(usage.new, work, len(new))
        shares = _shares(changed, new_rank, replay)
        low, high = ends.low(new_rank) * 1e-9, ends.high(new_rank) * 1e-9
        for place, number in enumerate(replay.steps.number.tolist()):
            if only is not None and number != only:
                continue
            seconds = new[place]["iteration_time_s"]
            causes = ends.words(new_rank, place)
            records.append(
                {
                    "job": changed.anchor.about.job,
                    "trace_id": replay.graph.rows.trace_id,
                    "rank": replay.graph.rows.rank,
                    "step": None if number == NONE else number,
                    "left_out_ns": int((before.high - before.low)[place] - (usual.high - usual.low)[place]),
                    "waits_unseen": bool(unseen[place]),
                    "low_s": min(max(low[place], least[place]), seconds),
                    "high_s": max(high[place], seconds),
                    "interval_from": causes[0] if causes else None,
                    "causes": causes,
                    **new[place],
                    **memory,
                    **{f"original_{name}": value for name, value in {**old[place], **original_memory}.items()},
                    **{f"{name}_pct": value for name, value in zip(PROVENANCE, shares, strict=True)},
                    "unscaled_gpu_pct": changed.unscaled_share.gpu_pct,
                    "unscaled_host_pct": changed.unscaled_share.host_pct,
                    "flops_from": work and work.source,
                    "memory_from": memory_from,
                    "warnings": warnings,
                }
            )
    if any(row["waits_unseen"] for row in records):
        warnings.append(_said_of_unseen(records))
    if changed.plan.settings and all(
        row.get(name) == row.get(f"original_{name}") for row in records for name in _NANOSECONDS
    ):
        # Of all records, which share the list.
        warnings.append("the change changes no time of any step: nothing binds one that takes longer or shorter now")
    return pa.Table.from_pylist(records, SCHEMA)


def _said_of_unseen(records: list[dict[str, Any]]) -> str:
    others = any(not row["waits_unseen"] for row in records)
    done = (
        "the others are shown" if others else "record later steps, or fewer of them before, to know what becomes of it"
    )
    return said((row["step"] for row in records if row["waits_unseen"]), done)


def _recorded(replay: Replay) -> Replay:
    """Return the recording in place of its replay."""
    rows, steps = replay.graph.rows, replay.steps
    return replace(replay, start=rows.ts, end=rows.end, low=steps.low, high=steps.high, replayed=replay.recorded)


def _figures(
    replay: Replay,
    side: JobOnMachine,
    work: StepFlops | None,
    finer: dict[str, NDArray[np.int64]],
    waiting: NDArray[np.int64],
) -> list[dict[str, Any]]:
    """Return the figures of every step of a rank, memory aside."""
    figures = []
    for place in range(len(replay.low)):
        numbers = _numbers(replay, place)
        if waiting[place] != NONE:
            numbers["exposed_waiting_ns"] = int(waiting[place])
            numbers["exposed_transfer_ns"] = numbers["exposed_communication_ns"] - int(waiting[place])
        asked, done = (float(work.asked[place]), float(work.done[place])) if work else (None, None)
        figures.append(
            {
                "iteration_time_s": numbers["step_ns"] * 1e-9,
                "gpus": side.gpus,
                **side.rates(numbers["step_ns"], numbers["other_ns"], asked, done),
                **{
                    f"{part}_s": numbers[f"{part}_ns"] * 1e-9
                    for part in (*_PARTS, *_WAITING)
                    if f"{part}_ns" in numbers
                },
                **{f"{name}_s": int(each[place]) * 1e-9 for name, each in finer.items()},
                **numbers,
            }
        )
    return figures


def _parts(changed: ChangedJob, new_rank: int, replay: Replay) -> dict[str, NDArray[np.int64]]:
    """Return the finer parts of a rank of the changed job."""
    source = changed.sources[new_rank]
    told = [_told(changed, rank) for rank in changed.makers[new_rank]]
    # What was inserted has no source.
    names = replay.graph.rows
    inserted = np.array([*map(used_for, names.names)], np.int8)[names.name]
    phase = np.append(np.concatenate([phase for phase, _ in told]), np.int8(OTHER_PHASE))[source]
    phase = np.where(changed.again[new_rank], np.int8(RECOMPUTE), phase)
    degree = np.append(np.concatenate([degree for _, degree in told]), np.int8(NONE))[source]
    degree = np.where(source == NONE, inserted, degree).astype(np.int8)
    return parts(replay, phase, degree, changed.job.instances, new_rank)


def _original_parts(changed: ChangedJob, rank: int, before: Replay) -> dict[str, NDArray[np.int64]]:
    return parts(before, *_told(changed, rank), changed.anchor.job.instances, rank)


def _told(changed: ChangedJob, rank: int) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """Return the phase of every recorded row of a rank, and what each collective is for."""
    phase = changed.anchor.about.ranks[rank].structure.phase
    degree = np.full(len(phase), NONE, np.int8)
    row, used = collectives(changed.anchor, rank)
    degree[row] = used
    return phase, degree


def _least(side: JobOnMachine, work: StepFlops | None, steps: int) -> NDArray[np.float64]:
    """Return what no step can be shorter than, s: its operations at the GPU's peak [s]."""
    peak = side.peak_flops
    return work.done / peak if work is not None and peak else np.zeros(steps)


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


def _shares(changed: ChangedJob, new_rank: int, replay: Replay) -> list[float]:
    """Return what part of a rank's operator time each provenance makes up, per cent.

    A call that waits for the GPU measures nothing: of the host counts what it works.
    """
    graph, time = replay.graph, changed.times[new_rank]
    nodes = graph.order
    lasted = np.where(replay.start[nodes] != UNSET, replay.end[nodes] - replay.start[nodes], 0)
    of_host = ~graph.rows.on_gpu[nodes] & (time.provenance[nodes] != MODELLED)
    lasted = np.where(of_host, np.minimum(lasted, graph.own[nodes]), lasted)
    total = np.bincount(time.provenance[nodes], lasted, len(PROVENANCE))
    return [round(100 * float(part) / max(float(total.sum()), 1.0), 3) for part in total]
