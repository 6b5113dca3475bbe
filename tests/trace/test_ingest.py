"""Files into a corpus: what users name, again and in parts, two writers, a kill."""

import gzip
import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from threading import current_thread
from typing import Any, NoReturn

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from lumos_df.base.errors import CorpusError
from lumos_df.corpus import folder as writing
from lumos_df.corpus.catalog import connect
from lumos_df.corpus.catalog_file import publish_kept
from lumos_df.corpus.layout import CATALOG, EMPTY_PARTITION, MANIFEST, STAGING
from lumos_df.corpus.staging import Staging, create
from lumos_df.trace import formats
from lumos_df.trace.ingest import ingest
from tests.conftest import Run, command
from tests.trace.corpora import GPU, counts, names, small, whole

# --- what users name


def test_a_file_a_folder_and_a_glob_name_the_same_traces(tmp_path: Path) -> None:
    for place in ("a/rank0.json", "a/b/rank1.json", "a/rank10.json", "a/rank2.json"):
        small(tmp_path / place)
    (tmp_path / "a/notes.txt").write_text("no trace")
    for paths in (
        ["a"],
        ["a/**/*.json"],
        ["a", "a/rank0.json"],
        [f"a/{n}.json" for n in ("rank0", "b/rank1", "rank2", "rank10")],
    ):
        corpus = tmp_path / f"corpus {len(paths[0])} {len(paths)}"
        result = ingest([tmp_path / path for path in paths], corpus, workers=1)
        assert counts(result) == (4, 0, 0)
        assert names(corpus) == ["rank0", "rank1", "rank10", "rank2"]


def test_a_folder_is_read_in_the_order_a_person_counts(tmp_path: Path) -> None:
    for rank in (10, 9, 1):
        small(tmp_path / "job" / f"rank{rank}.json")
    result = ingest([tmp_path / "job"], tmp_path / "corpus", workers=1)
    assert [Path(done.path).stem for done in result.done] == ["rank1", "rank9", "rank10"]


@pytest.mark.parametrize("name", ["1²3.json", "rank0 ².json", "räng0.json", "rank 0\n.json", "rank0*[a]?.json"])
def test_odd_file_names(tmp_path: Path, name: str) -> None:
    small(tmp_path / "job" / name, "a")
    assert counts(ingest([tmp_path / "job"], tmp_path / "corpus", workers=1)) == (1, 0, 0)
    assert names(tmp_path / "corpus") == ["a"]


def test_a_file_name_that_is_no_utf8_goes_in_or_is_one_line(tmp_path: Path, lumos: Run) -> None:
    small(tmp_path / "rank0.json", "a").rename(os.fsdecode(os.fsencode(tmp_path) + b"/rank0\xff.json"))
    small(tmp_path / "rank1.json", "b")
    done = lumos("ingest", ".", "--corpus", tmp_path / "corpus", "--workers", 1)
    assert "fault of lumos-df" not in done.stderr
    assert "b" in names(tmp_path / "corpus")


def test_a_corpus_inside_the_folder_of_traces_is_no_trace(tmp_path: Path) -> None:
    small(tmp_path / "rank0.json", "a")
    for expected in ((1, 0, 0), (0, 1, 0)):
        assert counts(ingest([tmp_path], tmp_path / "corpus", workers=1)) == expected


@pytest.mark.parametrize("name", ["it's [a] *corpus {x}", "is it a corpus?", "korpus ü", "trace_id=x/y=z", "s3:/c"])
def test_a_corpus_may_have_any_name(tmp_path: Path, name: str) -> None:
    corpus = tmp_path / name
    ingest([small(tmp_path / "rank0.json", "a")], corpus, workers=1)
    assert names(corpus) == ["a"]


def test_plain_and_gzipped(tmp_path: Path) -> None:
    plain = small(tmp_path / "rank0.json", "plain")
    packed = tmp_path / "rank1.json.gz"
    packed.write_bytes(gzip.compress(small(tmp_path / "x.json", "packed").read_bytes()))
    ingest([plain, packed], tmp_path / "corpus", workers=1)
    assert names(tmp_path / "corpus") == ["packed", "plain"]


def test_standard_input(tmp_path: Path, lumos: Run) -> None:
    text = small(tmp_path / "rank0.json", "piped").read_text()
    done = lumos("ingest", "-", "--corpus", "c", "--rank", 4, stdin=text)
    assert done.returncode == 0, done.stderr
    with connect(tmp_path / "c") as connection:
        assert connection.execute("SELECT path, rank, job FROM traces").fetchall() == [("<stdin>", 4, "stdin")]
    again = lumos("ingest", "-", "--corpus", "c", "--rank", 4, stdin=text)
    assert again.returncode == 0
    assert names(tmp_path / "c") == ["piped"]


