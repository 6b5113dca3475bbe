"""How long every operator of a job takes after a change, and how that is known."""

import json
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import QueryError
from lumos_df.model.hardware import Hardware
from lumos_df.schema import FAMILIES
from lumos_df.schema.codes import BACKWARD, EMBEDDING, FORWARD, KERNEL, NONE, OPTIMIZER, RECOMPUTE
from lumos_df.schema.dtypes import FP32, PRECISION_OF_WORD, PRECISION_TABLE, PRECISIONS
from lumos_df.schema.plan_words import DP, SHARD_GRADIENTS
from lumos_df.structure import axes, sharding
from lumos_df.structure.axes import Axes
from lumos_df.structure.describe import DescribedRank
from lumos_df.whatif.durations import (
    added_gradients,
    host_times,
    kernel_times,
    optimizer_shares,
    other_memory,
    parameter_loops,
    token_shares,
    unknown_work,
)
from lumos_df.whatif.durations.collective_times import Groups, Links
from lumos_df.whatif.durations.interpolation import interpolated
from lumos_df.whatif.durations.kernel_times import (
    INTERPOLATED,
    MEASURED,
    MODELLED,
    RESCALED,
    KernelWork,
    shaped,
    work,
)
from lumos_df.whatif.durations.symbols import Symbols, is_all
from lumos_df.whatif.job.nearest_setting import cannot
from lumos_df.whatif.job.recorded_gpu import Machine, usual_precision
from lumos_df.whatif.job.recorded_job import RecordedJob
from lumos_df.whatif.job.settings import IN_SHAPES, Settings, Sizes, parameters, told_precision

_ERROR: Final = (0.016, 0.06, 0.03, kernel_times.MODELLED_ERROR)
"""Relative error of a duration by its provenance (`timing.PROVENANCE`), where it did not change much: 8 times of 10 it
is off by no more. That of what was measured is how GPUs differ: the like kernels of eleven recorded jobs by a standard
deviation of 0.9 % in the median, and so those of two GPUs by 1.6 %."""
_ERROR_OCTAVE: Final = (0.0, 0.04, 0.02, 0.0)
"""What every doubling or halving adds to it."""
_OPTIMIZER_KERNELS: Final = FAMILIES.index("optimizer")


@dataclass(frozen=True, slots=True)
class Times:
    """Durations of one rank's operators after a change [n]."""

    own: NDArray[np.int64]
    """ns that a row lasts by itself."""
    provenance: NDArray[np.int8]
    """Place in `timing.PROVENANCE`."""
    error: NDArray[np.float64]
    """Relative, of the duration."""
    gaps: NDArray[np.float64]
    """By how much the host's work before a row grew, as a logarithm."""
    waits: NDArray[np.float64]
    """By how much else it may grow, as logarithms: if waiting for collectives of the host stays, and if all of it grows
    [n, 2]."""

    def with_modelled(self, own: NDArray[np.int64], error: NDArray[np.float64]) -> "Times":
        """Return the durations `own` of the same rows and of more behind them, which the model says within `error`."""
        modelled = np.full(len(error), MODELLED)
        return Times(
            own,
            np.append(self.provenance, modelled).astype(np.int8),
            np.append(self.error, error),
            np.append(self.gaps, np.zeros(len(error))),
            np.append(self.waits, np.zeros((len(error), 2)), axis=0),
        )


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A change with all that follows from it."""

    old: Sizes
    new: Sizes
    settings: Settings
    symbols: Symbols
    axes: list[Axes]
    """What is known of the axes of each rank's shapes."""
    measured_on: Machine
    runs_on: Machine
    groups: tuple[Groups, Groups]
    links: tuple[Links, Links]
    stated_links: tuple[float, float] | None
    """Bandwidth of all links, bytes/s, and latency of a step, s, nan where it stays; None where none are stated."""
    tables: int
    """Tables of the vocabulary that a rank's optimizer updated: of a stage's, one stands for what it has of both."""

    @property
    def other_links(self) -> bool:
        """Return whether the job shall run over other links than it did."""
        return bool(self.settings.network) or self.runs_on.hardware != self.measured_on.hardware

    @property
    def keeps_work(self) -> bool:
        """Return whether kernels do what they did, on another GPU."""
        new, settings = self.new, self.settings
        same = replace(self.old, dp=new.dp, pp=new.pp, layers=new.layers, batch=new.batch) == new
        return same and settings.batch_scale == 1 and not settings.dtype and self.runs_on is not self.measured_on

    @property
    def moves_transfers(self) -> bool:
        """Return whether any collective may take another time."""
        return self.old != self.new or self.settings.batch_scale != 1 or self.other_links


