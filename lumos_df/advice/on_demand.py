"""What is computed when it is first asked for: who waits for whom, stalls, what to change, critical paths and gains."""

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from lumos_df.base.errors import UnwritableError
from lumos_df.base.units import format_count

if TYPE_CHECKING:
    from lumos_df.graph.matching import MatchedJob
    from lumos_df.schema import Table

Say: TypeAlias = Callable[[str], None]
"""Is told each sentence about what was computed, or was not."""

_WORD: Final = re.compile(r"\w+")
_AT_ONCE: Final = 4_000_000
"""Operators. A larger corpus is not replayed by the way, a million takes a few seconds: `lumos-df advise` does."""


def prepare_query(corpus: Path, query: str, say: Say) -> None:
    """Do as `prepare_views` where a query names a view that needs it. Raises `CorpusError` as that does."""
    prepare_views(corpus, words(query), say)


def words(query: str) -> list[str]:
    """Return the words of a query, views among them."""
    return _WORD.findall(query)


def prepare_views(corpus: Path, names: Iterable[str], say: Say, *, paths: bool = False) -> None:
    """Match collectives, find stalls and advice where one of these views or tables reads them and a trace has none yet.

    Where the corpus cannot be written, or advice would take long, that is said and the rest stays unknown. With `paths`
    critical paths and gains of jobs that are replayed for it are stored, too.

    Raises:
        CorpusError: there is no corpus, or a trace of it cannot be read.
    """
    from lumos_df.corpus import layout, summaries, trace_rows, view_files  # noqa: PLC0415 - slow to import
    from lumos_df.schema import COLLECTIVE_MEMBERS, JOB_ADVICE, STALLS  # noqa: PLC0415 - as above

    asked = {name.lower() for name in names}
    layout.check(corpus)

    def missing(table: "Table") -> set[str]:
        return trace_rows.unanswered(corpus, table) if asked & view_files.readers(table.name) else set()

    unmatched, unadvised = missing(COLLECTIVE_MEMBERS), missing(JOB_ADVICE)
    # Advice matches the jobs that it reads. To match others by themselves takes away what was found of them.
    if unmatched - unadvised:
        _match(corpus, [], say)
        unmatched, unadvised = set(), missing(JOB_ADVICE)
    matched: list[MatchedJob] = []
    of_advice: list[str] = []
    if unadvised:
        matched = _advise(corpus, of_advice.append, paths=paths)
    if unmatched:
        _match(corpus, matched, say)
    for sentence in of_advice:
        say(sentence)
    # Advice has found those of its jobs.
    if asked & view_files.readers(STALLS.name) and trace_rows.unanswered(corpus, STALLS):
        _find_stalls(corpus, say)
    if summaries.helps(asked):
        _summarise(corpus, say)


def _summarise(corpus: Path, say: Say) -> None:
    from lumos_df.corpus import summaries  # noqa: PLC0415 - slow to import
    from lumos_df.corpus.engine import engine  # noqa: PLC0415 - as above

    # Without them every answer is the same; who asks says what is wrong with a table.
    with suppress(OSError, engine.Error):
        if kept := summaries.keep(corpus):
            say(f"summaries of {kept:,} traces are kept: until the corpus changes, reports answer from them")


def prepare_page(corpus: Path, say: Say) -> None:
    """Do as `prepare_views` for all that the page shows; find critical paths and gains of jobs that have none yet.

    Raises `CorpusError` as that does.
    """
    from lumos_df.corpus import report  # noqa: PLC0415 - slow to import

    prepare_views(corpus, report.report_views(), say, paths=True)
    _find_paths(corpus, say)


def _match(corpus: Path, matched: "list[MatchedJob]", say: Say) -> None:
    """Match the collectives of the jobs that are not yet; tell of these and of those `matched` by the way."""
    from lumos_df.graph.matching import match_collectives  # noqa: PLC0415 - slow to import

    try:
        jobs = match_collectives(corpus)
    except UnwritableError as error:
        say(f"collectives are not matched and waiting is unknown, because {error}")
        return
    for job in sorted([*matched, *jobs], key=lambda job: job.job):
        say(_sentence(job))


def _sentence(job: "MatchedJob") -> str:
    if len(job.ranks) == 1:
        alone = f"{job.job}: rank {job.ranks[0]} by itself"
        return f"{alone}; what a collective takes longer than the shortest alike is waiting"
    collectives = format_count(job.collectives, "collective")
    return f"matched {job.matched:,} of {collectives} of job {job.job} on {len(job.ranks)} ranks"


def _find_stalls(corpus: Path, say: Say) -> None:
    if not _replayed_at_once(corpus, "stalls are not known yet", "advise", say):
        return
    from lumos_df.graph.stalls import find_stalls  # noqa: PLC0415 - slow to import

    try:
        find_stalls(corpus)
    except UnwritableError as error:
        say(f"stalls are not known, because {error}")


def _advise(corpus: Path, say: Say, *, paths: bool) -> "list[MatchedJob]":
    """Store advice where there is none; return the jobs whose collectives were matched for it."""
    if not _replayed_at_once(corpus, "what to change is not known yet", "advise", say):
        return []
    from lumos_df.advice.job_advice import advise_new  # noqa: PLC0415 - slow to import

    try:
        jobs = advise_new(corpus, paths=paths)
    except UnwritableError as error:
        say(f"nobody knows what to change, because {error}")
        return []
    say(f"replayed {format_count(len(jobs), 'job')} for what to change")
    return [job.matched for job in jobs if job.matched and job.matched.collectives]


def _find_paths(corpus: Path, say: Say) -> None:
    from lumos_df.corpus.trace_rows import unanswered  # noqa: PLC0415 - slow to import
    from lumos_df.schema import CRITICAL_PATH, GAINS  # noqa: PLC0415 - as above

    missing = unanswered(corpus, CRITICAL_PATH) | unanswered(corpus, GAINS)
    unknown = "critical paths are not known yet"
    if not missing or not _replayed_at_once(corpus, unknown, "critical-path --gains", say):
        return
    from lumos_df.graph import run  # noqa: PLC0415 - slow to import

    try:
        while missing:
            missing.difference_update(run.replay(corpus, min(missing), path=True, gains=True))
    except UnwritableError as error:
        say(f"critical paths stay unknown, because {error}")


def _replayed_at_once(corpus: Path, unknown: str, command: str, say: Say) -> bool:
    """Return whether the corpus is small enough to be replayed by the way; say what is `unknown` if it is too large."""
    from lumos_df.graph.job import jobs  # noqa: PLC0415 - slow to import

    operators = sum(job.operators for job in jobs(corpus, needed=False))
    if operators > _AT_ONCE:
        why = f"with {format_count(operators, 'operator')} that takes a while"
        say(f"{unknown}; {why}: lumos-df {command} --corpus {corpus}")
    return 0 < operators <= _AT_ONCE
