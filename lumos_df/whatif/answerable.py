"""Whether a change can be answered: what is refused unless forced, and what is said of settings without effect."""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import QueryError
from lumos_df.graph import host_spread
from lumos_df.graph.event_graph import EventGraph
from lumos_df.graph.job import Job, Played
from lumos_df.graph.replay import Replay
from lumos_df.schema.codes import ATTENTION, COMMUNICATION, GEMM, KERNEL, NONE
from lumos_df.schema.dtypes import PRECISION_OF_WORD, precision_of
from lumos_df.whatif.durations import host_times, unknown_work
from lumos_df.whatif.durations.kernel_times import shaped
from lumos_df.whatif.durations.operator_times import PlannedChange
from lumos_df.whatif.durations.unscaled import REASONS
from lumos_df.whatif.job.nearest_setting import KEPT, LASTING
from lumos_df.whatif.job.recorded_job import RecordedJob
from lumos_df.whatif.job.settings import Settings

_REPLAY_OFF: Final = 0.05
"""Threshold, share of the recorded steps. A job whose replay is further off is not changed. Evidence: no job of either
set of recorded traces is."""
_UNSCALED: Final = 0.33
"""Threshold, share of the GPU's or the host's time. Where more of it could not be rescaled, there is no estimate.
Evidence: a judgement; then less than twice as much is known as guessed."""
_OF_LAYERS: Final = ("layers", "hidden", "ffn", "heads", "kv_heads", "tp", "pp")
_LAYERS: Final = 0.33
"""Threshold, share of the time of products and attention, the head's apart. Where the layers that were found have less,
what they are made of is not changed. Evidence: of 18 recorded jobs with layers three, in which these are a small part
of another model, have 17 to 24 %, the others 40 % and more."""
_TOLD_PCT: Final = 0.5
"""Threshold, per cent of the GPU's or the host's time. Of less nothing is said. Evidence: it would be 0 % on the
screen."""
_NOTHING: Final = 1e-5
"""Threshold, share of all durations. A setting that changes no more of them changes nothing. Evidence: no answer is
known to more than four digits."""
_FORCE: Final = "--force (in Python force=True) estimates it all the same, with an interval as wide as that"


def off(replay: Replay) -> float:
    """Return by how much a rank's replayed steps differ from those recorded, all together, relative."""
    recorded = int((replay.steps.high - replay.steps.low).sum())
    return abs(int((replay.high - replay.low).sum()) - recorded) / max(recorded, 1)


def is_off(replay: Replay) -> bool:
    """Return whether a rank's replay says too little of it: what it took then is what was recorded."""
    return off(replay) > _REPLAY_OFF


def check_replay(anchor: RecordedJob, played: Played, *, force: bool) -> list[str]:
    """Return what to say of a job whose replay is not what was recorded. Raise `QueryError` unless forced."""
    worst = max(played.replays, key=off)
    if not is_off(worst):
        return []
    unexplained = worst.unexplained.sum() / max((worst.steps.high - worst.steps.low).sum(), 1)
    said = (
        f"the replay of rank {worst.graph.rows.rank} is {off(worst):.1%} off the recorded steps, of which no "
        f"dependency explains {unexplained:.1%}"
    )
    if not force:
        raise QueryError(f"{anchor.about.job}: {said}, so a change of it would be off as well; {_FORCE}")
    return [f"{said}; original_... are the recorded steps"]


def check_gpu(anchor: RecordedJob, settings: Settings, *, force: bool) -> None:
    """Raise `QueryError` for another GPU where nothing is known of the one that was measured, unless forced."""
    if settings.hardware and anchor.gpu.guessed and not force:
        raise QueryError(
            f"{anchor.about.job}: nothing tells how much faster {settings.hardware} is, because {anchor.gpu.warning}; "
            "settings that keep the GPU need no such figure; --force (in Python force=True) takes that stand-in's, "
            f"within a factor of {1 + anchor.gpu.error:.1f}"
        )


