"""Names of modules in a recording: a mark around every module's forward, without tracing every Python call."""

import threading
from collections import Counter
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn
from torch.autograd.profiler import record_function
from torch.compiler import is_compiling
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook


class ModuleMarks:
    """Marks named as the profiler's own Python tracer names modules: `nn.Module: Linear_3`, counted a class."""

    def __init__(self) -> None:
        self._names: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()
        self._counts: Counter[str] = Counter()
        self._open = threading.local()
        self._handles: list[Any] = []

    def start(self) -> None:
        """Mark from now on."""
        self._handles = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]

    def stop(self) -> None:
        """Mark no longer."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _enter(self, module: nn.Module, _: object) -> None:
        if is_compiling():
            return
        name = self._names.get(module)
        if name is None:
            kind = type(module).__name__
            name = self._names[module] = f"nn.Module: {kind}_{self._counts[kind]}"
            self._counts[kind] += 1
        mark = record_function(name)
        mark.__enter__()
        self._stack().append(mark)

    def _leave(self, *_: object) -> None:
        if is_compiling():
            return
        if stack := self._stack():
            stack.pop().__exit__(None, None, None)

    def _stack(self) -> list[Any]:
        stack: list[Any] | None = getattr(self._open, "stack", None)
        if stack is None:
            stack = self._open.stack = []
        return stack
