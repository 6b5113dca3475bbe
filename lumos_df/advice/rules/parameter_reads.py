"""Numbers that a host reads of one parameter after another, as a log of norms does: what if it did not in each step."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.host_parameter_loops import parameter_loops
from lumos_df.advice.host_stretches import without_stretches
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns

_READS: Final = "aten::item"
"""What makes a number of Python of a tensor."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that a host without a GPU read numbers of its parameters in fewer steps: without these loops."""
    if any(rows.on_gpu.any() for rows in advised.ranks):
        return
    call, run, parameters = [], [], 0
    for place, rows in enumerate(advised.ranks):
        loops = parameter_loops(advised, place, of_optimizer=False)
        # What else is done for each parameter may be of use for training.
        reads = np.isin(loops.run, loops.run[rows.named(lambda text: text == _READS)[loops.call]])
        call.append(loops.call[reads])
        run.append(loops.run[reads])
        parameters = max(parameters, loops.parameters * bool(reads.any()))
    if not parameters:
        return
    taken, apply = without_stretches(advised, call, run)
    lasts = format_ns(round(taken / len(advised.steps_ns)))
    yield Remedy(
        rule="parameter_reads",
        what=f"numbers are read of each of {parameters} parameters, {lasts} a step: if they are for a log, in fewer "
        "steps, or stack them and read once",
        known=Known.REPLAYED,
        rests_on=format_count(sum(map(len, call)), "operator"),
        apply=apply,
    )
