"""Arrays, loops and calls of compiled functions by few instructions, which are quick to make, print and optimize.

For each element that is read or written, numba copies the description of the array to the stack, loads each of its
fields again, and adds the extent to an index that may be negative. Kernels of this package use no negative index
(`DSEL_CHECK_KERNELS=1` refuses them). So an element of an array in C order takes a product and a sum for each axis. For
each loop over a range, numba makes more than a hundred instructions, and here it makes about 25. It copies each
variable that is used in two blocks to the stack. Here only those that are assigned twice are. The results are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir as llvm
from llvmlite.ir import IRBuilder
from llvmlite.ir.instructions import InsertValue
from numba.core import cgutils, types
from numba.core.base import BaseContext
from numba.core.callconv import RETCODE_NONE, RETCODE_OK, CPUCallConv, Status, excinfo_ptr_t
from numba.core.cpu import CPUContext
from numba.core.fastmathpass import rewrite_module
from numba.core.ir import Arg, Assign
from numba.core.lowering import Lower
from numba.np import arrayobj

_make_array, _index = arrayobj.make_array, arrayobj.basic_indexing
_extract, _alloca, _function = IRBuilder.extract_value, cgutils.alloca_once, BaseContext.get_function
_lower, _call = Lower.lower_inst, CPUCallConv.call_function


class _Fields:
    """The fields of an array, taken from its value."""

    def __init__(self, context: Any, builder: Any, array: Any, value: Any) -> None:
        self._model, self._builder, self._value = context.data_model_manager[array], builder, value

    def __getattr__(self, name: str) -> Any:
        return self._builder.extract_value(self._value, self._model.get_field_position(name))

    def _getvalue(self) -> Any:
        return self._value


def make_array(array: Any) -> Callable[..., Any]:
    """Return a function that makes the description of an array from its value, or what numba has for a new one."""
    made = _make_array(array)

    def make(context: Any, builder: Any, value: Any = None, ref: Any = None) -> Any:
        if value is None or type(array) is not types.Array:
            return made(context, builder, value, ref)
        return _Fields(context, builder, array, value)

    return make


def index(
    context: Any, builder: Any, kind: Any, array: Any, index_types: Any, indices: Any, boundscheck: Any = None
) -> Any:
    """Return the pointer to an element, and the extents and strides, none, of the view; else what numba returns."""
    if kind.layout != "C" or len(indices) != kind.ndim or not all(isinstance(x, types.Integer) for x in index_types):
        return _index(context, builder, kind, array, index_types, indices, boundscheck)
    place = None
    shape = array.shape
    for axis, (value, of) in enumerate(zip(indices, index_types, strict=True)):
        inner = context.cast(builder, value, of, types.intp)
        if place is not None or boundscheck:
            extent = builder.extract_value(shape, axis)
        if boundscheck:
            cgutils.do_boundscheck(context, builder, inner, extent, axis)
        place = inner if place is None else builder.add(builder.mul(place, extent), inner)
    return builder.gep(array.data, [place]), [], []


def extract_value(builder: Any, aggregate: Any, path: Any, name: str = "") -> Any:
    """Return a member of an aggregate: the value that was inserted, if the same code has inserted it."""
    wanted = [*path] if isinstance(path, tuple | list) else [path]
    while isinstance(aggregate, InsertValue):
        given = [*aggregate.indices]
        if wanted[: len(given)] == given:
            aggregate, wanted = aggregate.value, wanted[len(given) :]
            if not wanted:
                return aggregate
        elif given[: len(wanted)] == wanted:
            break
        else:
            aggregate = aggregate.aggregate
    while wanted and isinstance(aggregate, llvm.Constant) and isinstance(aggregate.constant, list | tuple):
        aggregate, wanted = aggregate.constant[wanted[0]], wanted[1:]
    return _extract(builder, aggregate, wanted, name) if wanted else aggregate


def alloca_once(builder: Any, kind: Any, size: Any = None, name: str = "", zfill: bool = False) -> Any:
    """Return memory on the stack, which is filled with zeros once: here if asked, else at the entry."""
    if not zfill or size is not None:
        return _alloca(builder, kind, size, name, zfill)
    with builder.goto_entry_block():
        place = builder.alloca(kind, name=name)
    builder.store(kind(None), place)
    return place


def find_values(lower: Any) -> None:
    """Find the variables that need no memory: with one assignment, which comes before each use."""
    assigned: dict[str, int | None] = {}
    used: dict[str, set[int]] = {}
    for number, block in lower.blocks.items():
        for statement in block.body:
            if isinstance(statement, Assign):
                name = statement.target.name
                assigned[name] = None if name in assigned else number
            for variable in statement.list_vars():
                used.setdefault(variable.name, set()).add(number)
    before = lower.func_ir.variable_lifetime.cfg.dominators()
    lower._singly_assigned_vars = {
        name for name, number in assigned.items()
        if number is not None and all(number in before[x] and number <= x for x in used[name])
    }  # fmt: skip
    lower._blk_local_varmap = {}


def store_variable(lower: Any, value: Any, name: str, argidx: Any = None) -> None:
    """Store a variable, whose earlier value has no references to count."""
    if name in lower._singly_assigned_vars:
        lower._blk_local_varmap[name] = value
    else:
        lower._alloca_var(name, lower.typeof(name))
        lower.builder.store(value, lower.getvar(name))


def pair_first(context: Any, builder: Any, value: Any, kind: Any) -> Any:
    """Return the first member of a pair."""
    return builder.extract_value(value, 0)


def pair_second(context: Any, builder: Any, value: Any, kind: Any) -> Any:
    """Return the second member of a pair."""
    return builder.extract_value(value, 1)


def get_function(context: Any, name: Any, signature: Any, _firstcall: bool = True) -> Any:
    """Return how a function is compiled: ranges of int64 and their steps by few instructions, others as usual."""
    quick = None
    if name == "getiter" and signature.args[0] is types.range_state64_type:
        quick = _begin_range
    elif name == "iternext" and signature.args[0] is types.range_iter64_type:
        quick = _next_of_range
    elif signature.return_type is types.range_state64_type and all(x is types.int64 for x in signature.args):
        quick = _make_range
    usual = _function(context, name, signature, _firstcall)
    if quick is None:
        return usual
    return lambda builder, arguments, loc=None: quick(context, builder, arguments, usual)


def _struct(builder: Any, kind: Any, *members: Any) -> Any:
    made = llvm.Constant(kind, llvm.Undefined)
    for place, member in enumerate(members):
        made = builder.insert_value(made, member, place)
    return made


def _make_range(context: Any, builder: Any, arguments: Any, usual: Any) -> Any:
    """Return a range: its start, stop and step."""
    zero, one = (context.get_constant(types.int64, x) for x in (0, 1))
    start, stop, step = (zero, *arguments, one) if len(arguments) == 1 else (*arguments, one)[:3]
    return _struct(builder, context.get_value_type(types.range_state64_type), start, stop, step)


def _begin_range(context: Any, builder: Any, arguments: Any, usual: Any) -> Any:
    """Return the iterator of a range. A step other than 1 and -1 takes numba's way, which also refuses 0."""
    (value,) = arguments
    start, stop, step = (builder.extract_value(value, x) for x in range(3))
    known = step.constant if isinstance(step, llvm.Constant) else None
    if known not in (1, -1):
        return usual(builder, arguments)
    place, left = (_alloca(builder, start.type) for _ in range(2))
    builder.store(start, place)
    builder.store(builder.sub(stop, start) if known == 1 else builder.sub(start, stop), left)
    return _struct(builder, context.get_value_type(types.range_iter64_type), place, stop, step, left)


