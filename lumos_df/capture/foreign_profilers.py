"""Foreign profilers in a recorded process: torch crashes where two are open at once, so ours gives way."""

import functools
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

_open: WeakSet[Any] = WeakSet()
"""Profilers that are prepared or record, ours included."""
_listeners: dict[Any, Callable[[], None]] = {}
"""For each profiler of ours: what to do before a foreign one opens."""


def watch(profiler_module: Any) -> None:
    """Watch every profiler of `torch.autograd.profiler` from now on; `torch.profiler` makes them, too."""
    kind = profiler_module.profile
    prepare, start, leave = kind._prepare_trace, kind._start_trace, kind.__exit__  # noqa: SLF001 - how each one begins
    if hasattr(leave, "__wrapped__"):
        return

    def opens(begin: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(begin)
        def tell_and_begin(self: Any) -> Any:
            for act in [act for ours, act in _listeners.items() if ours is not self]:
                act()
            _open.add(self)
            return begin(self)

        return tell_and_begin

    @functools.wraps(leave)
    def close(self: Any, *what: Any) -> Any:
        _open.discard(self)
        _listeners.pop(self, None)
        return leave(self, *what)

    kind._prepare_trace, kind._start_trace, kind.__exit__ = opens(prepare), opens(start), close  # noqa: SLF001 - as above


def are_open() -> bool:
    """Return whether there is a profiler that has begun since `watch` and has not ended."""
    return bool(_open)


def before_foreign(ours: Any, act: Callable[[], None]) -> None:
    """Call `act` before a profiler that is not `ours` begins, until `ours` ends."""
    _listeners[ours] = act