def plan(anchor: RecordedJob, new: Sizes, settings: Settings) -> PlannedChange:
    """Return a plan. Raise `QueryError` or `HardwareError` for a GPU, type or network that cannot be."""
    old = anchor.sizes
    _check_host(anchor, new, settings)
    _check_channels(anchor, new)
    batch = None
    if old.hidden is None or (old.layers is None and old.hidden == new.hidden):
        batch = _batch(anchor, settings)
    measured_on = Machine.of(anchor.hardware, anchor.precision, tensor_float=anchor.tensor_float)
    hardware = Hardware.read(settings.hardware) if settings.hardware else anchor.hardware
    told = PRECISION_OF_WORD[settings.dtype] if settings.dtype else told_precision(anchor.about)
    precision = told or usual_precision(hardware)
    if settings.dtype and not hardware.row()["peak_flops"][PRECISIONS.index(precision.name)] and not settings.hardware:
        whose = hardware.name if anchor.known_hardware else "the GPU, which is unknown, and what stands in for it,"
        option = "--set" if anchor.known_hardware else "--known"
        raise QueryError(
            f"{anchor.about.job}: {whose} multiplies no {precision.dtype}; name one that does: {option} hardware=NAME"
        )
    known = anchor.known_hardware and hardware == anchor.hardware
    same = (known or not settings.hardware) and not settings.dtype
    runs_on = measured_on if same else Machine.of(hardware, precision, tensor_float=anchor.tensor_float)
    stated = _stated_links(settings.network)
    links = Links.of(measured_on), _links(settings.network, stated, Links.of(runs_on))
    groups = Groups.of(old), Groups.of(new)
    symbols = Symbols(old, new, batch)
    of_ends = anchor.about.ranks[0]
    tables = added_gradients.tables(of_ends.trace, of_ends.structure, old) if (old.pp or 1) == 1 else 1
    return PlannedChange(
        old, new, settings, symbols, _axes(anchor, new, batch), measured_on, runs_on, groups, links, stated, tables
    )


def _axes(anchor: RecordedJob, new: Sizes, batch: tuple[int, int] | None) -> list[Axes]:
    """Return what is known of the axes of each rank's shapes; nothing where none of them, and no type, changes."""
    old = anchor.sizes
    telling = (*IN_SHAPES, "tp", "cp", "element_bytes")
    same = batch is None and all(getattr(old, name) == getattr(new, name) for name in telling)
    return [
        axes.unknown(rank.trace)
        if same
        else axes.follow(rank.trace, rank.structure.phase, old.micro_batch, old.rank_seq)
        for rank in anchor.about.ranks
    ]


def _check_host(anchor: RecordedJob, new: Sizes, settings: Settings) -> None:
    """Raise `QueryError` for what a trace without a GPU cannot support."""
    asked = {
        "hardware": settings.hardware,
        "dtype": settings.dtype,
        "schedule": settings.schedule,
        "pp": (new.pp or 1) != (anchor.sizes.pp or 1),
        "cp": (new.cp or 1) != (anchor.sizes.cp or 1),
        "zero": (new.zero or 0) != (anchor.sizes.zero or 0),
    }
    for name, is_asked in asked.items():
        if is_asked and any(map(host_times.runs_here, anchor.job.graphs)):
            raise QueryError(
                f"{anchor.about.job}: {name} cannot change, because the job ran on no GPU; record it on one, or "
                "estimate without a trace: --model, --hardware and --plan"
            )


