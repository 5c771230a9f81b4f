"""Recompute the bounds of a proof over columns in extended precision: of its leaves, and of its relaxation.

Leaves. A bound of a leaf (S, R, q) is c less what S and any q columns of R can explain. One elimination of K over S,
then R gives rows Z with Z'Z the Gram matrix of what all of R adds to S. No q columns of R add more than the q largest
eigenvalues of Z'Z: they span at most q dimensions within the span of R. With q or fewer targets this is |Z|^2.
Eigenvalues are computed in float64 and enlarged by their error. A leaf may also say that all of its subsets were
compared, or that S is dependent: then the subsets are compared again, and S is tested.

The ridge. Elimination in extended precision is exact for a matrix that differs from K by rounding. A ridge of a few
rounding errors keeps that matrix positive definite, so that the bound holds whatever the rank of K. The ridge r D, D
the squared norms of the columns with the penalty, hides a little of what an independent subset T explains: at most

    r ||Y||^2 sum over T of v_j,

where the other columns of T leave the share 1 / v_j of column j (its coefficient b_j satisfies b_j^2 D_jj / v_j <=
||Y||^2). v_j is at most 1e7, and at most the variance inflation factor of column j on all others. If columns are nearly
dependent, all of them together explain much that no independent subset does. A leaf whose bound is too low for this
reason gets a larger ridge. The report states what the ridges may hide.

The convex relaxation. With a diagonal D > 0 for which K - D is positive semidefinite, and for any A (n, N), no k
columns explain more than

    <A, (K - D) A> + the k largest of |row j of B - (K - D) A|^2 / d_j.

The log has D, and weights from which A follows. Only the sign of K - D must be checked, and one value computed: where A
comes from does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from dsel._lib.tolerances import DEPENDENCE_TOLERANCE
from dsel.verification.problem import EPSILON, EXTENDED, STEP_BYTES, Extended, Problem
from dsel.verification.tree import BOUND, COMPARISON, Leaf, columns_of

#: Bytes of the matrices that are eliminated together.
_BATCH_BYTES = 1 << 20
#: float64 leaves out what is below the tolerance by more than this share of it. What is nearer is decided exactly.
_DEPENDENCE_ROUNDING = 1e-6
#: A bound that is too low by at most this share of ||Y||^2 may be rounding: the leaf is then divided further.
_SHORTFALL = 1e-6
#: Most parts of one such leaf.
_MOST_PARTS = 2000
#: The log has bounds in float32. One that exceeds the recomputed bound by more than this share of f of the empty set is
#: wrong.
LOGGED = 1e-6
#: The larger ridge as a share of each column's square, and its part for each column. Bounds in the log are compared
#: with a multiple of it: in float64 the search sees other rounding errors where columns are nearly dependent.
_LARGER_RIDGE, _RIDGE_PER_COLUMN, _RIDGE_OF_LOG = 2e-14, 4e-15, 100
#: Above this least eigenvalue of the correlation matrix, its inverse in float64 is good to three digits.
_WELL_CONDITIONED = 1e-9
_FLOAT64 = float(np.finfo(np.float64).eps)


#: A leaf that does not hold, and why.
Failure = tuple[Leaf, str]


class Checker:
    """Checks leaves of one proof.

    Parameters
    ----------
    problem : Problem
        The problem, summed from the data.
    k : int
        The most columns to choose.
    threshold : float
        f of every subset of a leaf must be at least this.

    Attributes
    ----------
    ridge : longdouble
        The largest ridge that a leaf needed so far, see `hidden`. Comparisons of columns need none.
    most_compared : int
        Most columns that the subsets of a leaf may add if they are compared.
    """

    most_compared = 2
    #: Reasons of leaves that are checked without a ridge.
    without_ridge: tuple[str, ...] = (COMPARISON,)
    #: See `Claim`.
    listed: frozenset[tuple[int, ...]] | None = None
    least = 0.0

    def __init__(self, problem: Problem, k: int, threshold: Any) -> None:
        self.problem, self.k, self.threshold = problem, k, EXTENDED(threshold)
        n = problem.n
        self._ridge = EXTENDED(4 * (n + 8) * EPSILON)
        self._larger_ridge = EXTENDED(_LARGER_RIDGE + _RIDGE_PER_COLUMN * n)
        self.ridge = EXTENDED(0)
        self._squares = np.append(problem.floor / EXTENDED(DEPENDENCE_TOLERANCE), EXTENDED(1))

    def failures(self, leaves: Sequence[Leaf]) -> Iterator[Failure]:
        """Yield the leaves that do not hold. A leaf that claims no more than f >= 0 holds."""
        leaves = [leaf for leaf in leaves if not self._claims_nothing(leaf)]
        if any(leaf.reason not in self.without_ridge for leaf in leaves):
            self.ridge = max(self.ridge, self._ridge)
        by_bound = [leaf for leaf in leaves if leaf.reason == BOUND]
        compared = [leaf for leaf in leaves if leaf.reason == COMPARISON]
        yield from self._by_bound(by_bound)
        yield from self._compared(compared)
        for leaf in leaves:
            if leaf.reason not in (BOUND, COMPARISON) and not self._by_dependence(leaf):
                yield (leaf, "its columns are not dependent")

    def _claims_nothing(self, leaf: Leaf) -> bool:
        return bool(leaf.reason == BOUND and self.threshold <= 0 and not leaf.bound > 0.0)

    def hidden(self, ridge: float) -> float:
        """Return what a ridge may hide, as a share of ||Y||^2. O(n^3), unless it is 0 or the columns are dependent."""
        if ridge == 0.0:
            return 0.0
        n, scale = self.problem.n, np.sqrt(self._squares[:-1])
        C = np.empty((n, n), order="F")
        for a in range(n):  # a row at a time, and in place below: n may be large
            C[:, a] = self.problem.K[a] / scale[a] / scale
        factors = np.full(n, 1.0 / DEPENDENCE_TOLERANCE)
        if n and _is_positive(C, _WELL_CONDITIONED):
            inverse, _ = lapack.dpotri(lapack.dpotrf(C, overwrite_a=1)[0], overwrite_c=1)
            factors = np.minimum(factors, 1.001 * np.diag(inverse))
        return ridge * float(np.sort(factors)[n - min(self.most_columns, n) :].sum())

    @property
    def most_columns(self) -> int:
        """How many columns a subset has at most."""
        return self.k

    def value(self, S: Sequence[int]) -> Any:
        """Return f(S) in extended precision. S is independent."""
        members = np.asarray(sorted(S), np.int64)
        G, Z = self.problem.K[np.ix_(members, members)][..., None], self.problem.B[members][:, None]
        pivots, _ = _eliminate(G, Z, np.zeros(members.size))
        return self.problem.c - ((Z * Z).sum(axis=2) / pivots).sum()

    def dependent(self, S: Sequence[int]) -> bool:
        """Return whether the others leave at most the tolerance of the square of a column of S."""
        members = np.asarray(S, np.int64)
        K = self.problem.K[np.ix_(members, members)]
        inverse = _inverse_diagonal(K)
        return inverse is None or bool((inverse * self.problem.floor[members] >= 1).any())

    def never_listed(self, S: Sequence[int]) -> bool:
        """Return whether S is no subset that lists may have, because it is dependent."""
        return self.dependent(S)

    def _by_dependence(self, leaf: Leaf) -> bool:
        """Return whether S is dependent, or a bound excludes all subsets: the search decides in float64."""
        return self.dependent(leaf.chosen) or bool(self.bounds([leaf], self._ridge)[0] >= self.threshold)

    # Bounds.

    def _by_bound(self, leaves: Sequence[Leaf]) -> Iterator[Failure]:
        unit = float(self.problem.c)
        for batch in self._batches(leaves):
            bounds = self.bounds(batch, self._ridge)
            low = np.flatnonzero(~(bounds >= float(self.threshold)))
            if low.size:
                bounds[low] = np.maximum(bounds[low], self.bounds([batch[x] for x in low], self._larger_ridge))
                self.ridge = self._larger_ridge
            for leaf, bound in zip(batch, bounds, strict=True):
                if self._exceeds(leaf, bound):
                    yield (leaf, f"the log says that f is at least {leaf.bound * unit:.10g}; it is {bound:.10g}")
                elif not bound >= self.threshold and not self._holds_after_division(leaf, bound):
                    yield (leaf, f"the bound is {bound:.10g}, below {float(self.threshold):.10g}")

    def _exceeds(self, leaf: Leaf, bound: float) -> bool:
        """Return whether the bound in the log is above the recomputed one."""
        most = leaf.bound - LOGGED
        unit = float(self.problem.c)
        return most > bound / unit and most > self.bounds([leaf], _RIDGE_OF_LOG * self._larger_ridge)[0] / unit

    def _batches(self, leaves: Sequence[Leaf]) -> Iterator[list[Leaf]]:
        """Yield leaves of similar size together."""
        sizes = [len(leaf.chosen) + leaf.allowed.bit_count() for leaf in leaves]
        batch: list[Leaf] = []
        for i in sorted(range(len(leaves)), key=lambda i: sizes[i]):
            if batch and 16 * (len(batch) + 1) * (sizes[i] + 1) * (sizes[i] + self.problem.B.shape[1]) > _BATCH_BYTES:
                yield batch
                batch = []
            batch.append(leaves[i])
        if batch:
            yield batch

    def _matrices(self, leaves: Sequence[Leaf]) -> tuple[NDArray[np.int64], int, Extended, Extended]:
        """Return the columns (t, b) of S, then R of each leaf, the largest |S|, and their K and B.

        A column n, orthogonal to all others, fills up the shorter sets.
        """
        s = max(len(leaf.chosen) for leaf in leaves)
        t = s + max(leaf.allowed.bit_count() for leaf in leaves)
        columns = np.full((t, len(leaves)), self.problem.n, np.int64)
        for b, leaf in enumerate(leaves):
            columns[: len(leaf.chosen), b] = leaf.chosen
            allowed = columns_of(leaf.allowed)
            columns[s : s + len(allowed), b] = allowed
        filled = columns == self.problem.n
        places = np.where(filled, 0, columns)
        G, Z = self.problem.K[places[:, None], places[None]], self.problem.B[places]
        if filled.any():
            G[filled[:, None] | filled[None]] = 0
            G[np.arange(t)[:, None], np.arange(t)[:, None], np.arange(len(leaves))] += filled
            Z[filled] = 0
        return columns, s, G, Z

    def bounds(self, leaves: Sequence[Leaf], ridge: Any) -> NDArray[np.float64]:
        """Return a lower bound (b,) on f of all subsets of each leaf, up to what the ridge hides."""
        columns, s, G, Z = self._matrices(leaves)
        t = len(columns)
        diagonal = np.arange(t)
        added_ridge = ridge * self._squares[columns]
        G[diagonal, diagonal] += added_ridge
        pivots, sound = _eliminate(G, Z, added_ridge / 2)
        gains = (Z * Z).sum(axis=2) / pivots
        f = self.problem.c - gains[:s].sum(axis=0)
        added = gains[s:].sum(axis=0)
        bound = np.asarray(f - added, np.float64)
        most = np.array([leaf.most for leaf in leaves])
        undecided = np.flatnonzero(~(bound >= self._needed(leaves)) & (most < min(t - s, Z.shape[2])))
        for x in undecided:
            rows = np.asarray(Z[s:, x] / np.sqrt(pivots[s:, x])[:, None], np.float64)
            bound[x] = max(bound[x], float(f[x]) - _sum_of_largest(rows, int(most[x])))
        return np.where(sound, bound - 4 * _FLOAT64 * float(self.problem.c), -np.inf)

    def _needed(self, leaves: Sequence[Leaf]) -> NDArray[np.float64]:
        """Return the bounds at which no sharper ones are needed."""
        logged = np.array([leaf.bound for leaf in leaves]) * float(self.problem.c)
        return np.maximum(np.nan_to_num(logged, nan=-np.inf), float(self.threshold) * (1 + 2 * _FLOAT64))

    # Division of leaves whose bound lacks a little.

    def _holds_after_division(self, leaf: Leaf, bound: float) -> bool:
        lacks = float(self.threshold) - bound
        return lacks <= _SHORTFALL * float(self.problem.total) and self._divided(leaf, self.threshold)

    def _divided(self, leaf: Leaf, level: Any) -> bool:
        """Return whether f of all independent subsets of a leaf is at least `level`, by dividing it."""
        return self._holds(leaf.chosen, leaf.allowed, leaf.most, level, [_MOST_PARTS])

    def _holds(self, chosen: tuple[int, ...], allowed: int, most: int, level: Any, parts: list[int]) -> bool:
        """Return whether no independent subset is below `level`, by dividing R as often as `parts` allows."""
        parts[0] -= 1
        if parts[0] < 0:
            return False
        if self.dependent(chosen):
            return True
        if most == 0 or not allowed:
            return self._allows(chosen, level)
        leaf = Leaf(0, BOUND, chosen, allowed, most, np.nan)
        if self.bounds([leaf], self.ridge)[0] >= level:
            return True
        # The column whose absence helps most: that of the largest gain.
        j = min(columns_of(allowed), key=lambda j: self._with(chosen, j))
        rest = allowed & ~(1 << j)
        inside = self._holds((*chosen, j), rest, most - 1, level, parts)
        return inside and self._holds(chosen, rest, most, level, parts)

    def _allows(self, S: Sequence[int], level: Any) -> bool:
        """Return whether f of an independent subset is at least `level`, or it is known to be below."""
        if self.listed is None:
            return bool(self.value(S) >= level)
        if len(S) < self.k:  # near-best subsets have k columns
            return bool(self.value(S) >= min(level, self.least))
        return tuple(sorted(S)) in self.listed or bool(self.value(S) >= level)

    def _with(self, chosen: tuple[int, ...], j: int) -> float:
        return np.inf if self.dependent((*chosen, j)) else float(self.value((*chosen, j)))

    # Comparison of all subsets with up to two more columns.

    def _compared(self, leaves: Sequence[Leaf]) -> Iterator[Failure]:
        for batch in self._batches(leaves):
            suspects = self._suspects(batch)
            for leaf, subsets in zip(batch, suspects, strict=True):
                for subset in subsets:
                    if not self.dependent(subset) and not self._allows(subset, self.threshold):
                        f = float(self.value(subset))
                        why = f"f of columns {sorted(subset)} is {f:.10g}, below {float(self.threshold):.10g}"
                        yield (leaf, why)
                        break

    def _suspects(self, leaves: Sequence[Leaf]) -> list[list[tuple[int, ...]]]:
        """Return for each leaf the subsets that a comparison in float64 with its error does not exclude."""
        columns, s, G, Z = self._matrices(leaves)
        pivots, sound = _eliminate(G, Z, np.zeros(s))
        f = self.problem.c - ((Z[:s] * Z[:s]).sum(axis=2) / pivots).sum(axis=0)
        floor = np.append(self.problem.floor, EXTENDED(0))[columns[s:]] * EXTENDED(1 - _DEPENDENCE_ROUNDING)
        found: list[list[tuple[int, ...]]] = []
        for x, leaf in enumerate(leaves):
            if not sound[x]:  # S is dependent, or rounding
                found.append([leaf.chosen])
                continue
            size = leaf.allowed.bit_count()
            part = slice(s, s + size)
            own = columns[part, x]
            g, z = np.asarray(G[part, part, x], np.float64), np.asarray(Z[part, x], np.float64)
            least, need = np.asarray(floor[:size, x], np.float64), float(f[x] - self.threshold)
            places = _not_excluded(g, z, least, need, leaf.most)
            found.append([(*leaf.chosen, *(int(own[i]) for i in place)) for place in places])
        return found


def _is_positive(A: NDArray[np.float64], least: float) -> bool:
    """Return whether all eigenvalues of a symmetric matrix are above `least`. It takes less than the eigenvalues."""
    shifted = A.copy(order="F")
    shifted[np.diag_indices_from(shifted)] -= least
    return bool(lapack.dpotrf(shifted, overwrite_a=1)[1] == 0)


def _eliminate(G: Extended, Z: Extended, least: NDArray[Any]) -> tuple[Extended, NDArray[np.bool_]]:
    """Eliminate the first columns of matrices G (t, t, b), and of Z (t, b, N), in place.

    Returns the pivots, and (b,) whether each of them is above `least`, which has an entry for each column to eliminate.
    Smaller ones are replaced by 1.
    """
    pivots, sound = np.empty((len(least), G.shape[2]), EXTENDED), np.ones(G.shape[2], bool)
    step = max(STEP_BYTES // max(G[:1].nbytes, 1), 1)
    for a, limit in enumerate(least):
        sound &= G[a, a] > limit
        pivots[a] = np.where(G[a, a] > limit, G[a, a], 1)
        u = G[a + 1 :, a] / pivots[a]
        for first in range(0, len(u), step):
            part = slice(a + 1 + first, a + 1 + first + step)
            G[part, a + 1 :] -= u[first : first + step, None] * G[a, a + 1 :][None]
        Z[a + 1 :] -= u[..., None] * Z[a]
    return pivots, sound


@np.errstate(all="ignore")
def _not_excluded(
    g: NDArray[np.float64], z: NDArray[np.float64], floor: NDArray[np.float64], need: float, most: int
) -> list[tuple[int, ...]]:
    """Return the sets of up to `most` <= 2 columns that may explain more than `need`, () if the empty set does.

    g: (t, t) what S leaves of K. z: (t, N) what S leaves of B. Columns and pairs that are clearly dependent are left
    out. Rounding and overflow count against a set.
    """
    found: list[tuple[int, ...]] = [] if need >= 0.0 else [()]
    if most < 1 or not g.size:
        return found
    rounding = 1e-12
    d = np.diag(g)
    inner = z @ z.T
    m = np.diag(inner)
    free = ~(d <= floor)
    excluded = m + rounding * (m + abs(need) * d) <= need * d
    found += [(int(i),) for i in np.flatnonzero(free & ~excluded)]
    if most < 2:
        return found
    step = max(STEP_BYTES // (8 * len(d)), 1)
    for first in range(0, len(d), step):
        rows = slice(first, first + step)
        squares, products = np.outer(d[rows], d), g[rows] * inner[rows]
        det = squares - g[rows] * g[rows]
        ones = np.outer(m[rows], d) + np.outer(d[rows], m)
        error = rounding * (ones + 2.0 * np.abs(products) + abs(need) * (squares + g[rows] * g[rows]))
        both = np.outer(free[rows], free) & ~((det <= np.outer(floor[rows], d)) | (det <= np.outer(d[rows], floor)))
        suspect = np.triu(both & ~(ones - 2.0 * products + error <= need * det), 1 + first)
        found += [(first + int(i), int(j)) for i, j in np.argwhere(suspect)]
    return found


def _sum_of_largest(rows: NDArray[np.float64], q: int) -> float:
    """Return an upper bound on the sum of the q largest eigenvalues of rows' rows, at least its rounding error."""
    if q <= 0:
        return 0.0
    H = rows @ rows.T if rows.shape[0] < rows.shape[1] else rows.T @ rows
    error = 16.0 * q * max(rows.shape) * _FLOAT64 * float(np.trace(H))
    largest: float = np.maximum(np.linalg.eigvalsh(H)[-q:], 0.0).sum()
    return float(largest + error)


