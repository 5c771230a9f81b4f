"""Upper bounds on v_j in the sets of few groups, where the columns of different groups depend on each other.

A category under two spellings, or a coarser category, makes many subsets of columns dependent. But a set S of groups is
always whole, and f(S) is that of a basis T of its columns. A ridge changes f(T) by what the v_j of T alone are worth
(`dsel.search.exact.guarantee`), and the other columns of S can only lower the bound. If T leaves nothing of them but
rounding, S is as good as T. If it leaves more, though not more than the tolerance, S is nearly dependent.
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import dtrtri

from dsel._lib.low_rank import ScaledMatrix
from dsel._lib.tolerances import ridge
from dsel._lib.types import Floats, Ints
from dsel.objective.groups import GroupedObjective
from dsel.search.anytime import Deadline
from dsel.search.exact.inflation import MOST_NAMED, NO_PART, Inflation

#: At most this many sets of groups are looked at.
_MOST_SETS = 20_000
#: A basis takes about this many elementary steps for each column, and the cube of their number. All bases take at most
#: `_MOST_STEPS`: some seconds.
_STEPS_PER_COLUMN, _MOST_STEPS = 2e4, 5e9
#: The rounding of what a basis leaves of a column grows by this share with the sum of its squared coefficients. The
#: largest share that was measured is 0.009, in categories of 60 to 240 rows.
_PER_SQUARE = 1.0 / 16.0


class Unions:
    """The unions of few groups. Each number of groups is looked at once.

    objective: over the groups. C: the correlations (s, s) of its columns `kept` (s,), which do not depend on the
    included ones.
    """

    def __init__(self, objective: GroupedObjective, C: ScaledMatrix, kept: Ints) -> None:
        self._objective, self._C, self._kept = objective, C.whole(), kept
        self._place = {int(j): place for place, j in enumerate(kept)}
        self._rounding = ridge(objective.columns_of.n)
        self._factors: list[Floats] = []  # of each number of groups
        self._sets: list[tuple[int, ...]] = []

    def inflation(self, k: int, deadline: Deadline | None) -> Inflation | None:
        """Return upper bounds on v_j in the bases of all sets of at most k groups; None if there are too many.

        Raises OutOfTime after the deadline.
        """
        n, size = self._objective.n, self._objective.most_columns(k)
        count = sum(math.comb(n, groups) for groups in range(1, min(k, n) + 1))
        if count > _MOST_SETS or count * size * (_STEPS_PER_COLUMN + float(size) ** 3) > _MOST_STEPS:
            return None
        while len(self._factors) < min(k, n):
            self._factors.append(self._largest(len(self._factors) + 1, deadline))
        if len(self._sets) > MOST_NAMED:
            return None
        factors = np.zeros(size)
        for found in self._factors[:k]:
            factors[: found.size] = np.maximum(factors[: found.size], found)
        return Inflation(factors, tuple(self._sets), bool(self._sets))

    def _largest(self, groups: int, deadline: Deadline | None) -> Floats:
        """Return the largest, second largest, ... v_j in any set of some number of groups, and name dependent sets."""
        largest = np.zeros(self._objective.most_columns(groups))
        for S in combinations(range(self._objective.n), groups):
            if deadline is not None:
                deadline.require()
            v = np.sort(self._of_basis(S))[::-1]
            largest[: v.size] = np.maximum(largest[: v.size], v)
        return largest

    def _of_basis(self, S: tuple[int, ...]) -> Floats:
        """Return v_j of the basis of a set of groups, and name what it leaves more of than rounding."""
        basis, place = self._objective.basis(S), self._place
        T = [place[int(j)] for j in basis]
        if not T:
            return np.zeros(0)
        L = np.linalg.cholesky(self._C[np.ix_(T, T)])
        inverse, _ = dtrtri(L, lower=1)
        chosen = set(basis.tolist())
        rest = [place[j] for j in self._objective.members(S) if j in place and j not in chosen]
        if rest:
            half = inverse @ self._C[np.ix_(T, rest)]
            coefficients = scipy.linalg.solve_triangular(L.T, half)
            left = self._C[rest, rest] - np.square(half).sum(axis=0)
            near = left > self._rounding * (1.0 + _PER_SQUARE * np.square(coefficients).sum(axis=0))
            for i in np.flatnonzero(near):
                others = basis[np.abs(coefficients[:, i]) > NO_PART]
                self._name((*others.tolist(), int(self._kept[rest[i]])))
        return np.asarray(np.square(inverse).sum(axis=0))

    def _name(self, columns: tuple[int, ...]) -> None:
        """Keep a set of nearly dependent columns, if it holds none of those before it."""
        if len(self._sets) <= MOST_NAMED and not any(set(known) <= set(columns) for known in self._sets):
            self._sets.append(columns)
