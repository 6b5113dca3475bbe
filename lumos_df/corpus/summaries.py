"""Summaries of many traces: what reports ask for first, in a few Parquet files beside the traces.

A corpus of ten thousand ranks has a file a rank and table, and to open them all takes longer than most answers. So the
small tables, and the views that others add up, are written once with many ranks a file. They hold as long as no file of
a trace was added, replaced or removed, which every writer does by a rename inside its folder; the files of the traces
stay what counts, and without summaries every answer is the same.
"""

import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lumos_df.base.files import publish_folder
from lumos_df.base.locks import hold
from lumos_df.corpus import definitions
from lumos_df.corpus.folder import lock_of
from lumos_df.corpus.layout import EMPTY_PARTITION, STAGING, SUMMARIES
from lumos_df.corpus.view_files import read_by, readers, views
from lumos_df.schema import COLLECTIVE_MEMBERS, JOB_ADVICE, TABLES, TRACES

_TABLES: Final = (TRACES.name, COLLECTIVE_MEMBERS.name, JOB_ADVICE.name)
_OF_TRACES: Final = ("_step", "_gpu_stretch", "kernel_summary")
"""Views whose rows are of one trace each, so that a part of the traces has its part of the rows."""
_OF_JOBS: Final = ("straggler",)
_AT_LEAST: Final = 256
"""Traces. With fewer, every answer comes within seconds without summaries."""
_OF_A_FILE: Final = 512
"""Traces of a file, and in memory at once."""
_TICK_S: Final = 0.05
"""Within so much time, two changes of a folder may bear the same time."""


def current(corpus: Path) -> tuple[str, frozenset[str]]:
    """Return the folder of a corpus's summaries, from the corpus, and which tables and views are in it; none: empty."""
    state = _state(corpus)
    if not state or not (corpus / SUMMARIES / state).is_dir():
        return "", frozenset()
    return f"{SUMMARIES}/{state}", frozenset((*_TABLES, *_OF_TRACES, *_OF_JOBS))


def many(corpus: Path) -> bool:
    """Return whether a corpus has so many traces that summaries of them are kept."""
    return len(_folders(corpus)) >= _AT_LEAST


def helps(names: set[str]) -> bool:
    """Return whether summaries would answer one of some views sooner."""
    return any(names & readers(name) for name in (*_OF_TRACES, *_OF_JOBS))


def keep(corpus: Path) -> int:
    """Write the summaries of a corpus, unless they are there or it is small; return of how many traces, 0 for none.

    They are dropped where another command changes a trace meanwhile. Raises `OSError` where the corpus cannot be
    written, DuckDB's `Error` where a table cannot be read.
    """
    if not many(corpus):
        return 0
    time.sleep(_TICK_S)
    state = _state(corpus)
    if not state or (corpus / SUMMARIES / state).is_dir():
        return 0
    traces = sorted(_folders(corpus))
    draft = corpus / STAGING / secrets.token_hex(8)
    draft.parent.mkdir(exist_ok=True)
    lock = hold(lock_of(draft))
    try:
        draft.mkdir()
        for first in range(0, len(traces), _OF_A_FILE):
            _write(corpus, traces[first : first + _OF_A_FILE], (*_TABLES, *_OF_TRACES), draft, first)
        _write(corpus, traces, _OF_JOBS, draft, 0)
        if _state(corpus) != state:
            return 0
        (corpus / SUMMARIES).mkdir(exist_ok=True)
        publish_folder(draft, corpus / SUMMARIES / state)
        for older in (corpus / SUMMARIES).iterdir():
            if older.name != state:
                shutil.rmtree(older, ignore_errors=True)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        lock_of(draft).unlink(missing_ok=True)
        os.close(lock)
    return len(traces)


def _write(corpus: Path, traces: Sequence[str], names: Sequence[str], into: Path, number: int) -> None:
    """Write the rows that views and tables have of some traces, a file each."""
    from lumos_df.corpus.engine import engine  # noqa: PLC0415 - as below

    read = read_by(names)
    with engine.connect() as connection:
        for table in TABLES:
            if table.name in read:
                files = [corpus / trace / f"{table.name}.parquet" for trace in traces]
                connection.execute(definitions.of_files(corpus, table, [file for file in files if file.exists()]))
        for view in views():
            if view.name in read:
                connection.execute(view.sql)
        for name in names:
            target = definitions.quoted(str(into / f"{name}-{number:06}.parquet"))
            connection.execute(f"COPY (FROM {name}) TO {target} (FORMAT parquet, COMPRESSION zstd)")


def _folders(corpus: Path) -> dict[str, int]:
    """Return the folders of the traces, and when each was last changed, ns."""
    with os.scandir(corpus) as entries:
        named = [entry for entry in entries if entry.name.startswith("trace_id=") and entry.name != EMPTY_PARTITION]
        return {entry.name: entry.stat().st_mtime_ns for entry in named}


def _state(corpus: Path) -> str:
    """Return what summaries are made of, 32 hex digits: the traces as they are, and the definitions; empty of a few."""
    folders = _folders(corpus)
    if len(folders) < _AT_LEAST:
        return ""
    from lumos_df.corpus.engine import engine  # noqa: PLC0415 - slow to import, and few corpora have summaries

    below = read_by((*_OF_TRACES, *_OF_JOBS))
    defined = [view.sql for view in views() if view.name in below]
    return hashlib.sha256(repr((engine.__version__, defined, sorted(folders.items()))).encode()).hexdigest()[:32]