def check_layers(anchor: RecordedJob, settings: Settings, *, force: bool) -> list[str]:
    """Return what to say of layers that are a small part of the model. Raise `QueryError` unless forced.

    Their sizes may be others' sizes by accident, and what the rest is made of nothing tells.
    """
    asked = [name for name in _OF_LAYERS if name in settings.numbers]
    layers, rows_of_head = anchor.sizes.layers, (anchor.sizes.vocab or 0) // (anchor.sizes.tp or 1)
    if not asked or not layers:
        return []
    inside = whole = 0
    for graph, rank in zip(anchor.job.graphs, anchor.about.ranks, strict=True):
        row = np.flatnonzero(graph.rows.on_gpu & np.isin(graph.rows.family, (GEMM, ATTENTION))).astype(np.int32)
        of_layer, operator = rank.structure.layer[row] >= 0, shaped(rank.trace, row)
        size = re.compile(rf"\b{rows_of_head}\b")
        of_head = np.array([*(bool(size.search(word)) for word in rank.trace.dims.words), False])
        head = of_head[np.where(operator >= 0, rank.trace.dims.code[operator], NONE)]
        inside += int(graph.own[row[of_layer]].sum())
        whole += int(graph.own[row[of_layer | ~head]].sum())
    if inside >= _LAYERS * whole:
        return []
    said = (
        f"the layers that were found ({layers}) have {inside / whole:.0%} of the GPU's products, and what the rest is "
        "made of nothing tells"
    )
    if not force:
        raise QueryError(
            f"{anchor.about.job}: {asked[0]} cannot change, because {said}; record it with with_modules=True, or "
            "without what runs beside the model; --force (in Python force=True) estimates it all the same, with an "
            "interval that holds nothing of it"
        )
    return [f"{said}: the interval holds nothing of it"]


@dataclass(frozen=True, slots=True)
class Unscaled:
    """How much of a job's time a change leaves to a guess."""

    gpu_pct: float
    """Of the time of all ranks' kernels, copies and clears, collectives aside."""
    host_pct: float
    """Of the work of all ranks' hosts."""
    reasons: tuple[str, ...]
    """Why, those that matter most first."""

    @property
    def words(self) -> list[str]:
        """Return what to say of it: nothing where it is little."""
        parts = [
            f"{share:.0f}% of {whose} time"
            for share, whose in ((self.gpu_pct, "GPU"), (self.host_pct, "host"))
            if share >= _TOLD_PCT
        ]
        return (
            [] if not parts else [f"{' and '.join(parts)} could not be rescaled, because {'; and '.join(self.reasons)}"]
        )

    def by_family(self, hardware: str) -> list[str]:
        """Return the same of kernels that do what they did on another GPU, where their families say how long."""
        if self.gpu_pct < _TOLD_PCT:
            return []
        why = "; and ".join(self.reasons)
        said = (
            f"of {self.gpu_pct:.0f}% of GPU time the work is not known, because {why}: products and attention are "
            f"taken for ones that last as long, whose time on {hardware} is known within {unknown_work.ERROR:.0%}; all "
            "else follows the memory's rate"
        )
        return [said]


def unscaled(anchor: RecordedJob, reasons: list[NDArray[np.int8]]) -> Unscaled:
    """Return how much of a job could not be rescaled; `reasons`: of each row of each recorded rank."""
    gpu, host = np.zeros(2), np.zeros(2)
    by_reason = np.zeros(len(REASONS))
    for graph, reason in zip(anchor.job.graphs, reasons, strict=True):
        rows, guessed = graph.rows, reason >= 0
        kernel = rows.on_gpu & ~((rows.kind == KERNEL) & (rows.family == COMMUNICATION))
        gpu += graph.own[kernel].sum(), graph.own[kernel & guessed].sum()
        host += host_spread.host_time(graph).sum(), graph.own[~rows.on_gpu & guessed].sum()
        by_reason += np.bincount(reason[guessed], graph.own[guessed], len(REASONS))
    said = [REASONS[place] for place in np.argsort(-by_reason) if by_reason[place]]
    shares = [100 * min(part / max(whole, 1.0), 1.0) for whole, part in (gpu, host)]
    return Unscaled(round(shares[0], 3), round(shares[1], 3), tuple(said))


