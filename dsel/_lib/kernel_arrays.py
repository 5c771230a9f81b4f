"""The arrays of compiled kernels: one block of addresses instead of a list of arguments.

Numba passes every array to a compiled function as seven to eleven scalars and counts references to it. A search works
on two dozen arrays; passing them cost more than the work itself (0.25 of 0.4 us per iteration, and a minute of
compilation). So `KernelArrays` holds the arrays and lists their addresses and shapes in one integer array P. A kernel
takes P and makes the views that it needs, as in `vector(P, layout.FLOOR)`.

A `Layout` declares each array once: name, type, number of axes, meaning. A declaration returns the number of a slot of
P. At run time this is an int and P an int64 array. For mypy both carry the layout, so that an array of the wrong
layout, type or number of axes is an error. With the environment variable DSEL_CHECK_KERNELS=1 the kernels check this,
and the bounds of every index, when they run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NoReturn, TypeVar, cast, overload

import numpy as np
from llvmlite.ir import Constant, Undefined
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.numpy_support import as_dtype
from numpy.typing import NDArray

from dsel._lib.jit import CHECKED
from dsel._lib.types import Floats, Int, Ints

Singles = NDArray[np.float32]

#: The type of a block of addresses: a NewType of `Ints` for each layout.
Block = TypeVar("Block", bound=Ints)
_Longer = TypeVar("_Longer", bound=Ints)
_Function = TypeVar("_Function", bound=Callable[..., Any])


class Slot(int, Generic[Block]):
    """The number of an array in a layout (only mypy sees these classes: slots are plain ints)."""


class FloatSlot(Slot[Block]):
    """An array of float64."""


class IntSlot(Slot[Block]):
    """An array of int64."""


class FloatVector(FloatSlot[Block]):
    """One axis."""


class FloatMatrix(FloatSlot[Block]):
    """Two axes."""


class FloatCube(FloatSlot[Block]):
    """Three axes."""


class IntVector(IntSlot[Block]):
    """One axis."""


class IntMatrix(IntSlot[Block]):
    """Two axes."""


class RowAddresses(IntVector[Block]):
    """The addresses of the rows of an n x n matrix, 0 where a row is missing."""


class SingleMatrix(Slot[Block]):
    """An array of float32 with two axes."""


#: Words of a slot: address, three extents, and the kind, which is that of the type plus the number of axes (0 while no
#: array was put there).
_WORDS = 5
_KINDS = {np.dtype(np.float64): 10, np.dtype(np.int64): 20, np.dtype(np.float32): 30}


class Layout(Generic[Block]):
    """The arrays and integers of a block P, in the order of their declaration.

    Parameters
    ----------
    name : str
        Name in messages.
    first : int, optional
        Number of the first slot. Layouts whose ranges do not overlap are told apart when kernels are checked.
    base : Layout, optional
        A layout that this one continues: a kernel for the base takes the longer block, too.
    """

    def __init__(self, name: str, first: int = 0, base: Layout[Any] | None = None) -> None:
        self.name = name
        self.length: int = first if base is None else base.length
        self.names: dict[int, str] = {} if base is None else dict(base.names)
        self.kinds: dict[int, int] = {} if base is None else dict(base.kinds)

    def _declare(self, name: str, meaning: str, dtype: Any, axes: int) -> Any:
        slot = self.length
        self.names[slot] = f"{self.name}.{name}: {np.dtype(dtype).name}, {meaning}"
        self.kinds[slot] = _KINDS[np.dtype(dtype)] + axes
        self.length += _WORDS
        return slot

    def vector(self, name: str, meaning: str) -> FloatVector[Block]:
        """Declare an array of float64 with one axis."""
        return cast(FloatVector[Block], self._declare(name, meaning, np.float64, 1))

    def matrix(self, name: str, meaning: str) -> FloatMatrix[Block]:
        """Declare an array of float64 with two axes."""
        return cast(FloatMatrix[Block], self._declare(name, meaning, np.float64, 2))

    def cube(self, name: str, meaning: str) -> FloatCube[Block]:
        """Declare an array of float64 with three axes."""
        return cast(FloatCube[Block], self._declare(name, meaning, np.float64, 3))

    def int_vector(self, name: str, meaning: str) -> IntVector[Block]:
        """Declare an array of int64 with one axis."""
        return cast(IntVector[Block], self._declare(name, meaning, np.int64, 1))

    def int_matrix(self, name: str, meaning: str) -> IntMatrix[Block]:
        """Declare an array of int64 with two axes."""
        return cast(IntMatrix[Block], self._declare(name, meaning, np.int64, 2))

    def rows(self, name: str, meaning: str) -> RowAddresses[Block]:
        """Declare the addresses of the rows of an n x n matrix."""
        return cast(RowAddresses[Block], self._declare(name, meaning, np.int64, 1))

    def single_matrix(self, name: str, meaning: str) -> SingleMatrix[Block]:
        """Declare an array of float32 with two axes."""
        return cast(SingleMatrix[Block], self._declare(name, meaning, np.float32, 2))

    def integer(self, name: str, meaning: str) -> int:
        """Declare an integer: P[number] is its value."""
        self.names[self.length] = f"{self.name}.{name}: {meaning}"
        self.length += 1
        return self.length - 1


class KernelArrays(Generic[Block]):
    """Arrays by slot, and the block `P` of their addresses. It must outlive every call that uses its P."""

    def __init__(self, layout: Layout[Block]) -> None:
        self.layout = layout
        self.P = cast(Block, np.zeros(layout.length, np.int64))
        self._arrays: dict[int, NDArray[Any]] = {}
        self._kept: list[Any] = []

    def __reduce__(self) -> NoReturn:
        raise TypeError("Addresses are valid in one process only: they are not pickled.")

    def extended(self, layout: Layout[_Longer]) -> KernelArrays[_Longer]:
        """Return the same arrays in a block of a layout that continues this one."""
        longer = KernelArrays(layout)
        longer.P[: self.P.size] = self.P
        longer._arrays, longer._kept = self._arrays, self._kept
        return longer

    def put(self, slot: Slot[Any], array: NDArray[Any], keep: Any = None) -> None:
        """Set the array of a slot, in C order. keep: what else must live as long."""
        kind = self.layout.kinds.get(slot)
        if kind != _KINDS.get(array.dtype, 0) + array.ndim or not array.flags.c_contiguous:
            what = f"{array.dtype}, {array.ndim} axes, {'' if array.flags.c_contiguous else 'not '}in C order"
            raise TypeError(f"{what}; wanted {self.layout.names.get(slot, 'a slot of this layout')}")
        self._arrays[slot] = array
        if keep is not None:
            self._kept.append(keep)
        self.P[slot] = array.__array_interface__["data"][0]  # much quicker than `ctypes.data`
        self.P[slot + 1 : slot + 1 + array.ndim] = array.shape
        self.P[slot + _WORDS - 1] = kind

    def __contains__(self, slot: int) -> bool:
        return slot in self._arrays

    @overload
    def __getitem__(self, slot: FloatSlot[Any]) -> Floats: ...
    @overload
    def __getitem__(self, slot: IntSlot[Any]) -> Ints: ...
    def __getitem__(self, slot: Any) -> NDArray[Any]:
        return self._arrays[slot]


def _word(builder: Any, words: Any, place: Any) -> Any:
    return builder.load(builder.gep(words, [place]))


def _extents(context: Any, builder: Any, block: Any, slot: Any, axes: int, kind: int) -> tuple[Any, list[Any]]:
    """Return the address and the extents in a slot of P, as values of the code that is built."""
    words, long = block.data, slot.type
    if CHECKED:
        length = cgutils.unpack_tuple(builder, block.shape, 1)[0]
        outside = builder.icmp_unsigned(">", builder.add(slot, long(_WORDS)), length)
        _fail_if(context, builder, outside, TypeError, "A kernel asked for a slot that its block does not have")
        other = builder.icmp_signed("!=", _word(builder, words, builder.add(slot, long(_WORDS - 1))), long(kind))
        _fail_if(context, builder, other, TypeError, "A kernel asked for an array that is missing or of another type")
    places = [
        long(slot.constant + x) if isinstance(slot, Constant) else builder.add(slot, long(x)) for x in range(axes + 1)
    ]
    address, *extents = (_word(builder, words, place) for place in places)
    return address, extents


def _fail_if(context: Any, builder: Any, condition: Any, error: type[Exception], message: str) -> None:
    with cgutils.if_unlikely(builder, condition):
        context.call_conv.return_user_exc(builder, error, (message,))


def _array_at(context: Any, builder: Any, array: Any, address: Any, extents: list[Any]) -> Any:
    """Return the array of these extents, in C order, at an address."""
    kind, fields = context.get_value_type(array), context.data_model_manager[array]._fields
    word, width = address.type, context.get_abi_sizeof(context.get_data_type(array.dtype))
    strides = [word(width)]
    for extent in extents[:0:-1]:
        strides.insert(0, builder.mul(strides[0], extent))
    items = extents[0]
    for extent in extents[1:]:
        items = builder.mul(items, extent)
    fixed = {"meminfo": None, "parent": None, "itemsize": width}
    made = Constant(kind, [fixed.get(name, Undefined) for name in fields])
    pointer = builder.inttoptr(address, kind.elements[fields.index("data")])
    for name, value in {"nitems": items, "data": pointer, "shape": extents, "strides": strides}.items():
        place = fields.index(name)
        for axis, x in enumerate(value) if isinstance(value, list) else [(None, value)]:
            made = builder.insert_value(made, x, [place] if axis is None else [place, axis])
    return made


def _replaced_by(typing: Any) -> Callable[[_Function], _Function]:
    view: Any = intrinsic(typing)

    def replace(function: _Function) -> _Function:
        return cast(_Function, view)

    return replace


def _view(item: Any, axes: int) -> Callable[[_Function], _Function]:
    """Return a decorator that replaces a function by code that makes the view of a slot of P.

    `carray` makes the same machine code in more steps of compilation.
    """
    array = types.Array(item, axes, "C")
    kind = _KINDS[as_dtype(item)] + axes

    def typing(context: Any, P: Any, slot: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            block = context.make_array(P)(context, builder, arguments[0])
            address, extents = _extents(context, builder, block, arguments[1], axes, kind)
            return _array_at(context, builder, array, address, extents)

        return array(P, types.int64), generate

    return _replaced_by(typing)


@_view(types.float64, 1)
def vector(P: Block, slot: FloatVector[Block]) -> Floats:
    """Return an array of float64 with one axis."""
    raise NotImplementedError


@_view(types.float64, 2)
def matrix(P: Block, slot: FloatMatrix[Block]) -> Floats:
    """Return an array of float64 with two axes."""
    raise NotImplementedError


@_view(types.float64, 3)
def cube(P: Block, slot: FloatCube[Block]) -> Floats:
    """Return an array of float64 with three axes."""
    raise NotImplementedError


@_view(types.int64, 1)
def int_vector(P: Block, slot: IntVector[Block]) -> Ints:
    """Return an array of int64 with one axis."""
    raise NotImplementedError


@_view(types.int64, 2)
def int_matrix(P: Block, slot: IntMatrix[Block]) -> Ints:
    """Return an array of int64 with two axes."""
    raise NotImplementedError


@_view(types.float32, 2)
def single_matrix(P: Block, slot: SingleMatrix[Block]) -> Singles:
    """Return an array of float32 with two axes."""
    raise NotImplementedError


def _row(context: Any, P: Any, slot: Any, j: Any) -> Any:
    array = types.Array(types.float64, 1, "C")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        block = context.make_array(P)(context, builder, arguments[0])
        place, (extent,) = _extents(context, builder, block, arguments[1], 1, _KINDS[np.dtype(np.int64)] + 1)
        if CHECKED:
            outside = builder.icmp_unsigned(">=", arguments[2], extent)
            _fail_if(context, builder, outside, IndexError, "A kernel asked for a row beyond the last one")
        address = _word(builder, builder.inttoptr(place, block.data.type), arguments[2])
        if CHECKED:
            missing = builder.icmp_signed("==", address, address.type(0))
            _fail_if(context, builder, missing, ValueError, "A kernel asked for a row that was not fetched")
        return _array_at(context, builder, array, address, [extent])

    return array(P, types.int64, types.int64), generate


@_replaced_by(_row)
def row(P: Block, slot: RowAddresses[Block], j: Int) -> Floats:
    """Return row j (n,) of a matrix that is given by the addresses of its rows. It must have been fetched."""
    raise NotImplementedError
