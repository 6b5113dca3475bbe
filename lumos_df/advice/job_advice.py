"""What to change in the jobs of a corpus: every rule asked, its changes simulated, the result stored."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from lumos_df import schema
from lumos_df.advice import steps_without_backward
from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.evidence import evidence
from lumos_df.advice.ranked_advice import Advice, ranked
from lumos_df.advice.remedy import Remedy
from lumos_df.advice.rules import RULES
from lumos_df.corpus import profiler_overhead, table_files
from lumos_df.corpus.folder import traces_without
from lumos_df.corpus.limits import NO_LENGTH, Recorded, limits
from lumos_df.graph import matching, replay_warnings, stalls, typical_values
from lumos_df.graph.job import doubled, groups, in_threads, load
from lumos_df.graph.rows import about
from lumos_df.graph.run import write_simulated
from lumos_df.graph.unseen_waits import said
from lumos_df.schema.codes import NONE, OTHER_KIND

NOTHING_FOUND: Final = f"nothing found that makes the step at least {typical_values.LEAST_PCT:g}% shorter"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAdvice:
    """What to change in one job."""

    job: str
    trace_ids: tuple[str, ...]
    """Its traces."""
    of_several: bool
    """Whether it is one of several runs of one rank, which have one name."""
    device_name: str | None
    """Name of its GPU."""
    ranks: int
    """Ranks that were replayed together."""
    world_size: int
    """Ranks of the job as the traces state it."""
    steps: int
    """Steps of all ranks."""
    step_ns: int
    """Mean of them in the replay, without the profiler where that was timed, ns."""
    error_pct: float
    """Mean distance between replayed and recorded step, percent of the recorded one."""
    idle_ns: int
    """Mean time of a replayed step in which no kernel runs, ns."""
    advice: tuple[Advice, ...]
    """What is worth it, what money buys last, each by its gain; then what is not."""
    limits: tuple[str, ...]
    """What cannot be said of the job, and why."""
    warnings: tuple[str, ...]
    """What a reader should know about the replay, one sentence each."""
    matched: matching.MatchedJob | None
    """Of how many collectives several ranks were found, where that was not stored before."""

    @property
    def trace_id(self) -> str:
        """Trace of its first rank, which tells it from another job of its name."""
        return self.trace_ids[0]

    def command(self, place: int) -> str:
        """Return what shows the figure of its change number `place`, after `lumos-df `."""
        return self.advice[place - 1].remedy.command(self.job, place, self.trace_id if self.of_several else "")

    @property
    def without(self) -> bool:
        """Whether most of the step is left when nobody pays for it, so that its path is stored and told.

        That is where only what money buys is worth it, or nothing; and where no single change takes away half of the
        time in which no kernel runs, since few rules know what that is about. Steps that take no time have no path.
        """
        free = [advice.gain_ns for advice in self.found if not advice.remedy.bought]
        return (not free or 2 * max(free) < self.idle_ns) and self.step_ns > 0

    @property
    def said_first(self) -> tuple[str, ...]:
        """What a reader should know before the advice: what cannot be said, and whether nothing was found."""
        return self.limits if self.found else (*self.limits, self.verdict)

    @property
    def verdict(self) -> str:
        """Why there is no advice, where none was found."""
        return NOTHING_FOUND if self.step_ns else NO_LENGTH

    @property
    def lacks_ranks(self) -> bool:
        """Whether ranks are missing that its steps may wait for: then these are stored, too."""
        return self.ranks < self.world_size and self.step_ns > 0

    @property
    def found(self) -> list[Advice]:
        """What is worth it."""
        return [advice for advice in self.advice if advice.worthwhile]


def advise(corpus: Path, job: str | None = None, trace: str | None = None) -> list[JobAdvice]:
    """Say what to change in every job of a corpus, and store it.

    Args:
        corpus: the corpus folder.
        job: only the job of this name.
        trace: only the job of this trace: its id, or the beginning of it.

    Raises:
        LumosError: no such corpus, job or trace, or it cannot be read or written.
    """
    return list(_advised(corpus, groups(corpus, trace, job)))


def advise_new(corpus: Path, *, paths: bool = False) -> list[JobAdvice]:
    """Do the same for the jobs that have a trace without stored advice. Raises as `advise` does.

    With `paths` their replays, critical paths and gains are stored, too: a job is read and replayed once for both.
    """
    missing = traces_without(corpus, schema.JOB_ADVICE)
    jobs = [ids for ids in groups(corpus, needed=False) if missing & set(ids)] if missing else []
    return list(_advised(corpus, jobs, paths=paths))


def _advised(corpus: Path, jobs: list[list[str]], *, paths: bool = False) -> Iterator[JobAdvice]:
    twice = doubled(corpus) if jobs else {}
    unmatched = traces_without(corpus, schema.COLLECTIVE_MEMBERS) if jobs else set()
    for ids in jobs:
        loaded = load(corpus, ids, twice[ids[0]])
        of_job = AdvisedJob(corpus, loaded, loaded.replay())
        found = ranked(of_job, [remedy for remedies in _of_rules(of_job) for remedy in remedies])
        replayed, recorded = of_job.replayed_ns, of_job.recorded_ns
        known = recorded > 0
        off = np.abs(replayed[known] - recorded[known]) / recorded[known]
        error_pct = 100 * float(off.mean()) if len(off) else 0.0
        world_size = max(rows.world_size for rows in of_job.ranks)
        gpu_rows = sum(int(np.count_nonzero(rows.on_gpu)) for rows in of_job.ranks)
        recording = Recorded(
            of_job.name,
            gpu_rows=gpu_rows,
            ranks=len(ids),
            world_size=world_size,
            error_pct=error_pct,
            marked=bool((of_job.step_number != NONE).any()),
            operators=sum(int(np.count_nonzero(rows.kind != OTHER_KIND)) for rows in of_job.ranks),
        )
        with ThreadPoolExecutor(1) as beside:
            stalled = beside.submit(_stalls, of_job)
            told = _warnings(corpus, of_job)
            shown = [(place, evidence(of_job, each.remedy)) for place, each in enumerate(found, 1) if each.worthwhile]
        matched = _store_waits(corpus, of_job) if unmatched & set(ids) else None
        result = JobAdvice(
            job=of_job.name,
            trace_ids=tuple(ids),
            of_several=bool(loaded.doubled),
            device_name=about(corpus, ids[0], "device_name")["device_name"],
            ranks=len(ids),
            world_size=world_size,
            steps=len(replayed),
            step_ns=round(float(of_job.steps_ns[of_job.counted].mean())),
            error_pct=error_pct,
            idle_ns=max(round(float((of_job.idle_ns - replayed + of_job.steps_ns)[of_job.counted].mean())), 0),
            advice=tuple(found),
            limits=tuple(limits([recording])),
            # Of a job of hosts alone its limits say so.
            warnings=tuple(text for text in dict.fromkeys(told) if gpu_rows or text != replay_warnings.HOST_ALONE),
            matched=matched,
        )
        for graph, of_rank in zip(of_job.graphs, stalled.result(), strict=True):
            stalls.write(corpus, graph, of_rank)
        if paths or result.without or result.lacks_ranks:
            write_simulated(corpus, loaded, of_job.played, of_job.host_works, gains=paths)
        table_files.write(corpus, ids[0], schema.ADVISED_JOBS, {"error_pct": [error_pct]})
        for number, trace_id in enumerate(ids):
            table_files.write(corpus, trace_id, schema.ADVICE_ROWS, _evidence_columns([] if number else shown))
            table_files.write(corpus, trace_id, schema.JOB_ADVICE, _columns(result, 0 if number else len(found)))
        yield result


def _of_rules(advised: AdvisedJob) -> list[list[Remedy]]:
    """Return what each rule proposes. They ask side by side: most of their time goes by in loops without the lock."""
    return in_threads(lambda rule: list(rule(advised)), RULES)


def _stalls(advised: AdvisedJob) -> list[stalls.Stalls]:
    """Return the stalls of each rank."""
    each = zip(advised.graphs, advised.host_works, advised.shapes, strict=True)
    return [stalls.find(graph, host, shape=shape) for graph, host, shape in each]


def _warnings(corpus: Path, advised: AdvisedJob) -> list[str]:
    """Return what a reader should know about the recording and its replay, one sentence each."""
    ids = [rows.trace_id for rows in advised.ranks]
    return [
        *profiler_overhead.told(corpus, ids, taken_off=advised.unprofiled is not None),
        *steps_without_backward.note(advised),
        *_unseen(advised),
        *(text for texts in replay_warnings.of_traces(advised.job) for text in texts),
    ]


def _unseen(advised: AdvisedJob) -> list[str]:
    """Return what to say of steps that do not count, for what they waited for is not in the recording."""
    left_out = [None if number == NONE else number for number in advised.step_number[~advised.counted].tolist()]
    return [said(left_out, "gains are those of the others")] if left_out else []


def _store_waits(corpus: Path, advised: AdvisedJob) -> matching.MatchedJob:
    """Store who waits for whom, which is known by now: who asks for it later would match the job again."""
    instances = advised.job.instances
    for place, rows in enumerate(advised.ranks):
        clock = None if instances is None else instances.clocks[place]
        matching.write_matched(corpus, rows, advised.waits, place, clock)
    return matching.MatchedJob.of(advised.ranks, advised.waits)


def _columns(result: JobAdvice, rows: int) -> dict[str, Any]:
    """Return the first so many rows of `job_advice` of a job."""
    chosen = result.advice[:rows]
    return {
        "place": list(range(1, rows + 1)),
        "rule": [advice.remedy.rule for advice in chosen],
        "what": [advice.remedy.what for advice in chosen],
        "step_ns": [result.step_ns] * rows,
        "gain_ns": [round(advice.gain_ns) for advice in chosen],
        "low_ns": [round(advice.low_ns) for advice in chosen],
        "high_ns": [round(advice.high_ns) for advice in chosen],
        "worthwhile": [advice.worthwhile for advice in chosen],
        "known": [str(advice.remedy.known) for advice in chosen],
        "rests_on": [advice.rests_on for advice in chosen],
        "command": [result.command(place) for place in range(1, rows + 1)],
    }


def _evidence_columns(shown: list[tuple[int, dict[str, list[Any]]]]) -> dict[str, list[Any]]:
    """Return the rows of `advice_rows` of a job: of each change by its place."""
    names = [column.name for column in schema.ADVICE_ROWS.columns if column.name not in {"trace_id", "place"}]
    columns = {name: [value for _, rows in shown for value in rows[name]] for name in names}
    return {"place": [place for place, rows in shown for _ in rows["name"]], **columns}
