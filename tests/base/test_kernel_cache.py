"""Where compiled kernels lie: never stale, never another user's, and old ones go."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numba.core import event

from lumos_df.base import jit, kernel_cache, stored_kernels
from tools.imports import PACKAGE, imported_modules

ELEMENTWISE = "model/kernels/elementwise.py"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the package whose sources may be changed."""
    shutil.copytree(PACKAGE, tmp_path / "lumos_df", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def run(root: Path, program: str, **environment: str) -> str:
    """Return what a program prints in a fresh process that has the package below `root`."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
        env={"HOME": str(root), "PATH": os.environ["PATH"], **environment},
    )
    return done.stdout.strip()


def cache_folder(root: Path, **environment: str) -> Path:
    """Return the folder that a fresh process of the package below `root` chooses."""
    return Path(run(root, "from lumos_df.base.kernel_cache import folder; print(folder())", **environment))


def places() -> list[Path]:
    """Return the folders that may hold a cache, the first choice first."""
    return list(kernel_cache._places())  # noqa: SLF001 - the places are no face of the package


def shared_folder(temporary: Path) -> Path:
    """Return what this user's cache is called in the folder for temporary files."""
    return temporary / f"lumos-df-{os.getuid()}"


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
        for file in of_kernels - {PACKAGE / "base" / f"{name}.py" for name in ("jit", "compiling", "stored_kernels")}
        for module in imported_modules(file)
        if module.is_file()
    }
    assert imported - of_kernels == set()


def test_a_process_outlives_the_folder_of_its_kernels(copy: Path) -> None:
    program = (
        "import shutil\n"
        "import numpy as np\n"
        "from lumos_df.base.kernel_cache import folder\n"
        "from lumos_df.graph.simulate.forward import share\n"
        "begin, end = np.array([0, 10]), np.array([4, 20])\n"
        "shutil.rmtree(folder())\n"
        "print(share(begin, end, np.array([2]), np.array([15])))\n"
        "print(any(folder().glob('*.kernel')))\n"
    )
    assert run(copy, program).splitlines() == ["[7]", "True"]


