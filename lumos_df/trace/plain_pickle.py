"""Pickles of plain data: numbers, texts, lists, tuples, dictionaries, and nothing that has to be called or imported."""

import pickle
from typing import Any, Final

from lumos_df.base.errors import TraceError
from lumos_df.trace.stored_file import StoredFile

_PROTOCOLS: Final = tuple(bytes((0x80, protocol)) for protocol in range(2, 6))
"""How a pickle begins since protocol 2."""
_LISTS: Final = {("torch.jit._pickle", f"build_{element}list") for element in ("int", "double", "bool")}
"""How PyTorch's own pickler, in C++, writes lists of one type; each makes a list of one."""


class _PlainUnpickler(pickle.Unpickler):
    """Refuses whatever would run code of the file's choice."""

    def find_class(self, module: str, name: str, /) -> Any:
        """Refuse every class and function but PyTorch's words for lists: plain data needs none."""
        if (module, name) in _LISTS:
            return list
        raise TraceError(f"a pickle that calls {module}.{name}: only plain data is read, as this would run code of it")

    def persistent_load(self, pid: Any) -> Any:
        """Refuse what lies outside of the file."""
        raise TraceError(f"a pickle that refers to {str(pid)[:60]!r} outside of it: only plain data is read")


def is_pickle(file: StoredFile) -> bool:
    """Return whether a file begins as a pickle does."""
    return file.head(2) in _PROTOCOLS


def load(file: StoredFile) -> Any:
    """Return what a pickle holds.

    Raises:
        TraceError: it is damaged, or holds anything but plain data.
    """
    with file.on_disk(in_memory=True) as path, open(path, "rb") as stream:  # noqa: PTH123  # as a path is what it is
        try:
            return _PlainUnpickler(stream).load()
        except TraceError as error:
            raise TraceError(f"{file.name}: {error}") from None
        except Exception as error:  # noqa: BLE001  # a damaged pickle fails in whichever way its bytes happen to
            what = f"{type(error).__name__}: {error}".partition("\n")[0][:120]
            raise TraceError(f"{file.name}: a damaged pickle ({what}); save it again") from None
