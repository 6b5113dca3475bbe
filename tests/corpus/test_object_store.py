"""A corpus on an object store: two machines that share it, a writer that dies, a cache that is full."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from typer.testing import CliRunner

from lumos_df.base import locks
from lumos_df.base.errors import CorpusError
from lumos_df.base.location import file_system
from lumos_df.cli.app import app
from lumos_df.corpus import object_store
from lumos_df.corpus.catalog import connect
from lumos_df.corpus.layout import MANIFEST
from lumos_df.corpus.object_store import opened
from lumos_df.trace import sources
from lumos_df.trace.ingest import ingest
from tests.conftest import Run
from tests.trace.corpora import counts, names, small, whole

URL = "memory://bucket/corpus"


@pytest.fixture
def store() -> Iterator[MemoryFileSystem]:
    files = MemoryFileSystem()
    files.store.clear()
    yield files
    files.store.clear()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Go on as a user of another machine, with a cache of its own."""

    def go_to(name: str) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))

    go_to("first")
    return go_to


def run(*words: str) -> str:
    done = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def in_store(files: MemoryFileSystem, table: str = "traces") -> list[str]:
    return sorted(
        path.split("/")[3] for path in files.store if path.endswith(f"/{table}.parquet") and "HIVE" not in path
    )


def read(folder: str | Path) -> list[str]:
    return names(folder)  # type: ignore[arg-type]  # connect() takes URLs


def test_what_one_machine_writes_another_reads_and_adds_to(
    tmp_path: Path, store: MemoryFileSystem, machine: Callable[[str], None]
) -> None:
    run("ingest", str(small(tmp_path / "job/rank0.json", "a")), "--corpus", URL)
    machine("second")
    assert read(URL) == ["a"]
    run("ingest", str(small(tmp_path / "job/rank1.json", "b")), "--corpus", URL)
    assert len(in_store(store)) == 2
    machine("first")
    assert run("sql", "SELECT name FROM operators ORDER BY name", "--corpus", URL, "--format", "csv").split() == [
        "name",
        "a",
        "b",
    ]


def test_a_replay_is_stored_and_goes_when_the_job_grows(
    tmp_path: Path, store: MemoryFileSystem, machine: Callable[[str], None]
) -> None:
    run("ingest", str(small(tmp_path / "job/rank0.json")), "--corpus", URL)
    run("replay", "--corpus", URL)
    assert len(in_store(store, "replays")) == 1
    for command in (("replay", "--full"), ("critical-path",), ("advise",), ("describe",), ("report",)):
        said = run(*command, "--corpus", URL)
        assert "/corpora/" not in said
        assert command[0] not in {"replay", "critical-path"} or f"--corpus {URL}" in said
    run("report", "--html", str(tmp_path / "page.html"), "--corpus", URL)
    assert f"--corpus {URL}" in (tmp_path / "page.html").read_text()
    assert "/corpora/" not in (tmp_path / "page.html").read_text()
    machine("second")
    run("ingest", str(small(tmp_path / "job/rank1.json")), "--corpus", URL)
    assert in_store(store, "replays") == []
    machine("first")
    with connect(URL) as connection:
        assert connection.execute("SELECT count(*) FROM replays").fetchall() == [(0,)]


@pytest.mark.usefixtures("machine")
def test_a_trace_that_is_removed_from_the_store_is_gone_everywhere(tmp_path: Path, store: MemoryFileSystem) -> None:
    run(
        "ingest",
        str(small(tmp_path / "job/rank0.json", "a")),
        str(small(tmp_path / "job/rank1.json", "b")),
        "--corpus",
        URL,
    )
    first, _ = in_store(store)
    store.rm(f"/bucket/corpus/{first}", recursive=True)
    assert len(read(URL)) == 1
    assert counts(ingest([tmp_path / "job"], URL, workers=1)) == (1, 1, 0)
    assert len(in_store(store)) == 2