def _inverse_diagonal(K: Extended) -> Extended | None:
    """Return the diagonal of the inverse of K by Gauss and Jordan's elimination, None if K is singular."""
    s = K.shape[0]
    A = np.hstack([K, np.eye(s, dtype=EXTENDED)])
    for a in range(s):
        d = A[a, a]
        if not d > 0:
            return None
        A[a] = A[a] / d
        others = np.arange(s) != a
        A[others] -= np.outer(A[others, a], A[a])
    return np.diag(A[:, s:])


def relaxation_bound(problem: Problem, k: int, d: Sequence[float], z: Sequence[float]) -> float:
    """Return the lower bound on f of all subsets of at most k columns, -inf if K - D is not positive. O(n^3).

    Parameters
    ----------
    problem : Problem
        The problem, summed from the data.
    k : int
        The most columns to choose.
    d, z : sequences of float
        The diagonal of D and the weights from which A follows, for columns of norm 1.

    Returns
    -------
    float
        The bound.
    """
    n = problem.n
    norms = np.sqrt(problem.floor / EXTENDED(DEPENDENCE_TOLERANCE))
    unit = np.sqrt(np.maximum(np.diag(problem.K), EXTENDED(0)))
    D, weights = np.asarray(d, EXTENDED) * (unit / norms) ** 2, np.asarray(z, np.float64)
    if D.size != n or weights.size != n or not (D > 0).all() or not (weights > 0).all():
        return float("-inf")
    K = problem.K / norms[:, None] / norms[None, :]
    B = problem.B / norms[:, None]
    H = K - np.diag(D)
    # The diagonal of H is at most 1: it must be positive definite by more than rounding.
    _, is_positive = _eliminate(H[..., None].copy(), np.zeros((n, 1, 0), EXTENDED), np.full(n, 16 * n * EPSILON))
    if not is_positive[0]:
        return float("-inf")
    system = np.asarray(H + np.diag(D / weights), np.float64)
    A = np.linalg.solve(system, np.asarray(B, np.float64)).astype(EXTENDED)
    HA = H @ A
    g = np.sort(((B - HA) ** 2).sum(axis=1) / D)
    return float(problem.c - (A * HA).sum() - g[n - min(k, n) :].sum())
