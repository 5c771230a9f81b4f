"""An objective over single columns: what does not depend on how K is held, and which columns are independent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

import numpy as np

from dsel._lib.positive_definite import inverse, solve
from dsel._lib.types import Floats, Ints
from dsel.errors import OptionError
from dsel.objective.centering import CenteringError
from dsel.objective.kernels.elimination import evaluate
from dsel.objective.objective_interface import Objective
from dsel.objective.subset_state import SubsetState


def independent_columns(objective: Objective, S: Iterable[int]) -> Ints:
    """Return the ascending columns of S without those that depend on the ones before them, as in f(S).

    Columns are dependent if the others leave at most its floor of the square of one (`dsel._lib.tolerances`). O(s^3),
    or O(s^4) at most where some are nearly dependent.
    """
    columns = np.unique(np.asarray(list(S), np.int64))
    if not columns.size:
        return columns
    objective.fetch_rows(columns.tolist())
    K = objective.rows(columns)[:, columns] + objective.lam * np.eye(columns.size)
    floor = objective.floor[columns]
    if _clearly_independent(K, floor):
        return columns
    K_left, kept = K.copy(), np.zeros(0, np.int64)
    for a in range(K.shape[0]):
        if not K_left[a, a] > floor[a]:
            continue
        S = np.append(kept, a)
        inflation = np.diag(inverse(K[np.ix_(S, S)]))
        if not (inflation * floor[S] < 1.0).all():
            continue
        kept = S
        K_left[a + 1 :, a + 1 :] -= np.outer(K_left[a + 1 :, a] / K_left[a, a], K_left[a, a + 1 :])
    return columns[kept]


def _clearly_independent(K: Floats, floor: Floats) -> bool:
    """Return whether all rows together leave twice the floor of each, so that no subset is dependent. O(s^3)."""
    try:
        inverse = np.linalg.inv(np.linalg.cholesky(K))
    except np.linalg.LinAlgError:
        return False
    return bool((2.0 * np.square(inverse).sum(axis=0) * floor < 1.0).all())


class ColumnObjective:
    """What both implementations of `Objective` share.

    Both choose single columns, which are groups of one: `dsel.objective.groups.GroupedObjective` has the same
    attributes for groups of columns.
    """

    #: Columns are no groups.
    groups = None
    #: Returns Y'Y (N, N); None without access to the data.
    load_target_gram: Callable[[], Floats] | None

    @property
    def columns_of(self: Objective) -> Objective:
        """The objective over single columns: this one."""
        return self

    @property
    def included_size(self: Objective) -> int:
        """How many columns are always chosen, as sizes count them."""
        return len(self.included)

    def most_columns(self, k: int) -> int:
        """Return how many columns k chosen ones have: k."""
        return k

    def without_dependent(self: Objective, S: Iterable[int]) -> tuple[int, ...]:
        """Return the ascending columns of S without those that depend on the ones before them, as in f(S). O(s^3)."""
        return tuple(int(j) for j in independent_columns(self, S))

    def subset(self: Objective, limit: int) -> SubsetState:
        """Return an empty subset of at most `limit` columns that changes by one column at a time."""
        return SubsetState(self, limit)

    def members(self, S: Iterable[int]) -> tuple[int, ...]:
        """Return the columns S as they are."""
        return tuple(S)

    def within(self, columns: Iterable[int]) -> list[int]:
        """Return the columns as they are."""
        return list(columns)

    @property
    def n(self: Objective) -> int:
        """Number of candidate columns."""
        return int(self.columns.size)

    @cached_property
    def floor(self: Objective) -> Floats:
        """(n,) array: a subset in which the others leave at most this of a column's square is dependent."""
        return self.tolerance * self.scale

    @cached_property
    def target_gram(self) -> Floats | None:
        """(N, N) Y'Y of what the included columns leave of the targets, or None if it cannot be loaded."""
        return None if self.load_target_gram is None else self.load_target_gram()

    def value(self: Objective, S: Iterable[int]) -> float:
        """Return f(S), which is not negative. A column that would make those before it dependent explains nothing."""
        return self.value_and_rank(S)[0]

    def rank(self: Objective, S: Iterable[int]) -> int:
        """Return the number of independent columns in S."""
        return self.value_and_rank(S)[1]

    def value_and_rank(self: Objective, S: Iterable[int]) -> tuple[float, int]:
        """Return f(S), and the number of independent columns in S."""
        members = np.unique(np.asarray(list(S), np.int64))
        if members.size and not 0 <= members[0] <= members[-1] < self.n:
            raise OptionError(f"The columns {members.tolist()} are not all among 0 to {self.n - 1}.")
        self.fetch_rows(members.tolist())
        tables = self.subset_tables(members.size, 0)  # must outlive the call
        f, rank = evaluate(tables.P, members, members.size)
        return max(float(f), 0.0), int(rank)

    def _partition(self: Objective, include: Sequence[int]) -> tuple[Ints, Ints]:
        """Return the columns to include, and the others. Errors: OptionError where the former depend on each other."""
        I = np.asarray(include, np.int64)
        if self.rank(I) < I.size:
            raise OptionError(
                f"The included columns {self.columns[I].tolist()} depend on each other.", "Leave out those that repeat."
            )
        return I, np.setdiff1d(np.arange(self.n), I)

    def _centering_given(
        self: Objective, I: Ints, rest: Ints, K_II: Floats, A_I: Floats, B_I: Floats | None, M_II: Floats | None
    ) -> CenteringError:
        """Return the rounding once the columns I are included.

        A_I: (i, rest) their coefficients for the others. B_I: (i, N) their products with the targets; None where M is
        kept and reduced in place of B, of which M_II (i, i) is a part.
        """
        norms = np.sqrt(np.maximum(self.scale - self.lam, 0.0))
        K_II = K_II + self.lam * np.eye(I.size)
        columns = np.abs(A_I) * norms[I, None] / np.where(norms[rest] > 0.0, norms[rest], np.inf)
        shares = norms[I] / np.sqrt(self.total)
        if B_I is not None:
            targets = np.linalg.norm(solve(K_II, B_I) * shares[:, None], axis=1)
        else:
            assert M_II is not None
            targets = np.sqrt(np.maximum(np.diag(solve(K_II, solve(K_II, M_II).T)), 0.0)) * shares
        unit = np.sqrt(self.scale[I])  # with the penalty, which may be all that a small column has
        return self.centering.given(
            K_II / unit / unit[:, None], columns, targets, float(np.square(norms).max()), subtracted=B_I is None
        )  # fmt: skip

    def _target_gram_given(
        self: Objective, load: Callable[[], Floats] | None, I: Ints, K_II: Floats
    ) -> Callable[[], Floats] | None:
        """Return a function that returns Y'Y of what the columns I leave of the targets; None without access."""
        if load is None or self.cross is None:
            return None
        B_I, penalized = self.cross[I], K_II + self.lam * np.eye(I.size)
        return lambda: np.asarray(load() - B_I.T @ solve(penalized, B_I))

    def in_data(self: Objective, S: Iterable[int]) -> list[int]:
        """Return the indices in the data of the included columns and of the local columns S."""
        return [*self.included, *(int(self.columns[j]) for j in S)]
