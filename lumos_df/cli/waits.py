"""Commands that read who waits for whom: where nobody has asked before, it is found out first, and that is said."""

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


def match_for_query(corpus: Path, query: str) -> None:
    """Do as `match_for_views` where a query names a view that needs it. Raises `CorpusError` as that does."""
    match_for_views(corpus, _WORD.findall(query))


def match_for_views(corpus: Path, names: Iterable[str]) -> None:
    """Match the collectives of a corpus where one of these views or tables reads them and a trace has none yet.

    Says so on standard error, and where the corpus cannot be written, that waiting stays unknown.

    Raises:
        CorpusError: there is no corpus, or a trace of it cannot be read.
    """
    from lumos_df.corpus import folder, layout, view_files  # noqa: PLC0415 - slow to import
    from lumos_df.schema import COLLECTIVE_MEMBERS  # noqa: PLC0415 - as above

    if view_files.readers(COLLECTIVE_MEMBERS.name).isdisjoint(name.lower() for name in names):
        return
    layout.check(corpus)
    if not folder.traces_without(corpus, COLLECTIVE_MEMBERS):
        return
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
