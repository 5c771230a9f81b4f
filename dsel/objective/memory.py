"""How the compiled kernels find their numbers: one block of addresses instead of a list of arrays.

Numba hands every array to a compiled function as seven to eleven scalars and counts references to it. A search works
on two dozen arrays; passing them cost more than the work itself (0.25 of 0.4 us an iteration, and a minute of
compilation). So `Memory` owns the arrays and lists their addresses and shapes in one integer array P, and a kernel
takes P and makes the views that it needs. `Memory` must outlive the calls that use its P.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, types  # type: ignore[attr-defined]
from numba.extending import intrinsic
from numpy.typing import NDArray

from dsel.compiled import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: More columns than this flipped at once (probability 1e-6 under Binomial(n, 1/n)) are evaluated from scratch.
MOST_FLIPS = 8

# Places of the arrays in P: an address and three extents each. n columns, N targets kept one by one (0: kept by their
# cross-moments), subsets ("slots") of at most s_max members.
K = 0  # (n, n) Gram matrix X'X
C = 4  # (n, N) cross-Gram B = X'Y, or with N = 0 (n, n) M = B B'
FLOOR = 8  # (n,) a pivot at or below this is a dependent column
SCALARS = 12  # lam, c
A = 16  # (slots, s_max, s_max) (K_SS + lam I)^-1
G = 20  # (slots, s_max, N) w = A B_S, or with N = 0 (slots, s_max, s_max) A M_SS A
D = 24  # (slots, 3 + N, n) rows TOLERANCE, MOMENT, OUTCOME and, with few targets, RESIDUAL + target
F = 28  # (slots,) f(S)
S = 32  # (slots, s_max) members in order of arrival
SORTED = 36  # (slots, s_max) members in ascending order
POSITION = 40  # (slots, n) where each column stands in S, -1 outside
STATUS = 44  # (slots, 3) SIZE, DEPTH, CLASS
V = 48  # (VECTORS, max(s_max + 1, N)) scratch vectors along S
E = 52  # (2, n) scratch vectors along the columns
SMALL = 56  # (6, MOST_FLIPS, MOST_FLIPS) scratch
ELIMINATION = 60  # (2, s_max, max(s_max, N)) scratch
J = 64  # (2, MOST_FLIPS) scratch
FIRST_FREE = 68  # a search appends arrays of its own from here
LENGTH = 128
# Plain integers at the end of P.
N_COLUMNS, N_TARGETS = LENGTH - 1, LENGTH - 2

# Rows and columns with a meaning.
LAM, ERROR_OF_EMPTY = range(2)
TOLERANCE, MOMENT, OUTCOME, RESIDUAL = range(4)
SIZE, DEPTH, CLASS = range(3)
H, H_G, W, U = range(4)
A_J = 4
Y_J = A_J + MOST_FLIPS
K_J = Y_J + MOST_FLIPS
MU_J = K_J + MOST_FLIPS
VECTORS = MU_J + MOST_FLIPS


@intrinsic
def _float_pointer(context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.float64)(types.int64), generate


@intrinsic
def _int_pointer(context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.int64)(types.int64), generate


@compiled(inline=True)
def vector(P: Ints, place: int) -> Floats:
    """The floats at `place`, one axis."""
    return carray(_float_pointer(P[place]), (P[place + 1],))


@compiled(inline=True)
def matrix(P: Ints, place: int) -> Floats:
    """The floats at `place`, two axes."""
    return carray(_float_pointer(P[place]), (P[place + 1], P[place + 2]))


@compiled(inline=True)
def cube(P: Ints, place: int) -> Floats:
    """The floats at `place`, three axes."""
    return carray(_float_pointer(P[place]), (P[place + 1], P[place + 2], P[place + 3]))


@compiled(inline=True)
def int_vector(P: Ints, place: int) -> Ints:
    """The integers at `place`, one axis."""
    return carray(_int_pointer(P[place]), (P[place + 1],))


@compiled(inline=True)
def int_matrix(P: Ints, place: int) -> Ints:
    """The integers at `place`, two axes."""
    return carray(_int_pointer(P[place]), (P[place + 1], P[place + 2]))


class Memory:
    """Arrays by place, and the block `P` of their addresses. The arrays are held, never moved."""

    def __init__(self) -> None:
        self.P = np.zeros(LENGTH, np.int64)
        self._arrays: dict[int, NDArray[Any]] = {}

    def put(self, place: int, array: NDArray[Any]) -> None:
        """Set the array at a place: float64 or int64, C order, one to three axes."""
        assert array.flags.c_contiguous
        assert array.dtype in (np.float64, np.int64)
        assert 1 <= array.ndim <= 3
        assert place + 4 <= N_TARGETS
        self._arrays[place] = array
        self.P[place] = array.ctypes.data
        self.P[place + 1 : place + 1 + array.ndim] = array.shape

    def __getitem__(self, place: int) -> NDArray[Any]:
        return self._arrays[place]


def pool(K_: Floats, C_: Floats, floor: Floats, lam: float, c: float, N: int, s_max: int, slots: int) -> Memory:
    """Memory for `slots` subsets of at most `s_max` columns of a quadratic objective (its numbers as at the places)."""
    n = K_.shape[0]
    memory = Memory()
    for place, array in ((K, K_), (C, C_), (FLOOR, floor), (SCALARS, np.array([lam, c]))):
        memory.put(place, array)
    memory.P[N_COLUMNS], memory.P[N_TARGETS] = n, N
    resize(memory, s_max, slots)
    memory.put(V, np.zeros((VECTORS, max(s_max + 1, N))))
    memory.put(E, np.zeros((2, n)))
    memory.put(SMALL, np.zeros((6, MOST_FLIPS, MOST_FLIPS)))
    memory.put(ELIMINATION, np.zeros((2, s_max, max(s_max, N))))
    memory.put(J, np.zeros((2, MOST_FLIPS), np.int64))
    return memory


def resize(memory: Memory, s_max: int, slots: int) -> None:
    """Room for `slots` subsets; those there are stay."""
    n, N = int(memory.P[N_COLUMNS]), int(memory.P[N_TARGETS])
    floats = {A: (s_max, s_max), G: (s_max, N or s_max), D: (RESIDUAL + N, n), F: ()}
    integers = {S: (s_max,), SORTED: (s_max,), POSITION: (n,), STATUS: (3,)}
    for shapes, dtype in ((floats, np.float64), (integers, np.int64)):
        for place, shape in shapes.items():
            array = np.zeros((slots, *shape), dtype)
            if place in memory._arrays:
                old = memory[place]
                array[: old.shape[0]] = old
            memory.put(place, array)


def pool_bytes(n: int, N: int, s_max: int, slots: int) -> int:
    """Memory that the tables of `slots` subsets take."""
    return 8 * slots * (s_max * (s_max + (N or s_max)) + (RESIDUAL + N) * n + 1 + 2 * s_max + n + 4)
