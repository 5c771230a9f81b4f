"""The arrays of the compiled kernels of an objective: the objective itself, and tables of several subsets ("slots").

n columns, N targets kept one by one (0: only their cross-moments M are used), subsets of at most s_max members,
K = X'X, B = X'Y, M = B B', lam the ridge penalty. Kernels take `SubsetTables` (see `dsel._lib.kernel_arrays`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NewType, NoReturn

import numpy as np

from dsel._lib.kernel_arrays import KernelArrays, Layout, RowAddresses, Singles
from dsel._lib.types import Floats, Ints

#: More columns than this flipped at once (probability 1e-6 under Binomial(n, 1/n)) are evaluated from scratch.
MOST_FLIPS = 8

SubsetTables = NewType("SubsetTables", Ints)
TABLES = Layout[SubsetTables]("SubsetTables")

# The objective.
N_COLUMNS = TABLES.integer("N_COLUMNS", "n")
N_TARGETS = TABLES.integer("N_TARGETS", "N, or 0 where only M is used")
ON_DEMAND = TABLES.integer("ON_DEMAND", "1 where rows of K and M are fetched on demand")
K = TABLES.rows("K", "(n,) addresses of the rows of K")
K_DIAGONAL = TABLES.vector("K_DIAGONAL", "(n,)")
M = TABLES.rows("M", "(n,) addresses of the rows of M, with N = 0")
M_DIAGONAL = TABLES.vector("M_DIAGONAL", "(n,) with N = 0")
B = TABLES.matrix("B", "(n, N) with N > 0")
FLOOR = TABLES.vector("FLOOR", "(n,) a pivot at or below this is that of a dependent column")
SCALARS = TABLES.vector("SCALARS", "(2,) LAM, ERROR_OF_EMPTY")
LAM, ERROR_OF_EMPTY = range(2)

# What is known of entries of K whose rows are missing.
LEADING = TABLES.single_matrix("LEADING", "(n, p) p coordinates of each column")
TAIL = TABLES.vector("TAIL", "(n,) an upper bound on the norm of the other coordinates")
PAIRS = TABLES.int_vector("PAIRS", "(pairs,) j n + l for j < l, ascending")
PAIR_VALUES = TABLES.matrix("PAIR_VALUES", "(2, pairs) K_jl, and with N = 0 M_jl")
UNKNOWN = TABLES.matrix("UNKNOWN", "(MOST_FLIPS, MOST_FLIPS) scratch: largest error of the K_jl that was assumed")
GUESSED = TABLES.integer("GUESSED", "1 if an entry of K was assumed for the last value, which is then a lower bound")

# The subsets.
A = TABLES.cube("A", "(slots, s_max, s_max) (K_SS + lam I)^-1")
G = TABLES.cube("G", "(slots, s_max, N) w = A B_S; with N = 0 (slots, s_max, s_max) A M_SS A")
NEIGHBOURS = TABLES.cube("NEIGHBOURS", "(slots, 3 + N, n) rows TOLERANCE, MOMENT, OUTCOME and RESIDUAL + target")
TOLERANCE, MOMENT, OUTCOME, RESIDUAL = range(4)
F = TABLES.vector("F", "(slots,) f(S)")
S = TABLES.int_matrix("S", "(slots, s_max) members in order of arrival")
SORTED = TABLES.int_matrix("SORTED", "(slots, s_max) members in ascending order")
POSITION = TABLES.int_matrix("POSITION", "(slots, n) place of each column in S, -1 outside")
STATUS = TABLES.int_matrix("STATUS", "(slots, 4) SIZE, DEPTH, CLASS, INEXACT")
SIZE, DEPTH, CLASS, INEXACT = range(4)

# Scratch.
VECTORS = TABLES.matrix("VECTORS", "(N_VECTORS, max(s_max + 1, N)) vectors along S: H, H_G, W, U; A_J + x and so on")
H, H_G, W, U = range(4)
A_J = 4
Y_J = A_J + MOST_FLIPS
K_J = Y_J + MOST_FLIPS
MU_J = K_J + MOST_FLIPS
N_VECTORS = MU_J + MOST_FLIPS
ALONG = TABLES.matrix("ALONG", "(2, n) vectors along the columns")
BLOCKS = TABLES.cube("BLOCKS", "(6, MOST_FLIPS, MOST_FLIPS) matrices of the flipped columns")
FLIPPED = TABLES.int_matrix("FLIPPED", "(2, MOST_FLIPS) positions of the members to delete, columns to insert")
ELIMINATION = TABLES.cube("ELIMINATION", "(2, s_max, max(s_max, N)) K_SS + lam I, and M_SS or B_S")
KEPT = TABLES.int_vector("KEPT", "(s_max,) members without those that would make the subset dependent")


@dataclass
class Rows:
    """A symmetric n x n matrix by the addresses of its rows.

    addresses: (n,), 0 where a row is missing. diagonal: (n,). held: the object that keeps the rows in memory.
    """

    addresses: Ints
    diagonal: Floats
    held: Any

    def __reduce__(self) -> NoReturn:
        raise TypeError("Addresses are valid in one process only: they are not pickled.")

    @classmethod
    def of(cls, matrix: Floats) -> Rows:
        """Return all rows of a matrix."""
        whole = np.ascontiguousarray(matrix, np.float64)
        n = whole.shape[0]
        return cls(whole.ctypes.data + 8 * n * np.arange(n, dtype=np.int64), np.diag(whole).copy(), whole)


@dataclass
class Partial:
    """What bounds the entries of K whose rows are missing: `leading` (n, p) float32, `tail` (n,)."""

    leading: Singles
    tail: Floats


def make_tables(
    gram: Rows, cross: Rows | Floats, floor: Floats, lam: float, c: float, s_max: int, slots: int,
    partial: Partial | None = None,
) -> KernelArrays[SubsetTables]:  # fmt: skip
    """Return tables for `slots` subsets of at most `s_max` columns of an objective: K, and B (n, N) or the rows of M.

    partial: what is known of rows of K (and M) that are fetched on demand; None if all are in memory.
    """
    n = gram.diagonal.size
    N = 0 if isinstance(cross, Rows) else cross.shape[1]
    tables = KernelArrays(TABLES)
    tables.P[N_COLUMNS], tables.P[N_TARGETS], tables.P[ON_DEMAND] = n, N, partial is not None
    _put_rows(tables, gram, K, K_DIAGONAL)
    if isinstance(cross, Rows):
        _put_rows(tables, cross, M, M_DIAGONAL)
    else:
        tables.put(B, cross)
    tables.put(FLOOR, floor)
    tables.put(SCALARS, np.array([lam, c]))
    partial = partial or Partial(np.zeros((1, 1), np.float32), np.zeros(1))
    tables.put(LEADING, partial.leading)
    tables.put(TAIL, partial.tail)
    set_known_pairs(tables, np.empty(0, np.int64), np.empty((2, 0)))
    resize(tables, s_max, slots)
    tables.put(VECTORS, np.zeros((N_VECTORS, max(s_max + 1, N))))
    tables.put(ALONG, np.zeros((2, n)))
    tables.put(BLOCKS, np.zeros((6, MOST_FLIPS, MOST_FLIPS)))
    tables.put(UNKNOWN, np.zeros((MOST_FLIPS, MOST_FLIPS)))
    tables.put(ELIMINATION, np.zeros((2, s_max, max(s_max, N))))
    tables.put(KEPT, np.zeros(s_max, np.int64))
    tables.put(FLIPPED, np.zeros((2, MOST_FLIPS), np.int64))
    return tables


def _put_rows(tables: KernelArrays[SubsetTables], rows: Rows, slot: RowAddresses[SubsetTables], diagonal: Any) -> None:
    tables.put(slot, rows.addresses, keep=rows)
    tables.put(diagonal, rows.diagonal)


def set_known_pairs(tables: KernelArrays[Any], pairs: Ints, values: Floats) -> None:
    """Set the known entries of K (values[0]) and M (values[1]), in place of those known before."""
    tables.put(PAIRS, pairs)
    tables.put(PAIR_VALUES, values)


def resize(tables: KernelArrays[Any], s_max: int, slots: int) -> None:
    """Make room for `slots` subsets; those already in the tables stay."""
    n, N = int(tables.P[N_COLUMNS]), int(tables.P[N_TARGETS])
    floats: dict[Any, tuple[int, ...]] = {
        A: (s_max, s_max), G: (s_max, N or s_max), NEIGHBOURS: (RESIDUAL + N, n), F: (),
    }  # fmt: skip
    integers: dict[Any, tuple[int, ...]] = {S: (s_max,), SORTED: (s_max,), POSITION: (n,), STATUS: (4,)}
    for slot, shape in (floats | integers).items():
        array = np.zeros((slots, *shape), np.float64 if slot in floats else np.int64)
        if slot in tables:
            array[: tables[slot].shape[0]] = tables[slot]
        tables.put(slot, array)


def subset_table_bytes(n: int, N: int, s_max: int, slots: int) -> int:
    """Return the memory that the tables of `slots` subsets take, in bytes."""
    return 8 * slots * (s_max * (s_max + (N or s_max)) + (RESIDUAL + N) * n + 1 + 2 * s_max + n + 4)
