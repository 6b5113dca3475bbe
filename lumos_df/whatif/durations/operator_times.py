"""How long every operator of a job takes after a change, and how that is known."""

import json
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import QueryError
from lumos_df.model.hardware import Hardware
from lumos_df.schema import FAMILIES
from lumos_df.schema.codes import BACKWARD, FORWARD, NONE, OPTIMIZER, RECOMPUTE
from lumos_df.schema.dtypes import FP32, PRECISION_OF_WORD, PRECISION_TABLE
from lumos_df.schema.plan_words import DP, EP, PP, TP
from lumos_df.structure import dimensions, shapes
from lumos_df.structure.describe import DescribedRank
from lumos_df.structure.parallelism import roles
from lumos_df.whatif.durations import host_times
from lumos_df.whatif.durations.collective_times import Groups, Links, retimed
from lumos_df.whatif.durations.kernel_times import INTERPOLATED, MEASURED, RESCALED, KernelWork, shaped, work
from lumos_df.whatif.durations.symbols import Symbols, is_all
from lumos_df.whatif.job.recorded_gpu import Machine
from lumos_df.whatif.job.recorded_job import RecordedJob
from lumos_df.whatif.job.settings import Settings, Sizes, parameters

_ERROR: Final = (0.01, 0.06, 0.03, 0.3)
"""Relative error of a duration by its provenance (`timing.PROVENANCE`), where it did not change much."""
_ERROR_OCTAVE: Final = (0.0, 0.04, 0.02, 0.0)
"""What every doubling or halving adds to it."""


