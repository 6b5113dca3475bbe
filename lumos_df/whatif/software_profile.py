"""The software of a recorded job: each figure brings one part of the step to what was recorded.

The estimator says of the recorded plan what its parts take, on the machine as measured. What a part takes too much or
too little is the software's: how well its kernels do beside those of one shape, how much memory-bound work there is for
each operator, what of its communication hides behind compute, what the host does once a step.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import polars as pl

from lumos_df.base.errors import QueryError
from lumos_df.model.hardware import Hardware
from lumos_df.model.software import Software
from lumos_df.whatif.answer import modelled, step_rows
from lumos_df.whatif.estimate import estimated
from lumos_df.whatif.job.recorded_gpu import Machine
from lumos_df.whatif.job.recorded_job import RecordedJob
from lumos_df.whatif.job.settings import Settings

_IN_PROPORTION: Final = {
    "compute_factor": "gemm_s",
    "attention_factor": "attention_s",
    "passes": "elementwise_s",
    "loss_bytes": "elementwise_s",
    "optimizer_traffic": "optimizer_s",
}
"""Figures that a part of the step is proportional to, or nearly so."""
_HIDDEN: Final = {"tp_backward_hidden": "tp_exposed_s", "dp_hidden": "dp_exposed_s"}
"""Shares: the more hides, the shorter is the part."""
_LAUNCHES: Final = ("launch_s", "backward_launch_s")
_HOST_EXTRAS: Final = ("collective_s", "micro_batch_s", "layer_step_s")
"""What the host does beside operators, which no launch of the corpus shows."""
_COMPUTE: Final = ("gemm_s", "attention_s", "elementwise_s")
_OF_COMPUTE: Final = (*_COMPUTE, "optimizer_s", "tp_exposed_s")
_OF_LAST: Final = ("dp_exposed_s", "host_s")
FIGURES: Final = (*_IN_PROPORTION, *_HIDDEN, *_LAUNCHES, *_HOST_EXTRAS, "step_s", "slowdown")
"""Figures of `Software` that a recorded job may set."""
_ROUNDS: Final = 4
"""Small kernels do not get shorter in proportion: so often is what is left of the difference taken."""
_BISECTIONS: Final = 30


def fitted(anchor: RecordedJob, hardware: Hardware, software: Software) -> Software:
    """Return a software as a job shows it; what the job does not have stays as it was.

    Args:
        anchor: the job.
        hardware: its GPU, with kernels and links as measured.
        software: the profile to start from, with the host's time for an operator as measured.

    Raises:
        LumosError: the estimator cannot say anything of the recorded plan: an unknown dimension or a kind of model
            that it has not.
    """
    does = modelled.habits(anchor)
    if not does.trains:
        raise QueryError(f"{anchor.about.job}: it does not train")
    machine = Machine.of(hardware, anchor.precision)

    def model(tried: Software) -> dict[str, float]:
        return modelled.results(anchor, anchor.sizes, machine, does, None, tried)

    recorded = _recorded(anchor)
    # What communication costs the kernels beside it is in their recorded time.
    profile = replace(software, slowdown=0.0)
    for _ in range(_ROUNDS):
        said = model(profile)
        figures = {
            figure: getattr(profile, figure) * recorded[part] / said[part]
            for figure, part in _IN_PROPORTION.items()
            if recorded[part] > 0 and said[part] > 0
        }
        profile = replace(profile, **figures)
    # How long the backward pass is, behind which communication hides, the host has a say in.
    profile = _with_host(profile, model, recorded["host_s"])
    for figure, part in _HIDDEN.items():
        if model(profile)[part] > 0:
            profile = _bisected(profile, figure, model, part, recorded[part])
    return profile


def _recorded(anchor: RecordedJob) -> dict[str, float]:
    """Return the parts of the recorded step, each the median over a rank's steps, s.

    Kernels and tensor parallelism are those of the rank that computes most. The host, and what nothing hides of the
    gradients' reduction, are those of the rank that waits least in it: the others wait for that one, or for the
    gradients of the stage that ends last.
    """
    rows = pl.DataFrame(step_rows.rows(estimated(anchor, Settings())))
    ranks = rows.group_by("rank").agg(pl.col(*_OF_COMPUTE, *_OF_LAST).median())
    most = ranks.sort(pl.sum_horizontal(*_COMPUTE), "rank").row(-1, named=True)
    last = ranks.sort("dp_exposed_s", "rank").row(0, named=True)
    return {name: most[name] for name in _OF_COMPUTE} | {name: last[name] for name in _OF_LAST}


_Results = Callable[[Software], dict[str, float]]


def _bisected(software: Software, figure: str, model: _Results, part: str, wanted: float) -> Software:
    """Return a software with a share between 0 and 1 at which a part is as long as recorded, or nearest to it."""
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        longer = model(_with(software, figure, middle))[part] > wanted
        low, high = (middle, high) if longer else (low, middle)
    return _with(software, figure, high)


def _with(software: Software, figure: str, value: float) -> Software:
    changed: dict[str, Any] = {figure: value}
    return replace(software, **changed)


def _with_host(software: Software, model: _Results, wanted: float) -> Software:
    """Return a software whose host lets the GPU wait as long as recorded.

    What the host's work for operators does not explain is done once a step; where that alone would let the GPU wait for
    longer, what the host does beside operators is as much less, and where that is not enough, operators are.
    """
    faster = replace(software, step_s=0.0)
    left = wanted - model(faster)["host_s"]
    if left >= 0:
        return replace(faster, step_s=left)
    for figures in (_HOST_EXTRAS, _LAUNCHES):
        slow, fast = 1.0, 0.0
        for _ in range(_BISECTIONS):
            middle = (slow + fast) / 2
            longer = model(_scaled(faster, figures, middle))["host_s"] > wanted
            slow, fast = (middle, fast) if longer else (slow, middle)
        faster = _scaled(faster, figures, fast)
        if fast > 0:
            break
    return faster


def _scaled(software: Software, figures: tuple[str, ...], factor: float) -> Software:
    changed: dict[str, Any] = {name: getattr(software, name) * factor for name in figures}
    return replace(software, **changed)
