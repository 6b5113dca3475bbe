"""What a process ran short of is told in a line, whoever refused it, and is no fault of a file or of lumos-df."""

import errno
from pathlib import Path

import duckdb
import pytest

from lumos_df.base.errors import CorpusError, shortage
from lumos_df.base.files import unwritable
from lumos_df.cli import main
from lumos_df.corpus import catalog, layout
from lumos_df.corpus.catalog import refused
from lumos_df.trace.ingest import ingest
from tests.trace.corpora import small

_ROOM = "free memory, or raise this process's limits (ulimit -a)"


def llvmlite() -> OSError:
    """Return what llvmlite raises where the system's loader refuses its library, with that beside it."""
    error = OSError("Could not find/load shared object file 'libllvmlite.so'")
    error.__context__ = OSError("libllvmlite.so: failed to map segment from shared object")
    return error


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("can't start new thread"),
        ImportError("_duckdb.so: failed to map segment from shared object"),
        OSError(errno.EAGAIN, "Resource temporarily unavailable"),
        OSError(errno.EMFILE, "Too many open files"),
        duckdb.OutOfMemoryException("Out of Memory Error: Allocation failure\nPossible solutions:\n* Reduce threads"),
        duckdb.IOException('IO Error: Cannot open file "traces.parquet": Too many open files'),
        llvmlite(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_process_that_reached_its_limits_says_so_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def command(**_: object) -> None:
        raise error

    monkeypatch.setattr(main, "command_line", lambda _: command)
    with pytest.raises(SystemExit) as left:
        main.main()
    said = capsys.readouterr().err
    assert left.value.code == 1
    assert said.startswith("lumos-df: ")
    assert said.endswith(f"; {_ROOM}\n")
    assert said.count("\n") == 1
    assert "Possible solutions" not in said


@pytest.mark.parametrize(
    "error", [RuntimeError("dictionary changed size"), OSError(errno.ENOSPC, "No space"), ImportError("No module 'x'")]
)
def test_what_has_another_cause_is_not_called_a_lack_of_memory(error: Exception) -> None:
    assert shortage(error) is None


def test_a_query_that_needs_more_memory_is_told_so() -> None:
    said = str(refused(duckdb.OutOfMemoryException("Out of Memory Error: failed to allocate\nPossible solutions:")))
    assert said == f"query: out of memory, threads or files (Out of Memory Error: failed to allocate); {_ROOM}"


def test_a_catalogue_for_which_there_is_no_memory_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ingest([small(tmp_path / "rank0.json")], tmp_path / "corpus", workers=1)
    (tmp_path / "corpus" / layout.CATALOG).unlink()

    def short(*_: object, **__: object) -> None:
        raise duckdb.OutOfMemoryException(
            "Out of Memory Error: failed to allocate\nPossible solutions:\n* Fewer threads"
        )

    monkeypatch.setattr(catalog, "_write", short)
    with pytest.raises(CorpusError) as told:
        catalog.write_catalog(tmp_path / "corpus")
    said = (
        "catalog.duckdb: cannot be written: out of memory, threads or files (Out of Memory Error: failed to allocate)"
    )
    assert str(told.value).endswith(f"{said}; {_ROOM}")


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), OSError(errno.EAGAIN, "Try again")])
def test_a_trace_for_which_there_is_no_thread_is_no_fault_of_the_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def short(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("lumos_df.trace.formats.read", short)
    (failed,) = ingest([small(tmp_path / "rank0.json")], tmp_path / "corpus", workers=1).failed
    assert failed.message.endswith(f"; give fewer --workers, {_ROOM}")


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "make room on its disk, or give another folder"),
        (errno.EFBIG, "raise the size that files may have (ulimit -f)"),
        (errno.EMFILE, _ROOM),
        (errno.EROFS, "give a folder that you may write to"),
    ],
)
def test_what_keeps_a_folder_from_being_written_has_its_own_remedy(tmp_path: Path, number: int, remedy: str) -> None:
    assert unwritable(tmp_path, OSError(number, "refused")).endswith(f"; {remedy}")
