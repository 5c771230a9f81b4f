"""The one objective behind POSS, POCSS and heuristic search (shared notation: X m x n, Y m x N, lam the ridge penalty):

    f(S) = min_A ||Y - X_S A||_F^2 + lam ||A||_F^2 = c - tr((K_SS + lam I)^-1 M_SS)

with K = X'X, B = X'Y, M = B B', c = ||Y||_F^2. Column subset selection is Y = X, that is M = K^2. Nothing here reads
data: K, B and c come from one pass over them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from dsel._lib.types import Floats, Ints
from dsel.errors import OptionError
from dsel.objective.kernels.elimination import evaluate
from dsel.objective.kernels.layout import Memory, Rows, pool

#: A column is taken as dependent on others where they leave at most this share of its squared norm (its "tolerance",
#: 1 - R^2 on them). Below it, normal equations in float64 would lose more than 1e-8 of f.
DEPENDENCE_TOLERANCE = 1e-7

#: With at most this many targets, residuals are kept for each target (B); with more, their cross-moments M = B B'.
FEW_TARGETS = 8


@dataclass(frozen=True)
class Expansion:
    """All single flips of one subset S of size s: `gain` (n,) of inserting each column (0 for members and for columns
    that depend on S) and `loss` (s,) of deleting each member, in the order S was given."""

    gain: Floats
    loss: Floats


def _unset() -> NDArray[Any]:
    return np.empty(0)


@dataclass(frozen=True, eq=False)
class QuadraticObjective:
    """f(S) over n candidate columns, given as local indices 0..n-1.

    K: (n, n) Gram matrix; cross: (n, N) cross-Gram B = X'Y, or None for Y = X (then M = K^2); c: ||Y||_F^2;
    lam >= 0. `columns` (n,) are the columns' indices in the data, `included` those already chosen, whose part has been
    taken out of K, cross and c. `scale` (n,) is each column's squared norm plus lam before anything was taken out:
    dependence is judged against it.
    """

    K: Floats
    cross: Floats | None
    c: float
    lam: float = 0.0
    columns: Ints = field(default_factory=_unset)
    included: tuple[int, ...] = ()
    scale: Floats = field(default_factory=_unset)
    total: float = float("nan")
    tolerance: float = DEPENDENCE_TOLERANCE
    moments: Floats | None = None

    def __post_init__(self) -> None:
        n = self.K.shape[0]
        if self.K.shape != (n, n) or (self.cross is not None and self.cross.shape[0] != n):
            shapes = f"K {self.K.shape}, cross {None if self.cross is None else self.cross.shape}"
            raise OptionError(f"The Gram matrices do not fit each other: {shapes}.", "K is n x n, cross n x N.")
        if not self.lam >= 0.0:
            raise OptionError(f"lam is {self.lam}; the ridge penalty is a number >= 0.")
        if not self.columns.size:
            object.__setattr__(self, "columns", np.arange(n))
        if not self.scale.size:
            object.__setattr__(self, "scale", np.diag(self.K) + self.lam)
        if np.isnan(self.total):
            object.__setattr__(self, "total", self.c)

    def __getstate__(self) -> dict[str, Any]:
        """Without the tables of addresses: in another process they would point anywhere."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_gram_table", "_moment_table")}

    @property
    def n(self) -> int:
        """Number of candidate columns."""
        return int(self.K.shape[0])

    @cached_property
    def M(self) -> Floats:
        """(n, n) B B', or K^2 where Y = X."""
        if self.moments is not None:
            return self.moments
        B = self.K if self.cross is None else self.cross
        return np.ascontiguousarray(B @ B.T)

    @property
    def factored(self) -> bool:
        """Whether the targets are few enough to be kept one by one."""
        return self.moments is None and self.cross is not None and self.cross.shape[1] <= FEW_TARGETS

    @property
    def few_targets(self) -> int:
        """N where targets are kept one by one, 0 where only their cross-moments M are."""
        return self.cross.shape[1] if self.factored and self.cross is not None else 0

    @cached_property
    def floor(self) -> Floats:
        """(n,) a pivot at or below this is a dependent column."""
        return self.tolerance * self.scale

    def memory(self, s_max: int, slots: int) -> Memory:
        """Room for `slots` subsets of at most `s_max` columns, for the compiled kernels."""
        cross = np.ascontiguousarray(self.cross, np.float64) if self.factored else self._moment_table
        floor = np.ascontiguousarray(self.floor, np.float64)
        return pool(self._gram_table, cross, floor, float(self.lam), float(self.c), max(s_max, 1), slots)

    @cached_property
    def _gram_table(self) -> Rows:
        return Rows.of(self.K)

    @cached_property
    def _moment_table(self) -> Rows:
        return Rows.of(self.M)

    @property
    def on_demand(self) -> bool:
        """Whether rows of K come when they are needed."""
        return False

    @property
    def most_pairs(self) -> int:
        """Entries of K to ask for at once."""
        return self.n

    @property
    def pass_work(self) -> int:
        """Numbers read to bring some rows of K."""
        return 0

    def pairs(self, J: Ints, L: Ints) -> Floats:
        """(2, pairs) K_jl and M_jl."""
        return np.vstack([self.K[J, L], self.M[J, L]])

    def counts(self) -> dict[str, int]:
        """What was read on demand."""
        return {}

    def need(self, S: Iterable[int], likely: Callable[[], Ints] | None = None) -> None:
        """See that the rows of the columns S are there: always so where all of K is. likely: columns that may be
        needed next, the likeliest first."""

    @property
    def diagonal(self) -> Floats:
        """(n,) of K."""
        return np.diag(self.K)

    @property
    def moment_diagonal(self) -> Floats:
        """(n,) of M."""
        return np.diag(self.M)

    def rows(self, S: Sequence[int] | Ints) -> Floats:
        """(s, n) rows of K."""
        return self.K[np.asarray(S, np.int64)]

    def moment_rows(self, S: Sequence[int] | Ints) -> Floats:
        """(s, n) rows of M."""
        return self.M[np.asarray(S, np.int64)]

    def value(self, S: Iterable[int]) -> float:
        """f(S). Columns that depend on others of S explain nothing. O(s^3)."""
        return self._evaluate(S)[0]

    def rank(self, S: Iterable[int]) -> int:
        """Number of independent columns in S."""
        return self._evaluate(S)[1]

    def _evaluate(self, S: Iterable[int]) -> tuple[float, int]:
        members = np.unique(np.asarray(list(S), np.int64))
        if members.size and not 0 <= members[0] <= members[-1] < self.n:
            raise OptionError(f"The columns {members.tolist()} are not all among 0 to {self.n - 1}.")
        self.need(members.tolist())
        memory = self.memory(members.size, 0)
        f, rank = evaluate(memory.P, members, members.size)
        return float(f), int(rank)

    def expand(self, S: Sequence[int]) -> Expansion:
        """Gains of all insertions and losses of all deletions of an independent S, by BLAS-3. O(n s^2)."""
        members = np.asarray(S, np.int64)
        s = members.size
        self.need(members.tolist())
        lam, K_S = self.lam, self.rows(members)
        A = _inverse(K_S[:, members] + lam * np.eye(s))
        a = A @ K_S
        d = self.diagonal + lam - np.einsum("sn,sn->n", K_S, a)
        if self.factored:
            assert self.cross is not None
            w = A @ self.cross[members]
            m = np.square(self.cross - K_S.T @ w).sum(axis=1)
            loss = np.square(w).sum(axis=1) / np.diag(A)
        else:
            M_S = self.moment_rows(members)
            M_SS = M_S[:, members]
            m = self.moment_diagonal - 2.0 * np.einsum("sn,sn->n", M_S, a) + np.einsum("sn,sn->n", a, M_SS @ a)
            loss = np.einsum("ij,jk,ki->i", A, M_SS, A) / np.diag(A)
        open_ = d > self.floor
        open_[members] = False
        gain = np.zeros(self.n)
        gain[open_] = np.maximum(m[open_], 0.0) / d[open_]
        return Expansion(gain, loss)

    def restrict(self, allowed: ArrayLike) -> QuadraticObjective:
        """The same objective over the local columns `allowed` alone; `columns` still names them in the data."""
        keep = np.asarray(allowed, np.int64)
        return QuadraticObjective(
            K=np.ascontiguousarray(self.K[np.ix_(keep, keep)]),
            cross=None if self.cross is None else self.cross[keep],
            c=self.c,
            lam=self.lam,
            columns=self.columns[keep],
            included=self.included,
            scale=self.scale[keep],
            total=self.total,
            tolerance=self.tolerance,
            moments=np.ascontiguousarray(self.M[np.ix_(keep, keep)]) if self._needs_moments else None,
        )

    @property
    def _needs_moments(self) -> bool:
        return self.moments is not None or self.cross is None

    def _parted(self, include: Sequence[int]) -> tuple[Ints, Ints]:
        """The columns to include, and the others. Errors: OptionError where the former depend on each other."""
        I = np.asarray(include, np.int64)
        if self.rank(I) < I.size:
            raise OptionError(
                f"The included columns {self.columns[I].tolist()} depend on each other.", "Leave out those that repeat."
            )
        return I, np.setdiff1d(np.arange(self.n), I)

    def condition(self, include: Sequence[int]) -> QuadraticObjective:
        """The objective of what to add to the columns `include`, which are always chosen (local indices).

        Their part is taken out once (a Schur complement), so that every method searches the others as if the included
        ones were not there: f'(S) = f(include + S).
        """
        if not len(include):
            return self
        I, rest = self._parted(include)
        A_I = np.linalg.solve(self.K[np.ix_(I, I)] + self.lam * np.eye(I.size), self.K[np.ix_(I, rest)])
        K = self.K[np.ix_(rest, rest)] - self.K[np.ix_(rest, I)] @ A_I
        cross, moments = None, None
        if self.moments is None and self.cross is None:
            B = self.K[rest] - A_I.T @ self.K[I]  # squared last, M has no negative part from nearly dependent columns
            moments = B @ B.T
        elif self.moments is not None:
            M_I = self.M[np.ix_(I, rest)]
            part = A_I.T @ M_I
            moments = self.M[np.ix_(rest, rest)] - part - part.T + A_I.T @ self.M[np.ix_(I, I)] @ A_I
            moments = np.ascontiguousarray((moments + moments.T) / 2.0)
        else:
            assert self.cross is not None
            cross = self.cross[rest] - A_I.T @ self.cross[I]
        return QuadraticObjective(
            K=np.ascontiguousarray((K + K.T) / 2.0),
            cross=cross,
            c=self.value(I),
            lam=self.lam,
            columns=self.columns[rest],
            included=self.included + tuple(int(j) for j in self.columns[I]),
            scale=self.scale[rest],
            total=self.total,
            tolerance=self.tolerance,
            moments=moments,
        )

    def in_data(self, S: Iterable[int]) -> list[int]:
        """Indices in the data of the included columns and of the local columns S."""
        return [*self.included, *(int(self.columns[j]) for j in S)]


def _inverse(matrix: Floats) -> NDArray[np.float64]:
    if not matrix.size:
        return np.zeros(matrix.shape)
    factor = scipy.linalg.cho_factor(matrix, lower=True)
    return np.asarray(scipy.linalg.cho_solve(factor, np.eye(matrix.shape[0])))