def test_gzip_through_a_slow_pipe(tmp_path: Path) -> None:
    data = gzip.compress(small(tmp_path / "rank0.json", "piped").read_bytes())
    with subprocess.Popen(command("ingest", "-", "--corpus", tmp_path / "c"), stdin=subprocess.PIPE) as process:
        assert process.stdin
        for part in (data[:1], data[1:20], data[20:]):
            process.stdin.write(part)
            process.stdin.flush()
            time.sleep(0.02)
        process.stdin.close()
    assert process.returncode == 0
    assert names(tmp_path / "c") == ["piped"]


@pytest.fixture
def memory() -> MemoryFileSystem:
    files = MemoryFileSystem()
    files.store.clear()
    return files


def test_urls(tmp_path: Path, memory: MemoryFileSystem) -> None:
    for rank in range(3):
        memory.pipe(f"/job/rank{rank}.json", small(tmp_path / f"rank{rank}.json").read_bytes())
    memory.pipe("/job/notes.txt", b"no trace")
    memory.pipe("/odd[0]/rank[6] 1#2.json", small(tmp_path / "odd.json").read_bytes())
    local = small(tmp_path / "local" / "rank7.json").as_uri()
    for k, (paths, expected) in enumerate(
        (
            (["memory://job/rank1.json"], ["rank1"]),
            (["memory://job"], ["rank0", "rank1", "rank2"]),
            (["memory://job/rank[02].json"], ["rank0", "rank2"]),
            (["memory://odd[0]/rank[6] 1#2.json"], ["odd"]),
            (["memory://odd[0]"], ["odd"]),
            ([local], ["rank7"]),
        )
    ):
        assert not ingest(paths, tmp_path / str(k), workers=1).failed
        assert names(tmp_path / str(k)) == expected


class _Broken(LocalFileSystem):  # type: ignore[misc]  # fsspec publishes no types
    """A store that answers every question with an exception of its own, as object stores do without credentials."""

    protocol = "broken"

    def info(self, path: str, **_: Any) -> NoReturn:
        raise RuntimeError(f"no credentials for {path}")

    isdir = _open = info


def test_a_store_that_refuses_is_one_line_and_the_others_go_in(tmp_path: Path) -> None:
    fsspec.register_implementation("broken", _Broken, clobber=True)
    result = ingest(["broken://bucket/job", small(tmp_path / "rank0.json", "good")], tmp_path / "corpus", workers=1)
    assert names(tmp_path / "corpus") == ["good"]
    assert "no credentials" in result.failed[0].message


@pytest.mark.parametrize("bad", ["nosuch://bucket/rank0.json", "empty_folder", "nothing*.json"])
def test_a_name_that_gives_no_file_does_not_stop_the_others(tmp_path: Path, bad: str) -> None:
    (tmp_path / "empty_folder").mkdir()
    path = bad if "://" in bad else str(tmp_path / bad)
    result = ingest([path, small(tmp_path / "good" / "rank0.json", "good")], tmp_path / "corpus", workers=1)
    assert names(tmp_path / "corpus") == ["good"]
    assert [failed.path for failed in result.failed] == [path]


# --- again, in parts, together


def test_a_second_run_skips_everything_and_changes_nothing(tmp_path: Path) -> None:
    first = ingest([GPU], tmp_path / "c", workers=1)
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "c").rglob("*.parquet")}
    again = ingest([GPU], tmp_path / "c", workers=1)
    assert (counts(first), counts(again)) == ((4, 0, 0), (0, 4, 0))
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "c").rglob("*.parquet")} == before


def test_the_same_content_under_two_names_is_one_trace(tmp_path: Path) -> None:
    for name in ("rank0.json", "copy_rank0.json"):
        small(tmp_path / "job" / name, "a")
    assert counts(ingest([tmp_path / "job"], tmp_path / "corpus", workers=1)) == (1, 1, 0)
    assert names(tmp_path / "corpus") == ["a"]


def test_a_corpus_that_knows_its_files_by_sha256_goes_on_so(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    first, second = small(tmp_path / "rank0.json", "a"), small(tmp_path / "rank1.json", "b")
    assert counts(ingest([first], corpus, workers=1)) == (1, 0, 0)
    (new,) = writing.trace_ids(corpus)
    assert connect(corpus).sql("SELECT sha256 FROM traces").fetchall() == [(None,)]
    shutil.rmtree(corpus / f"trace_id={new}")
    stated = json.loads((corpus / MANIFEST).read_text())
    (corpus / MANIFEST).write_text(json.dumps({"format": stated["format"], "made_by": "lumos-df 0.1.0"}))
    assert counts(ingest([first], corpus, workers=1)) == (1, 0, 0)
    assert counts(ingest([first, second], corpus, workers=1)) == (1, 1, 0)
    digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in (first, second)]
    rows = connect(corpus).sql("SELECT trace_id, sha256 FROM traces ORDER BY path").fetchall()
    assert rows == [(digest[: len(new)], digest) for digest in digests]


