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
from numba import carray, types  # type: ignore[attr-defined]
from numba.extending import intrinsic
from numpy.typing import NDArray

from dsel._lib.jit import CHECKED, compiled
from dsel._lib.types import Floats, Int, Ints

Singles = NDArray[np.float32]

#: The type of a block of addresses: a NewType of `Ints` for each layout.
Block = TypeVar("Block", bound=Ints)
_Longer = TypeVar("_Longer", bound=Ints)


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
        self.P[slot] = array.ctypes.data
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


def _pointer(item: Any) -> Callable[[Any], Any]:
    """Return a function of compiled code that makes an address a pointer to items of a type."""

    def typing(context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        pointer: Any = types.CPointer
        return pointer(item)(types.int64), generate

    return cast(Callable[[Any], Any], intrinsic(typing))


_float_pointer, _int_pointer, _single_pointer = (_pointer(x) for x in (types.float64, types.int64, types.float32))


if CHECKED:

    @compiled()
    def _address(P: Ints, slot: Int, kind: Int) -> Any:
        if slot < 0 or slot + _WORDS > P.shape[0] or P[slot + _WORDS - 1] != kind:
            raise TypeError("A kernel asked for an array that is not there, or is of another type: slot", slot)
        return P[slot]

    @compiled()
    def _row_address(P: Block, slot: IntVector[Block], j: Int) -> Any:
        address = int_vector(P, slot)[j]
        if address == 0:
            raise ValueError("A kernel asked for a row that was not fetched: slot, row", slot, j)
        return address

else:

    @compiled(inline=True)
    def _address(P: Ints, slot: Int, kind: Int) -> Any:
        return P[slot]

    @compiled(inline=True)
    def _row_address(P: Block, slot: IntVector[Block], j: Int) -> Any:
        return int_vector(P, slot)[j]


@compiled(inline=True)
def vector(P: Block, slot: FloatVector[Block]) -> Floats:
    """Return an array of float64 with one axis."""
    return carray(_float_pointer(_address(P, slot, 11)), (P[slot + 1],))


@compiled(inline=True)
def matrix(P: Block, slot: FloatMatrix[Block]) -> Floats:
    """Return an array of float64 with two axes."""
    return carray(_float_pointer(_address(P, slot, 12)), (P[slot + 1], P[slot + 2]))


@compiled(inline=True)
def cube(P: Block, slot: FloatCube[Block]) -> Floats:
    """Return an array of float64 with three axes."""
    return carray(_float_pointer(_address(P, slot, 13)), (P[slot + 1], P[slot + 2], P[slot + 3]))


@compiled(inline=True)
def int_vector(P: Block, slot: IntVector[Block]) -> Ints:
    """Return an array of int64 with one axis."""
    return carray(_int_pointer(_address(P, slot, 21)), (P[slot + 1],))


@compiled(inline=True)
def int_matrix(P: Block, slot: IntMatrix[Block]) -> Ints:
    """Return an array of int64 with two axes."""
    return carray(_int_pointer(_address(P, slot, 22)), (P[slot + 1], P[slot + 2]))


@compiled(inline=True)
def single_matrix(P: Block, slot: SingleMatrix[Block]) -> Singles:
    """Return an array of float32 with two axes."""
    return carray(_single_pointer(_address(P, slot, 32)), (P[slot + 1], P[slot + 2]))


@compiled(inline=True)
def row(P: Block, slot: RowAddresses[Block], j: Int) -> Floats:
    """Return row j (n,) of a matrix that is given by the addresses of its rows. It must have been fetched."""
    return carray(_float_pointer(_row_address(P, slot, j)), (P[slot + 1],))
