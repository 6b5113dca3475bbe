from collections.abc import Callable
from pathlib import Path

import pytest

from lumos_df.base import locks
from lumos_df.base.files import publish_file
from lumos_df.corpus.folder import open_for_writing
from lumos_df.corpus.layout import STAGING


def publish(folder: Path) -> Path:
    left = folder / ".rows.csv.01234567"
    left.touch()
    publish_file(folder / "rows.csv", b"")
    return left


def open_corpus(folder: Path) -> Path:
    (folder / STAGING).mkdir()
    left = folder / STAGING / "01234567.lock"
    left.touch()
    open_for_writing(folder)
    return left


@pytest.mark.parametrize("clean", [publish, open_corpus])
def test_nobody_takes_a_file_while_it_is_removed_as_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: Callable[[Path], Path]
) -> None:
    held: dict[Path, bool] = {}
    unlink = Path.unlink

    def watched(path: Path, *, missing_ok: bool = False) -> None:
        held.setdefault(path, locks.is_held(path))
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", watched)
    left = clean(tmp_path)
    assert held[left]
    assert not left.exists()
