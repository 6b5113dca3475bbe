"""Advice on emulated jobs, each beside the job that really ran without what is wrong.

The command of every advice shows its figure.
"""

import gzip
import re
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import polars as pl

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.evidence import evidence
from lumos_df.advice.ranked_advice import Advice, ranked
from lumos_df.advice.remedy import Remedy
from lumos_df.advice.rules import RULES
from lumos_df.base.plain_names import plain
from lumos_df.base.units import format_bytes, format_ns
from lumos_df.graph.job import groups, load
from lumos_df.trace.ingest import ingest
from tests.emulator import Job, Outcome, Profiler, simulate, training, write
from tests.emulator.device import Device

FIGURE = re.compile(r"\d[\d.]* (?:ns|us|ms|s|B|KiB|MiB|GiB)\b")
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


def _simulated(job: Job) -> Outcome:
    """Run a job, once for its traces and for how long its steps really are."""
    return _simulated_on(job, vars(training)["DEVICE"])


@lru_cache(maxsize=2)
def _simulated_on(job: Job, _gpu: Device) -> Outcome:
    return simulate(job)


def advised(folder: Path, job: Job, profiler: Profiler = BRIEF) -> Advised:
    """Run a job, read what its profiler wrote, and ask for advice."""
    write(_simulated(job), profiler, folder / "traces")
    return advice_on(folder)


def advised_on_rocm(folder: Path, job: Job) -> Advised:
    """Do the same for a job whose calls are those of HIP."""
    for path in write(_simulated(job), BRIEF, folder / "traces"):
        text = re.sub(rb"\bcuda(?=[A-Z])", b"hip", gzip.decompress(path.read_bytes()))
        path.write_bytes(gzip.compress(text, mtime=0))
    return advice_on(folder)


def advised_in_two_groups(folder: Path, job: Job, profiler: Profiler = BRIEF) -> Advised:
    """Do the same for a job of twice as many ranks, of which each half shares its parameters (HSDP)."""
    everyone = list(range(2 * job.ranks))
    for path in write(_simulated(job), profiler, folder / "traces"):
        text = gzip.decompress(path.read_bytes()).decode()
        text = text.replace(f'"world_size":{job.ranks}', f'"world_size":{2 * job.ranks}')
        rank = int(re.findall(r'"rank":(\d+)', text)[0])
        path.write_bytes(gzip.compress(text.encode(), mtime=0))
        text = text.replace(f'"rank":{rank}', f'"rank":{rank + job.ranks}', 1)
        group = re.compile(r"\[0, ?" + ", ?".join(map(str, everyone[1 : job.ranks])) + r"\]")
        text = group.sub(str(everyone[job.ranks :]), text).replace('"pg_name":"0"', '"pg_name":"1"')
        text = re.sub(r'"Process Group Name": ?"0"', '"Process Group Name": "1"', text)
        path.with_name(f"rank{rank + job.ranks}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    return advice_on(folder)


def advice_on(folder: Path) -> Advised:
    """Read the traces of a folder, and ask for advice."""
    corpus = folder / "corpus"
    assert not ingest([folder / "traces"], corpus, workers=1).failed
    loaded = load(corpus, groups(corpus)[0])
    of_job = AdvisedJob(corpus, loaded, loaded.replay())
    found = ranked(of_job, [remedy for rule in RULES for remedy in rule(of_job)])
    for advice in found:
        # A screen leaves out what looks like the parameters of a C++ function.
        assert plain(advice.remedy.what) == advice.remedy.what or "::" in advice.remedy.what
        if advice.worthwhile and not (advice.remedy.view or advice.remedy.switches or advice.remedy.bought):
            assert FIGURE.findall(advice.remedy.what)[0] in shown_figures(of_job, advice.remedy), advice.remedy.what
    return Advised(of_job, found)


def shown_figures(job: AdvisedJob, remedy: Remedy) -> set[str]:
    """Return the times and bytes that a remedy's command shows by name, by side and of all, as a person writes them."""
    sums = pl.col("taken_ns", "less_ns", "moved_bytes").sum()
    shown = pl.DataFrame(evidence(job, remedy))
    named = shown.select("taken_ns", "less_ns", "moved_bytes")
    rows = pl.concat([named, shown.group_by("side").agg(sums).drop("side"), shown.select(sums)])
    times = {format_ns(ns) for column in ("taken_ns", "less_ns") for ns in rows[column].to_list()}
    return times | {format_bytes(moved) for moved in rows["moved_bytes"].to_list()}


@cache
def mean_step_ns(job: Job) -> float:
    """Return how long the steps of a job really are, ns."""
    return float(np.mean([step.step_ns for step in _simulated(job).truth.steps]))


def true_gain_ns(wrong: Job, right: Job) -> float:
    """Return how much shorter the steps are without what is wrong, ns."""
    return mean_step_ns(wrong) - mean_step_ns(right)
