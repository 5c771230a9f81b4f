"""How the compiled kernels find their numbers: one block of addresses instead of a list of arrays.

Numba hands every array to a compiled function as seven to eleven scalars and counts references to it. A search works
on two dozen arrays; passing them cost more than the work itself (0.25 of 0.4 us an iteration, and a minute of
compilation). So `Memory` owns the arrays and lists their addresses and shapes in one integer array P, and a kernel
takes P and makes the views that it needs. `Memory` must outlive the calls that use its P.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numba import carray, types  # type: ignore[attr-defined]
from numba.extending import intrinsic
from numpy.typing import NDArray

from dsel._lib.jit import compiled
from dsel._lib.types import Floats, Ints

#: More columns than this flipped at once (probability 1e-6 under Binomial(n, 1/n)) are evaluated from scratch.
MOST_FLIPS = 8

# Places of the arrays in P: an address and three extents each. n columns, N targets kept one by one (0: kept by their
# cross-moments), subsets ("slots") of at most s_max members.
K = 0  # (n,) addresses of the rows of the Gram matrix X'X, each (n,); 0 where a row is not there
C = 4  # (n, N) cross-Gram B = X'Y, or with N = 0 (n,) addresses of the rows of M = B B'
FLOOR = 8  # (n,) a pivot at or below this is a dependent column
SCALARS = 12  # lam, c
A = 16  # (slots, s_max, s_max) (K_SS + lam I)^-1
G = 20  # (slots, s_max, N) w = A B_S, or with N = 0 (slots, s_max, s_max) A M_SS A
D = 24  # (slots, 3 + N, n) rows TOLERANCE, MOMENT, OUTCOME and, with few targets, RESIDUAL + target
F = 28  # (slots,) f(S)
S = 32  # (slots, s_max) members in order of arrival
SORTED = 36  # (slots, s_max) members in ascending order
POSITION = 40  # (slots, n) where each column stands in S, -1 outside
STATUS = 44  # (slots, 4) SIZE, DEPTH, CLASS, CANNOT_TELL
V = 48  # (VECTORS, max(s_max + 1, N)) scratch vectors along S
E = 52  # (2, n) scratch vectors along the columns
SMALL = 56  # (6, MOST_FLIPS, MOST_FLIPS) scratch
ELIMINATION = 60  # (2, s_max, max(s_max, N)) scratch
J = 64  # (2, MOST_FLIPS) scratch
K_DIAGONAL = 68  # (n,)
M_DIAGONAL = 72  # (n,) with N = 0
# Where rows come on demand (P[ON_DEMAND] is 1), what is known of the entries that are not there.
LEADING = 76  # (n, p) float32: p coordinates of each column
TAIL = 80  # (n,) norm of the other coordinates, at least
PAIRS = 84  # (pairs,) j n + l for j < l, ascending
PAIR_VALUES = 88  # (2, pairs) K_jl, and with N = 0 M_jl
UNKNOWN = 92  # (MOST_FLIPS, MOST_FLIPS) scratch: how far K_jl may be from what was taken for it
FIRST_FREE = 96  # a search appends arrays of its own from here
LENGTH = 160
# Plain integers at the end of P.
N_COLUMNS, N_TARGETS, ON_DEMAND, GUESSED = LENGTH - 1, LENGTH - 2, LENGTH - 3, LENGTH - 4

# Rows and columns with a meaning.
LAM, ERROR_OF_EMPTY = range(2)
TOLERANCE, MOMENT, OUTCOME, RESIDUAL = range(4)
SIZE, DEPTH, CLASS, CANNOT_TELL = range(4)
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


@intrinsic
def _single_pointer(context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.float32)(types.int64), generate


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


@compiled(inline=True)
def single_matrix(P: Ints, place: int) -> NDArray[np.float32]:
    """The float32 at `place`, two axes."""
    return carray(_single_pointer(P[place]), (P[place + 1], P[place + 2]))


@compiled(inline=True)
def row(P: Ints, place: int, j: int) -> Floats:
    """Row j (n,) of the matrix whose rows' addresses are at `place`. It has to be there."""
    return carray(_float_pointer(int_vector(P, place)[j]), (P[N_COLUMNS],))