def test_a_corpus_that_knows_its_files_by_a_later_digest_is_refused(tmp_path: Path, lumos: Run) -> None:
    file = small(tmp_path / "rank0.json")
    ingest([file], tmp_path / "corpus", workers=1)
    manifest = tmp_path / "corpus" / MANIFEST
    manifest.write_text(manifest.read_text().replace("xxh3_128", "blake9"))
    done = lumos("ingest", file, "--corpus", tmp_path / "corpus")
    assert (done.returncode, done.stderr.count("\n")) == (1, 2)
    assert "known by the digest 'blake9'" in done.stderr


def test_a_file_that_grows_while_it_is_read_is_refused_and_goes_in_when_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end would count as read, since the file's digest has it, but its events would be missing."""
    text = small(tmp_path / "trace.json", "first", "second", "last").read_bytes()
    file = tmp_path / "growing.json"
    file.write_bytes(text[: text.rindex(b"last")])
    read = formats.read

    def read_while_written(*of_file: Any) -> Any:
        recording = read(*of_file)
        file.write_bytes(text)
        return recording

    with monkeypatch.context() as patched:
        patched.setattr(formats, "read", read_while_written)
        failed = ingest(file, tmp_path / "corpus", workers=1).failed
    assert ["was written to while it was read" in one.message for one in failed] == [True]
    assert not ingest(file, tmp_path / "corpus", workers=1).failed
    assert names(tmp_path / "corpus") == ["first", "last", "second"]


def test_an_ingest_takes_up_what_another_left_out(tmp_path: Path) -> None:
    files = [small(tmp_path / f"rank{rank}.json") for rank in range(4)]
    ingest(files[1:3], tmp_path / "c", workers=1)
    assert counts(ingest(files, tmp_path / "c", workers=1)) == (2, 2, 0)
    assert names(tmp_path / "c") == ["rank0", "rank1", "rank2", "rank3"]


def test_the_catalogue_of_a_new_corpus_is_written_while_a_large_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [small(tmp_path / f"job/rank{rank}.json", f"operator {rank}") for rank in range(2)]
    threads: list[str] = []

    def written(folder: Path) -> bool:
        threads.append(current_thread().name)
        return publish_kept(folder)

    monkeypatch.setattr("lumos_df.trace.ingest.publish_kept", written)
    for large, name in ((0, "lumos-df-catalog_0"), (1 << 40, "MainThread")):
        monkeypatch.setattr("lumos_df.trace.intake._LARGE", large)
        assert counts(ingest(files, tmp_path / name, workers=1)) == (2, 0, 0)
        assert names(tmp_path / name) == ["operator 0", "operator 1"]
        assert threads.pop() == name
        assert not threads  # once


def test_tables_are_looked_at_where_another_command_began_the_corpus(tmp_path: Path) -> None:
    files = [small(tmp_path / f"job/rank{rank}.json", f"operator {rank}") for rank in range(2)]
    corpus = tmp_path / "corpus"
    ingest(files[:1], corpus, workers=1)
    (corpus / CATALOG).unlink()
    table = corpus / EMPTY_PARTITION / "edges.parquet"
    content = table.read_bytes()
    table.write_bytes(b"no Parquet")
    with pytest.raises(CorpusError, match=r"cannot create view edges .*ingest the traces again"):
        ingest(files[1:], corpus, workers=1)
    table.write_bytes(content)
    assert names(corpus) == ["operator 0", "operator 1"]


@pytest.mark.parametrize("large", [0, 1 << 40])
def test_a_catalogue_that_cannot_be_written_is_told_when_all_files_are_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: int
) -> None:
    asked: list[Path] = []

    def refused(folder: Path, **_: bool) -> NoReturn:
        asked.append(folder)
        raise CorpusError(f"{folder}: no space")

    monkeypatch.setattr("lumos_df.trace.ingest.publish_kept", lambda _: False)
    monkeypatch.setattr("lumos_df.corpus.catalog.write_catalog", refused)
    monkeypatch.setattr("lumos_df.trace.intake._LARGE", large)
    files = [small(tmp_path / f"job/rank{rank}.json", f"operator {rank}") for rank in range(3)]
    with pytest.raises(CorpusError, match="corpus: no space"):
        ingest(files, tmp_path / "corpus", workers=1)
    assert len(asked) == 1
    monkeypatch.undo()
    assert names(tmp_path / "corpus") == ["operator 0", "operator 1", "operator 2"]


