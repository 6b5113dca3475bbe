import tomllib
from pathlib import Path

import pytest

from lumos_df.base.kernel_cache import KERNEL_FOLDERS
from tools.names import violations

KERNEL = "from lumos_df.base.jit import kernel\n\nLONGEST: Final = 10\n\n\n@kernel\ndef loop(ts):\n    return ts\n"
INTRINSIC = "from llvmlite import ir\n\ndef build(builder):\n    return builder\n\nfirst = intrinsic(build)\n"


def package(folder: Path, files: dict[str, str]) -> Path:
    for name, code in files.items():
        file = folder / "lumos_df" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(code)
    return folder / "lumos_df"


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({"graph/rows.py": "", "structure/rows.py": ""}, "module 'rows' stands 2 times: "),
        ({"graph/job.py": "class Job: ...", "page/jobs.py": "class Job: ..."}, "class 'Job' stands 2 times: "),
        ({"graph/job.py": "def f():\n    class Job: ...\nclass Job: ..."}, "class 'Job' stands 2 times: "),
        ({"graph/rows.py": KERNEL}, "graph/rows.py:6: a kernel outside **/kernels"),
        ({"graph/rows.py": "@numba.njit(cache=True)\ndef loop(ts): ..."}, "graph/rows.py:1: a kernel outside"),
        ({"trace/first.py": INTRINSIC}, "trace/first.py:6: a kernel outside"),
        ({"graph/kernels/loops.py": "def loop(ts): ..."}, "loops.py:1: neither a kernel nor a constant"),
        ({"graph/simulate/loops.py": "class Loop: ..."}, "loops.py:1: neither a kernel nor a constant"),
        ({"model/pipeline/order.py": "X = 1\nprint(X)"}, "order.py:2: neither a kernel nor a constant"),
    ],
)
def test_what_is_out_of_place_is_named(tmp_path: Path, files: dict[str, str], complaint: str) -> None:
    (line,) = violations(package(tmp_path, files))
    assert complaint in line


def test_lint_and_types_are_lenient_with_these_folders(pytestconfig: pytest.Config) -> None:
    settings = tomllib.loads((pytestconfig.rootpath / "pyproject.toml").read_text())["tool"]
    files = ",".join(f"lumos_df/{folder}/*" for folder in KERNEL_FOLDERS)
    assert f"{{tools/columns,{files}}}.py" in settings["ruff"]["lint"]["per-file-ignores"]
    modules = [f"lumos_df.{folder.replace('**/', '*.').replace('/', '.')}.*" for folder in KERNEL_FOLDERS]
    assert [*modules, "tools.columns"] in [override["module"] for override in settings["mypy"]["overrides"]]


def test_what_is_in_place_is_not_named(tmp_path: Path) -> None:
    files = {"__init__.py": "", "graph/__init__.py": ""}
    files |= {"graph/kernels/loops.py": f'"""Loops."""\n{KERNEL}', "trace/json/kernels/first.py": INTRINSIC}
    files |= {"base/compiling.py": "def kernel(function):\n    return numba.njit(function)\n"}
    assert violations(package(tmp_path, files)) == []
