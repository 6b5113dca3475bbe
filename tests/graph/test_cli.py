"""The commands of the graph: what they refuse, with one line and the right exit status."""

import fnmatch
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import lumos_df
from lumos_df.graph import run as graph
from lumos_df.trace.ingest import ingest
from tests.conftest import SAMPLES, Run


@pytest.fixture(scope="module")
def own_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus of four emulated ranks, to which commands may add."""
    corpus = tmp_path_factory.mktemp("graph") / "corpus"
    assert not ingest([SAMPLES / "gpu_generated"], corpus, workers=1).failed
    return corpus


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("replay", "--trace", "nonesuch"), "no trace has the id 'nonesuch'"),
        (("export", "--trace", "nonesuch", "--output", "x.json"), "no trace has the id 'nonesuch'"),
        (("replay", "--step", "99"), "no step 99; see: lumos-df sql"),
        (("critical-path", "--step", "99"), "no step 99; see: lumos-df sql"),
        (("replay", "--step", "99", "--scale", "kind=gpu:2"), "no step 99; see: lumos-df sql"),
        (("replay", "--no-wait", "rank=9"), "no operator is meant by 'rank=9'"),
        (("replay", "--scale", "name~nonesuch:0.5"), "no operator is meant by 'name~nonesuch'"),
        (("replay", "--drop", "name=nonesuch"), "no operator is meant by 'name=nonesuch'"),
        (("critical-path", "--output", "x.nonesuch"), "its name does not say the format"),
    ],
)
def test_what_is_not_there_is_refused_in_one_line(
    lumos: Run, own_corpus: Path, arguments: tuple[str, ...], says: str
) -> None:
    done = lumos(*arguments, "--corpus", own_corpus)
    assert (done.returncode, done.stdout) == (1, "")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_before_a_replay_there_is_nothing_to_show(lumos: Run, tmp_path: Path) -> None:
    assert not ingest([SAMPLES / "cpu_ddp"], tmp_path / "new", workers=1).failed
    done = lumos("export", "--what", "critical-path", "--output", "x.json", "--corpus", tmp_path / "new")
    assert (done.returncode, done.stdout) == (1, "")
    assert "first run: lumos-df critical-path" in done.stderr


@pytest.mark.parametrize(
    ("switch", "text", "says"),
    [
        ("--scale", "family=gem:0.5", "did you mean 'gemm'"),
        ("--drop", "gemm", "write family=NAME"),
        ("--no-wait", "2", "write rank=N"),
        ("--no-wait", "family=gemm", "write rank=N"),
        ("--step", "-1", "not in the range x>=0"),
    ],
)
def test_a_switch_that_means_nothing_is_wrong_usage(
    lumos: Run, own_corpus: Path, switch: str, text: str, says: str
) -> None:
    done = lumos("replay", switch, text, "--corpus", own_corpus)
    assert (done.returncode, done.stdout) == (2, "")
    assert switch in done.stderr
    assert says in done.stderr


def test_a_corpus_without_traces_has_no_job(lumos: Run, own_corpus: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    shutil.copytree(own_corpus, empty, ignore=lambda _, names: fnmatch.filter(names, "trace_id=[0-9a-f]*"))
    for arguments in (
        ("replay",),
        ("replay", "--scale", "kind=gpu:2"),
        ("critical-path",),
        ("describe",),
        ("estimate", "--set", "dp=2"),
    ):
        done = lumos(*arguments, "--corpus", empty)
        assert done.returncode == 1
        assert "holds no trace; add some with: lumos-df ingest" in done.stderr


def test_a_changed_step_says_what_was_missing(lumos: Run, tmp_path: Path) -> None:
    corpus = tmp_path / "one"
    assert not ingest([SAMPLES / "gpu_generated" / "rank0.json.gz"], corpus, workers=1).failed
    done = lumos("replay", "--scale", "kind=gpu:2", "--corpus", corpus, "--format", "csv")
    assert done.stdout.count("replayed without 3 of 4 ranks") == 3


def rows_of(corpus: Path, table: str) -> int:
    return len(lumos_df.connect(corpus).sql(f"FROM {table}").fetchall())


def test_a_replay_of_the_same_job_keeps_its_paths_and_gains(lumos: Run, own_corpus: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    shutil.copytree(own_corpus, corpus)
    assert lumos("critical-path", "--corpus", corpus).returncode == 0
    assert rows_of(corpus, "gain") == 0
    assert lumos("critical-path", "--gains", "--corpus", corpus).returncode == 0
    files = {file: file.read_bytes() for file in corpus.glob("trace_id=*/*.parquet")}
    assert len([file for file in files if file.stem in ("critical_path", "gains")]) == 2 * (4 + 1)
    assert lumos("replay", "--corpus", corpus, "--step", "3").returncode == 0
    assert {file: file.read_bytes() for file in corpus.glob("trace_id=*/*.parquet")} == files


def test_a_replay_of_another_graph_keeps_no_path(own_corpus: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    shutil.copytree(own_corpus, corpus)
    graph.replay(corpus, path=True, gains=True)
    file = min(corpus.glob("trace_id=[0-9a-f]*/edges.parquet"))
    edges = pq.read_table(file, partitioning=None)
    pq.write_table(edges.slice(1), file)  # as another version might have found them
    graph.replay(corpus)
    assert pq.read_table(file, partitioning=None).equals(edges)
    assert [rows_of(corpus, table) for table in ("critical_path", "gain")] == [0, 0]


def test_a_replay_of_a_larger_job_leaves_no_path_of_the_smaller_one(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    ingest([SAMPLES / "gpu_generated" / "rank0.json.gz"], corpus, workers=1)
    graph.replay(corpus, path=True, gains=True)
    ingest([SAMPLES / "gpu_generated" / "rank1.json.gz"], corpus, workers=1)
    graph.replay(corpus)
    assert [rows_of(corpus, table) > 0 for table in ("critical_path", "gain", "collectives")] == [False, False, True]


def test_a_replay_of_a_smaller_job_leaves_no_collectives_of_the_larger_one(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    ingest([SAMPLES / "gpu_generated" / f"rank{rank}.json.gz" for rank in range(2)], corpus, workers=1)
    graph.replay(corpus)
    _, gone = sorted(corpus.glob("trace_id=[0-9a-f]*"))
    shutil.rmtree(gone)
    graph.replay(corpus)
    assert [rows_of(corpus, table) for table in ("collectives WHERE members > 1", "clocks")] == [0, 0]


@pytest.mark.parametrize("table", ["traces", "operators"])
@pytest.mark.parametrize("content", [b"no parquet", b"", None])
def test_a_broken_table_is_named_in_one_line(
    lumos: Run, own_corpus: Path, tmp_path: Path, table: str, content: bytes | None
) -> None:
    corpus = tmp_path / "broken"
    shutil.copytree(own_corpus, corpus)
    file = min(corpus.glob(f"trace_id=[0-9a-f]*/{table}.parquet"))
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    done = lumos("replay", "--corpus", corpus)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert f"{file}: cannot be read" in done.stderr
    assert "remove the folder around it and ingest the trace again" in done.stderr


def test_of_a_table_that_the_system_refuses_nothing_is_to_be_removed(
    lumos: Run, own_corpus: Path, tmp_path: Path
) -> None:
    corpus = tmp_path / "refused"
    shutil.copytree(own_corpus, corpus)
    file = min(corpus.glob("trace_id=[0-9a-f]*/operators.parquet"))
    file.unlink()
    file.symlink_to(file)  # refused to everybody, unlike what permissions say
    done = lumos("replay", "--corpus", corpus)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert f"{file}: cannot be read" in done.stderr
    assert done.stderr.endswith("; check the disk and your permissions\n")