def test_files_that_failed_are_named_though_there_is_no_room_for_the_catalogue_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(folder: Path, **_: bool) -> NoReturn:
        raise CorpusError(f"{folder}: no space")

    monkeypatch.setattr("lumos_df.trace.ingest.publish_kept", lambda _: False)
    monkeypatch.setattr("lumos_df.corpus.catalog.write_catalog", refused)
    (tmp_path / "bad.json").write_text("no JSON")
    result = ingest([small(tmp_path / "rank0.json"), tmp_path / "bad.json"], tmp_path / "corpus", workers=1)
    assert counts(result) == (1, 0, 1)
    assert "bad.json" in result.failed[0].message


def test_shards_together_are_the_whole(tmp_path: Path) -> None:
    for rank in range(5):
        small(tmp_path / "job" / f"rank{rank}.json")
    parts = [ingest([tmp_path / "job"], tmp_path / "c", shard=(part, 3), workers=1) for part in range(3)]
    assert [counts(part) for part in parts] == [(2, 0, 0), (2, 0, 0), (1, 0, 0)]
    assert names(tmp_path / "c") == [f"rank{rank}" for rank in range(5)]


def test_corpora_written_apart_become_one_by_copying_their_traces(tmp_path: Path) -> None:
    for rank in range(3):
        small(tmp_path / "job" / f"rank{rank}.json")
    for part in range(2):
        ingest([tmp_path / "job"], tmp_path / f"c{part}", shard=(part, 2), workers=1)
    for trace in (tmp_path / "c1").glob("trace_id=*"):
        shutil.copytree(trace, tmp_path / "c0" / trace.name, dirs_exist_ok=True)
    assert names(tmp_path / "c0") == ["rank0", "rank1", "rank2"]
    whole(tmp_path / "c0")


def test_workers_give_what_one_process_gives(tmp_path: Path) -> None:
    for workers in (1, 2):
        assert counts(ingest([GPU], tmp_path / str(workers), workers=workers)) == (4, 0, 0)
    query = "SELECT * FROM operators ORDER BY trace_id, op_id"
    with connect(tmp_path / "1") as one, connect(tmp_path / "2") as two:
        assert one.execute(query).fetchall() == two.execute(query).fetchall()


def test_two_writers_on_one_corpus(tmp_path: Path) -> None:
    corpus = tmp_path / "c"
    writers = [
        subprocess.Popen(command("ingest", GPU, "--corpus", corpus, "--workers", 1), stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for writer in writers:
        _, told = writer.communicate(timeout=120)
        assert writer.returncode == 0, told
    whole(corpus)
    alone = tmp_path / "alone"
    ingest([GPU], alone, workers=1)
    query = "SELECT * FROM operators ORDER BY trace_id, op_id"
    with connect(corpus) as two, connect(alone) as one:
        assert two.execute("SELECT list(rank ORDER BY rank) FROM traces").fetchall() == [([0, 1, 2, 3],)]
        assert two.execute(query).fetchall() == one.execute(query).fetchall()
    assert not list((corpus / STAGING).iterdir())


def test_a_writer_that_finds_another_at_the_new_corpus_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, exists, firsts = tmp_path / "c", Path.exists, [True]

    def another_comes_first(path: Path, **options: bool) -> bool:
        """Say that there is no manifest; by the time the answer is read, another writer has made the corpus."""
        if path == corpus / MANIFEST and firsts:
            firsts.clear()
            create(corpus)
            return False
        return exists(path, **options)

    monkeypatch.setattr(Path, "exists", another_comes_first)
    writing.open_for_writing(corpus)


def test_a_folder_that_a_writer_holds_stays_whatever_its_host_and_process_are(tmp_path: Path) -> None:
    ingest([small(tmp_path / "rank0.json")], tmp_path / "c", workers=1)
    left = tmp_path / "c" / STAGING / "0a1b"
    left.mkdir()
    with Staging(tmp_path / "c") as staging:
        writing.open_for_writing(tmp_path / "c")
        (held,) = (folder for folder in (tmp_path / "c" / STAGING).iterdir() if folder.is_dir())
        assert staging.args_file.parent == held
    assert not list((tmp_path / "c" / STAGING).iterdir())


@pytest.mark.parametrize("delay", [0.3, 0.6, 0.8, 0.9, 1.0, 1.1, 1.25])
def test_a_kill_leaves_whole_traces_and_the_next_ingest_completes(tmp_path: Path, delay: float) -> None:
    corpus = tmp_path / "c"
    process = subprocess.Popen(command("ingest", GPU, "--corpus", corpus, "--workers", 1), stderr=subprocess.DEVNULL)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.wait()
    if (corpus / MANIFEST).exists():
        whole(corpus)
    result = ingest([GPU], corpus, workers=1)
    assert len(result.done) + len(result.skipped) == 4
    whole(corpus)
    with connect(corpus) as connection:
        assert connection.execute("SELECT count(*) FROM traces").fetchall() == [(4,)]
    assert not list((corpus / STAGING).iterdir())
