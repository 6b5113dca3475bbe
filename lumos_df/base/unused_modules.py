"""A module that others import here, and nothing here needs."""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

_UNUSED: Final = "pandas"


def leave_out_pandas() -> None:
    """Let pandas fail to import, as where it is not installed, in a process that is ours alone.

    pyarrow imports it to ask of the first values that it makes an array of whether they are of pandas. That took a
    third of what a small trace takes.
    """
    sys.meta_path.insert(0, _Refusal())


class _Refusal:
    """Finds the module before anybody else does, and loads none."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """Return where the module is; None for any other."""
        return ModuleSpec(name, self) if name == _UNUSED else None  # type: ignore[arg-type]  # as importlib asks it

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Raise `ModuleNotFoundError`, which who can do without the module expects."""
        raise ModuleNotFoundError(f"{spec.name}: left out, as lumos-df has no use for it", name=spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: there is no module."""
