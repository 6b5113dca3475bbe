"""Where compiled kernels lie: never stale, never another user's, and old ones go."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lumos_df.base import kernel_cache
from tools.imports import PACKAGE, imported_modules

ELEMENTWISE = "model/kernels/elementwise.py"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the package whose sources may be changed."""
    shutil.copytree(PACKAGE, tmp_path / "lumos_df", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def cache_folder(root: Path, **environment: str) -> Path:
    """Return the folder that a fresh process of the package below `root` chooses."""
    code = "from lumos_df.base.kernel_cache import folder; print(folder())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
        env={"HOME": str(root), "PATH": os.environ["PATH"], **environment},
    )
    return Path(done.stdout.strip())


def test_a_changed_kernel_gets_a_folder_of_its_own_also_where_the_user_names_one(copy: Path, tmp_path: Path) -> None:
    named = {"NUMBA_CACHE_DIR": str(tmp_path / "named")}
    before = cache_folder(copy, **named)
    assert before.parent == tmp_path / "named"
    assert cache_folder(copy, **named) == before
    kernel = copy / "lumos_df" / ELEMENTWISE
    kernel.write_text(kernel.read_text() + "\n# another\n")
    assert cache_folder(copy, **named) != before


def test_what_was_compiled_of_other_sources_goes_after_a_day(copy: Path) -> None:
    before = cache_folder(copy)
    kernel = copy / "lumos_df" / ELEMENTWISE
    kernel.write_text(kernel.read_text() + "\n# another\n")
    cache_folder(copy)
    assert before.is_dir()  # someone may still run it
    yesterday = time.time() - 2 * 86400
    os.utime(before, (yesterday, yesterday))
    assert cache_folder(copy).is_dir()
    assert not before.exists()


def test_every_module_that_kernels_import_counts() -> None:
    of_kernels = {file for pattern in kernel_cache.SOURCES for file in PACKAGE.glob(pattern)}
    imported = {
        module
        for file in of_kernels - {PACKAGE / "base" / "jit.py"}
        for module in imported_modules(file)
        if module.is_file()
    }
    assert imported - of_kernels == set()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
def test_a_temporary_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    shared = tmp_path / f"lumos-df-{os.getuid()}"
    assert shared in kernel_cache._places()  # noqa: SLF001 - the places are no face of the package
    assert shared.stat().st_mode & 0o777 == 0o700
    os.chown(shared, 12345, 12345)
    assert shared not in kernel_cache._places()  # noqa: SLF001


def test_a_temporary_folder_that_others_may_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    shared = tmp_path / f"lumos-df-{os.getuid()}"
    shared.mkdir()
    shared.chmod(0o777)
    assert shared not in kernel_cache._places()  # noqa: SLF001
