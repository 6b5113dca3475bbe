"""Parameters that are gathered when a layer needs them: what if they were gathered while those before compute."""

from collections.abc import Iterator

import numpy as np

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.half_transfers import may_have_waited
from lumos_df.advice.hooked_collectives import parameter_gathers
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that each gather of parameters begin when the one before is over."""
    gathers = parameter_gathers(advised)
    if not len(gathers):
        return
    # The first of a step waits for the update of its parameters.
    idle = np.zeros(len(gathers), np.int64)
    idle[1:] = np.where(np.diff(gathers.sequence) == 0, gathers.start[1:] - gathers.end[:-1], 0)
    sooner = np.clip(idle, 0, gathers.transfer)
    if not sooner.any():
        return

    def apply(changed: ChangedGraph) -> None:
        gathers.add(changed, -sooner)

    hidden = format_ns(round(sooner[gathers.of_member].sum() / len(advised.steps_ns)))
    yield Remedy(
        rule="parameter_prefetch",
        what=f"kernels could hide {hidden} a step of the gathers of parameters, which begin when a layer needs them: "
        "gather while the layer before computes (forward_prefetch, BACKWARD_PRE, set_modules_to_forward_prefetch), "
        "with memory for one layer more",
        known=Known.REPLAYED,
        rests_on=format_count(len(gathers), "gather"),
        apply=apply,
        at_most=may_have_waited(advised, gathers.of_kernels(advised)),
    )
