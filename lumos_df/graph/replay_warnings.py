"""What a reader should know before trusting a replay: what the recording misses, and what did not fit together."""

from collections.abc import Sequence
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.units import format_count, format_ns
from lumos_df.graph import calls, typical_values
from lumos_df.graph.collective_instances import Instances
from lumos_df.graph.event_graph import kept_members
from lumos_df.graph.gpu_pace import GpuPace
from lumos_df.graph.job import Job
from lumos_df.graph.rows import FAR, Rows
from lumos_df.graph.steps import Steps, steps
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema.codes import COMMUNICATION, CPU_OP, NONE, RUNTIME
from lumos_df.schema.words import GRADIENT, OPTIMIZER_STEP

HOST_ALONE: Final = "no GPU operator in the trace: its steps are host work alone"
_NAMED: Final = 8
"""Ranks that a sentence names."""
_WHOLE_SHARE: Final = 0.75
"""Threshold, share of host operators. A first or last step with fewer, against the usual of the others, is cut off."""


def of_traces(job: Job) -> list[list[str]]:
    """Return what holds for the whole of each trace of a job, one sentence each."""
    kept = None if job.instances is None else kept_members(job.event_graph, job.instances)
    ranks = [graph.rows for graph in job.graphs]
    return [
        [*missing, *of_graph(graph), *unmatched]
        for graph, (missing, unmatched) in zip(
            job.graphs, beside_others(ranks, job.instances, kept, job.doubled), strict=True
        )
    ]


def beside_others(
    ranks: list[Rows], instances: Instances | None, kept: NDArray[np.int64] | None, doubled: tuple[int, ...]
) -> list[tuple[list[str], list[str]]]:
    """Return what is missing around each rank of a job, and what of it did not fit the others, one sentence each.

    Args:
        ranks: their rows, at least those that communicate.
        instances: their collectives.
        kept: the members of these that make no circle.
        doubled: as in `Job`.
    """
    present = {rows.rank for rows in ranks}
    missing = [_missing_ranks(rows, present, doubled) for rows in ranks]
    if instances is None or kept is None:
        return [(of_trace, []) for of_trace in missing]
    unmatched: dict[str, list[str]] = {}
    for text in instances.warnings:
        unmatched.setdefault(text.partition(":")[0], []).append(text)
    traces = len(ranks)
    broken = np.bincount(instances.trace, minlength=traces) - np.bincount(instances.trace[kept], minlength=traces)
    told = []
    for rows, of_trace, count in zip(ranks, missing, broken.tolist(), strict=True):
        misfits = [*unmatched.get(f"rank {rows.rank}", ())]
        if count:
            misfits.append(f"{count} collectives do not fit the order of the others; they last as long as recorded")
        told.append((of_trace, misfits))
    return told


def of_graph(graph: TraceGraph) -> list[str]:
    """Return what holds for the whole of a trace by itself."""
    warnings, gpu = [], graph.gpu
    if not len(gpu.row):
        warnings.append(HOST_ALONE)
    elif not gpu.launched.any():
        warnings.append("no launch call in the trace: GPU operators follow one another on their stream")
    else:
        early, guessed = gpu.early, ~gpu.launched & (gpu.call >= 0)
        for which, what in (
            (early, "issued before the recording began; the first start as recorded"),
            (guessed, "without a launch call in the trace; each follows the operator that issued it"),
            (
                ~gpu.launched & ~early & ~guessed,
                "without a launch call or an operator in the trace; each follows the one before it on its stream",
            ),
        ):
            if count := int(np.count_nonzero(which)):
                warnings.append(f"{format_count(count, 'GPU operator')} {what}")
    warnings += [*seldom_updated(graph.rows), *_host_ahead(graph)]
    if unknown := int(graph.unknown.sum()):
        unlaunched = 2 * np.count_nonzero(gpu.call < 0) > len(gpu.row)
        idle = "without a launch call" if unlaunched else "that were in the queue of the only stream"
        warnings.append(f"{format_ns(unknown)} between GPU operators {idle} are unknown: they stay as recorded")
    if rare := np.count_nonzero(graph.constants.of_rare_graph):
        warnings.append(
            f"{rare:,} GPU operators are of CUDA graphs launched fewer than {typical_values.FEW} times: if the "
            "recording lacks nodes of these, the replay lacks their time"
        )
    warnings += _odd_calls(graph.rows)
    if graph.dropped:
        warnings.append(f"{graph.dropped} dependencies contradicted the others and were left out")
    return warnings


def seldom_updated(rows: Rows) -> list[str]:
    """Tell of marks around micro-batches: at most half of the steps that add up gradients have an optimizer."""
    adds = rows.named(lambda name: name.endswith(GRADIENT))
    updates = rows.named(lambda name: name.startswith(OPTIMIZER_STEP))
    trained, updated = (np.unique(rows.step[each & (rows.step >= 0)]) for each in (adds, updates))
    if not len(updated) or len(trained) < 2 * len(np.intersect1d(trained, updated)):
        return []
    apart = np.unique(np.diff(updated))
    whole = f", and {apart[0]} of them are a step of training" if len(apart) == 1 else ""
    return [f"the optimizer works in {len(updated)} of {len(trained)} marked steps: each is a micro-batch{whole}"]


def _host_ahead(graph: TraceGraph) -> list[str]:
    """Tell of steps that are shorter on the host than the GPU's work of them."""
    marks = steps(graph.rows)
    pace = GpuPace.of(graph, marks)
    if pace is None:
        return []
    low, high = pace.windows(graph.rows.ts, graph.rows.end, marks.low, marks.high)
    if low is marks.low:
        return []
    gpu, host = (format_ns(round(float(length.mean()))) for length in (high - low, marks.high - marks.low))
    said = f"its steps last {host}, the GPU's {gpu}, which is what a step takes in the long run and counts here"
    return [f"the host ran ahead: {said}"]