def check_unscaled(anchor: RecordedJob, part: Unscaled, *, force: bool) -> list[str]:
    """Return what to say of what could not be rescaled. Raise `QueryError` where it is too much, unless forced."""
    if max(part.gpu_pct, part.host_pct) > 100 * _UNSCALED and not force:
        near = "" if anchor.records_shapes else f"{KEPT}; "
        raise QueryError(f"{anchor.about.job}: {part.words[0]}; {near}{_FORCE}")
    return part.words


def check_transfers(anchor: RecordedJob, base: Job, unscaled_ns: int, *, force: bool) -> None:
    """Raise `QueryError` where too much of the GPU's time is communication that should move and cannot, unless forced.

    Args:
        anchor: the job.
        base: its graphs, without what came once.
        unscaled_ns: what those collectives last, of all ranks.
        force: whether to estimate it all the same.
    """
    share = unscaled_ns / max(sum(int(graph.own[graph.rows.on_gpu].sum()) for graph in base.graphs), 1)
    if share > _UNSCALED and not force:
        raise QueryError(
            f"{anchor.about.job}: {share:.0%} of the GPU time is communication that could not be rescaled, because the "
            "trace does not tell its bytes; record all ranks with a PyTorch that writes the sizes of its collectives "
            f"(2.2 or newer); {LASTING}; --force (in Python force=True) keeps it as long as recorded"
        )


def same(net: EventGraph, other: EventGraph) -> bool:
    """Return whether two event graphs are the same job, near enough: no other edge or row, hardly another duration."""
    if not all(np.array_equal(getattr(net, name), getattr(other, name)) for name in ("src", "dst")):
        return False
    times = [(getattr(net, name), getattr(other, name)) for name in ("own", "lag", "transfer")]
    if any(len(one) != len(another) for one, another in times):
        return False
    apart = sum(int(np.abs(one - another).sum()) for one, another in times)
    return apart <= _NOTHING * sum(int(np.maximum(one, 0).sum()) for one, _ in times)


def without_effect(anchor: RecordedJob, change: PlannedChange, settings: Settings, name: str) -> str:
    """Return what to say of a setting that changes nothing, and why."""
    value = settings.values()[name]
    return f"{name}={value} changes nothing, because {_why(anchor, change, name, value)}"


def _precision(anchor: RecordedJob, value: str) -> str:
    told = str(anchor.about.facts["dtype"].value)
    known = precision_of(told)
    if known is None:
        return "the trace does not tell the type of its products; record it with PyTorch's record_shapes=True"
    same = known is PRECISION_OF_WORD[value]
    return f"the job was recorded with {told}" + (
        "" if same else f", of which the GPU multiplies as much as of {value}"
    )


def _why(anchor: RecordedJob, change: PlannedChange, name: str, value: str) -> str:
    if name in ("dp", "network") and any(map(host_times.communicates, anchor.job.graphs)):
        return "the job communicates on the host, which is kept as recorded; record it with NCCL to have it estimated"
    same_row = change.runs_on.row == change.measured_on.row
    if name == "dtype":
        return _precision(anchor, value) if same_row else "no kernel of it is of known work"
    said = {
        "hardware": f"the job was recorded with {value}" if same_row else "its kernels are too short for any figure",
        "network": "no rank has a collective on the GPU that the links carry, or these are its links",
        "overlap": f"gradients were reduced with overlap={value} already",
    }
    if name in said:
        return said[name]
    if value in (str(getattr(anchor.sizes, name, None)), "1"):
        return f"it was {value} already"
    return {"dp": "no recorded rank reduces gradients on the GPU"}.get(
        name, "nothing in the trace is told to depend on it"
    )
