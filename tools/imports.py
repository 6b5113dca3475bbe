"""Check that imports inside `lumos_df` run downward: `python -m tools.imports` lists what does not and exits 1.

A part is a package directly below `lumos_df`. It imports from the floors below its own, never from its own or above.
No two modules import one another, directly or through further ones. Imports inside functions count, too.
"""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parent.parent / "lumos_df"

FLOORS: Final = (
    ("base",),
    ("schema",),
    ("corpus", "model"),
    ("trace", "graph", "page"),
    ("structure", "export", "generate", "estimate"),
    ("advice",),
    ("whatif",),
    ("calibrate",),
    ("capture",),
    ("cli", "notebook"),
    ("__init__", "__main__"),
)
"""The parts, from the ground up; `docs/architecture.md` draws them."""

VERSION: Final = "__version__"
"""What every floor may ask of the package itself."""

MAY_IMPORT_TORCH: Final = frozenset({"capture"})

_FLOOR: Final = {part: floor for floor, parts in enumerate(FLOORS) for part in parts}


def violations(package: Path = PACKAGE) -> list[str]:
    """Return one line for every import that runs the wrong way, in the order of the files, then one for a circle."""
    files = sorted(package.rglob("*.py"))
    return [*(line for file in files for line in _upward(package, file)), *_circle(package, files)]


def _upward(package: Path, file: Path) -> Iterator[str]:
    part = file.relative_to(package).parts[0].removesuffix(".py")
    if part not in _FLOOR:
        yield f"{file}: '{part}' stands on no floor; add it to FLOORS in tools/imports.py, or move it into a part"
        return
    for line, name in _imports(file):
        root, _, rest = name.partition(".")
        if root == "torch" and part not in MAY_IMPORT_TORCH:
            yield f"{file}:{line}: torch is imported only in {', '.join(sorted(MAY_IMPORT_TORCH))}"
        imported = rest.partition(".")[0]
        if root != package.name or imported in {"", VERSION, part} or imported not in _FLOOR:
            continue
        if _FLOOR[imported] >= _FLOOR[part]:
            below = ", ".join(name for floor in FLOORS[: _FLOOR[part]] for name in floor) or "nothing"
            yield f"{file}:{line}: '{part}' may not import '{imported}'; it may import {below}"


def _circle(package: Path, files: list[Path]) -> Iterator[str]:
    modules = {_module(package, file): file for file in files}
    needs = {
        module: {_longest(name, modules) for _, name in _imports(file) if not name.endswith(VERSION)} - {"", module}
        for module, file in modules.items()
    }
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        yield f"modules import one another: {' -> '.join(reversed(error.args[1]))}"


def _module(package: Path, file: Path) -> str:
    return ".".join((package.name, *file.relative_to(package).with_suffix("").parts)).removesuffix(".__init__")


def _longest(name: str, modules: dict[str, Path]) -> str:
    """Return the module that an imported name is, or is in, or nothing where it is none of `modules`."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name


def imported_modules(file: Path) -> set[Path]:
    """Return the files of the modules of the package that a file imports, or imports names of."""
    root = PACKAGE.parent
    places = {root.joinpath(*name.split(".")) for _, name in _imports(file)}
    return {
        module
        for place in places
        for module in (place.with_suffix(".py"), place.parent.with_suffix(".py"))
        if module.is_file() and module.is_relative_to(PACKAGE)
    }


@cache
def _imports(file: Path) -> list[tuple[int, str]]:
    """Return the line and the full name of everything that a file imports, wherever in the file."""
    names: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names += ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
    return names


def main() -> int:
    """Print the violations; return 1 when there are any."""
    lines = violations()
    print("\n".join(lines) or "imports run one way")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
