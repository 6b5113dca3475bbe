"""What a job would take under another plan: one configuration or a million, from nothing but their figures.

`estimate(model, hardware, plan)` answers for one configuration; `Search(Grid.make(models, hardware, plans)).run()` for
all legal ones of a grid. `answer.ANSWERS` says what either has.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lumos_df.estimate.configuration import Estimate, estimate
    from lumos_df.estimate.grid import Grid
    from lumos_df.estimate.search import Search

__all__ = ["Estimate", "Grid", "Search", "estimate"]

_PLACES: Final = {"Estimate": "configuration", "Grid": "grid", "Search": "search", "estimate": "configuration"}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: an estimate needs less than a search."""
    if name not in _PLACES:
        raise AttributeError(f"module 'lumos_df.estimate' has no attribute '{name}'")
    return getattr(import_module(f"lumos_df.estimate.{_PLACES[name]}"), name)