def _odd_calls(rows: Rows) -> list[str]:
    """Tell of calls and GPU rows whose correlation ids do not say which of them belong together."""
    if not rows.on_gpu.any():
        return []
    warnings = []
    numbered = rows.correlation != rows.null
    odd = int(np.count_nonzero(numbered & (rows.correlation <= 0) & (rows.on_gpu | (rows.kind == RUNTIME))))
    if odd:
        warnings.append(f"{odd} calls and GPU operators have a correlation id below 1, which no profiler gives")
    # A call inside another with its number is the same one, which two interfaces recorded.
    around = np.where(rows.parent >= 0, rows.correlation[rows.parent], rows.null)
    call = np.sort(rows.correlation[numbered & (rows.kind == RUNTIME) & (rows.correlation != around)])
    again = int(np.count_nonzero(call[1:] == call[:-1]))
    if again:
        warnings.append(
            f"{again} calls have the correlation id of another one: GPU operators are taken to follow the last of these"
        )
    graph_call = np.flatnonzero(calls.roles(rows.kind, rows.name, rows.names) == calls.GRAPH_LAUNCH)
    launched = rows.parent[rows.on_gpu]
    over = rows.ts[launched[launched >= 0]].max(initial=-FAR)
    starts_none = np.ones(len(rows), np.bool_)
    starts_none[launched[launched >= 0]] = False
    empty = int(np.count_nonzero(starts_none[graph_call] & (rows.ts[graph_call] <= over)))
    if empty:
        warnings.append(
            f"{empty} launches of CUDA graphs have no GPU operator: the profiler left their nodes out, and the replay "
            "lacks their time"
        )
    return warnings


def _named(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:_NAMED])) + (", ..." if len(ranks) > _NAMED else "")


def _missing_ranks(rows: Rows, present: set[int], doubled: tuple[int, ...]) -> list[str]:
    """Tell which ranks a trace ran with and is replayed without."""
    size = max(rows.world_size, int(rows.group_size[rows.family == COMMUNICATION].max(initial=NONE)))
    if size <= len(present):
        return []
    late = "of a collective, what the fastest like it takes is transfer, the rest is waiting for ranks unseen"
    if doubled:
        several = f"rank {doubled[0]}" if len(doubled) == 1 else f"ranks {_named(doubled)}"
        why = f"the corpus has several traces of {several} of this job and does not say which ran together"
        others = format_count(size - 1, "other rank")
        return [f"replayed without {others}: {why}; {late}; ingest each run with a --job of its own"]
    # No more than are named, and one: a corrupt file may state any size.
    missing = list(islice((rank for rank in range(size) if rank not in present), _NAMED + 1))
    which = f" ({_named(missing)})" if missing else ""
    return [f"replayed without {size - len(present)} of {size} ranks{which}: {late}"]


def of_steps(rows: Rows, marks: Steps) -> list[list[str]]:
    """Return what holds for each step of a trace, one sentence each."""
    warnings: list[list[str]] = [[] for _ in marks.number]
    for k in np.flatnonzero(marks.high == marks.low).tolist():
        what = (
            "the trace has no operator that lasts"
            if marks.mark[0] == NONE
            else "its mark begins and ends at one moment"
        )
        warnings[k].append(f"the step has no length: {what}")
    for k in np.flatnonzero(marks.again).tolist():
        warnings[k].append(
            f"{marks.again[k] + 1} marks bear this step's number: it is taken from the first of them until the next "
            "step, or the end of the last mark"
        )
    unfinished = _unfinished(rows)
    if len(unfinished):
        warnings[-1].append(
            f"{len(unfinished)} launch calls at the end have no GPU operator: the recording ended before they ran"
        )
    if marks.mark[0] == NONE:
        return warnings
    host = np.flatnonzero((rows.kind == CPU_OP) | (rows.kind == RUNTIME))
    by_step = np.bincount(rows.step[host][rows.step[host] >= 0], minlength=int(marks.number.max()) + 1)[marks.number]
    for k in {0, len(by_step) - 1} if len(by_step) > 1 else ():
        usual = int(np.median(np.delete(by_step, k)))
        if by_step[k] < _WHOLE_SHARE * usual and marks.high[k] > marks.low[k]:
            warnings[k].append(f"the step is cut off: {by_step[k]} host operators where others have {usual}")
    outside = rows.ts[host[rows.step[host] < 0]]
    usual = int(np.median(by_step))
    # What holds more than half of a step's operators is more of a step than of none.
    before = int(np.count_nonzero(outside < marks.low[0]))
    after = int(np.count_nonzero(outside >= marks.high[-1]))
    if 2 * before > usual:
        warnings[0].append(f"{before} host operators run before this first step and are in none: a mark was cut off")
    if 2 * after > usual:
        warnings[-1].append(f"{after} host operators run after this last step and are in none: a mark was cut off")
    return warnings


def _unfinished(rows: Rows) -> NDArray[np.intp]:
    """Return the calls, after the last that launched something, that are named like those that did."""
    parent = rows.parent[rows.on_gpu]
    launches = parent[(parent >= 0) & (rows.kind[np.maximum(parent, 0)] == RUNTIME)]
    if not len(launches):
        return np.empty(0, np.intp)
    alike = (rows.kind == RUNTIME) & np.isin(rows.name, np.unique(rows.name[launches]))
    return np.flatnonzero(alike & (rows.ts > rows.ts[launches].max()))
