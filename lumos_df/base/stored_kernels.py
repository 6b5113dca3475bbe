"""Compiled kernels on the disk, and how they come into a process: as code that runs, without numba.

Of numba only three modules of C are loaded, by their files: what the code calls to read arrays and to make new ones.
"""

import builtins
import contextlib
import ctypes
import hashlib
import pickle
import secrets
import sys
import zlib
from collections.abc import Callable, Hashable
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

import llvmlite
import numpy as np
from llvmlite import binding

from lumos_df.base.kernel_cache import STORED, folder

_CHECKSUM_BYTES: Final = 4
_EXCEPTION: Final = "PyExc_"


class StoredKernel(NamedTuple):
    """One version of a kernel as it lies on the disk."""

    code: bytes
    """An object file."""
    entry: str
    """Name of the function in it that Python calls."""
    needs: tuple[str, ...]
    """Names that the code expects of the process."""
    environments: dict[str, list[Any]]
    """By name, the Python objects that the code reads; the first are those of the entry."""


def load(function: Callable[..., Any], kinds: Hashable) -> Callable[..., Any] | None:
    """Return the version of a function that is stored for such arguments, None where there is none that runs here."""
    try:
        content = _file(function, kinds).read_bytes()
    except OSError:
        return None
    checksum, body = content[:_CHECKSUM_BYTES], content[_CHECKSUM_BYTES:]
    if checksum != _checksum(body):
        return None
    return _runtime().function(function, StoredKernel(*pickle.loads(body)))  # noqa: S301 - the folder is this user's


def store(function: Callable[..., Any], kinds: Hashable, kernel: StoredKernel) -> None:
    """Store a version of a function; where that cannot be, the next process compiles it again."""
    body = pickle.dumps(tuple(kernel))
    file = _file(function, kinds)
    draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(_checksum(body) + body)
        draft.replace(file)


def _checksum(body: bytes) -> bytes:
    return zlib.crc32(body).to_bytes(_CHECKSUM_BYTES, "little")


def _file(function: Callable[..., Any], kinds: Hashable) -> Path:
    version = hashlib.sha256(f"{_machine()} {kinds!r}".encode()).hexdigest()[:16]
    return folder() / f"{function.__module__}.{function.__qualname__}-{version}{STORED}"


@cache
def _machine() -> str:
    """Return what code depends on beside its source: this processor, and what compiles."""
    versions = sys.implementation.cache_tag, np.__version__, llvmlite.__version__
    compiler = (_numba() / "_version.py").read_bytes()
    return repr((versions, compiler, binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()))


def _numba() -> Path:
    """Return the folder of numba, which is not imported."""
    found = find_spec("numba")
    if found is None or found.origin is None:
        raise ImportError("numba is not installed; install lumos-df with what it depends on")
    return Path(found.origin).parent


class _Runtime:
    """LLVM's loader of code, and the parts of numba that the code calls."""

    def __init__(self) -> None:
        self._functions: Any = _part("numba._dynfunc")
        helpers: Any = _part("numba._helperlib")
        memory: Any = _part("numba.core.runtime._nrt_python")
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        machine = binding.Target.from_triple(binding.get_process_triple()).create_target_machine()
        self._engine: Any = binding.create_mcjit_compiler(binding.parse_assembly(_UNPICKLE), machine)
        # Names as numba gives them.
        self._known = {"_Py_NoneStruct": id(None)}
        for part in (helpers, self._functions):
            self._known |= {f"numba_{name}": address for name, address in part.c_helpers.items()}
        for name, address in memory.c_helpers.items():
            self._known[name if name.startswith("_") else f"NRT_{name}"] = address
        self._known["numba_unpickle"] = self._engine.get_function_address("unpickle")
        self._alive: list[Any] = []
        """What code points to: it stays to the end, as the code does."""

    def function(self, function: Callable[..., Any], kernel: StoredKernel) -> Callable[..., Any] | None:
        """Return what Python calls of a stored kernel, None where this process lacks a name that it needs."""
        # LLVM ends the process for a name that it does not find.
        if not all(map(self._is_known, kernel.needs)):
            return None
        code = binding.ObjectFileRef.from_data(kernel.code)
        self._engine.add_object_file(code)
        self._engine.finalize_object()
        environments = [self._environment(function, *item) for item in kernel.environments.items()]
        module, name, text = sys.modules[function.__module__], function.__name__, function.__doc__ or ""
        address = self._engine.get_function_address(kernel.entry)
        compiled = self._functions.make_function(module, name, text, address, environments[0], None)
        self._alive += [code, environments]
        return compiled  # type: ignore[no-any-return]

    def _is_known(self, name: str) -> bool:
        if name.startswith(_EXCEPTION):
            # numba's code means the class itself, not the pointer to it that Python has under this name.
            binding.add_symbol(name, id(getattr(builtins, name.removeprefix(_EXCEPTION))))
        elif name in self._known:
            binding.add_symbol(name, self._known[name])
        return bool(binding.address_of_symbol(name))

    def _environment(self, function: Callable[..., Any], name: str, constants: list[Any]) -> Any:
        environment = self._functions.Environment({"__name__": function.__module__})
        environment.consts[:] = constants
        place = self._engine.get_global_value_address(name)
        if place:
            ctypes.c_void_p.from_address(place).value = id(environment)
        return environment


_UNPICKLE: Final = f"""
declare i64 @PyBytes_FromStringAndSize(i64, i64)
declare i64 @PyObject_CallOneArg(i64, i64)
declare void @Py_DecRef(i64)

define i64 @unpickle(i64 %place, i32 %size, i64 %digest) {{
    %length = sext i32 %size to i64
    %pickled = call i64 @PyBytes_FromStringAndSize(i64 %place, i64 %length)
    %object = call i64 @PyObject_CallOneArg(i64 {id(pickle.loads)}, i64 %pickled)
    call void @Py_DecRef(i64 %pickled)
    ret i64 %object
}}
"""
"""`numba_unpickle` of numba, whose own imports numba: (place, bytes, their digest) to a new reference.

Code holds pickled what it returns: the class of an array, or of an error. No Python runs here: Ctrl-C during a kernel
waits for the next line of Python, whose `KeyboardInterrupt` would leave the code without the class that it needs.
Pointers are numbers, which LLVM writes alike in all of its versions.
"""


@cache
def _runtime() -> _Runtime:
    return _Runtime()


def _part(name: str) -> ModuleType:
    """Return a module of numba, without the packages around it where numba is not imported yet."""
    if "numba" in sys.modules:
        return import_module(name)
    spec = PathFinder.find_spec(name, [str(_numba().joinpath(*name.split(".")[1:-1]))])
    if spec is None or spec.loader is None:
        raise ImportError(f"{name} is not there; install numba again")
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
