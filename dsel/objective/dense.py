"""The objective with K and M in memory as matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dsel._lib.kernel_arrays import KernelArrays
from dsel._lib.low_rank import square_of
from dsel._lib.positive_definite import solve
from dsel._lib.tolerances import DEPENDENCE_TOLERANCE
from dsel._lib.types import Floats, Ints
from dsel.errors import OptionError
from dsel.objective.centering import NONE, CenteringError
from dsel.objective.column_objective import ColumnObjective
from dsel.objective.kernels import layout
from dsel.objective.kernels.layout import Rows, SubsetTables, make_tables
from dsel.objective.objective_interface import FEW_TARGETS


@dataclass(frozen=True, eq=False)
class DenseObjective(ColumnObjective):
    """Error f(S) = min_A ||Y - X_S A||_F^2 + lam ||A||_F^2, from matrices in memory.

    `Objective` has the notation.

    Parameters
    ----------
    K : (n, n) array
        Gram matrix X'X.
    cross : (n, N) array or None
        B = X'Y, or None for Y = X (then M = K^2).
    c : float
        ||Y||_F^2.
    lam : float, default 0
        Ridge penalty, >= 0.
    columns : (n,) array, optional
        Indices of the columns in the data; default 0 to n - 1.
    included : tuple of int, optional
        Indices in the data of columns already chosen, whose part has been removed from K, cross and c.
    scale : (n,) array, optional
        Squared norm of each column plus lam, before anything was removed. Dependence is judged against it. Default: the
        diagonal of K plus lam.
    total : float, optional
        ||Y||_F^2 of the data; default c.
    tolerance : float, optional
        Share of `scale` at or below which a column depends on others.
    moments : (n, n) array, optional
        M, where it does not follow from K and cross.
    load_target_gram : callable, optional
        Returns Y'Y (N, N), for best-first search. Copies in other processes are without it.
    centering : CenteringError, optional
        How far the rounding of means may change K, cross and c; by default not at all.

    Raises
    ------
    OptionError
        If the shapes do not fit, or lam is negative or NaN.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.eye(3), np.array([[3.0], [2.0], [1.0]])
    >>> objective = DenseObjective(X.T @ X, X.T @ y, float(np.sum(y**2)))
    >>> objective.value([0, 1])
    1.0
    """

    #: All of K is in memory, no rows are fetched, and K was not made from an eigendecomposition.
    has_gram = True
    fetch_cost = 0
    eigen_factor = None

    K: Floats
    cross: Floats | None
    c: float
    lam: float = 0.0
    columns: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    included: tuple[int, ...] = ()
    scale: Floats = field(default_factory=lambda: np.empty(0))
    total: float = float("nan")
    tolerance: float = DEPENDENCE_TOLERANCE
    moments: Floats | None = None
    load_target_gram: Callable[[], Floats] | None = None
    centering: CenteringError = NONE

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
        """Leave out what is valid in this process only: the tables of addresses, and access to the data."""
        addresses = ("_gram_table", "_moment_table", "_shared_tables")
        kept = {name: v for name, v in self.__dict__.items() if name not in addresses}
        return {**kept, "load_target_gram": None}

    @cached_property
    def M(self) -> Floats:
        """(n, n) B B', or K^2 where Y = X."""
        if self.moments is not None:
            return self.moments
        if self.cross is None:
            return square_of(self.K)
        return np.ascontiguousarray(self.cross @ self.cross.T)

    @property
    def few_targets(self) -> int:
        """N where targets are kept one by one, 0 where only M is used."""
        if self.moments is not None or self.cross is None or self.cross.shape[1] > FEW_TARGETS:
            return 0
        return int(self.cross.shape[1])

    def subset_tables(self, s_max: int, slots: int) -> KernelArrays[SubsetTables]:
        """Return tables for `slots` subsets of at most `s_max` columns, for the compiled kernels."""
        return self._tables_of(s_max, slots) if slots else self._tables_without_slots(max(s_max, 1))

    def _tables_of(self, s_max: int, slots: int) -> KernelArrays[SubsetTables]:
        cross = np.ascontiguousarray(self.cross, np.float64) if self.few_targets else self._moment_table
        floor = np.ascontiguousarray(self.floor, np.float64)
        return make_tables(self._gram_table, cross, floor, float(self.lam), float(self.c), max(s_max, 1), slots)

    def _tables_without_slots(self, s_max: int) -> KernelArrays[SubsetTables]:
        """Return tables for single values, quickly: only the scratch arrays are new, so that threads do not share them.

        Searches ask for many single values.
        """
        tables, made = KernelArrays(layout.TABLES), self._shared_tables
        tables.P[:] = made.P
        width = max(s_max, self.few_targets)
        tables.put(layout.VECTORS, np.zeros((layout.N_VECTORS, width + 1)), keep=made)
        tables.put(layout.ELIMINATION, np.zeros((2, s_max, width)))
        tables.put(layout.KEPT, np.zeros(s_max, np.int64))
        return tables

    @cached_property
    def _shared_tables(self) -> KernelArrays[SubsetTables]:
        return self._tables_of(1, 0)

    @cached_property
    def _gram_table(self) -> Rows:
        return Rows.of(self.K)

    @cached_property
    def _moment_table(self) -> Rows:
        return Rows.of(self.M)

    @property
    def max_entries(self) -> int:
        """Number of single entries of K to ask for in one call of `entries`."""
        return self.n

    def entries(self, J: Ints, L: Ints) -> Floats:
        """Return (2, pairs) entries K_jl and M_jl."""
        return np.vstack([self.K[J, L], self.M[J, L]])

    def counts(self) -> dict[str, int]:
        """Return nothing: nothing is read on demand."""
        return {}

    def fetch_rows(self, S: Iterable[int], likely: Callable[[], Ints] | None = None) -> None:
        """Do nothing: all rows are in memory."""

    @property
    def diagonal(self) -> Floats:
        """(n,) diagonal of K."""
        return np.diag(self.K)

    @property
    def moment_diagonal(self) -> Floats:
        """(n,) diagonal of M."""
        return np.diag(self.M)

    def rows(self, S: Sequence[int] | Ints) -> Floats:
        """Return (s, n) rows of K."""
        return self.K[np.asarray(S, np.int64)]

    def moment_rows(self, S: Sequence[int] | Ints) -> Floats:
        """Return (s, n) rows of M."""
        return self.M[np.asarray(S, np.int64)]

    def restrict(self, allowed: ArrayLike) -> DenseObjective:
        """Return the objective over the local columns `allowed` alone; `columns` still names them in the data."""
        keep = np.asarray(allowed, np.int64)
        if np.array_equal(keep, np.arange(self.n)):
            return self
        needs_moments = self.moments is not None or self.cross is None
        return replace(
            self, K=np.ascontiguousarray(self.K[np.ix_(keep, keep)]), columns=self.columns[keep],
            cross=None if self.cross is None else self.cross[keep], scale=self.scale[keep],
            moments=np.ascontiguousarray(self.M[np.ix_(keep, keep)]) if needs_moments else None,
        )  # fmt: skip

    def condition(self, include: Sequence[int]) -> DenseObjective:
        """Return the objective of what to add to the local columns `include`, which are always chosen.

        Errors: OptionError where they depend on each other. O(n^2 i) for i included columns.
        """
        if not len(include):
            return self
        I, rest = self._partition(include)
        A_I = solve(self.K[np.ix_(I, I)] + self.lam * np.eye(I.size), self.K[np.ix_(I, rest)])
        K = self.K[np.ix_(rest, rest)] - self.K[np.ix_(rest, I)] @ A_I
        cross, moments = None, None
        if self.moments is None and self.cross is None:
            B = self.K[rest] - A_I.T @ self.K[I]  # squared last, so that M of nearly dependent columns stays positive
            moments = square_of(B, self.K)
        elif self.moments is not None:
            M_I = self.M[np.ix_(I, rest)]
            part = A_I.T @ M_I
            moments = self.M[np.ix_(rest, rest)] - part - part.T + A_I.T @ self.M[np.ix_(I, I)] @ A_I
            moments = np.ascontiguousarray((moments + moments.T) / 2.0)
        else:
            assert self.cross is not None
            cross = self.cross[rest] - A_I.T @ self.cross[I]
        load = None if cross is None else self.load_target_gram
        return replace(
            self, K=np.ascontiguousarray((K + K.T) / 2.0), cross=cross, moments=moments, c=self._left_by(I),
            columns=self.columns[rest], included=(*self.included, *self.columns[I].tolist()), scale=self.scale[rest],
            load_target_gram=self._target_gram_given(load, I, self.K[np.ix_(I, I)]),
            centering=self._centering_given(I, rest, self.K[np.ix_(I, I)], A_I, *self._targets_of(I)),
        )  # fmt: skip

    def _left_by(self, I: Ints) -> float:
        """Return f of the independent local columns I: from B where f is otherwise computed from M.

        Entries of M are squares, whose rounding nearly dependent columns magnify.
        """
        if self.moments is not None or self.few_targets:
            return self.value(I)
        B, _ = self._targets_of(I)
        assert B is not None
        explained = np.vdot(solve(self.K[np.ix_(I, I)] + self.lam * np.eye(I.size), B), B)
        return max(self.c - float(explained), 0.0)

    def _targets_of(self, I: Ints) -> tuple[Floats | None, Floats | None]:
        """Return B_I, or M_II where M was given."""
        if self.moments is not None:
            return None, self.moments[np.ix_(I, I)]
        return (self.K if self.cross is None else self.cross)[I], None