def _check_channels(anchor: RecordedJob, new: Sizes) -> None:
    """Raise `QueryError` for other channels of a convolutional net on a GPU, whose kernels are known by bytes alone."""
    if new.hidden == anchor.sizes.hidden or anchor.about.facts["model"].value != "convolutional":
        return
    if not all(map(host_times.runs_here, anchor.job.graphs)):
        why = "nothing tells how long a convolution of other channels takes on a GPU: it multiplies more than it moves"
        raise cannot(anchor.about.job, "hidden", why, shapes=anchor.records_shapes)


def _batch(anchor: RecordedJob, settings: Settings) -> tuple[int, int] | None:
    """Return the batch of a model that is no transformer, before and after."""
    before = anchor.sizes.micro_batch
    if before is None or (settings.batch_scale == 1 and "micro_batch" not in settings.numbers):
        return None
    after = settings.numbers.get("micro_batch", max(1, round(before * settings.batch_scale)))
    return before, after


def _stated_links(text: str | None) -> tuple[float, float] | None:
    """Return the bandwidth and latency that a text states; None where it names a hardware, or there is none."""
    bandwidth, _, latency = (text or "").partition("/")
    try:
        return float(bandwidth), float(latency) if latency else float("nan")
    except ValueError:
        return None


def _links(text: str | None, stated: tuple[float, float] | None, links: Links) -> Links:
    if text is None:
        return links
    if stated is None:
        return Links.of(Machine.of(Hardware.read(text), PRECISION_TABLE[FP32]))
    if not 0 < stated[0] < 1e18 or stated[1] < 0:
        raise QueryError(f"--set network={text}: write bytes/s and perhaps seconds, such as 50e9/5e-6, or a hardware")
    return links.all_of(*stated)


