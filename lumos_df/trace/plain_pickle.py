"""Pickles of plain data: numbers, texts, lists, tuples, dictionaries, and nothing that has to be called or imported."""

import pickle
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from lumos_df.base.errors import TraceError
from lumos_df.trace.stored_file import StoredFile

_PROTOCOLS: Final = tuple(bytes((0x80, protocol)) for protocol in range(2, 6))
"""How a pickle begins since protocol 2."""
_LISTS: Final = {("torch.jit._pickle", f"build_{element}list") for element in ("int", "double", "bool")}
"""How PyTorch's own pickler, in C++, writes lists of one type; each makes a list of one."""
_MOST_OF_A_BYTE: Final = 256
"""Bytes of memory that a byte of a file may become: an empty dictionary is one byte there, and 64 here."""
_MOST_OF_ANY: Final = 1 << 30
"""Bytes of memory that any file may take."""
_USED: Final = Path("/proc/self/statm")


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
            with _bounded(_MOST_OF_ANY + _MOST_OF_A_BYTE * Path(path).stat().st_size):
                return _PlainUnpickler(stream).load()
        except TraceError as error:
            raise TraceError(f"{file.name}: {error}") from None
        except Exception as error:  # noqa: BLE001  # a damaged pickle fails in whichever way its bytes happen to
            what = f"{type(error).__name__}: {error}".partition("\n")[0][:120]
            raise TraceError(f"{file.name}: a damaged pickle ({what}); save it again") from None


@contextmanager
def _bounded(more: int) -> Iterator[None]:
    """Let so many more bytes of memory be taken: a short pickle can ask for 64 GiB, and `MemoryError` is a line."""
    if not _USED.exists():  # Linux tells, and keeps to the bound
        yield
        return
    bounds = resource.getrlimit(resource.RLIMIT_AS)
    used = int(_USED.read_text().split()[0]) * resource.getpagesize()
    lowest = min((bound for bound in bounds if bound != resource.RLIM_INFINITY), default=used + more)
    resource.setrlimit(resource.RLIMIT_AS, (min(used + more, lowest), bounds[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, bounds)