@dataclass(frozen=True, slots=True)
class Times:
    """Durations of one rank's operators after a change [n]."""

    own: NDArray[np.int64]
    """ns that a row lasts by itself."""
    provenance: NDArray[np.int8]
    """Place in `timing.PROVENANCE`."""
    error: NDArray[np.float64]
    """Relative, of the duration."""


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A change with all that follows from it."""

    old: Sizes
    new: Sizes
    settings: Settings
    symbols: Symbols
    measured_on: Machine
    runs_on: Machine
    groups: tuple[Groups, Groups]
    links: tuple[Links, Links]


def plan(anchor: RecordedJob, new: Sizes, settings: Settings) -> PlannedChange:
    """Return a plan. Raise `QueryError` or `HardwareError` for a GPU, type or network that cannot be."""
    old = anchor.sizes
    _check_host(anchor, new, settings)
    batch = None
    if anchor.about.facts["model"].value != "transformer" or old.hidden is None:
        batch = _batch(anchor, settings)
    measured_on = Machine.of(anchor.hardware, anchor.precision)
    hardware = Hardware.read(settings.hardware) if settings.hardware else anchor.hardware
    same = not settings.hardware and not settings.dtype
    precision = PRECISION_OF_WORD[settings.dtype] if settings.dtype else anchor.precision
    runs_on = measured_on if same else Machine.of(hardware, precision)
    links = Links.of(measured_on), _links(settings.network, Links.of(runs_on))
    groups = Groups.of(old, anchor.experts), Groups.of(new, anchor.experts)
    return PlannedChange(old, new, settings, Symbols(old, new, batch), measured_on, runs_on, groups, links)


def _check_host(anchor: RecordedJob, new: Sizes, settings: Settings) -> None:
    """Raise `QueryError` for what a trace without a GPU cannot support."""
    asked = {
        "hardware": settings.hardware,
        "dtype": settings.dtype,
        "schedule": settings.schedule,
        "pp": (new.pp or 1) != (anchor.sizes.pp or 1),
    }
    for name, is_asked in asked.items():
        if is_asked and any(map(host_times.runs_here, anchor.job.graphs)):
            raise QueryError(
                f"{anchor.about.job}: {name} cannot change, because the job ran on no GPU; record it on one, or "
                "estimate without a trace: --model, --hardware and --plan"
            )


def _batch(anchor: RecordedJob, settings: Settings) -> tuple[int, int] | None:
    """Return the batch of a model that is no transformer, before and after."""
    before = anchor.sizes.micro_batch
    if before is None or (settings.batch_scale == 1 and "micro_batch" not in settings.numbers):
        return None
    after = settings.numbers.get("micro_batch", max(1, round(before * settings.batch_scale)))
    return before, after


def _links(text: str | None, links: Links) -> Links:
    if text is None:
        return links
    bandwidth, _, latency = text.partition("/")
    try:
        numbers = float(bandwidth), float(latency) if latency else float("nan")
    except ValueError:
        other = Hardware.read(text)
        return Links.of(Machine.of(other, PRECISION_TABLE[FP32]))
    if not 0 < numbers[0] < 1e18 or numbers[1] < 0:
        raise QueryError(f"--set network={text}: write bytes/s and perhaps seconds, such as 50e9/5e-6, or a hardware")
    return links.all_of(*numbers)


def times(anchor: RecordedJob, of: PlannedChange, rank: int, own: NDArray[np.int64], others: list[KernelWork]) -> Times:
    """Return the durations of one rank's operators, collectives aside.

    Args:
        anchor: the job.
        of: the change.
        rank: place of the rank in the job.
        own: its durations before, ns [n].
        others: the same model at other sizes, as measured.
    """
    about = anchor.about.ranks[rank]
    many = len(own)
    provenance = np.full(many, MEASURED, np.int8)
    error = np.full(many, _ERROR[MEASURED])
    done = Times(own.copy(), provenance, error)
    if of.old == of.new and of.runs_on is of.measured_on and of.settings.batch_scale == 1:
        return done
    found = work_of(anchor, of, rank, of.symbols, of.runs_on)
    floors = of.runs_on.row["memory"][0] / of.measured_on.row["memory"][0]
    after = found.rescaled(float(floors))
    how = np.full(len(found.row), RESCALED)
    if others:
        between, known = _interpolated(found, others)
        # The line through two sizes errs where caches end, the scaled time where efficiency changes: not alike.
        after = np.where(known, np.sqrt(np.where(known, between, 1.0) * after), after)
        how = np.where(known, INTERPOLATED, how)
    unknown = np.isnan(found.before)
    after = np.where(unknown, _like_others(of, found, after, about.structure.phase[found.row]), after)
    if (growth := _growth(of)) != 1:
        growth *= of.measured_on.memory_rate / of.runs_on.memory_rate
        after = np.where(updates(about, of.old, found.row), found.time * growth, after)
    change = np.round((after - found.time) * 1e9).astype(np.int64)
    same = change == 0
    done.own[found.row] = np.maximum(own[found.row] + change, 0)
    provenance[found.row] = np.where(same, MEASURED, how)
    if host_times.runs_here(anchor.job.graphs[rank]):
        error += host_times.spread(anchor.job.graphs[rank])
    octaves = np.abs(np.log2(np.maximum(after, 1e-9) / np.maximum(found.time, 1e-9)))
    error[found.row] += (
        np.take(_ERROR, provenance[found.row])
        - _ERROR[MEASURED]
        + np.take(_ERROR_OCTAVE, provenance[found.row]) * octaves
    )
    return done


def work_of(anchor: RecordedJob, of: PlannedChange, rank: int, symbols: Symbols, runs_on: Machine) -> KernelWork:
    """Return what a rank's kernels do, or the operators that stand for them where there is no GPU.

    Args:
        anchor: the job.
        of: the change.
        rank: place of the rank in the job.
        symbols: what axes of shapes become.
        runs_on: the GPU of the changed job.
    """
    about, graph = anchor.about.ranks[rank], anchor.job.graphs[rank]
    if host_times.runs_here(graph):
        return host_times.work(about.trace, graph, symbols, about.structure.phase)
    return work(about.trace, symbols, of.measured_on, runs_on, about.structure)


def _like_others(
    of: PlannedChange, found: KernelWork, after: NDArray[np.float64], phase: NDArray[np.int8]
) -> NDArray[np.float64]:
    """Return the time of kernels of unknown work: they grow as the last one of known work before them did.

    Where the trace records no shapes at all, all that the forward and backward passes do grows with the tokens.
    """
    known = np.flatnonzero(~np.isnan(found.before))
    if len(known):
        before = known[np.maximum(np.searchsorted(known, np.arange(len(after)), side="right") - 1, 0)]
        return found.time * after[before] / np.maximum(found.time[before], 1e-9)
    passes = np.isin(phase, (FORWARD, BACKWARD, RECOMPUTE))
    return np.where(passes, found.floor + (found.time - found.floor) * tokens(of), found.time)


def tokens(of: PlannedChange) -> float:
    """Return by how much the tokens, or what a model that is no transformer has of them, grow."""
    batch = _ratio(of.new.micro_batch, of.old.micro_batch) if of.old.micro_batch else of.settings.batch_scale
    return batch * _ratio(of.new.seq, of.old.seq)


def updates(about: DescribedRank, sizes: Sizes, row: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which GPU rows work on all parameters of a rank: the optimizer's, and those on a vector as long as all.

    Args:
        about: the rank.
        sizes: those of its job.
        row: some of its operators [k].
    """
    rows, structure = about.trace.rows, about.structure
    found: NDArray[np.bool_] = (structure.phase[row] == OPTIMIZER) & (structure.layer[row] < 0)
    found &= rows.family[row] == FAMILIES.index("optimizer")
    long = np.array([*(is_all(json.loads(word), sizes) for word in about.trace.dims.words), False])
    operator = shaped(about.trace, row)
    found |= long[np.where(operator >= 0, about.trace.dims.code[operator], NONE)]
    return found & rows.on_gpu[row]


def _growth(of: PlannedChange) -> float:
    """Return by how much the parameters of a rank grow; DualPipe's ranks have two stages each."""
    copies = 2 if of.settings.schedule == "dualpipe" else 1
    new = replace(of.new, layers=of.new.layers and copies * of.new.layers)
    return parameters(new) / parameters(of.old)


