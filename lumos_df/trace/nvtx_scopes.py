"""Domains and categories of NVTX ranges: the names that a program gave to their numbers, each process its own."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from lumos_df.schema.codes import NULL
from lumos_df.trace.row_collector import TID_BITS

_CATEGORY, _DOMAIN = 33, 75
"""NVTX_EVENTS.eventType of what names a number."""
_KEYS: Final = {"domain": ("process", "domain"), "category": ("process", "domain", "category")}
_NO_NUMBER: Final = (0, NULL)
"""Of a range in no domain, or of no category."""


def scopes(rows: Mapping[str, Any], texts: pa.Array, lasts: NDArray[np.bool_]) -> dict[str, pl.Series]:
    """Return the name of each range's domain, and of its category; one without a name is its number.

    Args:
        rows: `type`, `thread`, `domain`, `category` of every row of NVTX_EVENTS.
        texts: their texts.
        lasts: which of them are ranges.

    Returns:
        `domain` and `category`, only those that any range has, null where it has none.
    """
    found = {}
    for word, kind in (("domain", _DOMAIN), ("category", _CATEGORY)):
        number = rows[word][lasts]
        known = ~np.isin(number, _NO_NUMBER)
        if not known.any():
            continue
        keys = {"process": rows["thread"] >> TID_BITS, "domain": rows["domain"], "category": rows["category"]}
        table = pl.DataFrame({name: keys[name] for name in _KEYS[word]})
        naming = rows["type"] == kind
        names = table.filter(naming).with_columns(name=pl.Series(texts.filter(pa.array(naming)), dtype=pl.String))
        named = table.filter(lasts).join(
            names.unique(_KEYS[word], keep="last"), on=_KEYS[word], how="left", maintain_order="left"
        )
        said = pl.coalesce("name", pl.col(word).cast(pl.String))
        found[word] = named.select(pl.when(pl.Series(known)).then(said)).to_series().alias(word)
    return found
