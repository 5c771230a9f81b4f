"""The arrays of a search by swaps, for its compiled kernels: the table of one subset (slot 0), and those for its swaps.

The notation is that of `dsel.objective.kernels.neighbour_table`. With w_i row i of A B_S, or what stands for it with M,
the arrays hold a_ij = (A K_Sj)_i and y_ij = w_i . r_j for every member i and column j.
"""

from __future__ import annotations

from typing import NewType

from dsel._lib.kernel_arrays import Layout
from dsel.objective.kernels.layout import TABLES, SubsetTables

SwapTables = NewType("SwapTables", SubsetTables)
SWAPS = Layout[SwapTables]("SwapTables", base=TABLES)

COEFFICIENTS = SWAPS.matrix("COEFFICIENTS", "(s_max, n) a_ij, in the order of the members")
PRODUCTS = SWAPS.matrix("PRODUCTS", "(s_max, n) y_ij with N = 0; (1, n) scratch with N > 0")
REMOVED = SWAPS.matrix("REMOVED", "(2, n) scratch: a and y of the member that leaves")
ALONG_MEMBERS = SWAPS.matrix("ALONG_MEMBERS", "(2, s_max) scratch: its row of A / A_ii, and of G")
NO_ENTRY = SWAPS.int_vector("NO_ENTRY", "(n,) the column may not enter before this move")
NO_EXIT = SWAPS.int_vector("NO_EXIT", "(n,) the column may not leave before this move")
BEST = SWAPS.int_vector("BEST", "(s_max,) the best members since BEST_VALUES were set")
VALUES = SWAPS.vector("VALUES", "(2,) LEAST, LEAST_SINCE_KICK")
#: LEAST: the least f so far. LEAST_SINCE_KICK: the least f since the last kick.
LEAST, LEAST_SINCE_KICK = range(2)
COUNT = SWAPS.int_vector("COUNT", "(4,) MOVE, LAST_GAIN, SEED, IMPROVED")
#: MOVE: moves so far. LAST_GAIN: the last move that lowered LEAST_SINCE_KICK. IMPROVED: the last that lowered LEAST.
MOVE, LAST_GAIN, SEED, IMPROVED = range(4)

#: Why the kernel returned. STALLED: no gain for `PATIENCE` moves, or no swap is allowed. INEXACT: a column was refused.
DONE, STALLED, INEXACT = range(3)
