"""Wrong files through everything that reads them: each is read or refused in a line, and never by a traceback."""

import contextlib
import gzip
import io
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from lumos_df.base.errors import LumosError
from lumos_df.cli.main import main
from lumos_df.corpus.catalog import connect
from lumos_df.trace.ingest import ingest
from tests.torture import blocks, mutations, pickles, profiles
from tests.trace.corpora import unread_dictionaries

SAMPLES = Path(__file__).parents[2] / "data" / "traces"
COMMANDS = (
    ("replay",),
    ("critical-path",),
    ("describe",),
    ("advise",),
    ("report",),
    ("report", "--html", "page.html"),
    ("export", "--what", "perfetto", "--output", "timeline.json"),
    ("export", "--what", "chakra", "--output", "nodes"),
)


@cache
def documents() -> list[dict[str, Any]]:
    """Return one sample trace of each job, as JSON."""
    found = []
    for job in sorted(folder for folder in SAMPLES.iterdir() if folder.is_dir()):
        file = min(job.glob("*.json*"))
        data = file.read_bytes()
        found.append(json.loads(gzip.decompress(data) if file.suffix == ".gz" else data))
    return found


def wrong(seed: int) -> bytes:
    """Return one of all documents, wrong in the seed's way."""
    traces = documents()
    of = seed % (len(traces) + len(pickles.DOCUMENTS) + len(profiles.KINDS))
    if of < len(traces):
        return mutations.mutated(traces[of], seed)
    if (kind := of - len(traces)) < len(profiles.KINDS):
        return profiles.mutated(kind, seed)
    return pickles.mutated(pickles.DOCUMENTS[kind - len(profiles.KINDS)], seed)


def faults(data: bytes, seed: int) -> Iterator[str]:
    """Yield what goes wrong with one wrong file: a line for each step that ends otherwise than it should."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        file = Path("rank0.json")
        file.write_bytes(data)
        try:
            result = ingest([file], "corpus", workers=1)
        except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
            yield f"seed {seed}: ingest: {_last_line(traceback.format_exc())}"
            return
        if Path(pickles.RAN).exists():
            yield f"seed {seed}: ingest: code of the file was run"
        for failed in result.failed:
            if "fault of lumos-df" in failed.message or "\n" in failed.message:
                yield f"seed {seed}: ingest: {failed.message}"
        yield from blocks.faults(data, seed)
        if result.done:
            yield from (f"seed {seed}: {fault}" for fault in (*_views(Path("corpus")), *_commands()))
            yield from (f"seed {seed}: unread dictionary of {column}" for column in unread_dictionaries(Path("corpus")))


def _views(corpus: Path) -> Iterator[str]:
    with connect(corpus) as connection:
        names = connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
        for (name,) in names:
            try:
                connection.execute(f"FROM {name}").fetchall()
            except Exception as error:  # noqa: BLE001 - as above
                yield f"view {name}: {_last_line(str(error))}"


def _commands() -> Iterator[str]:
    for command in COMMANDS:
        said = _run(*command, "--corpus", "corpus")
        if said:
            yield f"{' '.join(command)}: {said}"


def _run(*arguments: str) -> str:
    """Run the command line in this process; return what it should not have said, or how else it failed."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    before, sys.argv = sys.argv, ["lumos-df", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as stop:
        if stop.code not in (None, 0, 1):
            return f"exit {stop.code}: {_last_line(_said(err))}"
    except LumosError as error:
        return f"not caught: {error}"
    except Exception:  # noqa: BLE001 - as above
        return _last_line(traceback.format_exc())
    finally:
        sys.argv = before
    return _last_line(_said(err)) if "Traceback" in _said(err) else ""


def _said(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    return buffer.getvalue().decode() if isinstance(buffer, io.BytesIO) else ""


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1] if text.strip() else "nothing said"


def seeds(first: int | None) -> Iterator[int]:
    """Yield seeds from `first` on, by default from one that nobody chose."""
    seed = int.from_bytes(os.urandom(4)) if first is None else first
    while True:
        yield seed
        seed += 1
