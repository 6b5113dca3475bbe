"""What is computed when it is first asked for: who waits for whom, and what to change."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from lumos_df.base.errors import UnwritableError
from lumos_df.base.units import format_count

if TYPE_CHECKING:
    from lumos_df.graph.matching import MatchedJob

Say: TypeAlias = Callable[[str], None]
"""Is told each sentence about what was computed, or was not."""

_WORD: Final = re.compile(r"\w+")
_AT_ONCE: Final = 4_000_000
"""Operators. Of a larger corpus advice is given by `lumos-df advise` alone: jobs are replayed for it, a million a few
seconds long."""


def prepare_query(corpus: Path, query: str, say: Say) -> None:
    """Do as `prepare_views` where a query names a view that needs it. Raises `CorpusError` as that does."""
    prepare_views(corpus, _WORD.findall(query), say)


def prepare_views(corpus: Path, names: Iterable[str], say: Say) -> None:
    """Match collectives and find advice where one of these views or tables reads them and a trace has none yet.

    Where the corpus cannot be written, or advice would take long, that is said and the rest stays unknown.

    Raises:
        CorpusError: there is no corpus, or a trace of it cannot be read.
    """
    from lumos_df.corpus import folder, layout, view_files  # noqa: PLC0415 - slow to import
    from lumos_df.schema import COLLECTIVE_MEMBERS, JOB_ADVICE  # noqa: PLC0415 - as above

    asked = {name.lower() for name in names}
    layout.check(corpus)
    if asked & view_files.readers(COLLECTIVE_MEMBERS.name) and folder.traces_without(corpus, COLLECTIVE_MEMBERS):
        _match(corpus, say)
    if asked & view_files.readers(JOB_ADVICE.name) and folder.traces_without(corpus, JOB_ADVICE):
        _advise(corpus, say)


def _match(corpus: Path, say: Say) -> None:
    from lumos_df.graph.matching import match_collectives  # noqa: PLC0415 - slow to import

    try:
        jobs = match_collectives(corpus)
    except UnwritableError as error:
        say(f"collectives are not matched and waiting is unknown, because {error}")
        return
    for job in jobs:
        say(_sentence(job))


def _sentence(job: "MatchedJob") -> str:
    if len(job.ranks) == 1:
        alone = f"{job.job}: rank {job.ranks[0]} by itself"
        return f"{alone}; what a collective takes longer than the shortest alike is waiting"
    collectives = format_count(job.collectives, "collective")
    return f"matched {job.matched:,} of {collectives} of job {job.job} on {len(job.ranks)} ranks"


def _advise(corpus: Path, say: Say) -> None:
    from lumos_df.corpus.catalog import connect  # noqa: PLC0415 - slow to import

    with connect(corpus) as connection:
        ((operators,),) = connection.execute("SELECT coalesce(sum(operators), 0)::BIGINT FROM traces").fetchall()
    if not operators:
        return
    if operators > _AT_ONCE:
        why = f"with {format_count(operators, 'operator')} that takes a while"
        say(f"what to change is not known yet; {why}: lumos-df advise --corpus {corpus}")
        return
    from lumos_df.advice.job_advice import advise_new  # noqa: PLC0415 - slow to import

    try:
        jobs = advise_new(corpus)
    except UnwritableError as error:
        say(f"nobody knows what to change, because {error}")
        return
    say(f"replayed {format_count(len(jobs), 'job')} for what to change")
