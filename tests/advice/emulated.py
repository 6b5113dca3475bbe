"""Advice on emulated jobs, each beside the job that really ran without what is wrong."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.ranked_advice import Advice, ranked
from lumos_df.advice.rules import RULES
from lumos_df.graph.job import groups, load
from lumos_df.trace.ingest import ingest
from tests.emulator import Job, Profiler, simulate, write

BRIEF = Profiler(stacks=False, memory=False)


@dataclass(frozen=True)
class Advised:
    """What is said of an emulated job."""

    job: AdvisedJob
    advice: list[Advice]

    @property
    def first(self) -> Advice:
        """The first advice."""
        return self.advice[0]

    def of_rule(self, rule: str) -> list[Advice]:
        """What one rule proposed, and is worth it."""
        return [advice for advice in self.advice if advice.worthwhile and advice.remedy.rule == rule]


def advised(folder: Path, job: Job, profiler: Profiler = BRIEF) -> Advised:
    """Run a job, read what its profiler wrote, and ask for advice."""
    write(simulate(job), profiler, folder / "traces")
    corpus = folder / "corpus"
    assert not ingest([folder / "traces"], corpus, workers=1).failed
    loaded = load(corpus, groups(corpus)[0])
    of_job = AdvisedJob(corpus, loaded, loaded.replay())
    return Advised(of_job, ranked(of_job, [remedy for rule in RULES for remedy in rule(of_job)]))


@cache
def mean_step_ns(job: Job) -> float:
    """Return how long the steps of a job really are, ns."""
    return float(np.mean([step.step_ns for step in simulate(job).truth.steps]))


def true_gain_ns(wrong: Job, right: Job) -> float:
    """Return how much shorter the steps are without what is wrong, ns."""
    return mean_step_ns(wrong) - mean_step_ns(right)
