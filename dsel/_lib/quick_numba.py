"""A third of the time that numba takes to compile a kernel, without other results.

Numba is made for functions of any kind, and repeats work that a kernel of this package does not need. It types each
operator again wherever it stands, optimizes each function alone, once roughly and once fully, before the function that
it is copied into, and makes machine code for functions that nobody calls by address. It looks for new types and
functions hundreds of times, and after each of its passes for the variables of each block. During `quick_numba` it
remembers the types of calls, optimizes a kernel once with all that is copied into it, and makes machine code for the
kernel alone. It leaves out passes that find nothing in kernels, and does not repeat the body of a loop in machine code.
IEEE arithmetic has the same bits whatever the optimizer does.

The functions that are replaced are private to numba. So this is for versions that were tried, and no others.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib import import_module
from typing import Any

import llvmlite.binding as llvm
import numba

#: The versions of numba whose inner functions are known here, the first and the last. Others compile in their own way.
KNOWN = (0, 65), (0, 68)

try:
    from numba._dynfunc import make_function
    from numba.core import compiler
    from numba.core.base import BaseContext
    from numba.core.codegen import CPUCodeLibrary, JITCPUCodegen
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.cpu import CPUContext
    from numba.core.imputils import builtin_registry
    from numba.core.registry import cpu_target
    from numba.core.targetconfig import ConfigStack, TargetConfig
    from numba.core.types.functions import BaseFunction
    from numba.core.typing import templates
    from numba.core.typing.context import Context

    from dsel._lib import quick_lowering, quick_passes

    _compile_extra = compiler.compile_extra
    _refresh, _refresh_types = CPUContext.refresh, Context.refresh
    _type_call, _executable = BaseFunction.get_call_type, CPUContext.get_executable
    _size_of = BaseContext.get_abi_sizeof
    _equal_flags, _hash_flags = TargetConfig.__eq__, TargetConfig.__hash__
    is_known = KNOWN[0] <= tuple(int(part) for part in numba.__version__.split(".")[:2]) <= KNOWN[1]
except (ImportError, AttributeError, ValueError):
    is_known = False

#: Modules of numba for kernels that make no array: first those with a registry.
_TARGET_MODULES = "cpython.mathimpl", "np.npyimpl"
_TYPING_MODULES = "core.typing.mathdecl", "core.typing.npydecl", "core.typing.listdecl"
_IMPORTED = (
    "core.optional", "core.typing.arraydecl", "core.typing.builtins", "cpython.builtins", "cpython.iterators",
    "cpython.listobj", "cpython.numbers", "cpython.rangeobj", "cpython.slicing", "cpython.tupleobj", "np.arraymath",
    "np.arrayobj",
)  # fmt: skip

#: The signatures of calls by function, context, types of the arguments, and whether references are counted.
_signatures: dict[tuple[Any, ...], tuple[Any, Any]] = {}
_hashes: dict[type, int] = {}
_sizes: dict[Any, int] = {}
#: How many types or functions numba had in a registry when a context last looked.
_lengths: dict[tuple[int, int], int] = {}


@contextmanager
def quick_numba(name: str, *, allocates: bool) -> Iterator[None]:
    """Compile quickly during the block, in which no other thread compiles; as usual with a numba that is not known.

    name: the qualified name of the one function that is called by address. allocates: whether references are counted;
    the optimizer then removes some of them between its two runs, so both take place.
    """
    if not is_known:
        yield
        return
    if allocates:
        _load_all_types()
    changes: list[tuple[Any, str, Any]] = [
        (BaseFunction, "get_call_type", _remember_type),
        (BaseContext, "get_abi_sizeof", _remember_size),
        (TargetConfig, "__eq__", _same_flags),
        (TargetConfig, "__hash__", _hash_by_type),
        (compiler, "compile_extra", _compile),
        (CPUContext, "refresh", _load_new_of_both),
        (Context, "refresh", _load_new),
        (JITCPUCodegen, "_pass_builder", _pass_builder),
        *quick_lowering.CHANGES,
        *quick_passes.CHANGES,
    ]
    if not allocates:
        changes += [
            (CPUContext, "get_executable", _executable_if(name)),
            (CPUCodeLibrary, "add_linking_library", _add_unfinished),
            (CPUCodeLibrary, "_optimize_functions", _set_layout),
            (CPUCodeLibrary, "_optimize_final_module", _optimize_once),
            *quick_lowering.WITHOUT_REFERENCES,
            *quick_passes.WITHOUT_REFERENCES,
        ]
    with global_compiler_lock, ExitStack() as stack:
        for owner, attribute, function in changes:
            stack.callback(setattr, owner, attribute, getattr(owner, attribute))
            setattr(owner, attribute, function)
        stack.enter_context(without_collection())
        yield


@contextmanager
def without_collection() -> Iterator[None]:
    """Collect no garbage during the block: numba makes many objects, and keeps most of them."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _remember_type(self: Any, context: Any, args: Any, kws: Any) -> Any:
    """Return the signature of a call, from memory if the same call was typed before."""
    if kws or not isinstance(args, tuple):
        return _type_call(self, context, args, kws)
    flags = ConfigStack.top_or_none()
    key = id(self), id(context), args, flags is not None and flags.nrt
    known = _signatures.get(key)
    if known is None or known[0] is not self:
        known = _signatures[key] = self, _type_call(self, context, args, kws)
    return known[1]


