"""Messages of Protocol Buffers as columns: where each lies, and its fields by number."""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from lumos_df.schema.codes import NULL
from lumos_df.trace.kernels import protobuf_fields


class Messages(NamedTuple):
    """n messages of one type in a file, and the m fields of all of them."""

    data: NDArray[np.uint8]
    size: int
    """n."""
    owner: NDArray[np.int64]
    """Message of each field; ascends."""
    number: NDArray[np.int64]
    value: NDArray[np.int64]
    """Bits of a number, beginning of a text or message."""
    length: NDArray[np.int64]
    """Bytes of a text or message, -1 of a number."""
    broken: int
    """Messages that are damaged."""

    @classmethod
    def at(cls, data: NDArray[np.uint8], begin: NDArray[np.int64], end: NDArray[np.int64]) -> Self:
        """Return the messages that lie at some places."""
        owner, number, value, length, broken = protobuf_fields.fields(data, begin, end)
        return cls(data, len(begin), owner, number, value, length, int(broken.sum()))

    def inside(self, number: int) -> tuple[Self, NDArray[np.int64]]:
        """Return the messages in a repeated field, and whose each of them is."""
        rows = np.flatnonzero((self.number == number) & (self.length >= 0))
        begin = self.value[rows]
        return self.at(self.data, begin, begin + self.length[rows]), self.owner[rows]

    def numbers(self, *numbers: int, absent: int = NULL) -> NDArray[np.int64]:
        """Return a number of each message: the last of a few fields; `absent` where it has none of them."""
        column = np.full(self.size, absent, np.int64)
        rows = np.flatnonzero(np.isin(self.number, numbers) & (self.length < 0))
        column[self.owner[rows]] = self.value[rows]
        return column

    def texts(self, *numbers: int) -> list[str | None]:
        """Return a text of each message: the last of a few fields; None where it has none, or nothing in it."""
        texts: list[str | None] = [None] * self.size
        for row in np.flatnonzero(np.isin(self.number, numbers) & (self.length > 0)).tolist():
            begin = int(self.value[row])
            texts[self.owner[row]] = bytes(self.data[begin : begin + int(self.length[row])]).decode("utf-8", "replace")
        return texts
