"""Writers that are killed: what they leave is what was there before, or whole, and the next command completes it."""

import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from lumos_df.corpus.catalog import connect
from lumos_df.corpus.layout import MANIFEST, STAGING
from lumos_df.trace.ingest import ingest
from tests.torture.files import SAMPLES

_LUMOS = (sys.executable, "-m", "lumos_df")
_TRACES = SAMPLES / "gpu_generated"
COMMANDS = (
    ("ingest", str(_TRACES), "--corpus", "corpus", "--workers", "1"),
    ("ingest", str(_TRACES), "--corpus", "corpus", "--workers", "2"),
    ("replay", "--corpus", "corpus"),
    ("critical-path", "--corpus", "corpus", "--gains"),
    ("advise", "--corpus", "corpus"),
    ("describe", "--corpus", "corpus"),
    ("estimate", "--corpus", "corpus", "--set", "network=1e9", "--into", "corpus"),
    ("report", "--corpus", "corpus", "--output", "report"),
    ("report", "--corpus", "corpus", "--html", "page.html"),
    ("export", "--what", "perfetto", "--corpus", "corpus", "--output", "timeline.json"),
    ("critical-path", "--corpus", "corpus", "--engine", "processes", "--workers", "2"),
    (
        *("sweep", "--model", "llama-3-8b", "--hardware", "h100-sxm", "--gpus", "256", "--batch", "512"),
        *("--output", "plans", "--engine", "processes", "--workers", "2"),
    ),
    (
        *("sweep", "--plan", "dp=2|4,batch=16", "--corpus", "corpus", "--job", "gpu_generated"),
        *("--rebuild", "1", "--into", "corpus"),
    ),
)
_LONGEST_S = 4.0


def faults(folder: Path, command: tuple[str, ...], seed: int) -> Iterator[str]:
    """Kill a command at a moment that the seed chooses; yield what is wrong afterwards."""
    corpus = folder / "corpus"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if command[0] != "ingest":
        ingest([_TRACES], corpus, workers=1)
    before = _files(corpus)
    after = random.Random(seed).uniform(0.2, _LONGEST_S)  # noqa: S311 - not for secrets
    said = f"seed {seed}: {command[0]} killed after {after:.2f} s"
    process = subprocess.Popen(
        [*_LUMOS, *command], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    time.sleep(after)
    process.send_signal(signal.SIGKILL)
    process.wait()
    # What it has not touched reads as it did; to ask all views takes 2 s.
    if (corpus / MANIFEST).exists() and _files(corpus) != before:
        yield from (f"{said}: {fault}" for fault in _unreadable(corpus))
    again = subprocess.run([*_LUMOS, *command], cwd=folder, capture_output=True, text=True, check=False)
    if again.returncode:
        yield f"{said}: again: exit {again.returncode}: {again.stderr.strip().splitlines()[-1:]}"
        return
    yield from (f"{said}: again: {fault}" for fault in _unreadable(corpus))
    left = [str(file.relative_to(folder)) for file in folder.rglob(".*") if file.name != STAGING]
    if command[0] == "ingest":
        left += [str(file.relative_to(folder)) for file in (corpus / STAGING).iterdir()]
    if left:
        yield f"{said}: left behind: {', '.join(left[:5])}"


def _files(corpus: Path) -> dict[Path, tuple[int, int]]:
    """Return what tells whether a file or folder is the one that it was: its inode, and when it was last written."""
    return {file: (found.st_ino, found.st_mtime_ns) for file in corpus.rglob("*") for found in [file.stat()]}


def _unreadable(corpus: Path) -> Iterator[str]:
    try:
        with connect(corpus) as connection:
            for (name,) in connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall():
                connection.execute(f"FROM {name}").fetchall()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        yield f"{type(error).__name__}: {str(error).splitlines()[0]}"
