"""Parameters that ranks gather in float32 to multiply in 16 bits: what if they were cast before."""

from collections.abc import Iterator

import numpy as np

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.half_transfers import may_have_waited
from lumos_df.advice.hooked_collectives import parameters_given
from lumos_df.advice.kernel_calls import SINGLE_BYTES
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_bytes, format_count


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose half the bytes for parameters in 32 bits, where the job multiplies in 16.

    Each rank casts its part, or its optimizer writes it in 16 bits, which takes next to nothing beside a gather.
    """
    gathers = parameters_given(advised)
    single = gathers.element == SINGLE_BYTES
    if not single.any() or not any(calls.half_precisions() for calls in advised.kernel_calls):
        return
    # Without two sizes nothing tells the latency, and the whole transfer is taken to grow with the bytes.
    growing = np.maximum(gathers.transfer - np.nan_to_num(gathers.latency), 0)
    part = np.where(single, growing / 2 / np.maximum(gathers.transfer, 1), 0)

    def apply(changed: ChangedGraph) -> None:
        gathers.add(changed, -np.round(gathers.left(changed) * part).astype(np.int64))

    steps = len(np.unique(gathers.sequence))
    yield Remedy(
        rule="parameter_precision",
        what=f"{format_bytes(int(gathers.moved[single].sum()) // steps)} of parameters are gathered in float32 from "
        "each rank a step, to multiply in 16 bits: gather them in 16 (param_dtype of MixedPrecision)",
        known=Known.REPLAYED,
        rests_on=format_count(int(np.count_nonzero(single)), "gather"),
        apply=apply,
        at_most=may_have_waited(advised, gathers.of_kernels(advised)),
    )