def _next_of_range(context: Any, builder: Any, arguments: Any, usual: Any) -> Any:
    """Return the next number of a range, and whether there was one."""
    (value,) = arguments
    place, step, left = (builder.extract_value(value, x) for x in (0, 2, 3))
    count, number = builder.load(left), builder.load(place)
    valid = builder.icmp_signed(">", count, count.type(0))
    builder.store(builder.sub(count, count.type(1)), left)
    builder.store(builder.add(number, step), place)
    return _struct(builder, llvm.LiteralStructType([number.type, valid.type]), number, valid)


def call_function(
    convention: Any, builder: Any, callee: Any, result: Any, types_of: Any, arguments: Any, attrs: Any = ()
) -> Any:
    """Call a compiled function from another, and return its status and its value."""
    if not _is_compiled_function(builder.function):  # the entry from Python
        return _call(convention, builder, callee, result, types_of, arguments, attrs)
    place = _unset(builder, convention.get_return_type(result).pointee)
    failure = _unset(builder, excinfo_ptr_t)
    packed = convention._get_arg_packer(types_of).as_arguments(builder, arguments)
    code = builder.call(callee, [place, failure, *packed], attrs=attrs or ())
    is_error = builder.icmp_signed("!=", code, RETCODE_OK)
    is_none = None
    if isinstance(result, types.Optional):
        is_none = builder.icmp_signed("==", code, RETCODE_NONE)
        is_error = builder.and_(is_error, builder.not_(is_none))
    unused = dict.fromkeys(Status._fields)
    status = Status(**unused | {"code": code, "is_error": is_error, "is_none": is_none, "excinfoptr": failure})
    return status, convention.context.get_returned_value(builder, result, builder.load(place))