@pytest.mark.parametrize("dies_at", ["traces.parquet", MANIFEST])
def test_a_writer_that_dies_leaves_whole_traces_and_goes_on_next_time(
    tmp_path: Path,
    store: MemoryFileSystem,
    machine: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    dies_at: str,
) -> None:
    put = MemoryFileSystem.put

    def dying(files: MemoryFileSystem, here: list[str], there: list[str], **more: Any) -> None:
        if any(name.endswith(dies_at) for name in there):
            raise ConnectionError("the line is down")
        put(files, here, there, **more)

    trace = small(tmp_path / "job/rank0.json", "a")
    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "put", dying)
        with pytest.raises(CorpusError, match=rf"{URL}: cannot be written \(the line is down\)"):
            ingest([trace], URL, workers=1)
    assert in_store(store, "operators")
    machine("second")
    with pytest.raises(CorpusError, match="no corpus here"):
        connect(URL)
    machine("first")
    assert counts(ingest([trace], URL, workers=1)) == (0, 1, 0)
    machine("second")
    assert read(URL) == ["a"]


def test_a_trace_without_its_row_is_not_there(
    tmp_path: Path, store: MemoryFileSystem, machine: Callable[[str], None]
) -> None:
    run("ingest", str(small(tmp_path / "job/rank0.json", "a")), "--corpus", URL)
    (trace,) = in_store(store)
    store.rm_file(f"/bucket/corpus/{trace}/traces.parquet")
    for name in ("first", "second"):
        machine(name)
        with connect(URL) as connection:
            assert connection.execute("SELECT count(*) FROM operators").fetchall() == [(0,)]


@pytest.mark.usefixtures("machine")
def test_files_of_a_store_are_not_read_again_unless_they_changed(
    tmp_path: Path, store: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in range(2):
        store.pipe(f"/job/rank{rank}.json", small(tmp_path / f"rank{rank}.json").read_bytes())
    corpus = tmp_path / "corpus"
    assert counts(ingest("memory://job", corpus, workers=1)) == (2, 0, 0)
    opened: list[str] = []
    open_source = sources.open_source

    def noted(path: str) -> Any:
        opened.append(path)
        return open_source(path)

    monkeypatch.setattr(sources, "open_source", noted)
    store.pipe("/job/rank1.json", small(tmp_path / "rank1.json", "changed").read_bytes())
    store.pipe("/job/rank2.json", small(tmp_path / "rank2.json").read_bytes())
    assert counts(ingest("memory://job", corpus, workers=1)) == (2, 1, 0)
    assert opened == ["memory:///job/rank1.json", "memory:///job/rank2.json"]
    assert names(corpus) == ["changed", "rank0", "rank1", "rank2"]


@pytest.mark.usefixtures("machine")
def test_a_corpus_below_the_traces_is_no_trace(tmp_path: Path, store: MemoryFileSystem) -> None:
    store.pipe("/job/rank0.json", small(tmp_path / "rank0.json").read_bytes())
    for expected in ((1, 0, 0), (0, 1, 0)):
        assert counts(ingest("memory://job", "memory://job/corpus", workers=1)) == expected


@pytest.mark.parametrize("fills", ["get", "state"])
def test_a_full_disk_of_copies_is_told_as_that_and_not_as_a_fault_of_the_store(
    tmp_path: Path,
    store: MemoryFileSystem,
    machine: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    lumos: Run,
    fills: str,
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / "second"))

    ingest([small(tmp_path / "job/rank0.json", "a")], URL, workers=1)
    machine("second")
    with monkeypatch.context() as patch:
        if fills == "get":
            patch.setattr(MemoryFileSystem, "get", full)
        else:
            patch.setattr(object_store, "publish_file", full)
        done = lumos("sql", "FROM operators", "--corpus", URL)
    assert done.returncode == 1
    assert done.stderr == (
        f"lumos-df: {URL}: its copy in {tmp_path / 'second/lumos-df/corpora'} cannot be written "
        "(No space left on device); make room on that disk, or set XDG_CACHE_HOME to a folder on another\n"
    )
    assert read(URL) == ["a"]
    assert len(in_store(store)) == 1