def _interpolated(found: KernelWork, others: list[KernelWork]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the time of kernels on the line through this size and the nearest other one, where both have them."""
    result = np.full(len(found.row), np.nan)
    nearest = np.full(len(found.row), np.inf)
    order = _occurrence(found.key)
    for other in others:
        place = _paired(found.key, order, other.key, _occurrence(other.key))
        has = np.flatnonzero(place >= 0)
        theirs = place[has]
        apart = other.before[theirs] - found.before[has]
        far = np.abs(apart) > 0.1 * np.maximum(found.before[has], other.before[theirs])
        has, theirs, apart = has[far], theirs[far], apart[far]
        slope = np.maximum((other.time[theirs] - found.time[has]) / apart, 0)
        # What lies outside of both sizes goes on from the one that is nearer.
        beyond = np.abs(found.after[has] - other.before[theirs]) < np.abs(found.after[has] - found.before[has])
        start = np.where(beyond, other.time[theirs], found.time[has])
        work_at = np.where(beyond, other.before[theirs], found.before[has])
        line = np.maximum(start + slope * (found.after[has] - work_at), np.minimum(found.floor[has], start))
        distance = np.abs(np.log(np.maximum(found.after[has], 1e-12) / np.maximum(other.before[theirs], 1e-12)))
        better = distance < nearest[has]
        result[has[better]], nearest[has[better]] = line[better], distance[better]
    return result, ~np.isnan(result)


def _occurrence(key: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the how-manieth of its key each entry is."""
    order = np.argsort(key, kind="stable")
    first = np.append(True, np.diff(key[order]) != 0)
    start = np.maximum.accumulate(np.where(first, np.arange(len(key)), 0))
    number = np.empty(len(key), np.int64)
    number[order] = np.arange(len(key)) - start
    return number


def _paired(
    key: NDArray[np.int64], number: NDArray[np.int64], other: NDArray[np.int64], their: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return which entry of the others is of the same key, the same of its kind in turn; NONE where there is none."""
    order = np.lexsort((their, other))
    keys = other[order]
    low = np.searchsorted(keys, key)
    many = np.searchsorted(keys, key, side="right") - low
    mine = np.unique(key, return_inverse=True)[1].reshape(-1)
    count = np.bincount(mine)[mine]
    # Where one has more of a kind, as with a kernel that splits, they are spread over each other.
    turn = number * np.maximum(many, 1) // count
    place = order[np.minimum(low + turn, max(len(order) - 1, 0))] if len(order) else np.zeros(len(key), np.int64)
    return np.where(many > 0, place, NONE)


def collectives(anchor: RecordedJob, rank: int) -> tuple[NDArray[np.int32], NDArray[np.int8]]:
    """Return the collective kernels of a rank and the degree of each, a place in `plan_words.GROUPS` or NONE; [k]."""
    trace, structure = anchor.about.ranks[rank].trace, anchor.about.ranks[rank].structure
    own = shapes.operations(trace, structure.phase, structure.layer)
    row, degree = roles(trace, structure, dimensions.local(structure, own))
    kept = trace.rows.on_gpu[row]
    return row[kept], degree[kept]


def reductions(anchor: RecordedJob, rank: int) -> NDArray[np.bool_]:
    """Return which rows reduce gradients once a step: none where every micro-batch has its own reductions [n]."""
    about = anchor.about.ranks[rank]
    row, degree = collectives(anchor, rank)
    row = row[degree == DP]
    found = np.zeros(len(about.trace), np.bool_)
    batch = about.structure.micro_batch[row]
    if len(np.unique(batch[batch >= 0])) <= 1 or anchor.sizes.batch == 1:
        found[row] = True
    return found


def collective_times(
    anchor: RecordedJob, of: PlannedChange, rank: int, shortest: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return one rank's collectives and the ratio of their transfer after the change to that before [k].

    Args:
        anchor: the job.
        of: the change.
        rank: place of the rank in the job.
        shortest: ns of the shortest transfer of a kind, by row [n].
    """
    trace, structure = anchor.about.ranks[rank].trace, anchor.about.ranks[rank].structure
    row, degree = collectives(anchor, rank)
    grown = payload_ratio(of, row, degree, structure.layer)
    return row, retimed(
        trace, row, degree, shortest[row], (of.groups[0], of.links[0]), (of.groups[1], of.links[1]), grown
    )


def payload_ratio(
    of: PlannedChange, row: NDArray[np.int32], degree: NDArray[np.int8], layer: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Return by how much the payload of each collective grows: activations with tokens, gradients with parameters."""
    old, new = of.old, of.new
    element = of.runs_on.element_bytes / of.measured_on.element_bytes
    activation = tokens(of) * _ratio(new.hidden, old.hidden)
    same = replace(new, layers=old.layers, pp=old.pp, vocab=old.vocab)
    per_layer = parameters(same) / parameters(old)
    ratio = np.ones(len(row))
    activations = np.isin(degree, (TP, EP, PP))
    ratio[activations] = activation * element
    gradients = degree == DP
    ratio[gradients] = np.where(layer[row] >= 0, per_layer, parameters(new) / parameters(old))[gradients]
    return ratio


def _ratio(new: int | None, old: int | None) -> float:
    return new / old if new and old else 1.0