def test_a_user_without_a_home_gets_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr("pwd.getpwuid", unknown)
    for name in ("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert places() == [PACKAGE / "__pycache__", shared_folder(tmp_path)]


def test_a_temporary_folder_is_its_owner_s_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert shared_folder(tmp_path) in places()
    assert shared_folder(tmp_path).stat().st_mode & 0o777 == 0o700


def test_a_temporary_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    another = os.getuid() + 1
    monkeypatch.setattr("os.getuid", lambda: another)
    shared_folder(tmp_path).mkdir(mode=0o700)
    assert shared_folder(tmp_path) not in places()


def test_a_temporary_folder_that_others_may_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    shared_folder(tmp_path).mkdir()
    shared_folder(tmp_path).chmod(0o777)
    assert shared_folder(tmp_path) not in places()


def test_a_link_in_the_temporary_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    (tmp_path / "private").mkdir(mode=0o700)
    shared_folder(tmp_path).symlink_to(tmp_path / "private")
    assert shared_folder(tmp_path) not in places()


@pytest.mark.parametrize(("terminal", "lines"), [(True, 1), (False, 0)])
def test_a_terminal_is_told_once_that_kernels_are_compiled(
    *, terminal: bool, lines: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    kernel_cache.tell_compiling.cache_clear()
    for _ in range(2):
        kernel_cache.tell_compiling()
    assert capsys.readouterr().err.count("compiling kernels, once") == lines


def test_a_compilation_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    noticed: list[str] = []
    monkeypatch.setattr(jit, "tell_compiling", lambda: noticed.append("compiled"))
    monkeypatch.setattr(stored_kernels, "folder", lambda: tmp_path)
    assert [jit.kernel(_next)(1), jit.kernel(_next)(2)] == [2, 3]
    assert noticed == ["compiled"]  # the second is loaded


def _next(number: int, step: int = 1) -> int:
    return number + step


def test_what_python_has_called_is_not_compiled_again_as_part_of_another_kernel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(stored_kernels, "folder", lambda: tmp_path)
    step = jit.kernel(_next)

    def two_steps(number: int) -> int:
        return step(step(number, 1), 1)  # type: ignore[no-any-return]

    assert step(1) == 2
    with event.install_recorder("numba:compile") as compiled:
        assert jit.kernel(two_steps)(1) == 3
    assert {each.data["dispatcher"].py_func.__name__ for _, each in compiled.buffer} == {"two_steps"}


def test_each_kind_of_arguments_has_its_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(stored_kernels, "folder", lambda: tmp_path)
    half, table = np.float64(0.5), np.arange(6, dtype=np.int32).reshape(2, 3)
    for _ in ("compiled", "loaded"):
        bump = jit.kernel(_next)
        assert (bump(1), bump(True), bump(half), bump(0.5, 2.0)) == (2, 2, 1.5, 2.5)
        assert bump(table).dtype == bump(table.T, np.int64(1)).dtype == np.int64
        assert bump(table[:, ::2]).tolist() == [[1, 3], [4, 6]]
        with pytest.raises(TypeError, match="a kernel takes arrays, numbers and tuples of them, not str"):
            bump("one")
    # int, bool, float64 with int, with float64; an array of 32 bits in rows, in columns, and with gaps.
    assert len(list(tmp_path.iterdir())) == 7


@pytest.mark.parametrize("spoil", [lambda content: content[:-1], lambda content: content[:9] + b"?" + content[10:]])
def test_a_stored_kernel_that_is_not_whole_is_compiled_again(
    spoil: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(stored_kernels, "folder", lambda: tmp_path)
    assert jit.kernel(_next)(1) == 2
    (stored,) = tmp_path.iterdir()
    whole = stored.read_bytes()
    stored.write_bytes(spoil(whole))
    assert jit.kernel(_next)(1) == 2
    assert len(stored.read_bytes()) == len(whole)


def test_code_that_needs_what_the_process_has_not_is_compiled_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(stored_kernels, "folder", lambda: tmp_path)
    needs = stored_kernels.StoredKernel(b"", "entry", ("of_another_numba",), {})
    kinds = (np.dtype(np.int64), np.dtype(np.int64))
    stored_kernels.store(_next, kinds, needs)
    assert stored_kernels.load(_next, kinds) is None
    assert jit.kernel(_next)(1) == 2


_KERNELS = """
import numpy as np
from lumos_df.base.jit import kernel

@kernel
def halves(size):
    return np.zeros(size) + 0.5

@kernel
def total(size):
    return halves(size).sum() + size // 3
"""


def test_a_kernel_loaded_from_disk_needs_no_numba_and_is_called_by_one_compiled_after_it(
    copy: Path, tmp_path: Path
) -> None:
    (copy / "some_kernels.py").write_text(_KERNELS)
    named = {"NUMBA_CACHE_DIR": str(tmp_path / "named")}
    ask = "import sys, some_kernels; print(some_kernels.halves(3).tolist(), 'numba' in sys.modules)"
    assert run(copy, ask, **named) == "[0.5, 0.5, 0.5] True"  # compiled
    assert run(copy, ask, **named) == "[0.5, 0.5, 0.5] False"  # loaded
    both = (
        "import some_kernels; print(some_kernels.halves(3).tolist(), some_kernels.total(6))\n"
        "try: some_kernels.total(-1)\nexcept ValueError as error: print(error)"
    )
    for _ in ("compiled", "loaded"):
        assert run(copy, both, **named) == "[0.5, 0.5, 0.5] 5.0\nnegative dimensions not allowed"
    # An error of the kernel is told as such, from the disk as well; above that of one that is part of it.
    fails = "import some_kernels\ntry: some_kernels.halves(-1)\nexcept ValueError as error: print(error)"
    assert run(copy, fails, **named) == "negative dimensions not allowed"
    # What it returned outlives it, and is freed after it.
    keeps = (
        "import some_kernels; kept = [some_kernels.halves(10**6) for _ in range(50)]; print(sum(map(sum, kept[:1])))"
    )
    assert run(copy, keeps, **named) == "500000.0"


_LONG = """
import os, signal, threading
import numpy as np
from lumos_df.base.jit import kernel

@kernel
def powers(size, turns):
    power = 1
    for _ in range(turns):
        power = power * 48271 % 2147483647
    return np.full(size, power)

def stopped_meanwhile():
    powers(3, 1)
    try:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        powers(3, 2 * 10**8)
        return "not stopped"
    except KeyboardInterrupt:
        return "stopped"
"""


def test_a_kernel_loaded_from_disk_that_returns_an_array_bears_ctrl_c(copy: Path, tmp_path: Path) -> None:
    (copy / "long_kernel.py").write_text(_LONG)
    named = {"NUMBA_CACHE_DIR": str(tmp_path / "named")}
    ask = "import sys, long_kernel; print(long_kernel.stopped_meanwhile(), 'numba' in sys.modules)"
    assert run(copy, ask, **named) == "stopped True"  # compiled
    assert run(copy, ask, **named) == "stopped False"  # loaded
