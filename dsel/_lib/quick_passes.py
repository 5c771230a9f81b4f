"""The passes of numba's compiler without what only its messages, debuggers and other kinds of functions need.

A function that cannot be compiled so is compiled again in numba's own way, which then says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from typing import Any

from numba.core import base, byteflow, compiler_machinery, ir_utils, lowering, ssa, typeinfer
from numba.core.errors import WarningsFixer  # type: ignore[attr-defined]
from numba.core.ir import Expr, Inst, Var
from numba.core.postproc import PostProcessor, VariableLifetime
from numba.core.transforms import canonicalize_cfg
from numba.core.typed_passes import AnnotateTypes, IRLegalization, NopythonRewrites
from numba.core.untyped_passes import InlineClosureLikes

_process, _has_loc = PostProcessor.run, cache(base._has_loc)
_registry = compiler_machinery._pass_registry
_nothing = nullcontext()


class _Silent:
    """A log that nobody reads."""

    @staticmethod
    def debug(*arguments: Any, **more: Any) -> None:
        """Write nothing."""


def run_pass(self: Any, index: Any, one: Any, state: Any) -> None:
    """Run one pass, and update what is known of the blocks if the pass changes them."""
    one.analysis = self._analysis
    changed = one.run_initialization(state)
    changed |= one.run_pass(state)
    changed |= one.run_finalizer(state)
    if changed and _registry.get(type(one)).mutates_CFG:
        PostProcessor(state.func_ir).run()


def post_process(self: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
    """Do what numba does after a pass, without the variables at the entry of blocks, which only object mode reads."""
    ir = self.func_ir
    if ir.is_generator:
        _process(self, emit_dels, extend_lifetimes)
        return
    if _graph(ir) != getattr(ir, "dsel_graph", None):
        ir.blocks = canonicalize_cfg(ir.blocks)
        ir.dsel_graph = _graph(ir)
    ir.variable_lifetime, ir.generator_info = VariableLifetime(ir.blocks), None
    if emit_dels:
        self._insert_var_dels(extend_lifetimes=extend_lifetimes)


def _graph(ir: Any) -> dict[int, list[int]]:
    return {number: block.terminator.get_targets() for number, block in ir.blocks.items()}


def list_of(self: Any, value: Any) -> list[Any]:
    """Return the variables in what a statement holds."""
    found: list[Any] = []
    for x in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else (value,):
        kind = type(x)
        if kind is Var:
            found.append(x)
        elif kind is Expr:
            found += list_of(self, x._kws)
        elif kind in (list, tuple, dict):
            found += list_of(self, x)
        elif isinstance(x, Inst):
            found += x.list_vars()
    return found


def no_context(*arguments: Any, **more: Any) -> Any:
    """Say nothing about where an error was raised, and record no warnings."""
    return _nothing


def annotate_nothing(self: Any, state: Any) -> bool:
    """Make no text of the types of all statements."""
    state.type_annotation = ""
    return False


def remove_deletions(self: Any, state: Any) -> bool:
    """Inline no closures: a kernel has none."""
    ir_utils.remove_dels(state.func_ir.blocks)
    return True


def unchanged(self: Any, state: Any) -> bool:
    """Change nothing: a kernel that makes no array has no operations of whole arrays, and deletes no variable."""
    return False


#: What is replaced in numba: the owner, the name, and the function here. The second list counts no references.
CHANGES: list[tuple[Any, str, Any]] = [
    (compiler_machinery.PassManager, "_runPass", run_pass),
    (PostProcessor, "run", post_process),
    (AnnotateTypes, "run_pass", annotate_nothing),
    (Inst, "_rec_list_vars", list_of),
    (WarningsFixer, "catch_warnings", no_context),
    (typeinfer, "new_error_context", no_context),
    (lowering, "new_error_context", no_context),
    (base, "_has_loc", _has_loc),
    (ssa, "_logger", _Silent),
    (byteflow, "_logger", _Silent),
]
WITHOUT_REFERENCES: list[tuple[Any, str, Callable[..., Any]]] = [
    (InlineClosureLikes, "run_pass", remove_deletions),
    (NopythonRewrites, "run_pass", unchanged),
    (IRLegalization, "run_pass", unchanged),
]
