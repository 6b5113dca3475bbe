"""Check that imports inside `lumos_df` run one way: `python -m tools.imports` lists what does not and exits 1.

A part is a module or package directly below `lumos_df`. Imports inside functions count, too.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parent.parent / "lumos_df"

_BASE: Final = frozenset({"errors", "jit", "kernel_cache", "layout", "schema", "units"})
_DATA: Final = _BASE | {"catalog", "runner"}

MAY_IMPORT: Final[dict[str, frozenset[str]]] = {
    "errors": frozenset(),
    "schema": frozenset(),
    "kernel_cache": frozenset(),
    "jit": frozenset({"kernel_cache"}),
    "units": frozenset(),
    "layout": frozenset({"errors", "schema"}),
    "runner": frozenset({"errors"}),
    "catalog": frozenset({"errors", "layout", "schema"}),
    "reference": frozenset({"catalog", "schema"}),
    "capture": _DATA | {"model"},
    "trace": _DATA,
    "graph": _DATA,
    "model": _DATA,
    "structure": _DATA | {"graph"},
    "estimate": _DATA | {"graph", "model", "structure", "trace"},
    "output": _DATA,
    "diff": _DATA,
    "report": _DATA | {"output"},
    "page": _DATA | {"output"},
    "export": _DATA | {"graph", "output"},
    "glance": frozenset({"report", "units"}),
    "prompt": _DATA | {"output"},
}
"""What each part may import besides itself; a part that is not listed may import anything (`cli`, `__main__`)."""

MAY_IMPORT_TORCH: Final = frozenset({"capture"})


def violations(package: Path = PACKAGE) -> list[str]:
    """Return one line for every import that runs the wrong way, in the order of the files."""
    return [line for file in sorted(package.rglob("*.py")) for line in _file_violations(package, file)]


def _file_violations(package: Path, file: Path) -> Iterator[str]:
    part = file.relative_to(package).parts[0].removesuffix(".py")
    for line, name in _imports(file):
        root, _, rest = name.partition(".")
        if root == "torch" and part not in MAY_IMPORT_TORCH:
            yield f"{file}:{line}: torch is imported only in {', '.join(sorted(MAY_IMPORT_TORCH))}"
        other = rest.partition(".")[0]
        is_part = (package / other).is_dir() or (package / f"{other}.py").is_file()
        if root != package.name or not other or not is_part or other == part:
            continue
        allowed = MAY_IMPORT.get(part)
        if allowed is not None and other not in allowed and part != "__init__":
            choices = ", ".join(sorted(allowed)) or "nothing"
            yield f"{file}:{line}: '{part}' may not import '{other}'; it may import {choices}"


def _imports(file: Path) -> Iterator[tuple[int, str]]:
    """Give the line and the full name of everything that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def main() -> int:
    """Print the violations; return 1 when there are any."""
    found = violations()
    print("\n".join(found) or "imports run one way")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
