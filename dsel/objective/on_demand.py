"""The objective where n x n numbers do not fit: rows of K = F'F (and of M) are fetched when a search needs them.

F (r, n) may be the data (r = m) or the eigen-reduced W, in this process or in blocks of columns on workers. Here it is
anything that returns some of its columns and multiplies all of them from the left (`MatrixFactor`). Searches use the
same kernels as on a whole K: the table of n numbers of a subset follows from the rows of its members alone. A search
also asks for single entries K_jl of two columns outside a subset. These are bounded from p coordinates of each column
(Cauchy and Schwarz), and fetched only where the bound does not decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from dsel._lib.byte_sizes import format_bytes
from dsel._lib.kernel_arrays import KernelArrays
from dsel._lib.positive_definite import solve
from dsel._lib.tolerances import DEPENDENCE_TOLERANCE
from dsel._lib.types import Floats, Ints
from dsel.errors import CapacityError, OptionError
from dsel.objective.centering import NONE, CenteringError
from dsel.objective.column_objective import ColumnObjective
from dsel.objective.dense import DenseObjective
from dsel.objective.gram_row_cache import GramRowCache
from dsel.objective.kernels.layout import Partial, Rows, SubsetTables, make_tables
from dsel.objective.matrix_factor import InMemoryFactor, MatrixFactor
from dsel.objective.objective_interface import FEW_TARGETS, Objective

#: Columns whose rows one fetch asks for, by default: batches are filled up, so that all have one shape.
BATCH = 8
#: With at most this many columns an objective is made dense.
FEW_COLUMNS = 1024
#: Bytes of columns fetched at once.
COLUMN_BYTES = 128 << 20
#: float32 coordinates may be wrong by this share of a column's squared norm.
_SINGLE_ROUNDING = 1e-6


@dataclass(frozen=True)
class SchurUpdate:
    """What included columns I remove from K and M: K - K_I:' A is left, A = (K_II + lam I)^-1 K_I:."""

    K_I: Floats  # (i, n)
    A: Floats  # (i, n)
    M_I: Floats | None  # (i, n), as M_II, where M is kept
    M_II: Floats | None

    def gram_rows(self, rows: Floats, S: Ints) -> Floats:
        """Return rows S of K, updated."""
        return np.asarray(rows - self.K_I[:, S].T @ self.A)

    def moment_rows(self, rows: Floats, S: Ints) -> Floats:
        """Return rows S of M, updated."""
        assert self.M_I is not None
        assert self.M_II is not None
        A_S = self.A[:, S]
        return np.asarray(rows - A_S.T @ self.M_I - self.M_I[:, S].T @ self.A + A_S.T @ self.M_II @ self.A)

    def entries(self, K: Floats, M: Floats, J: Ints, L: Ints) -> tuple[Floats, Floats]:
        """Return the entries (j, l) of K and M, updated."""
        K = K - np.einsum("ip,ip->p", self.K_I[:, J], self.A[:, L])
        if self.M_I is not None and self.M_II is not None:
            A_J, A_L = self.A[:, J], self.A[:, L]
            M = M - np.einsum("ip,ip->p", A_J, self.M_I[:, L]) - np.einsum("ip,ip->p", self.M_I[:, J], A_L)
            M = M + np.einsum("ip,ip->p", A_J, self.M_II @ A_L)
        return K, M


