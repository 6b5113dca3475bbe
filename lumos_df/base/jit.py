"""How kernels are compiled: numba, cached on disk, without the interpreter lock."""

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numba
from llvmlite import binding
from numba import types
from numba.core import event
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.environment import Environment, lookup_environment
from numba.core.runtime.nrt import rtsys

from lumos_df.base.kernel_cache import folder, tell_compiling

Kernel = Callable[..., Any]
"""A compiled function: numba infers its types from what it is called with."""

# Nobody calls kernels from C: an entry for it would only take longer to compile and to load.
_OPTIONS: Final[dict[str, Any]] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}


def kernel(function: Kernel) -> Kernel:
    """Compile `function` on first call; later processes load it from the cache."""
    return _compiled(function)


def lean_kernel(function: Kernel) -> Kernel:
    """Compile `function`, which allocates nothing, without reference counts on the arrays it passes around.

    For loops that call small functions with many arrays: the scanner ran at 73 MB/s with the counts and runs at
    several hundred without.
    """
    return _compiled(function, _nrt=False, forceinline=False)


def inlined_kernel(function: Kernel) -> Kernel:
    """Compile `function` as `lean_kernel` does, into the body of every kernel that calls it.

    LLVM decides by size: with one rare path more it left the scanner's inner loop outside, at 400 MB/s instead of 670.
    """
    return _compiled(function, _nrt=False, forceinline=True)


def _compiled(function: Kernel, **more: bool) -> Kernel:
    options: dict[str, Any] = {**_OPTIONS, **more}
    compiled: Any = numba.njit(**options)(function)
    compiled._cache = _KernelCache(function)  # noqa: SLF001 - as `cache=True` does

    @cache
    def part() -> Any:
        """Return what other kernels call: it becomes part of them, and neither Python's entry nor a place on disk."""
        return numba.njit(**{**options, "no_cpython_wrapper": True})(function)

    plain: Callable[[Any], Any] = types.unliteral

    def once_for_all_constants(args: Any, kws: Any) -> Any:
        """Choose the version for a call as if constants were variables: numba would compile one for each constant."""
        return part().get_call_template(
            [plain(kind) for kind in args], {name: plain(kind) for name, kind in kws.items()}
        )

    compiled.get_call_template = once_for_all_constants
    compiled.get_overload = lambda signature: part().get_overload(signature)
    kernel: Kernel = compiled
    return kernel


class _StoredEnvironment:
    """What a compiled function looks up while it runs, as the cache holds it."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        known = self._environment
        return _environment, (known.globals["__name__"], known.consts, known.env_name)


def _environment(module: str, constants: list[Any], name: str) -> Any:
    """Return an environment without the module that its function is of, which only a compilation looks into.

    numba imports it: its own modules of arrays, texts and linear algebra took 35 ms of every command with kernels.
    """
    known = lookup_environment(name)  # type: ignore[no-untyped-call]
    if known is None:
        known = Environment({"__name__": module})
        known.consts[:] = constants
        known.env_name = name
        Environment._memo[name] = known  # noqa: SLF001 - as numba does
    return known


class _StoredKernels(CompileResultCacheImpl):
    """How a kernel is stored: as code that runs, without what only a kernel that calls it would be compiled from.

    That is never asked for, see `once_for_all_constants`, and to parse it took as long as to load the code.
    """

    def reduce(self, cres: Any) -> tuple[Any, ...]:
        """Return what the cache holds of a compiled kernel."""
        (name, kind, (code, _)), fndesc, environment, *rest, of_parts = super().reduce(cres)  # type: ignore[no-untyped-call]
        environments = [_StoredEnvironment(part) for part in of_parts]
        # numba calls only what it reads here that the code has.
        entries = fndesc.llvm_func_name, fndesc.llvm_cpython_wrapper_name
        names = "\n".join(f'define void @"{entry}"() {{ ret void }}' for entry in entries)
        bitcode = binding.parse_assembly(names).as_bitcode()
        return ((name, kind, (code, bitcode)), fndesc, _StoredEnvironment(environment), *rest, environments)


class _KernelCache(FunctionCache):
    """Kernels on disk, loaded without what only a compilation needs: numba would prepare for one each time.

    To know every function that numba knows took longer than to read a small trace.
    """

    _impl_class = _StoredKernels

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the kernel that was compiled for a signature, None where there is none."""
        rtsys.initialize(target_context)  # what arrays that a kernel returns live in
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


class _FirstCompilation(event.Listener):
    """Says that kernels are compiled when the first one is; one that is loaded from the cache is not."""

    def on_start(self, event: object) -> None:  # noqa: ARG002 - numba's signature
        tell_compiling()

    def on_end(self, event: object) -> None:
        """Nothing: what comes next is the result."""


event.register("numba:compile", _FirstCompilation())  # type: ignore[no-untyped-call]
vars(numba.config)["CACHE_DIR"] = str(folder())
