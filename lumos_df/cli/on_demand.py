"""What commands compute when it is first asked for: who waits for whom, what to change, critical paths."""

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lumos_df.base.errors import UnwritableError
from lumos_df.base.units import format_count

if TYPE_CHECKING:
    from lumos_df.graph.matching import MatchedJob

_WORD: Final = re.compile(r"\w+")
_AT_ONCE: Final = 4_000_000
"""Operators. A larger corpus is not replayed by the way, a million takes a few seconds: `lumos-df advise` does."""


def prepare_query(corpus: Path, query: str) -> None:
    """Do as `prepare_views` where a query names a view that needs it. Raises `CorpusError` as that does."""
    prepare_views(corpus, _WORD.findall(query))


def prepare_views(corpus: Path, names: Iterable[str]) -> None:
    """Match collectives and find advice where one of these views or tables reads them and a trace has none yet.

    Says so on standard error, and where the corpus cannot be written, what stays unknown.

    Raises:
        CorpusError: there is no corpus, or a trace of it cannot be read.
    """
    from lumos_df.corpus import folder, layout, view_files  # noqa: PLC0415 - slow to import
    from lumos_df.schema import COLLECTIVE_MEMBERS, JOB_ADVICE  # noqa: PLC0415 - as above

    asked = {name.lower() for name in names}
    layout.check(corpus)
    if asked & view_files.readers(COLLECTIVE_MEMBERS.name) and folder.traces_without(corpus, COLLECTIVE_MEMBERS):
        _match(corpus)
    if asked & view_files.readers(JOB_ADVICE.name) and folder.traces_without(corpus, JOB_ADVICE):
        _advise(corpus)


def prepare_page(corpus: Path) -> None:
    """Do as `prepare_views` for all that the page shows, and find the critical paths of jobs that have none yet.

    Raises `CorpusError` as that does.
    """
    from lumos_df.corpus import report  # noqa: PLC0415 - slow to import

    prepare_views(corpus, report.report_views())
    _find_paths(corpus)


def _match(corpus: Path) -> None:
    from lumos_df.graph.matching import match_collectives  # noqa: PLC0415 - slow to import

    try:
        jobs = match_collectives(corpus)
    except UnwritableError as error:
        print(f"collectives are not matched and waiting is unknown, because {error}", file=sys.stderr)
        return
    for job in jobs:
        print(_sentence(job), file=sys.stderr)


def _sentence(job: "MatchedJob") -> str:
    if len(job.ranks) == 1:
        alone = f"{job.job}: rank {job.ranks[0]} by itself"
        return f"{alone}; what a collective takes longer than the shortest alike is waiting"
    collectives = format_count(job.collectives, "collective")
    return f"matched {job.matched:,} of {collectives} of job {job.job} on {len(job.ranks)} ranks"


def _advise(corpus: Path) -> None:
    if not _replayed_at_once(corpus, "what to change is not known yet", "advise"):
        return
    from lumos_df.advise.advise import advise_new  # noqa: PLC0415 - slow to import

    try:
        jobs = advise_new(corpus)
    except UnwritableError as error:
        print(f"nobody knows what to change, because {error}", file=sys.stderr)
        return
    print(f"replayed {format_count(len(jobs), 'job')} for what to change", file=sys.stderr)


def _find_paths(corpus: Path) -> None:
    from lumos_df.corpus.folder import traces_without  # noqa: PLC0415 - slow to import
    from lumos_df.schema import CRITICAL_PATH  # noqa: PLC0415 - as above

    missing = traces_without(corpus, CRITICAL_PATH)
    if not missing or not _replayed_at_once(corpus, "critical paths are not known yet", "critical-path"):
        return
    from lumos_df.graph import run  # noqa: PLC0415 - slow to import

    try:
        while missing:
            missing.difference_update(run.replay(corpus, min(missing), path=True))
    except UnwritableError as error:
        print(f"critical paths stay unknown, because {error}", file=sys.stderr)


def _replayed_at_once(corpus: Path, unknown: str, command: str) -> bool:
    """Return whether the corpus is small enough to be replayed by the way; say what is `unknown` if it is too large."""
    from lumos_df.corpus.catalog import connect  # noqa: PLC0415 - slow to import

    with connect(corpus) as connection:
        ((counted,),) = connection.execute("SELECT coalesce(sum(operators), 0)::BIGINT FROM traces").fetchall()
    operators = int(counted)
    if operators > _AT_ONCE:
        why = f"with {format_count(operators, 'operator')} that takes a while"
        print(f"{unknown}; {why}: lumos-df {command} --corpus {corpus}", file=sys.stderr)
    return 0 < operators <= _AT_ONCE
