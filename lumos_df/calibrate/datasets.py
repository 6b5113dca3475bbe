"""What is known of a set of measured runs besides its table: `data/validation/datasets.toml`."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Self

from lumos_df.base.errors import TruthError, nearest
from lumos_df.model.figures import make
from lumos_df.model.library import data_folder

Figure = str | int | float | bool


@dataclass(frozen=True)
class Variant:
    """Facts of some of a set's runs."""

    where: Mapping[str, str]
    """Regular expression by column: the runs whose columns all match."""
    facts: Mapping[str, Figure] = field(default_factory=dict)
    """Value by column."""
    instead: Mapping[str, Figure] = field(default_factory=dict)
    """Value by column that goes before what a row says: our word for what its page calls otherwise."""


@dataclass(frozen=True)
class Dataset:
    """A set of measured runs: where it is, what its columns mean, what else is known of its runs."""

    name: str
    """What it is called."""
    file: str
    """Name of its CSV in the folder of measured runs."""
    source: str
    """Where the facts are from."""
    aliases: tuple[str, ...] = ()
    """Other names of it."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Our name of a column, and the file's."""
    needs: tuple[str, ...] = ()
    """Columns of the file without which it is refused, besides those of `columns`."""
    tasks: tuple[str, ...] = ()
    """What column `task` may say; empty: it is not looked at."""
    at_least: Mapping[str, float] = field(default_factory=dict)
    """Least value by column: runs below are not of the set."""
    where: Mapping[str, str] = field(default_factory=dict)
    """Regular expression by column: other runs are not of the set."""
    models: Mapping[str, str] = field(default_factory=dict)
    """The file's name of a model, and ours."""
    facts: Mapping[str, Figure] = field(default_factory=dict)
    """Value by column where a row says nothing and no variant does."""
    variants: tuple[Variant, ...] = ()
    """Facts that go before `facts`, an earlier variant before a later one."""
    ran: bool = True
    """Whether these are runs that were measured, rather than ones that crashed."""
    first_stage: bool = False
    """Whether the memory is that of rank 0, which is of the first stage, instead of the fullest GPU's."""
    crashed: str = ""
    """Name of the set of runs of the same kind that did not run."""

    @classmethod
    def read(cls, name: str) -> Self:
        """Return the set of a name or alias. Raises `TruthError` for an unknown one, with the nearest."""
        tables = _tables()
        for known, table in tables.items():
            if name in (known, *table.get("aliases", ())):
                break
        else:
            raise TruthError(
                f"dataset '{name}' is not known{nearest(name, list(tables))}; there are {', '.join(names())}"
            )
        inherited = tables[table["like"]] if "like" in table else {}
        figures = {key: value for key, value in {**inherited, **table}.items() if key != "like"}
        figures["variants"] = tuple(Variant(**variant) for variant in figures.get("variants", ()))
        return make(cls, {"name": known, **figures}, f"dataset '{known}'", TruthError)


def names() -> list[str]:
    """Return the names of the sets of measured runs, without those that crashed."""
    return [name for name, table in _tables().items() if table.get("ran", True)]


FILE: Final = "datasets.toml"


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads((data_folder() / "validation" / FILE).read_text("utf-8"))