@dataclass(eq=False)
class OnDemandObjective(ColumnObjective):
    """Error f(S) over columns of a factor F with K = F'F, without an n x n matrix.

    `Objective` has the notation.

    Parameters
    ----------
    factor : MatrixFactor
        F (r, n_F).
    diagonal : (n,) array
        Diagonal of K.
    cross : (n, N) array or None
        B = X'Y. None where M = F' T F, T being `target_operator`.
    c : float
        ||Y||_F^2.
    lam : float, default 0
        Ridge penalty, >= 0.
    target_operator : (r, r) or (r,) array, optional
        T, symmetric, or its diagonal.
    moment_diagonal : (n,) array, optional
        Diagonal of M; needed with `target_operator`.
    columns : (n,) array, optional
        The columns of F to choose from; default all.
    leading_rows : int, default 256
        Coordinates p of each column to keep for bounds (4 n p bytes).
    gram_limit : int
        `K` as a whole is available where it takes at most this many bytes.
    batch : int
        Columns whose rows one pass over F fetches.
    row_cache_bytes : int
        Memory for fetched rows. A row of K takes 8 n bytes and is kept; so does a row of M, where targets are many or
        Y = X. Rows beyond this limit are kept on disk (`dsel.objective.on_demand`).
    included : tuple of int, optional
        As for `DenseObjective`.
    scale : (n,) array, optional
        As for `DenseObjective`.
    total : float, optional
        As for `DenseObjective`.
    update : SchurUpdate, optional
        What included columns remove from K and M.
    load_target_gram : callable, optional
        Returns Y'Y (N, N), for searches that ask for it.
    centering : CenteringError, optional
        How far the rounding of means may change the inner products; by default not at all.

    Raises
    ------
    OptionError
        If lam is negative or NaN, or M cannot be computed from the arguments.

    Notes
    -----
    Why rows, and not what each search wants to know of a subset (its best gains, the outcome of a flip)? That would be
    a round trip to the data for every subset, and a pass over all of F. With the rows of its members, the table of n
    gains of a subset is updated in this process, so that most iterations ask for nothing. Only a subset with columns
    that were in none before needs a pass, one for a batch of columns, however long the search.
    """

    #: Rows of K must be fetched before they are used.
    has_gram = False
    #: M follows from the targets, or from T.
    moments_follow = True

    factor: MatrixFactor
    diagonal: Floats
    cross: Floats | None
    c: float
    lam: float = 0.0
    _: KW_ONLY
    target_operator: Floats | None = None
    moment_diagonal: Floats = field(default_factory=lambda: np.empty(0))
    columns: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    leading_rows: int = 256
    gram_limit: int = 1 << 30
    batch: int = BATCH
    row_cache_bytes: int = 1 << 30
    included: tuple[int, ...] = ()
    scale: Floats = field(default_factory=lambda: np.empty(0))
    total: float = float("nan")
    update: SchurUpdate | None = None
    load_target_gram: Callable[[], Floats] | None = None
    centering: CenteringError = NONE

    def __post_init__(self) -> None:
        if not self.lam >= 0.0:
            raise OptionError(f"lam is {self.lam}; the ridge penalty is a number >= 0.")
        if (
            self.moments_follow
            and self.cross is None
            and not (self.target_operator is not None and self.moment_diagonal.size)
        ):
            raise OptionError("Without targets M = F' T F needs T and its diagonal.")
        n, N = self.diagonal.size, 0 if self.cross is None else self.cross.shape[1]
        self.columns = self.columns if self.columns.size else np.arange(n)
        self.scale = self.scale if self.scale.size else self.diagonal + self.lam
        self.total = float(self.c if np.isnan(self.total) else self.total)
        self.c, self.lam, self.tolerance = float(self.c), float(self.lam), DEPENDENCE_TOLERANCE
        self.few_targets = int(N) if N <= FEW_TARGETS else 0
        if self.cross is not None and not self.few_targets and not self.moment_diagonal.size:
            self.moment_diagonal = np.square(self.cross).sum(axis=1)
        self.diagonal, self.moment_diagonal = map(np.ascontiguousarray, (self.diagonal, self.moment_diagonal))
        self._row_cache = GramRowCache(n, self.row_cache_bytes)
        self.columns_entered: set[int] = set()
        self.row_passes = self.rows_fetched = self.entries_fetched = 0

    @cached_property
    def K(self) -> Floats:
        """(n, n) Gram matrix, where it takes at most `gram_limit` bytes. Errors: CapacityError."""
        if 8 * self.n**2 > self.gram_limit:
            raise CapacityError(
                f"The method needs the whole Gram matrix: {self.n} x {self.n}, {format_bytes(8 * self.n**2)}.",
                "Use forward, omp, foba, exchange, splicing, poss, pposs, pposs-asy or astar, or fewer columns.",
            )
        everything = np.arange(self.n)
        for start in range(0, self.n, self.batch):
            self.fetch_rows(everything[start : start + self.batch])
        return self.rows(everything)

    @cached_property
    def M(self) -> Floats:
        """(n, n) cross-moments, where K is available. Errors: CapacityError."""
        if self.few_targets:
            assert self.cross is not None
            return np.ascontiguousarray(self.cross @ self.cross.T)
        self.K  # noqa: B018
        return self.moment_rows(np.arange(self.n))

    @property
    def moments(self) -> Floats | None:
        """M, where it does not follow from K and cross: without targets, after columns were included."""
        return self.M if self.cross is None and self.update is not None else None

    @cached_property
    def _gram_table(self) -> Rows:
        return Rows(np.zeros(self.n, np.int64), self.diagonal, {})

    @cached_property
    def _moment_table(self) -> Rows:
        return Rows(np.zeros(self.n, np.int64), self.moment_diagonal, {})

    @property
    def eigen_factor(self) -> tuple[Floats, Floats, Floats] | None:
        """W, D and P with K = W'W and M = (PW)'(PW); None with a penalty or included columns."""
        D, F = self.target_operator, self.factor
        if self.lam or self.update is not None or not isinstance(F, InMemoryFactor):
            return None
        if F.targets is not None:  # Y = U T, U having orthonormal columns
            V, s, _ = scipy.linalg.svd(F.targets, full_matrices=False)
            return F.F[:, self.columns], s**2, s[:, None] * V.T
        return None if D is None or D.ndim != 1 else (F.F[:, self.columns], D, np.diag(np.sqrt(D)))

    def rows(self, S: Sequence[int] | Ints) -> Floats:
        """Return (s, n) rows of K, which must have been fetched."""
        return np.array([self._gram_table.held[int(j)] for j in S]).reshape(-1, self.n)

    def moment_rows(self, S: Sequence[int] | Ints) -> Floats:
        """Return (s, n) rows of M, which must have been fetched."""
        return np.array([self._moment_table.held[int(j)] for j in S]).reshape(-1, self.n)

    def counts(self) -> dict[str, int]:
        """Return what was read on demand.

        Distinct columns that were inserted before their rows were fetched, passes over F for them, all columns whose
        rows these passes fetched (likely ones, too), bytes of rows on disk, and single entries.
        """
        return {
            "columns_entered": len(self.columns_entered), "row_passes": self.row_passes,
            "rows_fetched": self.rows_fetched, "row_bytes_on_disk": self._row_cache.bytes_on_disk,
            "entries_fetched": self.entries_fetched,
        }  # fmt: skip

    @property
    def fetched_rows(self) -> set[int]:
        """The columns whose rows were fetched."""
        return {int(j) for j in np.flatnonzero(self._gram_table.addresses)}

    def missing_rows(self, S: Iterable[int]) -> list[int]:
        """Return those of the columns S whose rows were not fetched, in that order."""
        addresses = self._gram_table.addresses
        return [int(j) for j in S if addresses[j] == 0]

    def fetch_rows(self, S: Iterable[int], likely: Callable[[], Ints] | None = None) -> None:
        """Fetch the missing rows of the columns S, and of likely columns as far as the last batch has room."""
        wanted = self.missing_rows(S)
        if not wanted:
            return
        self.columns_entered |= {int(self.columns[j]) for j in wanted}
        spare = -len(wanted) % self.batch
        if likely is not None and spare:
            known = set(wanted)
            for j in self.missing_rows(likely()[: 4 * self.batch]):
                if spare and j not in known:
                    wanted.append(j)
                    known.add(j)
                    spare -= 1
        for start in range(0, len(wanted), self.batch):
            self._fetch(np.asarray(wanted[start : start + self.batch], np.int64))

    def _fetch(self, S: Ints) -> None:
        F_S = self.factor.columns(self.columns[S])
        V = np.zeros((F_S.shape[0], self.batch * (1 if self.target_operator is None else 2)))
        V[:, : S.size] = F_S
        if self.target_operator is not None:
            V[:, self.batch : self.batch + S.size] = _apply(self.target_operator, F_S)
        found = self.factor.products(V)
        self.row_passes += 1
        self.rows_fetched += S.size
        K, M = found[: S.size], found[self.batch : self.batch + S.size]
        if self.columns.size < K.shape[1]:
            K, M = K[:, self.columns], M[:, self.columns]
        if not self.few_targets and self.target_operator is None:
            assert self.cross is not None
            M = self.cross[S] @ self.cross.T
        if self.update is not None:
            K = self.update.gram_rows(K, S)
            if not self.few_targets and self.target_operator is not None:
                M = self.update.moment_rows(M, S)
        self._store(self._gram_table, S, K)
        if not self.few_targets:
            self._store(self._moment_table, S, M)

    def _store(self, table: Rows, S: Ints, rows: Floats) -> None:
        for j, values in zip(S.tolist(), rows, strict=True):
            own = self._row_cache.store(values)
            own[j] = table.diagonal[j]
            table.held[j] = own
            table.addresses[j] = own.ctypes.data

    def data_columns(self, S: Ints) -> Floats:
        """Return (r, s) the columns S of F. Only these are read."""
        return self.factor.columns(self.columns[S])

    def gram_block(self, S: Ints, T: Ints, F_S: Floats, F_T: Floats) -> Floats:
        """Return (s, t) K_ST, from the columns F_S and F_T, without reading."""
        K = F_S.T @ F_T
        return K if self.update is None else np.asarray(K - self.update.K_I[:, S].T @ self.update.A[:, T])

    def gram_combinations(self, S: Ints, F_S: Floats, weights: Floats) -> Floats:
        """Return (c, n) the combinations K_:S weights (s, c), transposed, in one pass over F."""
        found = self.factor.products(F_S @ weights)
        found = found[:, self.columns] if self.columns.size < found.shape[1] else found
        if self.update is None:
            return found
        return np.asarray(found - (self.update.K_I[:, S] @ weights).T @ self.update.A)

    @cached_property
    def fetch_cost(self) -> int:
        """Numbers read to fetch one batch of rows."""
        return self.factor.shape[0] * self.factor.shape[1]

    def value_and_rank(self, S: Iterable[int]) -> tuple[float, int]:
        """Evaluate from rows where all were fetched, else from the columns S alone, without a pass over F."""
        members = np.unique(np.asarray(list(S), np.int64))
        few = 0 < members.size <= FEW_COLUMNS and 0 <= members[0] <= members[-1] < self.n
        if self.update is not None or not few or not self.missing_rows(members):
            return super().value_and_rank(members.tolist())
        return self._dense(members).value_and_rank(range(members.size))

    def entries(self, J: Ints, L: Ints) -> Floats:
        """Return (2, pairs) K_jl and, where M is kept, M_jl, read from the columns themselves."""
        both, where = np.unique(np.concatenate([J, L]), return_inverse=True)
        F = self.factor.columns(self.columns[both])
        at_J, at_L = where[: J.size], where[J.size :]
        K = np.einsum("rp,rp->p", F[:, at_J], F[:, at_L])
        M = np.zeros(J.size)
        if self.target_operator is not None:
            M = np.einsum("rp,rp->p", F[:, at_J], _apply(self.target_operator, F)[:, at_L])
        elif not self.few_targets:
            assert self.cross is not None
            M = np.einsum("pt,pt->p", self.cross[J], self.cross[L])
        if self.update is not None:
            K, M = self.update.entries(K, M, J, L)
        self.entries_fetched += J.size
        return np.vstack([K, M])

    @cached_property
    def max_entries(self) -> int:
        """Number of single entries of K to ask for in one call of `entries`."""
        return int(max(16, COLUMN_BYTES // (16 * self.factor.shape[0])))

    @cached_property
    def _partial(self) -> Partial:
        p = 0 if self.update is not None else min(self.leading_rows, self.factor.shape[0])
        if p == 0:
            return Partial(np.zeros((self.n, 1), np.float32), np.sqrt(np.maximum(self.diagonal, 0.0)))
        with np.errstate(over="ignore"):
            leading = self.factor.leading(p)
        if not np.isfinite(leading).all():  # float32 does not hold them
            return Partial(np.zeros((self.n, 1), np.float32), np.sqrt(self.diagonal))
        if self.columns.size < leading.shape[0]:
            leading = leading[self.columns]
        known = np.zeros(self.n)
        for x in range(leading.shape[1]):
            known += np.square(leading[:, x], dtype=np.float64)
        rest = np.maximum(self.diagonal - known, 0.0) + _SINGLE_ROUNDING * self.diagonal
        return Partial(np.ascontiguousarray(leading), np.sqrt(rest))

    def subset_tables(self, s_max: int, slots: int) -> KernelArrays[SubsetTables]:
        """Return tables for `slots` subsets, for the compiled kernels; with several, entries may be bounded."""
        cross = np.ascontiguousarray(self.cross, np.float64) if self.few_targets else self._moment_table
        one = Partial(np.zeros((1, 1), np.float32), np.zeros(1))
        return make_tables(
            self._gram_table, cross, np.ascontiguousarray(self.floor), self.lam, self.c, max(s_max, 1), slots,
            self._partial if slots > 1 else one,
        )  # fmt: skip

    def restrict(self, allowed: ArrayLike) -> Objective:
        """Return the objective over the local columns `allowed` alone; with few of them a dense one."""
        keep = np.asarray(allowed, np.int64)
        if keep.size <= FEW_COLUMNS and self.update is None:
            return self._dense(keep)
        if self.update is not None:
            raise OptionError("Columns are taken away before others are included.")
        return replace(
            self, diagonal=self.diagonal[keep], cross=None if self.cross is None else self.cross[keep],
            moment_diagonal=self.moment_diagonal[keep] if self.moment_diagonal.size else self.moment_diagonal,
            columns=self.columns[keep], scale=self.scale[keep],
        )  # fmt: skip

    def _dense(self, keep: Ints) -> DenseObjective:
        F = self.factor.columns(self.columns[keep])
        return DenseObjective(
            K=np.ascontiguousarray(F.T @ F), cross=None if self.cross is None else self.cross[keep], c=self.c,
            lam=self.lam, columns=self.columns[keep], included=self.included, scale=self.scale[keep], total=self.total,
            moments=None if self.target_operator is None else F.T @ _apply(self.target_operator, F),
            centering=self.centering,
        )  # fmt: skip

    def condition(self, include: Sequence[int]) -> Objective:
        """Return the objective of what to add to the local columns `include`, which are always chosen.

        Errors: OptionError where they depend on each other. One fetch, and O(n i^2) for i included columns.
        """
        if not len(include):
            return self
        I, rest = self._partition(include)
        self.fetch_rows(I.tolist())
        K_I = self.rows(I)
        A = solve(K_I[:, I] + self.lam * np.eye(I.size), K_I)
        M_I = M_II = None
        moment_diagonal = np.empty(0)
        if self.target_operator is not None:
            M_I = self.moment_rows(I)
            M_II = M_I[:, I]
            left = self.moment_diagonal - 2.0 * np.einsum("in,in->n", A, M_I) + np.einsum("in,in->n", A, M_II @ A)
            moment_diagonal, M_I = np.maximum(left, 0.0)[rest], M_I[:, rest]
        diagonal = self.diagonal - np.einsum("in,in->n", K_I, A)
        update = SchurUpdate(np.ascontiguousarray(K_I[:, rest]), np.ascontiguousarray(A[:, rest]), M_I, M_II)
        cross = None if self.cross is None else self.cross[rest] - A[:, rest].T @ self.cross[I]

        return replace(
            self, diagonal=np.maximum(diagonal[rest], 0.0), cross=cross, c=self.value(I), update=update,
            moment_diagonal=moment_diagonal, columns=self.columns[rest], scale=self.scale[rest],
            included=(*self.included, *self.columns[I].tolist()),
            load_target_gram=self._target_gram_given(self.load_target_gram, I, K_I[:, I]),
            centering=self._centering_given(
                I, rest, K_I[:, I], A[:, rest], None if self.cross is None else self.cross[I], M_II
            ),
        )  # fmt: skip


class GramRowsObjective(OnDemandObjective):
    """Error f(S) for Y = X from the rows of K alone: M_SS = K_S: K_:S. There is no T, and no row of M."""

    moments_follow = False

    def _fetch(self, S: Ints) -> None:
        V = np.zeros((self.factor.shape[0], self.batch))  # batches of one shape
        V[:, : S.size] = self.factor.columns(S)
        self._store(self._gram_table, S, self.factor.products(V)[: S.size])
        self.row_passes += 1
        self.rows_fetched += S.size

    def value_and_rank(self, S: Iterable[int]) -> tuple[float, int]:
        """Evaluate from the rows of the columns S."""
        members = np.unique(np.asarray(list(S), np.int64))
        self.fetch_rows(members.tolist())
        R = self.rows(members)
        chosen = DenseObjective(
            K=np.ascontiguousarray(R[:, members]), cross=None, c=self.c, lam=self.lam, scale=self.scale[members],
            moments=R @ R.T, total=self.total,
        )  # fmt: skip
        return chosen.value_and_rank(range(members.size))


def _apply(target_operator: Floats, F: Floats) -> Floats:
    """Return T F, from T or its diagonal."""
    return np.asarray(target_operator[:, None] * F if target_operator.ndim == 1 else target_operator @ F)
