"""numba, where something is compiled: imported by nobody who only calls what is compiled already."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
from numba import types
from numba.core import extending
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.registry import cpu_target

from lumos_df.base.stored_kernels import StoredKernel

_ENVIRONMENT = "_ZN08NumbaEnv"
"""Begins the names under which code finds the objects of Python that it reads."""


class _PartCode(JITCodeLibrary):
    """LLVM's code of a function that is part of kernels and never runs by itself.

    It is optimized, and made machine code, as part of each kernel. numba would do both for every function on its own
    as well, a quarter of the time that the estimator's hundred functions take.
    """

    @property
    def codegen(self) -> Any:
        """What is told of the function's environment, which only running code has: `compiled` tells it."""
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Do nothing."""

    def get_pointer_to_function(self, _name: str) -> int:
        """Return where the machine code is: nowhere."""
        self._ensure_finalized()
        return 0

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


class _PartCompiler(Compiler):
    """numba's compiler, which leaves out what a part of kernels does not need."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)  # type: ignore[no-untyped-call]
        self.state.library = _PartCode(self.state.targetctx.codegen(), "part")
        self.state.library.enable_object_caching()


def dispatcher(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Return numba's view of a function: its versions by type, for Python and for other kernels."""
    entry: Any = numba.njit(**options)(function)

    @cache
    def part() -> Any:
        """Return what other kernels call: it becomes part of them, and neither Python's entry nor a place on disk."""
        of_part = {**options, "no_cpython_wrapper": True, "pipeline_class": _PartCompiler}
        return numba.njit(**of_part)(function)

    plain: Callable[[Any], Any] = types.unliteral
    of_entry, overload_of_entry = entry.get_call_template, entry.get_overload

    def once_for_all_constants(args: Any, kws: Any) -> Any:
        """Choose the version for a call as if constants were variables: numba would compile one for each constant.

        What Python calls is taken where it is compiled already.
        """
        kinds = tuple(map(plain, args))
        choose = of_entry if kinds in entry.overloads and not kws else part().get_call_template
        return choose(kinds, {name: plain(kind) for name, kind in kws.items()})

    entry.get_call_template = once_for_all_constants
    entry.get_overload = lambda kinds: (
        overload_of_entry(kinds) if kinds in entry.overloads else part().get_overload(kinds)
    )
    return entry


def compiled(entry: Any, args: tuple[Any, ...]) -> tuple[Callable[..., Any], StoredKernel | None]:
    """Compile a dispatcher's function for such arguments; return it, and what to store, None where that cannot be."""
    kinds = tuple(map(entry.typeof_pyval, args))
    entry.compile(kinds)
    result = entry.overloads[kinds]
    parts = result._find_referenced_environments()  # noqa: SLF001 - as numba's own cache
    for part in parts:
        result.library.codegen.set_env(part.env_name, part)
    function: Callable[..., Any] = entry
    if result.lifted or result.reload_init or result.library.has_dynamic_globals:
        return function, None
    _, _, (code, _) = result.library.serialize_using_object_code()
    environments = {part.env_name: list(part.consts) for part in (result.environment, *parts)}
    module = result.library._final_module  # noqa: SLF001 - as above
    declared = [part.name for part in (*module.functions, *module.global_variables) if part.is_declaration]
    needs = tuple(name for name in declared if not name.startswith(("llvm.", _ENVIRONMENT)))
    return function, StoredKernel(code, result.fndesc.llvm_cpython_wrapper_name, needs, environments)


def intrinsic_type(define: Callable[..., Any]) -> Any:
    """Return numba's type of what is written in LLVM's instructions."""
    known = extending.intrinsic(define)
    context = cpu_target.typing_context
    context.refresh()
    return context.resolve_value_type(known)