@dataclass
class Rows:
    """A symmetric n x n matrix by the addresses of its rows (n,), 0 where one is not there; its diagonal (n,); and what
    keeps the rows alive."""

    addresses: Ints
    diagonal: Floats
    held: Any

    def __reduce__(self) -> NoReturn:
        raise TypeError("Addresses hold in one process only: they are not pickled.")

    @classmethod
    def of(cls, matrix: Floats) -> Rows:
        """All rows of a matrix."""
        whole = np.ascontiguousarray(matrix, np.float64)
        n = whole.shape[0]
        return cls(whole.ctypes.data + 8 * n * np.arange(n, dtype=np.int64), np.diag(whole).copy(), whole)


@dataclass
class Partial:
    """What bounds the entries of K whose rows are not there: `leading` (n, p) float32, `tail` (n,)."""

    leading: NDArray[np.float32]
    tail: Floats


class Memory:
    """Arrays by place, and the block `P` of their addresses. The arrays are held, never moved."""

    def __init__(self) -> None:
        self.P = np.zeros(LENGTH, np.int64)
        self._arrays: dict[int, NDArray[Any]] = {}
        self._held: list[Any] = []

    def __reduce__(self) -> NoReturn:
        raise TypeError("Addresses hold in one process only: they are not pickled.")

    def put(self, place: int, array: NDArray[Any]) -> None:
        """Set the array at a place: float64 or int64 (or float32, see `single_matrix`), C order, one to three axes."""
        assert array.flags.c_contiguous
        assert array.dtype in (np.float64, np.int64, np.float32)
        assert 1 <= array.ndim <= 3
        assert place + 4 <= GUESSED
        self._arrays[place] = array
        self.P[place] = array.ctypes.data
        self.P[place + 1 : place + 1 + array.ndim] = array.shape

    def __getitem__(self, place: int) -> NDArray[Any]:
        return self._arrays[place]


def pool(
    gram: Rows, cross: Rows | Floats, floor: Floats, lam: float, c: float, s_max: int, slots: int,
    partial: Partial | None = None,
) -> Memory:  # fmt: skip
    """Memory for `slots` subsets of at most `s_max` columns of a quadratic objective: K, and B (n, N) or the rows of M.

    partial: the rows of K (and M) come on demand, and this is known of the others.
    """
    n = gram.diagonal.size
    N = 0 if isinstance(cross, Rows) else cross.shape[1]
    memory = Memory()
    memory.P[N_COLUMNS], memory.P[N_TARGETS], memory.P[ON_DEMAND] = n, N, partial is not None
    _put_rows(memory, K, K_DIAGONAL, gram)
    if isinstance(cross, Rows):
        _put_rows(memory, C, M_DIAGONAL, cross)
    else:
        memory.put(C, cross)
    for place, array in ((FLOOR, floor), (SCALARS, np.array([lam, c]))):
        memory.put(place, array)
    partial = partial or Partial(np.zeros((1, 1), np.float32), np.zeros(1))
    memory.put(LEADING, partial.leading)
    memory.put(TAIL, partial.tail)
    know_pairs(memory, np.empty(0, np.int64), np.empty((2, 0)))
    resize(memory, s_max, slots)
    memory.put(V, np.zeros((VECTORS, max(s_max + 1, N))))
    memory.put(E, np.zeros((2, n)))
    memory.put(SMALL, np.zeros((6, MOST_FLIPS, MOST_FLIPS)))
    memory.put(UNKNOWN, np.zeros((MOST_FLIPS, MOST_FLIPS)))
    memory.put(ELIMINATION, np.zeros((2, s_max, max(s_max, N))))
    memory.put(J, np.zeros((2, MOST_FLIPS), np.int64))
    return memory


def _put_rows(memory: Memory, place: int, diagonal: int, rows: Rows) -> None:
    memory.put(place, rows.addresses)
    memory.put(diagonal, rows.diagonal)
    memory._held.append(rows)


def know_pairs(memory: Memory, pairs: Ints, values: Floats) -> None:
    """Take these entries of K (values[0]) and M (values[1]) as known; those known before are forgotten."""
    memory.put(PAIRS, pairs)
    memory.put(PAIR_VALUES, values)


def resize(memory: Memory, s_max: int, slots: int) -> None:
    """Room for `slots` subsets; those there are stay."""
    n, N = int(memory.P[N_COLUMNS]), int(memory.P[N_TARGETS])
    floats = {A: (s_max, s_max), G: (s_max, N or s_max), D: (RESIDUAL + N, n), F: ()}
    integers = {S: (s_max,), SORTED: (s_max,), POSITION: (n,), STATUS: (4,)}
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
