"""Some files of each job in place of all: `ingest --sample`."""

import json
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from lumos_df.base.errors import LumosError
from lumos_df.corpus.catalog import connect
from lumos_df.trace.ingest import Sampled, ingest
from tests.conftest import Run
from tests.trace.corpora import counts, names, small
from tests.trace.literal import op, write

UNREADABLE = b"[1, 2"


def ranks(folder: Path, count: int, readable: set[int] | None = None) -> Path:
    """Write a file for each of so many ranks; those not in `readable` cannot be read."""
    for rank in range(count):
        file = small(folder / f"rank{rank}.json")
        if readable is not None and rank not in readable:
            file.write_bytes(UNREADABLE)
    return folder


def warnings(corpus: Path) -> list[tuple[str, list[str]]]:
    """Return the warnings of every trace behind its job."""
    with connect(corpus) as connection:
        return connection.execute("SELECT job, warnings FROM traces ORDER BY job, path").fetchall()


@pytest.mark.parametrize(
    ("files", "count", "chosen"),
    [
        (10, 4, {0, 3, 6, 9}),
        (10, 1, {0}),
        (10, 2, {0, 9}),
        (11, 3, {0, 5, 10}),
        (5, 4, {0, 1, 3, 4}),
        (3, 2, {0, 2}),
    ],
)
def test_files_are_spread_evenly_from_the_first_rank_to_the_last(
    tmp_path: Path, files: int, count: int, chosen: set[int]
) -> None:
    job = ranks(tmp_path / "job", files, chosen)
    result = ingest([job], tmp_path / "c", sample=count, workers=1)
    assert counts(result) == (count, 0, 0)
    assert set(names(tmp_path / "c")) == {f"rank{rank}" for rank in chosen}
    assert result.sampled == (Sampled("job", count, files, count),)


def test_the_choice_does_not_depend_on_the_order_of_the_names_given(tmp_path: Path) -> None:
    job = ranks(tmp_path / "job", 11, {0, 5, 10})
    given = [job / f"rank{rank}.json" for rank in (10, 7, 1, 0, 9, 3, 5, 2, 8, 4, 6)]
    result = ingest(given, tmp_path / "c", sample=3, workers=1)
    assert [Path(done.path).stem for done in result.done] == ["rank10", "rank0", "rank5"]


def test_what_is_said_and_a_second_ingest_that_reads_nothing(tmp_path: Path, lumos: Run) -> None:
    ranks(tmp_path / "job", 10)
    first, second = (lumos("ingest", "job", "--sample", 4, "--workers", 1) for _ in range(2))
    assert first.returncode == 0
    assert "warning" not in first.stderr
    assert first.stdout == (
        "corpus: read 4 files, 4 traces, 4 events, 4 operators; chosen 4 of 10 files of job job (--sample 4)\n"
    )
    assert second.stdout == (
        "corpus: read 0 files, 0 traces, 0 events, 0 operators; skipped 4 files (already in the corpus); "
        "chosen 4 of 10 files of job job (--sample 4)\n"
    )
    assert warnings(tmp_path / "corpus") == [("job", ["one of 4 files read of 10: --sample 4"])] * 4


@pytest.mark.parametrize("count", [3, 4])
def test_a_job_with_no_more_files_is_read_whole_and_nothing_is_said(tmp_path: Path, lumos: Run, count: int) -> None:
    ranks(tmp_path / "job", 3)
    told = lumos("ingest", "job", "--sample", count, "--workers", 1)
    assert told.stdout == "corpus: read 3 files, 3 traces, 3 events, 3 operators\n"
    assert warnings(tmp_path / "corpus") == [("job", [])] * 3


def test_each_job_keeps_so_many(tmp_path: Path, lumos: Run) -> None:
    for name, count in (("a", 6), ("b", 2), ("c", 1000)):
        for rank in range(count):
            write(tmp_path / name / f"rank{rank}.json", [op(f"{name}{rank}", 0, 5)])
    told = lumos("ingest", "a", "b", "c", "--sample", 2, "--workers", 1)
    assert names(tmp_path / "corpus") == ["a0", "a5", "b0", "b1", "c0", "c999"]
    assert told.stdout.endswith("; chosen 4 of 1,006 files of 2 jobs (--sample 2)\n")
    assert warnings(tmp_path / "corpus") == [
        *[("a", ["one of 2 files read of 6: --sample 2"])] * 2,
        *[("b", [])] * 2,
        *[("c", ["one of 2 files read of 1,000: --sample 2"])] * 2,
    ]


def test_folders_that_are_said_to_be_one_job_have_one_sample(tmp_path: Path) -> None:
    for host in range(12):
        write(tmp_path / f"host{host}" / "trace.json", [op(f"host{host}", 0, 5)])
    result = ingest([tmp_path], tmp_path / "c", sample=2, job="all", workers=1)
    assert names(tmp_path / "c") == ["host0", "host11"]
    assert result.sampled == (Sampled("all", 2, 12, 2),)


def test_parts_of_a_sample_are_the_sample(tmp_path: Path) -> None:
    job = ranks(tmp_path / "job", 9, {0, 2, 4, 6, 8})
    for part in range(3):
        assert not ingest([job], tmp_path / "c", sample=5, shard=(part, 3), workers=1).failed
    assert names(tmp_path / "c") == ["rank0", "rank2", "rank4", "rank6", "rank8"]


def test_execution_traces_go_with_the_files_that_are_chosen(tmp_path: Path) -> None:
    job = ranks(tmp_path / "job", 5, {0, 2, 4})
    for rank in range(5):
        (job / f"rank{rank}.et.json").write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": []}))
    result = ingest([job], tmp_path / "c", sample=3, workers=1)
    assert counts(result) == (3, 0, 0)
    assert result.sampled == (Sampled("job", 3, 5, 3),)


def test_what_is_left_out_of_a_store_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFileSystem()
    files.store.clear()
    for rank in range(10):
        files.pipe(f"/job/rank{rank}.json", small(tmp_path / f"rank{rank}.json").read_bytes())
    opened: list[str] = []
    open_file = MemoryFileSystem.open

    def watched(self: MemoryFileSystem, path: str, *rest: Any, **more: Any) -> Any:
        opened.append(path)
        return open_file(self, path, *rest, **more)

    monkeypatch.setattr(MemoryFileSystem, "open", watched)
    first, second = (ingest(["memory://job"], tmp_path / "c", sample=4, engine="serial") for _ in range(2))
    assert sorted(Path(path).stem for path in opened) == ["rank0", "rank3", "rank6", "rank9"]
    assert (counts(first), counts(second)) == ((4, 0, 0), (0, 4, 0))
    assert first.sampled == second.sampled == (Sampled("job", 4, 10, 4),)


@pytest.mark.parametrize("count", [0, -1])
def test_a_sample_of_nothing_is_refused(tmp_path: Path, lumos: Run, count: int) -> None:
    job = ranks(tmp_path / "job", 2)
    with pytest.raises(LumosError, match=f"--sample {count}: give the files to read of each job, 1 or more"):
        ingest([job], tmp_path / "c", sample=count)
    told = lumos("ingest", "job", f"--sample={count}")
    assert told.returncode == 2
    assert told.stderr.endswith(f"Error: Invalid value for '--sample': {count} is not in the range x>=1.\n")
    assert not (tmp_path / "c").exists()
    assert not (tmp_path / "corpus").exists()