@pytest.mark.usefixtures("store")
def test_a_full_cache_gives_up_what_was_used_longest_ago(
    tmp_path: Path, machine: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = [f"memory://bucket/{name}" for name in "abc"]
    for url in urls:
        ingest([small(tmp_path / "job/rank0.json")], url, workers=1)
    machine("second")
    with monkeypatch.context() as patch:
        # As two commands that have ended leave them: nobody holds the copies.
        patch.setattr(locks, "hold", lambda path, **_: os.open(path, os.O_CREAT | os.O_RDWR))
        copies = [object_store.opened(url) for url in urls[:2]]
    size = sum(file.stat().st_size for file in copies[0].rglob("*"))
    monkeypatch.setattr(object_store, "MOST_BYTES", int(size * 1.5))
    (copies[0] / "trace_id=new").mkdir()
    (copies[0] / "trace_id=new/traces.parquet").write_bytes(b"not stored yet")
    copies.append(object_store.opened(urls[2]))
    assert [copy.exists() for copy in copies] == [True, False, True]
    monkeypatch.setattr(object_store, "MOST_BYTES", 10)
    machine("third")
    with pytest.raises(CorpusError, match=r"bucket/a: .* of tables, where a copy may have 10 B; copy it to a disk"):
        connect(urls[0])


@pytest.mark.usefixtures("store", "machine")
def test_a_command_whose_result_cannot_be_stored_fails_in_a_line(
    tmp_path: Path, lumos: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError("no room")

    monkeypatch.setattr(MemoryFileSystem, "put", full)
    done = lumos("ingest", small(tmp_path / "rank0.json"), "--corpus", URL)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        1,
        f"lumos-df: {URL}: cannot be written (no room); check the URL and your credentials",
    )
    assert done.stdout.startswith(f"{URL}: read 1 file")


def test_who_may_only_read_a_store_gets_every_answer(
    tmp_path: Path, lumos: Run, machine: Callable[[str], None], store: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError("Access Denied")

    run("ingest", str(small(tmp_path / "job/rank0.json")), "--corpus", URL)
    before = dict(store.store)
    machine("of a reader")
    monkeypatch.setattr(MemoryFileSystem, "put", denied)
    for words in (("report", "--view", "straggler"), ("sql", "FROM straggler")):
        done = lumos(*words, "--corpus", URL)
        assert done.returncode == 0
        assert "rank" in done.stdout
        assert done.stderr.splitlines()[-1] == (
            f"warning: what was computed for the answer stays on this machine: {URL}: cannot be written "
            "(Access Denied); check the URL and your credentials"
        )
    done = lumos("replay", "--corpus", URL)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        1,
        f"lumos-df: {URL}: cannot be written (Access Denied); check the URL and your credentials",
    )
    assert store.store == before


@pytest.mark.usefixtures("store", "machine")
def test_a_user_reads_the_url_and_not_the_copy() -> None:
    with pytest.raises(CorpusError) as raised:
        connect(URL)
    assert object_store.as_named(str(raised.value)).startswith(f"{URL}: no corpus here")
    assert object_store.as_named(str(raised.value)).endswith(f"--corpus {URL}")


@pytest.mark.usefixtures("store", "machine")
def test_a_bucket_that_is_not_there_is_said_before_a_trace_is_read(
    tmp_path: Path, lumos: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object, **__: object) -> None:
        raise FileNotFoundError("The specified bucket does not exist")

    monkeypatch.setattr(MemoryFileSystem, "find", none)
    trace = small(tmp_path / "rank0.json")
    done = lumos("ingest", trace, "--corpus", "memory://none/c")
    assert (done.returncode, done.stdout) == (1, "")
    said = "lumos-df: memory://none/c: cannot be read (The specified bucket does not exist)"
    assert done.stderr == f"{said}; check the URL and your credentials\n"
    done = lumos("ingest", trace, "--corpus", "memory://")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "lumos-df: memory://: no bucket; write its name behind ://, and a folder\n"


@pytest.mark.usefixtures("store", "machine")
def test_a_store_that_says_of_a_new_folder_that_it_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = MemoryFileSystem()
    files.pipe("/bucket/of/others", b"")
    find = MemoryFileSystem.find

    def strict(store: MemoryFileSystem, path: str, **more: Any) -> Any:
        if not store.exists(path):
            raise FileNotFoundError(path)
        return find(store, path, **more)

    monkeypatch.setattr(MemoryFileSystem, "find", strict)
    assert counts(ingest([small(tmp_path / "rank0.json", "a")], URL, workers=1)) == (1, 0, 0)


@pytest.mark.usefixtures("store", "machine")
def test_an_estimate_on_a_store_is_told_by_its_url(lumos: Run) -> None:
    done = lumos(
        *("estimate", "--model", "llama-3-8b", "--hardware", "h100-sxm", "--plan", "dp=8,batch=16"), "--corpus", URL
    )
    assert done.returncode == 0
    assert done.stderr.startswith(f"{URL}: stored as estimate-")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Give the file system of a server that speaks S3, with one empty bucket; commands of their own find it, too."""
    pytest.importorskip("s3fs", reason="s3fs is not installed: pip install '.[stores]'")
    moto = pytest.importorskip("moto.server", reason="moto is not installed: pip install '.[stores]'")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        files, _ = file_system("s3://bucket")
        files.mkdir("bucket")
        yield files
        files.rm("bucket", recursive=True)
        type(files).clear_instance_cache()  # the next server has another port
    finally:
        server.stop()


def test_a_real_server(tmp_path: Path, machine: Callable[[str], None], server: Any) -> None:
    for rank in range(2):
        server.pipe(f"bucket/job/rank{rank}.json", small(tmp_path / f"rank{rank}.json").read_bytes())
    url = "s3://bucket/corpora/one"
    assert counts(ingest("s3://bucket/job", url, workers=1)) == (2, 0, 0)
    again = ingest("s3://bucket/job", url, workers=1)
    assert {skip.reason for skip in again.skipped} == {"already in the corpus, and not changed on its store"}
    run("replay", "--corpus", url)
    machine("second")
    assert read(url) == ["rank0", "rank1"]
    with connect(url) as connection:
        etags = connection.execute("SELECT etag, size_bytes FROM origins ORDER BY url").fetchall()
        assert connection.execute("SELECT count(*) FROM replays").fetchall() == [(2,)]
    assert etags == [
        (info["ETag"].strip('"'), info["size"])
        for info in map(server.info, sorted(server.ls("bucket/job", detail=False)))
    ]
    with pytest.raises(CorpusError, match=r"s3://none/c: cannot be read \(The specified bucket does not exist\)"):
        opened("s3://none/c")


@pytest.mark.parametrize("objects", [1, 4, 10, 16])
@pytest.mark.parametrize("next_machine", ["first", "second"])
def test_a_command_killed_while_it_stores_leaves_whole_traces_and_any_machine_completes_it(
    tmp_path: Path, machine: Callable[[str], None], server: Any, objects: int, next_machine: str
) -> None:
    expected = [f"rank{rank}" for rank in range(4)]
    for name in expected:
        server.pipe(f"bucket/job/{name}.json", small(tmp_path / f"{name}.json").read_bytes())
    url = "s3://bucket/corpora/one"
    command = (sys.executable, "-m", "lumos_df", "ingest", "s3://bucket/job", "--corpus", url, "--workers", "1")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    while process.poll() is None and len(_objects(server)) < objects:
        time.sleep(0.002)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert len(_objects(server)) >= objects
    machine("onlooker")
    if any(path.endswith(f"/{MANIFEST}") for path in _objects(server)):
        whole(opened(url))
    else:
        with pytest.raises(CorpusError, match="no corpus here"):
            connect(url)
    machine(next_machine)
    assert counts(ingest("s3://bucket/job", url, workers=1))[2] == 0
    machine("onlooker")
    assert read(url) == expected
    whole(opened(url))


def _objects(server: Any) -> list[str]:
    """Return what is stored of the corpus."""
    server.invalidate_cache()
    try:
        found: list[str] = server.find("bucket/corpora")
    except FileNotFoundError:
        return []
    return found