def _is_compiled_function(function: Any) -> bool:
    return len(function.args) > 1 and function.args[1].type == excinfo_ptr_t.as_pointer()


def propagate(convention: Any, builder: Any, status: Any) -> None:
    """Return the error of a called function from its caller, which has no `try`."""
    builder.store(builder.load(status.excinfoptr), convention._get_excinfo_argument(builder.function))
    convention._return_errcode_raw(builder, status.code)


def _unset(builder: Any, kind: Any) -> Any:
    """Return memory on the stack that is written before it is read."""
    with builder.goto_entry_block():
        return builder.alloca(kind)


def lower_block(lower: Any, block: Any) -> None:
    """Compile a block of statements in a function without `try`."""
    for statement in block.body:
        lower.loc = statement.loc
        lower.lower_inst(statement)


def lower_inst(lower: Any, statement: Any) -> None:
    """Compile a statement, of which numba would make a text each time."""
    if isinstance(statement, Assign) and not isinstance(statement.value, Arg):
        kind = lower.typeof(statement.target.name)
        lower.storevar(lower.lower_assign(kind, statement), statement.target.name)
    else:
        _lower(lower, statement)


def post_lowering(context: Any, module: Any, library: Any) -> None:
    """Let the order of operations change where the kernel allows it. The code that counts references is left out."""
    if context.fastmath:
        rewrite_module(module, context.fastmath)


#: What is replaced in numba: the owner, the name, and the function here. The second list counts no references.
CHANGES: list[tuple[Any, str, Callable[..., Any]]] = [
    (arrayobj, "make_array", make_array),
    (arrayobj, "basic_indexing", index),
    (IRBuilder, "extract_value", extract_value),
    (cgutils, "alloca_once", alloca_once),
    (BaseContext, "pair_first", pair_first),
    (BaseContext, "pair_second", pair_second),
    (BaseContext, "get_function", get_function),
]
WITHOUT_REFERENCES: list[tuple[Any, str, Callable[..., Any]]] = [
    (Lower, "_find_singly_assigned_variable", find_values),
    (Lower, "storevar", store_variable),
    (Lower, "lower_block", lower_block),
    (Lower, "lower_inst", lower_inst),
    (CPUContext, "post_lowering", post_lowering),
    (CPUCallConv, "call_function", call_function),
    (CPUCallConv, "return_status_propagate", propagate),
]