def times(
    anchor: RecordedJob, change: PlannedChange, rank: int, durations: NDArray[np.int64], others: list[KernelWork]
) -> Times:
    """Return the durations of one rank's operators, collectives aside.

    Args:
        anchor: the job.
        change: the change.
        rank: place of the rank in the job.
        durations: its durations before, ns [n].
        others: the same model at other sizes, changed to the same one.
    """
    about = anchor.about.ranks[rank]
    count = len(durations)
    provenance = np.full(count, MEASURED, np.int8)
    error = np.full(count, _ERROR[MEASURED])
    changed_times = Times(durations.copy(), provenance, error, np.zeros(count), np.zeros((count, 2)))
    if change.old == change.new and change.runs_on is change.measured_on and change.settings.batch_scale == 1:
        return changed_times
    kernels = work_of(anchor, change, rank, change.symbols, change.axes[rank], change.runs_on)
    if kernels.gaps is not None:
        changed_times = replace(changed_times, gaps=kernels.gaps)
    floors = change.runs_on.row["memory"][0] / change.measured_on.row["memory"][0]
    after = kernels.rescaled(float(floors))
    how = np.full(len(kernels.row), RESCALED)
    if others:
        after, known = interpolated(kernels, after, others, float(floors))
        how = np.where(known, INTERPOLATED, how)
    unknown = np.isnan(kernels.before)
    doubt = kernels.doubt
    if change.keeps_work:
        told, error_of_told = unknown_work.by_family(kernels, about.trace, change.measured_on, change.runs_on)
        after, doubt = np.where(unknown, told, after), np.where(unknown, error_of_told, doubt)
    else:
        passes = np.isin(about.structure.phase[kernels.row], (FORWARD, BACKWARD, RECOMPUTE))
        after = np.where(unknown, unknown_work.like_others(kernels, after, passes, tokens(change)), after)
    faster, grown = other_memory.untold_ratio(change.measured_on, change.runs_on), growth(change)
    # Lists of parameters are recorded without shapes: how many samples there are is nothing to them.
    of_parameters = updates(about, change.old, kernels.row) | (unknown & (grown == 1) & _optimizes(about, kernels.row))
    after = np.where(of_parameters & (unknown | (grown != 1)), kernels.time * grown * faster, after)
    after *= _shared_out(anchor, change, rank, kernels.row)
    if change.old.sp != change.new.sp:
        apart = token_shares.between_products(about, anchor.job.graphs[rank], change.old)[kernels.row]
        share = 1 / (change.new.tp or 1) if change.new.sp else float(change.new.tp or 1)
        after = np.where(apart, kernels.floor + np.maximum(after - kernels.floor, 0) * share, after)
    looked_up = kernels.floor + (kernels.time - kernels.floor) * tokens(change) * faster
    after = np.where(_looks_up(about, kernels.row), looked_up, after)
    delta = np.round((after - kernels.time) * 1e9).astype(np.int64)
    same = delta == 0
    changed_times.own[kernels.row] = np.maximum(durations[kernels.row] + delta, 0)
    provenance[kernels.row] = np.where(same, MEASURED, how)
    error[kernels.row] += np.where(same, 0.0, doubt)
    octaves = np.abs(np.log2(np.maximum(after, 1e-9) / np.maximum(kernels.time, 1e-9)))
    error[kernels.row] += (
        np.take(_ERROR, provenance[kernels.row])
        - _ERROR[MEASURED]
        + np.take(_ERROR_OCTAVE, provenance[kernels.row]) * octaves
    )
    often = turns(anchor, change, rank)
    provenance[often != 1] = RESCALED
    return replace(changed_times, own=np.round(changed_times.own * often).astype(np.int64))


def turns(anchor: RecordedJob, change: PlannedChange, rank: int) -> NDArray[np.float64]:
    """Return by how much more often each operator of a rank without a GPU comes in loops over its parameters [n]."""
    about, graph = anchor.about.ranks[rank], anchor.job.graphs[rank]
    if not host_times.runs_here(graph):
        return np.ones(len(graph.rows))
    more = _ratio(change.new.layers, change.old.layers)
    return parameter_loops.turns(about.trace, about.structure, host_times.working(graph), more)


def work_of(
    anchor: RecordedJob, change: PlannedChange, rank: int, symbols: Symbols, known: Axes, runs_on: Machine
) -> KernelWork:
    """Return what a rank's kernels do, or the operators that stand for them where there is no GPU.

    Args:
        anchor: the job.
        change: the change.
        rank: place of the rank in the job.
        symbols: what axes of shapes become.
        known: what is known of them.
        runs_on: the GPU of the changed job.
    """
    about, graph = anchor.about.ranks[rank], anchor.job.graphs[rank]
    if host_times.runs_here(graph):
        layers = host_times.update_layers(about.trace, graph, about.structure)
        copies = np.where(layers >= 0, _ratio(change.new.layers, anchor.sizes.layers), turns(anchor, change, rank))
        return host_times.work(about.trace, graph, symbols, known, about.structure, copies)
    return work(about.trace, symbols, known, change.measured_on, runs_on, about.structure)


def tokens(change: PlannedChange) -> float:
    """Return by how much the tokens, or what a model that is no transformer has of them, grow."""
    batch = (
        _ratio(change.new.micro_batch, change.old.micro_batch)
        if change.old.micro_batch
        else change.settings.batch_scale
    )
    return batch * _ratio(change.new.rank_seq, change.old.rank_seq)


