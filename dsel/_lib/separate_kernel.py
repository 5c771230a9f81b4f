"""Compiled functions that other compiled functions call by address, and that are compiled when they are first called.

Numba copies the code of a function into every function that calls it, and optimizes each copy again. Where kernels
call kernels that call kernels, this takes most of the time of compilation. A `SeparateKernel` is compiled once. Its
callers read its address from a cell of memory. While that is 0, they call back to Python, which compiles the function.
So a path that is never taken is never compiled.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import cgutils, sigutils, types
from numba.core.imputils import impl_ret_new_ref
from numba.core.typing.templates import signature
from numba.extending import lower_builtin, type_callable

from dsel._lib.quick_numba import quick_numba

_WORD = ir.IntType(64)
_RESOLVE = "dsel.resolve"

#: The kernels by the addresses of their cells.
_by_cell: dict[int, SeparateKernel] = {}


class SeparateKernel:
    """A compiled function with one signature, which compiled callers call by address.

    Parameters
    ----------
    dispatcher : numba dispatcher
        The function, not compiled yet. Its qualified name must change when its code does.
    types_of : str
        The types of the result and the arguments as numba writes them, such as ``"float64(int64[::1], int64)"``.
    """

    __name__: str
    __qualname__: str

    def __init__(self, dispatcher: Any, types_of: str) -> None:
        functools.update_wrapper(self, dispatcher.py_func)
        self.py_func = dispatcher.py_func
        self._dispatcher = dispatcher
        self._types_of = types_of
        self._cell = ctypes.c_int64(0)
        self._symbol = f"{self.__module__}.{self.__qualname__}"
        llvm.add_symbol(self._symbol, ctypes.addressof(self._cell))
        _by_cell[ctypes.addressof(self._cell)] = self
        _teach_numba(self)

    def __call__(self, *arguments: Any) -> Any:
        if self._dispatcher.targetoptions.get("no_cpython_wrapper"):
            raise TypeError(f"{self.__name__} is compiled for calls from other compiled functions only.")
        if not self.is_loaded:
            self.load()
        return self._dispatcher(*arguments)

    @property
    def stats(self) -> Any:
        """The folder of numba's cache, and how often it was used."""
        return self._dispatcher.stats

    @functools.cached_property
    def signature(self) -> Any:
        """The types of the result and the arguments, as numba holds them."""
        arguments, result = sigutils.normalize_signature(self._types_of)
        return signature(result, *arguments)

    @property
    def is_loaded(self) -> bool:
        """Whether callers find the compiled function."""
        return bool(self._cell.value)

    def load(self) -> None:
        """Compile the function, or take it from the cache."""
        if self.is_loaded:
            return
        types_of = self.signature.args
        try:
            with quick_numba(self.__qualname__, allocates=self._dispatcher.targetoptions.get("_nrt", True)):
                self._dispatcher.compile(types_of)
        except Exception:  # numba's own way says what is wrong
            self._dispatcher.compile(types_of)
        code = self._dispatcher.overloads[self.signature.args]
        if code.signature.return_type != self.signature.return_type:
            raise TypeError(f"{self.__name__} returns {code.signature.return_type}, not {self.signature.return_type}.")
        self._cell.value = code.library.get_pointer_to_function(code.fndesc.llvm_func_name)

    def call_from(self, context: Any, builder: Any, arguments: Any) -> Any:
        """Return the result of a call, which is added to the code of a caller."""
        result, types_of = self.signature.return_type, self.signature.args
        convention = context.call_conv
        cell = builder.module.globals.get(self._symbol) or ir.GlobalVariable(builder.module, _WORD, self._symbol)
        resolve = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_WORD, [_WORD]), _RESOLVE)
        loaded, before = builder.load(cell), builder.basic_block
        with cgutils.if_unlikely(builder, builder.icmp_unsigned("==", loaded, _WORD(0))):
            found = builder.call(resolve, [builder.ptrtoint(cell, _WORD)])
            with cgutils.if_unlikely(builder, builder.icmp_unsigned("==", found, _WORD(0))):
                convention.return_user_exc(builder, RuntimeError, (f"{self.__name__} could not be compiled.",))
            after = builder.basic_block
        address = builder.phi(_WORD)
        address.add_incoming(loaded, before)
        address.add_incoming(found, after)
        callee = builder.inttoptr(address, convention.get_function_type(result, types_of).as_pointer())
        status, value = convention.call_function(builder, callee, result, types_of, arguments)
        with cgutils.if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        return impl_ret_new_ref(context, builder, result, value)


def _teach_numba(kernel: SeparateKernel) -> None:
    """Register how calls of the kernel are typed and compiled in compiled functions."""
    names = inspect.signature(kernel.py_func)
    plain = [x.replace(annotation=x.empty) for x in names.parameters.values()]

    def typed(context: Any) -> Callable[..., Any]:
        def typer(*arguments: Any) -> Any:
            return kernel.signature

        typer.pysig = names.replace(parameters=plain, return_annotation=names.empty)  # type: ignore[attr-defined]
        return typer

    def lowered(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return kernel.call_from(context, builder, arguments)

    type_callable(kernel)(typed)
    lower_builtin(kernel, types.VarArg(types.Any))(lowered)


def _resolve(cell: int) -> int:
    """Compile the kernel of a cell and return its address. An exception is printed, and 0 returned."""
    kernel = _by_cell[cell]
    kernel.load()
    return kernel._cell.value


_callback = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(_resolve)  # must live as long as compiled code
llvm.add_symbol(_RESOLVE, ctypes.cast(_callback, ctypes.c_void_p).value)
