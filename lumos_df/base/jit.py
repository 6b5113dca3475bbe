"""What becomes a kernel: a function that numba compiles once, and that every later process loads from the disk.

numba itself is imported only where something is compiled: that takes as long as to read a small trace.
"""

from collections.abc import Callable, Hashable
from functools import cached_property
from threading import RLock
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.base import stored_kernels
from lumos_df.base.kernel_cache import tell_compiling

Function = Callable[..., Any]
"""A function, compiled or to be: numba infers its types from what it is called with."""

# Nobody calls kernels from C: an entry for it would only take longer to compile and to load.
_OPTIONS: Final[dict[str, Any]] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
_LEAN: Final[dict[str, Any]] = {**_OPTIONS, "_nrt": False}

_C_ORDER, _FORTRAN_ORDER, _ALIGNED_WRITEABLE = 0x1, 0x2, 0x500
"""Bits of `ndarray.flags.num`, see `NPY_ARRAY_C_CONTIGUOUS` and the others in numpy's C API."""
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_LOCK: Final = RLock()


def kernel(function: Function) -> Function:
    """Compile `function` on first call; later processes load it from the cache."""
    return Kernel(function, _OPTIONS)


def lean_kernel(function: Function) -> Function:
    """Compile `function`, which allocates nothing, without reference counts on the arrays it passes around.

    For loops that call small functions with many arrays: the scanner ran at 73 MB/s with the counts and runs at
    several hundred without.
    """
    return Kernel(function, {**_LEAN, "forceinline": False})


def inlined_kernel(function: Function) -> Function:
    """Compile `function` as `lean_kernel` does, into the body of every kernel that calls it.

    LLVM decides by size: with one rare path more it left the scanner's inner loop outside, at 400 MB/s instead of 670.
    """
    return Kernel(function, {**_LEAN, "forceinline": True})


class Kernel:
    """A function that is compiled for each kind of arguments it is called with."""

    def __init__(self, function: Function, options: dict[str, Any]) -> None:
        self._function = function
        self._options = options
        self._defaults = function.__defaults__ or ()
        self._most = function.__code__.co_argcount
        self._compiled: dict[Hashable, Function] = {}
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__

    def __call__(self, *args: Any) -> Any:
        """Call what is compiled for such arguments; raises `TypeError` for what no kernel takes."""
        if len(args) < self._most and self._defaults:
            args += self._defaults[len(args) - self._most :]
        kinds = tuple(map(_kind, args))
        compiled = self._compiled.get(kinds)
        if compiled is None:
            with _LOCK:
                compiled = self._compiled[kinds] = self._load(kinds) or self._compile(kinds, args)
        return compiled(*args)

    @cached_property
    def _dispatcher(self) -> Any:
        from lumos_df.base import compiling  # noqa: PLC0415 - numba: see above

        return compiling.dispatcher(self._function, self._options)

    @property
    def _numba_type_(self) -> Any:
        """What numba takes this for where another kernel calls it."""
        return self._dispatcher._numba_type_

    def _load(self, kinds: Hashable) -> Function | None:
        return stored_kernels.load(self._function, kinds)

    def _compile(self, kinds: Hashable, args: tuple[Any, ...]) -> Function:
        tell_compiling()
        from lumos_df.base import compiling  # noqa: PLC0415 - numba: see above

        compiled, stored = compiling.compiled(self._dispatcher, args)
        if stored is not None:
            stored_kernels.store(self._function, kinds, stored)
        return compiled


class Intrinsic:
    """What kernels call that is written in LLVM's instructions; Python cannot."""

    def __init__(self, define: Function) -> None:
        self._define = define

    @cached_property
    def _numba_type_(self) -> Any:
        """What numba takes this for where a kernel calls it."""
        from lumos_df.base import compiling  # noqa: PLC0415 - numba: see above

        return compiling.intrinsic_type(self._define)


def intrinsic(define: Function) -> Intrinsic:
    """Make of `define`, which numba asks for types and instructions, what kernels call."""
    return Intrinsic(define)


def numba_types() -> Any:
    """Return numba's module of types, for an intrinsic that is compiled."""
    from numba.core import types  # noqa: PLC0415 - as above

    return types


def _kind(value: Any) -> Hashable:
    """Return what numba tells values apart by; its own answer takes it to be imported."""
    if isinstance(value, np.ndarray):
        return _kind_of_array(value)
    if isinstance(value, tuple):
        return type(value), tuple(map(_kind, value))
    if isinstance(value, np.generic):
        return value.dtype
    kind = type(value)
    if kind is int and not _LEAST <= value <= _MOST:
        return np.dtype(np.uint64)
    if kind in _KINDS:
        return _KINDS[kind]
    raise TypeError(f"a kernel takes arrays, numbers and tuples of them, not {kind.__name__}")


_KINDS: Final[dict[type, Hashable]] = {
    int: np.dtype(np.int64),
    float: np.dtype(np.float64),
    bool: np.dtype(np.bool_),
    type(None): None,
}


def _kind_of_array(array: NDArray[Any]) -> Hashable:
    flags = array.flags.num
    order = "C" if flags & _C_ORDER else "F" if flags & _FORTRAN_ORDER else "A"
    return array.dtype, array.ndim, order, flags & _ALIGNED_WRITEABLE
