"""What a reader should know of a changed job: what goes far beyond what was measured, and what nothing listened to."""

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.job import Played
from lumos_df.schema.codes import BACKWARD
from lumos_df.schema.dtypes import precision_of
from lumos_df.whatif.durations import host_times
from lumos_df.whatif.durations.operator_times import PlannedChange, Times
from lumos_df.whatif.durations.payloads import gradient_types
from lumos_df.whatif.durations.symbols import Symbols
from lumos_df.whatif.job.recorded_job import RecordedJob
from lumos_df.whatif.job.settings import IN_SHAPES, told_precision
from lumos_df.whatif.rewrite.recomputed_layers import ATTENTIONS, LAYERS

_TRUSTED_TIMES: Final = 8.0
"""Threshold, times. A kernel that takes more than so many times as long as measured, or as short, is extrapolated.
Evidence: a judgement; errors grow with every doubling."""
_CUTS: Final = {"cp": "seq"}
"""Degrees that a size is cut by."""
_FAR_SHARE: Final = 0.1
"""Threshold, share of the time of kernels. A warning is given where more of it is extrapolated. Evidence: a
judgement."""


def extrapolated(
    times: list[Times], played: Played, sources: list[NDArray[np.int32]], makers: list[tuple[int, ...]]
) -> list[str]:
    """Return what to say where much of a job takes far longer, or shorter, than measured.

    Args:
        times: durations of the changed job, one a rank.
        played: the job as it was.
        sources: row of the original that each row is from, NONE where inserted, one a rank.
        makers: traces of the original that each rank is from.
    """
    parts: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    for time, source, ranks in zip(times, sources, makers, strict=True):
        graphs = [played.replays[rank].graph for rank in ranks]
        duration = np.concatenate([graph.own for graph in graphs])
        works = np.concatenate([graph.rows.on_gpu | host_times.works(graph) for graph in graphs])
        known = np.flatnonzero((source >= 0) & works[source])
        parts.append((duration[source[known]], time.own[known]))
    before, after = (np.concatenate(column) for column in zip(*parts, strict=True))
    far = (after > _TRUSTED_TIMES * before) | (before > _TRUSTED_TIMES * after)
    share = float(after[far].sum()) / max(float(after.sum()), 1.0)
    if share <= _FAR_SHARE:
        return []
    hosted = all(host_times.runs_here(replay.graph) for replay in played.replays)
    whose = "the host's time is operators" if hosted else "the GPU's time is kernels"
    what = f"{share:.0%} of {whose} that take over {_TRUSTED_TIMES:g} times as long or short as measured"
    return [f"extrapolated: {what}; a trace nearer to the job asked for would narrow the interval"]


def unheard(anchor: RecordedJob, change: PlannedChange) -> list[str]:
    """Return what to say of settings that the trace does not tell enough for."""
    old, new = change.old, change.new
    sized = {name: getattr(new, name) for name in (*IN_SHAPES, "cp") if getattr(old, name) != getattr(new, name)}
    words = {
        (word, axes.of_text.get(word, ()))
        for rank, axes in zip(anchor.about.ranks, change.axes, strict=True)
        for word in rank.trace.dims.words
    }
    shapes = any((rank.trace.dims.code >= 0).any() for rank in anchor.about.ranks)
    warnings = []
    if (sized or "tp" in change.settings.numbers or change.settings.batch_scale != 1) and not shapes:
        warnings.append(
            "the trace records no shapes: every kernel of the passes is taken to grow with the tokens; "
            "record with PyTorch's record_shapes=True"
        )
    elif anchor.about.facts["model"].value == "transformer":
        for name in sized.keys() - {"heads"}:
            only = Symbols(old, replace(old, **{name: sized[name]}))
            if not any(only.rescaled_text(word, labels) != word for word, labels in words):
                size = getattr(old, _CUTS.get(name, name))
                warnings.append(
                    f"{name} changes no kernel: no recorded shape is told to hold it, as {size} is another size, too, "
                    "or the part of the model that has it did not run"
                )
    if change.settings.dtype and told_precision(anchor.about) is None:
        warnings.append(
            f"the trace does not tell the data type that was used; {anchor.precision.dtype} is taken for it"
        )
    trains = any((rank.structure.phase == BACKWARD).any() for rank in anchor.about.ranks)
    if change.settings.dtype and trains and (reduced := gradient_types(anchor)):
        follow = precision_of(reduced[0]) == told_precision(anchor.about) and len(reduced) == 1
        becomes = (
            "the type of the products, and go with it" if follow else "whatever type the products have, and stay so"
        )
        warnings.append(f"gradients are reduced in {', '.join(reduced)}, {becomes}")
    if change.settings.recompute in (ATTENTIONS, LAYERS):
        warnings.append(
            f"recompute={change.settings.recompute} takes the host to launch what runs again ahead of time: where the "
            "GPU waits for the host, the step gets longer than said by up to the host's time for what is launched again"
        )
    if "batch" in change.settings.numbers and not change.settings.accumulates and (old.batch, old.pp) == (1, 1):
        warnings.append(
            f"batch={new.batch} is {new.batch} micro-batches a step, one after another, where one was recorded; "
            "micro_batch=N sets the sequences or samples of each"
        )
    moved = (old.dp, old.tp, old.batch) != (new.dp, new.tp, new.batch) or change.settings.network
    if moved and any(map(host_times.communicates, anchor.job.graphs)):
        warnings.append(
            "the job communicates on the host: that is kept as recorded, once a micro-batch, whatever the group or "
            "the network; record it with NCCL to have it estimated"
        )
    return warnings
