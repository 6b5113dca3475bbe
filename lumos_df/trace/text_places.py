"""Texts of a recording by number, for readers whose texts are Arrow columns."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lumos_df.schema.codes import NONE


class TextPlaces:
    """Gives every distinct text a place, in the order in which they come."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    @property
    def strings(self) -> list[str]:
        """Return every text that has a place, by its place: `Recording.strings`."""
        return list(self._places)

    def place(self, text: str) -> int:
        """Return the place of a text."""
        return self._places.setdefault(text, len(self._places))

    def places(self, texts: pa.Array) -> NDArray[np.int32]:
        """Return the place of each text, NONE for null."""
        coded = texts.dictionary_encode()
        table = np.array([*map(self.place, coded.dictionary.to_pylist()), NONE], np.int32)
        codes: NDArray[np.int64] = coded.indices.fill_null(len(table) - 1).to_numpy(zero_copy_only=False)
        return table[codes]
