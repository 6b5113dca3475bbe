"""A software's file: what it says, what the profile has that it inherits, and what is to be mended in one of before."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from lumos_df.base.errors import SoftwareError
from lumos_df.model.library import read_document
from lumos_df.model.records import Column
from lumos_df.schema.plan_words import ATTENTION_KERNELS, BEST_ATTENTION, FLASH2

_INHERITS: Final = "inherits"
"""The profile that a file is as in what it does not say: a name, or a file, which may lie beside it."""

_REPLACED: Final = "flash2"
"""What files said before they named the kernel."""

_GONE: Final = ("keep_gathered", "keep_rotary")
"""What files said before it was known what holds the memory of communication."""


def software_figures(name_or_path: str | os.PathLike[str], columns: Sequence[Column]) -> tuple[str, dict[str, Any]]:
    """Return the name of a software and its figures, by a name or alias of `data/software` or from a file.

    Raises `SoftwareError` for an unknown name, and for a file that does not read, inherits itself, or lacks a figure.

    Args:
        name_or_path: as `read_document` has it.
        columns: figures that it has to have.
    """
    name, figures = read_document(name_or_path, "software", SoftwareError)
    inherited = set()
    while _INHERITS in figures:
        parent = figures.pop(_INHERITS)
        if not isinstance(parent, str):
            raise SoftwareError(
                f"software '{name}': {_INHERITS} = {parent!r}: must be the name or the file of a software"
            )
        beside = Path(name_or_path).parent / parent
        name_or_path = beside if beside.is_file() else parent
        other, others = read_document(name_or_path, "software", SoftwareError)
        if other in inherited:
            raise SoftwareError(f"software '{name}': '{other}' inherits itself")
        inherited.add(other)
        figures = {**others, **figures}
    if _REPLACED in figures:
        raise SoftwareError(
            f"software '{name}': {_REPLACED} has become attention, one of {', '.join(ATTENTION_KERNELS)}: write "
            f'attention = "{ATTENTION_KERNELS[FLASH2 if figures[_REPLACED] else BEST_ATTENTION]}", and last_again '
            "(0 to 1), which was 1"
        )
    lacking = [column for column in columns if column.name not in figures]
    names = ", ".join(column.name for column in lacking)
    if any(gone in figures for gone in _GONE):
        instead = f"write {names} instead, 0 where you know nothing" if lacking else "leave them out"
        raise SoftwareError(f"software '{name}': {' and '.join(_GONE)} are gone: {instead}")
    if lacking:
        meaning = f", {lacking[0].doc}" if len(lacking) == 1 else f'; or write {_INHERITS} = "generic" and what differs'
        raise SoftwareError(f"software '{name}': needs {names}{meaning}")
    return name, figures
