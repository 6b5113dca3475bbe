import errno
import os
from pathlib import Path
from stat import S_ISDIR

import pyarrow as pa
import pytest

from lumos_df.base.files import (
    draft_of,
    publish_file,
    publish_files,
    publish_folder,
    publish_over,
    unreadable,
    unwritable,
)


def test_a_file_is_as_it_was_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("old")
    with draft_of(path) as draft:
        draft.write_text("new")
        assert path.read_text() == "old"
        assert list(tmp_path.glob("*.csv")) == [path]
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_what_breaks_off_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("old")
    with pytest.raises(error) as raised:
        break_off(path, error)
    # What does not fit on the disk says nothing of where by itself.
    assert getattr(raised.value, "filename", str(path)) == str(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def break_off(path: Path, error: type[BaseException]) -> None:
    with draft_of(path) as draft:
        draft.write_text("half")
        raise error


def test_two_writers_of_a_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    with draft_of(path) as first, draft_of(path) as second:
        first.write_text("first")
        second.write_text("second")
    assert path.read_text() == "first"  # whose block ends last
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_where_there_is_no_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        publish_file(tmp_path / "nowhere" / "rows.csv", b"")


def test_of_two_folders_of_a_name_the_first_stays(tmp_path: Path) -> None:
    published = []
    for text in ("first", "second"):
        draft = tmp_path / f".{text}"
        draft.mkdir()
        (draft / "rows").write_text(text)
        published.append(publish_folder(draft, tmp_path / "folder"))
    assert published == [True, False]
    assert (tmp_path / "folder" / "rows").read_text() == "first"
    assert (tmp_path / ".second" / "rows").read_text() == "second"


def test_a_folder_over_another_gives_it_its_files(tmp_path: Path) -> None:
    for name, text in (("new", "new"), ("there", "old")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows").write_text(text)
    (tmp_path / "there" / "more").touch()
    publish_over(tmp_path / "new", tmp_path / "there")
    assert {file.name: file.read_text() for file in (tmp_path / "there").iterdir()} == {"rows": "new", "more": ""}


def test_a_full_disk_is_told_as_one(tmp_path: Path) -> None:
    told = f"{tmp_path}: cannot be written (No space left on device); make room on its disk, or give another folder"
    of_pyarrow = "Error writing bytes to file. Detail: [errno 28] No space left on device"
    for sentence in (os.strerror(errno.ENOSPC), of_pyarrow):
        assert unwritable(tmp_path, OSError(errno.ENOSPC, sentence)) == told
    with pytest.raises(FileNotFoundError) as missing:
        (tmp_path / "nothing" / "a").write_text("a")
    assert unwritable(tmp_path, missing.value).endswith(
        "(No such file or directory); give a folder that you may write to"
    )


def test_a_folder_that_cannot_be_renamed_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        publish_folder(tmp_path / "missing", tmp_path / "folder")


def test_the_next_writer_removes_what_a_killed_one_left_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    left, mine = tmp_path / ".rows.csv.01234567", tmp_path / ".rows.csv.not-a-draft"
    left.touch()
    mine.touch()
    with draft_of(path) as held:
        held.write_text("held")
        publish_file(path, b"other")
        assert held.exists()
    assert sorted(tmp_path.iterdir()) == [mine, path]


def test_files_of_a_folder_wait_for_its_names_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[bool] = []
    monkeypatch.setattr(os, "fsync", lambda file: flushed.append(S_ISDIR(os.fstat(file).st_mode)))
    publish_files(tmp_path, {"a.parquet": b"a", "b.parquet": b"b"})
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"a.parquet": b"a", "b.parquet": b"b"}
    assert flushed == [False, False, True]


def test_files_of_a_folder_are_written_before_the_first_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[list[str], list[bytes]]] = []

    def look(_: int) -> None:
        files = sorted(tmp_path.iterdir())
        seen.append(([file.name for file in files if file.name[0] != "."], sorted(file.read_bytes() for file in files)))

    monkeypatch.setattr(os, "fsync", look)
    publish_files(tmp_path, {"b.parquet": b"b", "a.parquet": b"a"})
    assert seen == [([], [b"a", b"b"]), (["b.parquet"], [b"a", b"b"]), (["a.parquet", "b.parquet"], [b"a", b"b"])]
    with pytest.raises(FileNotFoundError):
        publish_files(tmp_path, {"c.parquet": b"c", "missing/d.parquet": b"d"})
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("error", "mended"),
    [
        (pa.ArrowException("Unknown error: Failed to launch worker thread"), False),
        (pa.ArrowMemoryError("malloc of size 64 failed"), False),
        (pa.ArrowInvalid("Parquet magic bytes not found"), True),
        (OSError("Couldn't deserialize thrift"), True),
    ],
)
def test_no_file_is_to_be_removed_because_memory_or_threads_are_short(
    tmp_path: Path, error: Exception, *, mended: bool
) -> None:
    said = unreadable(tmp_path / "a.parquet", error, "remove it")
    assert said.endswith("; remove it") == mended
    assert ("free memory" in said) != mended
