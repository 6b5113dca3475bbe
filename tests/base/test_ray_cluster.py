"""Commands on a real Ray cluster of two nodes on this machine, whose workers are killed in the middle."""

import io
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from lumos_df.base.errors import LumosError
from lumos_df.base.outcome import WorkerError
from lumos_df.base.runner import Engine, map_items
from lumos_df.estimate.search import Search
from lumos_df.graph import run
from lumos_df.graph.job import groups
from lumos_df.trace.ingest import ingest
from tests.conftest import SAMPLES
from tests.estimate.test_search import LARGE

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: the extra 'ray'"),
    pytest.mark.filterwarnings("ignore"),  # Ray's own, of many kinds
]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def node(folder: Path, *options: str, **environment: str) -> subprocess.Popen[bytes]:
    """Start a node of a cluster, its processes in a group of their own."""
    command = [str(Path(sys.executable).parent / "ray"), "start", "--block", "--num-cpus=1", "--disable-usage-stats"]
    paths = os.pathsep.join([str(ROOT), *(path for path in sys.path if path)])
    with (folder / "ray.log").open("ab") as log:
        return subprocess.Popen(
            [*command, *options],
            cwd=folder,
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": paths, **environment},
            start_new_session=True,
        )


def end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def listening(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def until_listening(port: int) -> None:
    deadline = time.monotonic() + 60
    while not listening(port):
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A head and a second node."""
    folder, port = tmp_path_factory.mktemp("ray"), free_port()
    head = node(folder, "--head", f"--port={port}", "--include-dashboard=false")
    try:
        until_listening(port)
        second = node(folder, f"--address=127.0.0.1:{port}")
        try:
            yield f"127.0.0.1:{port}"
        finally:
            end(second)
    finally:
        end(head)


def die_the_first_time(path: str) -> int:
    """Leave a mark of every call, and die in the first."""
    marks = len(list(Path(path).iterdir()))
    (Path(path) / f"{os.getpid()}.{marks}").touch()
    if not marks:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.2)
    return marks


def die_always(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_an_item_whose_worker_was_killed_goes_to_another_one(cluster: str, tmp_path: Path) -> None:
    items = []
    for name in range(3):
        (tmp_path / str(name)).mkdir()
        items.append(str(tmp_path / str(name)))
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        outcomes = list(map_items(die_the_first_time, items, engine=Engine.RAY, address=cluster))
    assert sorted((outcome.index, outcome.value) for outcome in outcomes) == [(place, 1) for place in range(3)]
    assert "worker died" in err.getvalue()
    assert not out.getvalue()


@pytest.mark.usefixtures("cluster")
def test_without_an_address_a_cluster_starts_beside_one_that_is_there() -> None:
    outcomes = list(map_items(str, [1, 2], engine=Engine.RAY, workers=1))
    assert sorted((outcome.index, outcome.value) for outcome in outcomes) == [(0, "1"), (1, "2")]


def test_an_item_that_always_kills_its_worker_is_told(cluster: str) -> None:
    (outcome,) = map_items(die_always, [1], engine=Engine.RAY, address=cluster)
    assert isinstance(outcome.error, WorkerError)


def tables(corpus: Path) -> dict[str, bytes]:
    """Return every stored table."""
    return {str(file.relative_to(corpus)): file.read_bytes() for file in sorted(corpus.glob("trace_id=*/*.parquet"))}


def test_every_command_stores_on_a_cluster_what_it_stores_here(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = {}
    for name, engine, address in (("here", Engine.SERIAL, None), ("there", Engine.RAY, cluster)):
        corpus = Path(name)
        assert not ingest(SAMPLES, corpus, engine=engine, address=address).failed
        several = next(ids[0] for ids in groups(corpus) if len(ids) > 1)
        run.replay(corpus, several, engine=engine, address=address)
        run.replay(corpus, several, path=True, gains=True, engine=engine, address=address)
        found[name] = tables(corpus)
    assert found["here"] == found["there"]


def test_a_search_finds_the_same(cluster: str, tmp_path: Path) -> None:
    here = Search(LARGE, folder=tmp_path / "here").run()
    there = Search(LARGE, folder=tmp_path / "there").run(engine=Engine.RAY, address=cluster)
    assert there.best.equals(here.best)
    for file in sorted((tmp_path / "here").iterdir()):
        assert (tmp_path / "there" / file.name).read_bytes() == file.read_bytes()


def test_a_cluster_that_asks_for_a_token_says_what_to_set(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    asks = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a" * 64}
    head = node(tmp_path, "--head", f"--port={port}", "--include-dashboard=false", **asks)
    try:
        until_listening(port)
        with pytest.raises(LumosError, match="set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN"):
            list(map_items(abs, [1], engine=Engine.RAY, address=f"127.0.0.1:{port}"))
        assert not capfd.readouterr().err
    finally:
        end(head)
