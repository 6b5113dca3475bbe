"""Steps of a job in training that have no backward pass, such as validation: they are no faster training."""

import numpy as np

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.base.units import format_ns
from lumos_df.schema.codes import BACKWARD, NONE


def note(advised: AdvisedJob) -> list[str]:
    """Return a sentence about the marked steps without a backward pass, where others of their rank have one."""
    bounds = np.cumsum([len(replay.low) for replay in advised.played.replays])[:-1]
    without = []
    for rank, number in enumerate(np.split(advised.step_number, bounds)):
        trained = np.unique(advised.ranks[rank].step[advised.phase(rank) == BACKWARD])
        marked = number != NONE
        has = np.isin(number, trained) & marked
        without.append(marked & ~has & has.any())
    of_job = np.concatenate(without)
    if not of_job.any():
        return []
    lengths = [format_ns(round(float(advised.steps_ns[chosen].mean()))) for chosen in (of_job, ~of_job)]
    told = f"{np.count_nonzero(of_job)} of {len(of_job)} steps have no backward pass, such as validation"
    return [f"{told}: they take {lengths[0]}, the others {lengths[1]}, and gains are means over all"]
