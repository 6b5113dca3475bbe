"""What cannot be said of the jobs of a corpus, and why: the first lines of whatever is said of them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

TRUSTED_PCT: Final = 5.0
"""Threshold, percent of the step. A replay that is further off is said to be so before anything else. Evidence: a
judgement; a change of settings may be off by as much."""
_NAMED: Final = 3
"""Jobs that a line names."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """How much of a job was recorded, and how far its replay is off that."""

    job: str
    gpu_rows: int
    ranks: int
    world_size: int | None
    """Ranks of the job as the traces state it; None where they do not."""
    error_pct: float = 0.0
    """Distance of the replay from the recording, percent of the step; 0 where it was not replayed."""


def limits(jobs: Iterable[Recorded]) -> Iterator[str]:
    """Give one sentence for each thing that lacks in some of the jobs; jobs are named where there are several."""
    every = list(jobs)
    of_all = len(every) == 1
    if hosts := [job.job for job in every if not job.gpu_rows]:
        where = "" if of_all else f" of {_listed(hosts)}"
        yield f"only the host{where} is known: no GPU row was recorded"
    if parts := [job for job in every if job.world_size and job.ranks < job.world_size]:
        names = _listed([f"{'' if of_all else f'{job.job}, '}{job.ranks} of {job.world_size:,}" for job in parts])
        verb = "is" if len(parts) == 1 and parts[0].ranks == 1 else "are"
        where = f"{names} ranks {verb} here" if of_all else f"not all ranks are here ({names})"
        yield f"{where}: who is late, and what a change brings to the others, is known of these alone"
    if off := [job for job in every if job.error_pct > TRUSTED_PCT]:
        names = _listed([f"{'' if of_all else f'{job.job}, '}{job.error_pct:.1f}%" for job in off])
        yield f"careful: the replay is off the recording ({names}), and so may be every gain"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return "; ".join(names[:_NAMED]) + more