def updates(about: DescribedRank, sizes: Sizes, row: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which GPU rows work on all parameters of a rank: the optimizer's, and those on a vector as long as all.

    Args:
        about: the rank.
        sizes: those of its job.
        row: some of its operators [k].
    """
    rows, structure = about.trace.rows, about.structure
    updating: NDArray[np.bool_] = (structure.phase[row] == OPTIMIZER) & (structure.layer[row] < 0)
    updating &= rows.family[row] == FAMILIES.index("optimizer")
    long = np.array([*(is_all(json.loads(word), sizes) for word in about.trace.dims.words), False])
    operator = shaped(about.trace, row)
    updating |= long[np.where(operator >= 0, about.trace.dims.code[operator], NONE)]
    return updating & rows.on_gpu[row]


def _optimizes(about: DescribedRank, row: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which rows run in the optimizer, or go over many tensors at once as its kernels do: clipping, clearing."""
    optimizes: NDArray[np.bool_] = about.structure.phase[row] == OPTIMIZER
    optimizes |= about.trace.rows.family[row] == _OPTIMIZER_KERNELS
    return optimizes


def _looks_up(about: DescribedRank, row: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which GPU rows look up in a recommender's tables, or update what was looked up.

    They move the rows of the batch, whatever their tables' size. With more ranks of the same batch each has fewer
    tables and looks up in them for more samples: as much as before.
    """
    lookups: NDArray[np.bool_] = about.trace.rows.family[row] == EMBEDDING
    return lookups if about.structure.kind == "recommender" else np.zeros(len(row), np.bool_)


def _shared_out(anchor: RecordedJob, change: PlannedChange, rank: int, row: NDArray[np.int32]) -> NDArray[np.float64]:
    """Return by how much GPU rows are shorter that update or clear what more replicas share out [k].

    Args:
        anchor: the job.
        change: the change.
        rank: place of the rank in the job.
        row: some of its operators [k].
    """
    old, new, about = change.old, change.new, anchor.about.ranks[rank]
    updating = (about.structure.phase[row] == OPTIMIZER) & (about.trace.rows.kind[row] == KERNEL)
    clearing = updates(about, old, row) & ~updating
    states = optimizer_shares.of_gpu(anchor, old, new, rank)
    gradients = old.copies(SHARD_GRADIENTS) / new.copies(SHARD_GRADIENTS)
    return np.where(updating, states, np.where(clearing, gradients, 1.0))


def growth(change: PlannedChange) -> float:
    """Return by how much the parameters of a rank grow; DualPipe's ranks have two stages each."""
    copies = 2 if change.settings.schedule == "dualpipe" else 1
    new = replace(change.new, layers=change.new.layers and copies * change.new.layers)
    return parameters(new, change.tables) / parameters(change.old, change.tables)


def layers_grown(change: PlannedChange) -> float:
    """Return by how much more layers a rank has; DualPipe's ranks have two stages each."""
    copies = 2 if change.settings.schedule == "dualpipe" else 1
    return copies * _ratio(change.new.layers, change.old.layers) / _ratio(change.new.pp, change.old.pp)


def collectives(anchor: RecordedJob, rank: int) -> tuple[NDArray[np.int32], NDArray[np.int8]]:
    """Return the collective kernels of a rank and the degree of each, a place in `plan_words.GROUPS` or NONE; [k]."""
    about = anchor.about.ranks[rank]
    return sharding.collectives(about.trace, about.structure, anchor.about.given)


def reductions(anchor: RecordedJob, rank: int) -> NDArray[np.bool_]:
    """Return which rows reduce gradients once a step: none where every micro-batch has its own reductions [n]."""
    about = anchor.about.ranks[rank]
    row, degree = collectives(anchor, rank)
    row = row[degree == DP]
    reduces = np.zeros(len(about.trace), np.bool_)
    batch = about.structure.micro_batch[row]
    if len(np.unique(batch[batch >= 0])) <= 1 or anchor.sizes.batch == 1:
        reduces[row] = True
    return reduces


def _ratio(new: int | None, old: int | None) -> float:
    return new / old if new and old else 1.0