def _remember_size(self: Any, kind: Any) -> int:
    """Return the bytes of a type, for which numba makes a module of code."""
    if kind not in _sizes:
        _sizes[kind] = _size_of(self, kind)
    return _sizes[kind]


def _same_flags(self: Any, other: Any) -> Any:
    """Compare the values that are set, and the defaults only where these differ."""
    return True if getattr(other, "_values", None) == self._values else _equal_flags(self, other)


def _hash_by_type(self: Any) -> int:
    """Return numba's hash, which depends on the names of the options alone."""
    kind = type(self)
    if kind not in _hashes:
        _hashes[kind] = _hash_flags(self)
    return _hashes[kind]


def _executable_if(name: str) -> Callable[..., Any]:
    """Return a function that makes machine code for the named function, and for those that Python can call."""

    def get_executable(self: Any, library: Any, fndesc: Any, env: Any) -> Any:
        flags = ConfigStack.top_or_none()
        if flags is None or not flags.no_cpython_wrapper or fndesc.qualname == name:
            return _executable(self, library, fndesc, env)
        return make_function(fndesc.lookup_module(), fndesc.qualname, "", 0, env, (library,))

    return get_executable


def _add_unfinished(self: Any, library: Any) -> None:
    """Link a library that is not optimized yet: the optimizer will see its functions inside their caller."""
    if not library._finalized:
        for other in dict.fromkeys(library._linking_libraries):
            library._reload_init.update(other._reload_init)
            library._final_module.link_in(other._get_module_for_linking(), preserve=True)
        library._finalize_dynamic_globals()
        library._finalized = True
    self._linking_libraries.append(library)


def _set_layout(self: Any, module: Any) -> None:
    module.data_layout = self._codegen._data_layout


def _optimize_once(self: Any) -> None:
    passes, builder = self._codegen._module_pass_manager()
    passes.run(self._final_module, builder)


def _pass_builder(self: Any, **kwargs: Any) -> Any:
    """Return numba's optimizer, which does not repeat the bodies of loops."""
    options = llvm.create_pipeline_tuning_options(3)
    options.loop_vectorization, options.loop_unrolling = kwargs.get("loop_vectorize", True), False
    return llvm.create_pass_builder(self._tm, options)


def _compile(*args: Any, **kwargs: Any) -> Any:
    """Compile a function. A function that is in the cache needs none of the types that are loaded here."""
    _load_types()
    return _compile_extra(*args, **kwargs)


@cache
def _load_types() -> None:
    """Load what numba has for the types and functions of kernels that make no array."""
    modules = {name: import_module(f"numba.{name}") for name in (*_TARGET_MODULES, *_TYPING_MODULES, *_IMPORTED)}
    with _without_refreshing():
        for registry in (*(modules[name].registry for name in _TARGET_MODULES), builtin_registry):
            cpu_target.target_context.install_registry(registry)
        for registry in (*(modules[name].registry for name in _TYPING_MODULES), templates.builtin_registry):
            cpu_target.typing_context.install_registry(registry)


@cache
def _load_all_types() -> None:
    """Load all that numba has for types and functions, once: otherwise each of 250 templates looks for more."""
    with _without_refreshing():
        _refresh(cpu_target.target_context)


@contextmanager
def _without_refreshing() -> Iterator[None]:
    with ExitStack() as stack:
        for owner, function in ((CPUContext, lambda self: None), (Context, _refresh_types)):
            stack.callback(setattr, owner, "refresh", owner.refresh)
            setattr(owner, "refresh", function)  # noqa: B010
        yield


def _load_new(self: Any) -> None:
    """Load what was registered since then, for a context of types or of the target."""
    for registry in [*self._registries]:
        key, length = (id(self), id(registry)), sum(len(x) for x in vars(registry).values())
        if _lengths.get(key) != length:
            self.install_registry(registry)
            _lengths[key] = length


def _load_new_of_both(self: Any) -> None:
    _load_new(self)
    _load_new(self.typing_context)
