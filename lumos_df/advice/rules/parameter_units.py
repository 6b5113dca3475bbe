"""Parameters gathered in many small pieces: what if fewer and larger ones were, each with the latency of one."""

from collections.abc import Iterator

import numpy as np

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.hooked_collectives import parameter_gathers
from lumos_df.advice.merged_collectives import merged
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.rules import stage_balance
from lumos_df.base.units import format_bytes, format_count, format_ns


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose larger units of FSDP where it gathers less at a time than a usual bucket of gradients."""
    gathers = parameter_gathers(advised)
    sizes = np.concatenate([np.maximum(rows.group_size, 1) for rows in advised.ranks])
    whole = gathers.moved * sizes[gathers.node]
    found = merged(advised, gathers, whole, into_first=True)
    if found is None:
        return
    goes, together, apply = found
    of_kernels = gathers.of_member[together[gathers.of_member]]
    taken = format_ns(round(gathers.transfer[of_kernels].sum() / len(advised.steps_ns)))
    yield Remedy(
        rule="parameter_units",
        what=f"small gathers of parameters take {taken} a step, {format_bytes(int(np.median(whole[together])))} at a "
        f"time, each {format_ns(round(float(np.nanmedian(gathers.latency))))} whatever its size: let a unit of FSDP be "
        "a whole layer of the model, or several (size_based_auto_wrap_policy, fully_shard of a list of blocks)",
        known=Known.REPLAYED,
        rests_on=format_count(len(gathers), "gather") + f", of which {np.count_nonzero(goes):,} would go",
        apply=apply,
        # Where units end, which is where layers do, is not known.
        uncertainty=stage_balance.WHOLE_LAYERS,
    )
