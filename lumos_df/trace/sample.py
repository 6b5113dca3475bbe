"""Some of a job's files in place of all: which, and what is said of them."""

from collections import defaultdict
from collections.abc import Sequence

from lumos_df.base.errors import LumosError
from lumos_df.trace.result import Sampled
from lumos_df.trace.sources import job_of, natural_order


def sample(files: Sequence[str], count: int, job: str | None) -> tuple[list[str], dict[str, Sampled]]:
    """Choose at most `count` files of each job by their names, spread evenly, the first and the last among them.

    Args:
        files: paths and URLs, each once.
        count: files of a job; of a job with no more all are chosen.
        job: the job of all of them; by default the name of each file's folder.

    Returns:
        The chosen files in the order of `files`; and of each that stands for others what was chosen of its job. The
        same names give the same files, whatever order they come in.

    Raises:
        LumosError: `count` is below 1.
    """
    if count < 1:
        raise LumosError(f"--sample {count}: give the files to read of each job, 1 or more")
    of_job: dict[str, list[str]] = defaultdict(list)
    for file in files:
        of_job[job or job_of(file)].append(file)
    left_out: set[str] = set()
    sampled: dict[str, Sampled] = {}
    for name, every in of_job.items():
        if len(every) <= count:
            continue
        ordered = natural_order(every)
        chosen = [ordered[place] for place in _spread(len(ordered), count)]
        left_out.update(set(ordered).difference(chosen))
        sampled |= dict.fromkeys(chosen, Sampled(name, len(chosen), len(ordered), count))
    return [file for file in files if file not in left_out], sampled


def _spread(length: int, count: int) -> list[int]:
    """Return `count` of the places 0 ... `length` - 1, as evenly as whole numbers are, both ends among them."""
    gaps = max(count - 1, 1)
    return [(2 * place * (length - 1) + gaps) // (2 * gaps) for place in range(count)]
