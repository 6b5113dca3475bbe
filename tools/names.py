"""Check what is called what inside `lumos_df`: `python -m tools.names` lists what is wrong and exits 1.

A class and a module have names that stand once in the package, so that a name leads to its file. What numba compiles
lies in the folders of kernels, which hold their constants besides and nothing else.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from lumos_df.base.kernel_cache import KERNEL_FOLDERS, PACKAGE

COMPILERS: Final = frozenset({"kernel", "lean_kernel", "inlined_kernel", "intrinsic", "njit"})
"""What makes a kernel of a function: `base/jit.py` has all but those of numba itself."""

OF_NUMBA: Final = "base/compiling.py"
"""The module that calls those."""


def violations(package: Path = PACKAGE) -> list[str]:
    """Return one line for each module name, class name, kernel and other statement that is not where it may be."""
    trees = {file: ast.parse(file.read_text("utf-8")) for file in sorted(package.rglob("*.py"))}
    kernel_modules = {file for folder in KERNEL_FOLDERS for file in package.glob(f"{folder}/*.py")}
    return [
        *_twice("module", ((file.stem, str(file)) for file in trees if file.stem != "__init__")),
        *_twice("class", _classes(trees)),
        *(
            line
            for file, tree in trees.items()
            if file != package / OF_NUMBA
            for line in (_misplaced if file in kernel_modules else _kernels)(file, tree)
        ),
    ]


def _twice(kind: str, named: Iterable[tuple[str, str]]) -> Iterator[str]:
    places = defaultdict[str, list[str]](list)
    for name, place in named:
        places[name].append(place)
    for name, where in places.items():
        if len(where) > 1:
            yield f"{kind} '{name}' stands {len(where)} times: {', '.join(where)}"


def _classes(trees: dict[Path, ast.Module]) -> Iterator[tuple[str, str]]:
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                yield node.name, f"{file}:{node.lineno}"


def _kernels(file: Path, tree: ast.Module) -> Iterator[str]:
    """Name what is compiled in a module outside the folders of kernels."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    decorators = [decorator for function in functions for decorator in function.decorator_list]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for line in sorted({node.lineno for node in (*decorators, *calls) if _called(node) in COMPILERS}):
        yield f"{file}:{line}: a kernel outside {', '.join(KERNEL_FOLDERS)}"


def _misplaced(file: Path, tree: ast.Module) -> Iterator[str]:
    """Name what a module of kernels holds that is no kernel, import, constant or documentation of one."""
    writes_llvm = any("llvmlite" in ast.unparse(node) for node in tree.body if isinstance(node, ast.ImportFrom))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            allowed = _is_kernel(node) or writes_llvm  # what an intrinsic is made of runs while it is compiled
        else:
            allowed = isinstance(node, ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign) or _is_text(node)
        if not allowed:
            yield f"{file}:{node.lineno}: neither a kernel nor a constant; move it out of the folder"


def _is_kernel(function: ast.FunctionDef) -> bool:
    return any(_called(decorator) in COMPILERS for decorator in function.decorator_list)


def _called(node: ast.expr) -> str:
    """Return the last name of what is called or decorates: `njit` of `numba.njit(cache=True)`."""
    while isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def main() -> int:
    """Print the violations; return 1 when there are any."""
    lines = violations()
    print("\n".join(lines) or "names stand once, kernels in their folders")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
