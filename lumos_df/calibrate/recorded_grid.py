"""The grid of a sweep: what a file or the user names, with whatever is left out as a recorded job has it."""

from collections.abc import Sequence
from pathlib import Path

from lumos_df.calibrate.corpus_machine import on_corpus_machine
from lumos_df.estimate.grid import Grid
from lumos_df.whatif.rebuilt_plans import anchor_of, hardware_of, model_of


def of_corpus(
    grid: Path | None,
    models: Sequence[str],
    hardware: Sequence[str],
    plans: Sequence[str],
    corpus: Path,
    job: str | None,
) -> tuple[Grid, str]:
    """Return a grid on GPUs and software as a corpus shows them, and why no recorded step counts, or nothing.

    Args:
        grid: a grid's file; then the three that follow are empty.
        models: names or files; none: the model of the recorded job.
        hardware: the same of GPUs.
        plans: as `Grid.make` takes them.
        corpus: the corpus with the recorded job.
        job: which one, where it has several.

    Raises:
        LumosError: a name or plan that does not read; no such corpus or job; a model or GPU that it does not tell.
    """
    if grid is not None:
        named = Grid.read(grid)
    elif models and hardware:
        named = Grid.make(models, hardware, plans)
    else:
        ran = anchor_of(corpus, job)
        named = Grid.make(models or [model_of(ran)], hardware or [hardware_of(ran)], plans)
    return on_corpus_machine(named, corpus, job)
