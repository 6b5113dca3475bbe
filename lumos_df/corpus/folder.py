"""The corpus folder around its writers: may it be written, what is in, what did dead writers leave.

No pyarrow here: a command that hands files to workers says what is wrong, and starts them, without waiting for it.
"""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lumos_df.base.errors import CorpusError
from lumos_df.base.files import unwritable
from lumos_df.base.locks import hold, is_held, remove_free
from lumos_df.corpus.layout import CATALOG, EMPTY_PARTITION, ESTIMATE, MANIFEST, STAGING, check, trace_folder
from lumos_df.schema import Table


def open_for_writing(corpus: Path) -> None:
    """Make the folder `corpus` if it is not there; remove what dead writers left.

    Raises:
        CorpusError: it is another version's, or a folder of other things, or may not be written.
    """
    try:
        corpus.mkdir(parents=True, exist_ok=True)
        created = (MANIFEST, EMPTY_PARTITION, CATALOG)  # without a manifest: another writer may be making it right now
        if not (corpus / MANIFEST).exists() and any(
            entry.name not in created and not entry.name.startswith(".") for entry in corpus.iterdir()
        ):
            raise CorpusError(f"{corpus}: not empty and not a corpus (no {MANIFEST}); give an empty or new folder")
        if (corpus / MANIFEST).exists():
            check(corpus)
        (corpus / STAGING).mkdir(exist_ok=True)
        _remove_leftovers(corpus / STAGING)
    except OSError as error:
        raise CorpusError(unwritable(corpus, error)) from None


def lock_of(folder: Path) -> Path:
    """Return the file that a writer holds, as `base.locks` does, from before its staging folder is there."""
    return folder.with_name(f"{folder.name}.lock")


@contextmanager
def scratch(corpus: Path) -> Iterator[Path]:
    """Give a new folder for what a command needs while it runs; if it is killed, the next writer removes it.

    Raises `CorpusError` where it cannot be made.
    """
    open_for_writing(corpus)
    folder = corpus / STAGING / secrets.token_hex(8)
    try:
        lock = hold(lock_of(folder))
        folder.mkdir()
    except OSError as error:
        raise CorpusError(unwritable(corpus, error)) from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock_of(folder).unlink(missing_ok=True)
        os.close(lock)


def _remove_leftovers(staging: Path) -> None:
    """Remove the folders that no writer holds, and then their locks."""
    for folder in staging.iterdir():
        if folder.suffix != ".lock" and not is_held(lock_of(folder)):
            shutil.rmtree(folder, ignore_errors=True)
    for lock in staging.glob("*.lock"):
        if not lock.with_suffix("").exists():
            remove_free(lock)


def trace_ids(corpus: Path) -> set[str]:
    """Return the ids of the traces that are in."""
    prefix = "trace_id="
    with os.scandir(corpus) as entries:
        names = [entry.name for entry in entries]
    return {name.removeprefix(prefix) for name in names if name.startswith(prefix) and name != EMPTY_PARTITION}


def traces_without(corpus: Path, table: Table) -> set[str]:
    """Return the ids of the traces of which a table is not there; estimates of jobs without traces do not count."""
    # No paths as objects: of ten thousand traces these would take longer than to look.
    stored = os.fspath(trace_folder(corpus, "{}") / f"{table.name}.parquet")
    before, _, after = stored.rpartition("{}")
    return {
        trace_id
        for trace_id in trace_ids(corpus)
        if not trace_id.startswith(ESTIMATE) and not os.path.exists(f"{before}{trace_id}{after}")  # noqa: PTH110 - see above
    }
