"""Modules that others import here, and nothing here needs."""

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

_PANDAS: Final = "pandas"
_MASKED: Final = "numpy.ma"


def leave_out() -> None:
    """Let pandas fail to import, as where it is not installed, and `numpy.ma` wait, in a process that is ours alone.

    pyarrow imports both to ask of the first values that it makes an array of whether they are of pandas, or masked;
    numpy asks the second of what it makes unique, too. That took a third of what a small trace takes, and a twentieth.
    """
    sys.meta_path.insert(0, _Refusal())


class _Refusal:
    """Finds a module before anybody else does, and loads none, or one that knows no masked array."""

    def __init__(self) -> None:
        self._left_out = {_PANDAS, _MASKED}

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """Return where the module is; None for any other."""
        return ModuleSpec(name, self) if name in self._left_out else None  # type: ignore[arg-type]  # as importlib asks it

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Raise `ModuleNotFoundError`, which who can do without pandas expects; masked arrays are left out once."""
        if spec.name == _PANDAS:
            raise ModuleNotFoundError(f"{spec.name}: left out, as lumos-df has no use for it", name=spec.name)
        self._left_out.remove(spec.name)
        return _NoMasks(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module is as it was made, if it was."""


class _NoMasks(ModuleType):
    """`numpy.ma` until somebody wants a masked array, and gets the module itself."""

    class MaskedArray:
        """The class of none."""

    @staticmethod
    def is_masked(_: object) -> bool:
        """Return whether values are masked."""
        return False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(_MASKED) is self:
            del sys.modules[_MASKED]
        return getattr(import_module(_MASKED), name)
