"""Many trace files into one corpus."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from lumos_df.base.errors import ROOM, LumosError, TraceError, shortage
from lumos_df.base.files import reason
from lumos_df.base.kernel_cache import COMPILING, compiled
from lumos_df.base.location import is_url
from lumos_df.base.runner import Engine, Progress, Report, map_items, works_here
from lumos_df.base.runner import shard as shard_of
from lumos_df.corpus.catalog_file import publish_kept
from lumos_df.corpus.folder import open_for_writing, trace_ids
from lumos_df.corpus.layout import CATALOG, MANIFEST
from lumos_df.corpus.object_store import stored
from lumos_df.trace import formats, sources
from lumos_df.trace.execution_pairing import pair
from lumos_df.trace.result import Failed, Ingested, IngestResult, Sampled, Skipped
from lumos_df.trace.sample import sample as choose

__all__ = ["Failed", "IngestResult", "Ingested", "Sampled", "Skipped", "ingest"]

_UNCHANGED: Final = "already in the corpus, and not changed on its store"
Fate = TypeVar("Fate", Ingested, Skipped, Failed)


def ingest(  # noqa: PLR0913  # each says one thing of the files
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    corpus: str | os.PathLike[str],
    *,
    rank: int | None = None,
    job: str | None = None,
    step_from: str | None = None,
    rank_from: str | None = None,
    workers: int | None = None,
    engine: Engine | str = Engine.PROCESSES,
    address: str | None = None,
    shard: tuple[int, int] = (0, 1),
    sample: int | None = None,
    report: Report | None = None,
) -> IngestResult:
    """Read trace files into a corpus, which is made if it is not there.

    Args:
        paths: files, folders, globs, URLs, or `-` for standard input; one, or several.
        corpus: the corpus folder, or the URL of a corpus on a store.
        rank: rank of the traces, over what the files say; of a file of several processes that does not say it, the
            first one's.
        job: job of the traces; by default the name of each file's folder.
        step_from: name of the ranges that are steps, `*` for any text: `Iteration *`. By default torch.profiler's
            marks; in files of other profilers else ranges that repeat and cover half of the trace.
        rank_from: name of a range whose first `*` is the process's rank: `rank *`; or `path:REGEX`, whose group is the
            rank in each file's path: `path:gpu([0-9]+)`. The option `rank` is over it.
        workers: processes; by default one a CPU, and no more than files.
        engine: where files are read: `serial` (here), `processes`, or `ray`; on a cluster, files and corpus are on a
            disk that all its machines share, under the same names.
        address: HOST:PORT of a Ray cluster to join; else one starts here.
        shard: (i, n): take only the i-th (from 0) of n parts of the files, for n independent jobs on one corpus.
        sample: of each job read at most so many files, chosen by their names: spread evenly in the order in which a
            person counts, the first and the last among them. Of those left out at most the first bytes are looked at,
            to tell an execution trace. Each part of `shard` takes its part of the sample.
        report: told how far it is.

    Returns:
        What became of every file; a bad file is a `Failed` and the others still go in.

    Raises:
        LumosError: the corpus cannot be written, the paths name no file, `rank_from` is no rule, or `sample` is
            below 1.

    What was replayed of a job that has more ranks now is removed. Where the catalogue cannot be written, the files are
    in before that is raised; where files failed, too, they are what is told: a full disk keeps out both, and who reads
    the corpus makes the catalogue.
    """
    with stored(corpus) as folder:
        return _ingest(
            paths,
            folder,
            {"rank": rank, "job": job, "step_from": step_from, "rank_from": rank_from},
            workers=workers,
            engine=Engine(engine),
            address=address,
            shard=shard,
            sample=sample,
            report=report,
        )


def _ingest(  # noqa: PLR0913  # as above
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    folder: Path,
    said: dict[str, Any],
    *,
    workers: int | None,
    engine: Engine,
    address: str | None,
    shard: tuple[int, int],
    sample: int | None,
    report: Report | None,
) -> IngestResult:
    sources.path_pattern(said["rank_from"])  # one fault of all files
    named = [paths] if isinstance(paths, str | os.PathLike) else paths
    expanded, bad = sources.expand([os.fspath(path) for path in named])
    if not expanded:
        raise TraceError("; ".join(message for _, message in bad))
    traces, execution_of, unpaired = pair(expanded)
    bad += [
        (path, f"{path}: an execution trace without its Kineto file; put rank0.et.json beside rank0.json")
        for path in unpaired
    ]
    chosen, sampled = (traces, {}) if sample is None else choose(traces, sample, said["job"])
    files = shard_of(chosen, *shard)
    new = not (folder / MANIFEST).exists()
    open_for_writing(folder)
    known = trace_ids(folder)
    warned = {path: str(of_job) for path, of_job in sampled.items()}
    task = partial(_take_in, corpus=folder, said=said, execution_of=execution_of, warned=warned, look_first=bool(known))
    if any(map(sources.is_stream, files)):
        engine = Engine.SERIAL  # what is read once is open in this process
    done: dict[int, Ingested] = {}
    unread = _unchanged(folder, files) if known else set()
    skipped = {index: Skipped(path, _UNCHANGED) for index, path in enumerate(files) if path in unread}
    left = [index for index in range(len(files)) if index not in skipped]
    failed = {index - len(bad): Failed(path, message) for index, (path, message) in enumerate(bad)}
    if not compiled():
        if report:
            report(Progress(0, len(files), COMPILING))
        formats.compile_kernels()
    # The workers import what the work needs while this process waits, so here nothing heavy is imported before.
    each = [files[index] for index in left]
    catalog = _CatalogBeside(folder, new=new)
    if works_here(each, workers, engine):
        task = partial(task, meanwhile=catalog.begin)
    for outcome in map_items(task, each, workers=workers, engine=engine, address=address, report=report):
        catalog.end()
        index, value = left[outcome.index], outcome.value
        path = files[index]
        if isinstance(value, Ingested):
            done[index] = value
        elif isinstance(value, Skipped):
            skipped[index] = value
        else:
            failed[index] = Failed(path, _one_line(path, outcome.error))
    if not failed:
        catalog.check()
    jobs = tuple(dict.fromkeys(sampled.values()))
    return IngestResult(_in_order(done), _in_order(skipped), _in_order(failed), jobs)


def _unchanged(folder: Path, files: Sequence[str]) -> set[str]:
    if not any(map(is_url, files)):
        return set()
    from lumos_df.trace.origins import unchanged  # noqa: PLC0415  # DuckDB and pyarrow: see ingest()

    return unchanged(folder, files)


def _in_order(fates: dict[int, Fate]) -> tuple[Fate, ...]:
    return tuple(fates[index] for index in sorted(fates))


def _take_in(
    path: str,
    corpus: Path,
    said: dict[str, Any],
    *,
    execution_of: dict[str, str],
    warned: dict[str, str],
    look_first: bool,
    meanwhile: Callable[[], None] | None = None,
) -> Ingested | Skipped:
    from lumos_df.trace.intake import take_in  # noqa: PLC0415  # numba and pyarrow: see ingest()

    of_path = sources.path_pattern(said["rank_from"]) if said["rank"] is None else None
    if of_path:
        said = said | {"rank": sources.rank_of(path, of_path)}
    sampled, execution = warned.get(path), execution_of.get(path)
    return take_in(
        path, corpus, execution=execution, sampled=sampled, look_first=look_first, meanwhile=meanwhile, **said
    )


class _CatalogBeside:
    """Writes a new corpus's catalogue while a large file is read in this process: it holds views, no rows."""

    def __init__(self, folder: Path, *, new: bool) -> None:
        self._write = partial(_write_catalog, folder, new=new)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lumos-df-catalog")
        self._writing: Future[None] | None = None
        self._refused: LumosError | None = None

    def begin(self) -> None:
        """Begin to write it, once."""
        self._writing = self._writing or self._thread.submit(self._write)

    def end(self) -> None:
        """Wait until it is written, or write it now. What keeps it from that keeps no file out."""
        if self._refused:
            return
        try:
            if self._writing is None:
                self._write()
            else:
                self._writing.result()
        except LumosError as error:
            self._refused = error

    def check(self) -> None:
        """Raise `CorpusError`, as `write_catalog` does, where it was not written."""
        if self._refused:
            raise self._refused


def _write_catalog(folder: Path, *, new: bool) -> None:
    if not (folder / MANIFEST).exists() or (folder / CATALOG).exists():
        return
    if not new or not publish_kept(folder):
        from lumos_df.corpus import catalog  # noqa: PLC0415  # DuckDB, for the first catalogue of these views

        catalog.write_catalog(folder, new=new)


def _one_line(path: str, error: Exception | None) -> str:
    if isinstance(error, LumosError):
        text = str(error)
    elif error is not None and (short := shortage(error)):
        text = f"{short}; give fewer --workers, {ROOM}"
    elif isinstance(error, OSError):
        text = f"cannot be written to the corpus ({reason(error)}); check the disk's space and permissions"
    else:
        text = f"{type(error).__name__}: {error}; this is a fault of lumos-df, please report it with the file"
    text = " ".join(text.split())
    name = sources.STDIN_NAME if path == sources.STDIN else path
    return text if text.startswith((path, name)) else f"{name}: {text}"
