"""What tests of several parts use: corpora of the sample traces and of the real ones, and the command line."""

import fcntl
import io
import os
import resource
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
import typer.main
import typer.testing
from duckdb import DuckDBPyConnection

from lumos_df.base import freed_memory
from lumos_df.base.runner import available_cpus
from lumos_df.cli.main import main
from lumos_df.corpus import catalog
from lumos_df.graph.matching import match_collectives
from lumos_df.trace.ingest import ingest
from tests.real import ABSENT, REAL, SETS

ROOT = Path(__file__).parent.parent
SAMPLES = ROOT / "data" / "traces"

LONG = {"test_wheel.py", "test_tutorial.py"}
"""Files whose tests take half a minute each."""

READ_TABLES = {"advice", "export", "graph", "structure", "whatif"}
"""Folders whose tests read the tables of corpora more often than they ask DuckDB."""

Run = Callable[..., subprocess.CompletedProcess[str]]


def pytest_xdist_auto_num_workers() -> int:
    """Return how many processes `-n auto` starts."""
    return available_cpus()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long tests first: behind all others, one process would wait for another that runs them."""
    items.sort(key=lambda item: item.path.name not in LONG)


@pytest.fixture(autouse=True)
def _catalogue_when_asked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the catalogue of a small corpus to who connects to it: to write it takes longer than to read the traces."""
    if request.path.parent.name in READ_TABLES:
        monkeypatch.setattr(catalog, "write_catalog", lambda *_, **__: None)


@pytest.fixture(scope="session", autouse=True)
def _quick_process() -> Iterator[None]:
    """Look for circles of objects as rarely as a command does, and wait for no disk: what a test wrote goes with it.

    Both took a tenth of the time of all tests. What parses a command line is made once, and not for each of 1,500 runs.
    """
    freed_memory.collect_rarely()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        made = cache(typer.main.get_command)
        patch.setattr(typer.main, "get_command", made)
        patch.setattr(typer.testing, "_get_command", made)
        yield


@contextmanager
def full_disk(limit: int) -> Iterator[None]:
    """Let no file of this process and its workers grow beyond `limit` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder of this run that whichever process of it comes first makes, and the others wait for."""
    of_run = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        of_run = of_run.parent
    folder, made = of_run / name, of_run / f"{name}.made"
    with (of_run / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            make(folder)
            made.touch()
    return folder


@pytest.fixture(scope="session")
def sample_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus of data/traces, its collectives matched; read it only."""

    def make(corpus: Path) -> None:
        assert not ingest([SAMPLES], corpus, workers=1).failed
        match_collectives(corpus)

    return made_once(tmp_path_factory, "samples", make)


@pytest.fixture(scope="session")
def real_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus of the real traces, their collectives matched; read it only."""
    if not REAL.is_dir():
        pytest.skip(ABSENT)

    def make(corpus: Path) -> None:
        assert not ingest([REAL], corpus).failed
        match_collectives(corpus)

    return made_once(tmp_path_factory, "real", make)


@pytest.fixture(scope="session")
def later_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus of the real traces that came after the first release, which no rule was chosen on; read it only."""
    if len(SETS) < 2 or not SETS[1].is_dir():
        pytest.skip("no second set of real traces; name its folder in LUMOS_TRACES, behind that of the first")

    def make(corpus: Path) -> None:
        assert not ingest([SETS[1]], corpus).failed

    return made_once(tmp_path_factory, "later", make)


@pytest.fixture(scope="session")
def _bound_views() -> Iterator[DuckDBPyConnection]:
    """A database with every table, empty, and every view over them: to bind these takes a second."""
    with catalog.blank() as connection:
        connection.execute("SET threads = 1")  # for a dozen rows more of them only cost
        yield connection


@pytest.fixture
def empty_database(_bound_views: DuckDBPyConnection) -> Iterator[DuckDBPyConnection]:
    """Every table, empty, and every view over them; what a test writes goes with it."""
    _bound_views.begin()
    yield _bound_views
    _bound_views.rollback()


@pytest.fixture
def lumos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command line in an empty folder and return what it printed and its exit status.

    It runs in this process, where everything is imported: a second less for each of hundreds of runs.
    """

    def run(*arguments: object, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
        with monkeypatch.context() as patch:
            patch.chdir(tmp_path)
            for name, value in environment.items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["lumos-df", *map(str, arguments)])
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8"))
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            status = exit_status(main)
        printed = []
        for stream in (out, err):
            stream.flush()
            printed.append(stream.buffer.getvalue().decode("utf-8"))
        return subprocess.CompletedProcess(sys.argv, status, *printed)

    return run


def exit_status(program: Callable[[], None]) -> int:
    """Run a program to its end as Python would, which prints what nobody catches."""
    try:
        program()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except Exception:  # noqa: BLE001 - a traceback is what a test must see
        traceback.print_exc()
        return 1
    return 0


@pytest.fixture
def lumos_process(tmp_path: Path) -> Run:
    """Do as `lumos` does, in a process of its own."""

    def run(*arguments: object, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*arguments),
            input=stdin,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
            check=False,
            timeout=120,
        )

    return run


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "lumos_df", *map(str, arguments)]
