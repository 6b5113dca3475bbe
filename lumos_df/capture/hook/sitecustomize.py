"""Python imports this before a script, because `lumos-df capture` puts its folder first on PYTHONPATH.

It waits for torch: when the script imports torch's optimizers, `lumos_df.capture.inject` counts their steps. Until
then it costs a look at the names of imports, and a Python process that never imports torch is left alone.
"""

import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib takes longer to import than this runs
_PACKAGE = os.path.dirname(os.path.dirname(_HERE))  # noqa: PTH120 - as above


class _AfterImport:
    """A finder of modules that calls a function after a module of interest was imported."""

    _functions = {  # noqa: RUF012 - one finder, one process
        "torch.autograd.profiler": "watch_profilers",
        "torch.optim.optimizer": "count_steps",
        "torch.distributed.distributed_c10d": "fake_process_groups",
        "torch.nn.parallel.distributed": "fake_gradients",
        "torch.distributed.pipelining.stage": "fake_votes",
    }

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module of interest as Python does."""
        function = self._functions.pop(name, None)
        spec = PathFinder.find_spec(name, path, target) if function else None
        if function is None or spec is None or spec.loader is None:
            return None
        loader: Any = spec.loader
        run = loader.exec_module

        def run_and_act(module: ModuleType) -> None:
            run(module)
            try:
                _action(function)(module)
            except Exception as error:  # noqa: BLE001 - whatever fails here, the job goes on without being recorded
                print(f"lumos-df capture: nothing is recorded: {error}", file=sys.stderr)  # noqa: T201 - no logging here

        loader.exec_module = run_and_act
        return spec


def _action(name: str) -> Callable[[ModuleType], None]:
    """Return a function of `lumos_df.capture.inject`, loaded from this file's package whatever else is on the path."""
    if "lumos_df" not in sys.modules:
        spec = spec_from_file_location("lumos_df", f"{_PACKAGE}/__init__.py", submodule_search_locations=[_PACKAGE])
        if spec is None or spec.loader is None:
            raise ImportError(f"{_PACKAGE}: no lumos_df here")
        sys.modules["lumos_df"] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules["lumos_df"])
    from lumos_df.capture import inject  # noqa: PLC0415 - only where torch is

    action: Callable[[ModuleType], None] = getattr(inject, name)
    return action


def _import_the_next() -> None:
    """Import the sitecustomize that this one stands before, if there is one."""
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != _HERE]  # noqa: PTH100 - as above
    this_module = sys.modules.pop("sitecustomize")
    try:
        __import__("sitecustomize")
    except ImportError:
        sys.modules["sitecustomize"] = this_module


sys.meta_path.insert(0, _AfterImport())
_import_the_next()
