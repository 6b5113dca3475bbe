"""The figures in `data/models`, `data/hardware` and `data/software` by name, and those of a user's own files."""

import json
import os
import re
import tomllib
from collections.abc import Callable
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Final

from lumos_df.base.errors import LumosError

_PACKAGE: Final = Path(__file__).parent.parent
_OTHER: Final = re.compile(r"[^a-z0-9.]")
_NAMED: Final = 6
"""Names that a refusal suggests."""


def data_folder() -> Path:
    """Return the folder of the package's data: inside an installed package, else at the root of the repository."""
    installed = _PACKAGE / "data"
    return installed if installed.is_dir() else _PACKAGE.parent / "data"


def names(folder: str) -> list[str]:
    """Return the names that a folder of the data has, without their aliases."""
    return sorted(path.stem for path in _files(folder))


def keys(folder: str, name: str) -> list[str]:
    """Return how a document of the data may be called: its name and aliases, small letters, digits and points only."""
    return [key for key, path in _index(folder).items() if path.stem == name]


def read_document(
    name_or_path: str | os.PathLike[str], folder: str, error: type[LumosError]
) -> tuple[str, dict[str, Any]]:
    """Return a document's name and its figures, without its `aliases`.

    Args:
        name_or_path: a name or an alias of `data/<folder>`, whatever its case, spaces and dashes; or a file.
        folder: `models`, `hardware` or `software`.
        error: raised for a name that is not there, with the nearest, and for a file that does not read.
    """
    text = os.fspath(name_or_path)
    path = _index(folder).get(_key(text))
    if path is None:
        path = Path(text)
        if path.suffix not in _READERS and not path.is_file():
            raise error(f"{_CALLED[folder]} '{text}' is not known{_suggestion(text, folder)}")
    figures = _read(path, error)
    figures.pop("aliases", None)
    return figures.pop("name", path.stem), figures


def _suggestion(text: str, folder: str) -> str:
    """Return the names that begin with a text, else the one most like it, else what names begin with."""
    stems = {key: path.stem for key, path in _index(folder).items()}
    key = _key(text)
    begun = [name for name in names(folder) if key and _key(name).startswith(key)]
    match = begun or [stems[like] for like in get_close_matches(key, stems, n=1)]
    if match:
        return f"; did you mean {' or '.join(repr(name) for name in match[:_NAMED])}?"
    begins = dict.fromkeys(name.partition("-")[0] for name in names(folder))
    return f"; names begin with {', '.join(begins)}"


@cache
def _index(folder: str) -> dict[str, Path]:
    """Return the file of each name and alias."""
    index: dict[str, Path] = {}
    for path in _files(folder):
        for name in (path.stem, *_read(path, LumosError).get("aliases", ())):
            other = index.setdefault(_key(name), path)
            if other != path:
                raise ValueError(f"{path}: '{name}' is a name of {other}, too")
    return index


def _files(folder: str) -> list[Path]:
    return sorted(path for path in (data_folder() / folder).iterdir() if path.suffix in _READERS)


def _read(path: Path, error: type[LumosError]) -> dict[str, Any]:
    try:
        figures = _READERS.get(path.suffix, json.loads)(path.read_text("utf-8"))
    except OSError as problem:
        raise error(f"{path}: {problem.strerror}") from None
    except (ValueError, RecursionError) as problem:
        raise error(f"{path}: does not read: {problem}") from None
    if not isinstance(figures, dict):
        raise error(f"{path}: must be a table of figures")
    return figures


def _key(name: str) -> str:
    """Return a name without case, spaces, dashes and underscores."""
    return _OTHER.sub("", name.casefold())


_READERS: Final[dict[str, Callable[[str], Any]]] = {".json": json.loads, ".toml": tomllib.loads}
_CALLED: Final = {"models": "model", "hardware": "hardware", "software": "software"}
