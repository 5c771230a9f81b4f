"""The quadratic objective where n x n numbers do not fit: rows of K = F'F (and M) come when a column enters a solution.

F (r, n) may be the data (r = m) or the eigen-reduced W, in this process or cut into column shards over workers; here it
is anything that gives some of its columns and multiplies all of them from the left (`Factor`). The searches work on the
same kernels as on a whole K: their tables of n numbers a subset are kept up by rows of members alone. What they ask of
two columns outside, an entry K_jl, is bounded from p coordinates of each column (Cauchy and Schwarz) and fetched only
where the bound does not decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsel._lib.types import Floats, Ints
from dsel.errors import CapacityError, OptionError
from dsel.objective.dense import DEPENDENCE_TOLERANCE, QuadraticObjective
from dsel.objective.gram_row_cache import KeptRows
from dsel.objective.kernels.layout import Memory, Partial, Rows, pool

#: Columns whose rows are asked for at once where nobody says: batches are filled up, so that all have one shape.
BATCH = 8
#: Up to so many columns an objective is made whole.
FEW_COLUMNS = 1024
#: Bytes of columns fetched at once.
COLUMN_BYTES = 128 << 20
#: float32 coordinates may be off by this share of a column's squared norm.
_SINGLE_ROUNDING = 1e-6


class Factor(Protocol):
    """F (r, n), K = F'F."""

    @property
    def shape(self) -> tuple[int, int]:
        """r and n."""
        ...

    def columns(self, S: Ints) -> Floats:
        """(r, s) the columns S, in that order."""
        ...

    def products(self, V: Floats) -> Floats:
        """(c, n) V'F for V (r, c): one pass over F."""
        ...

    def leading(self, p: int) -> NDArray[np.float32]:
        """(n, p) of every column the same p coordinates: one pass over F."""
        ...


@dataclass(frozen=True)
class InMemoryFactor:
    """F as an array."""

    F: Floats

    @property
    def shape(self) -> tuple[int, int]:
        """r and n."""
        return int(self.F.shape[0]), int(self.F.shape[1])

    def columns(self, S: Ints) -> Floats:
        """(r, s)."""
        return np.ascontiguousarray(self.F[:, S])

    def products(self, V: Floats) -> Floats:
        """(c, n) V'F."""
        return np.asarray(V.T @ self.F)

    def leading(self, p: int) -> NDArray[np.float32]:
        """(n, p) the first p rows."""
        return np.ascontiguousarray(self.F[:p].T, dtype=np.float32)


@dataclass(frozen=True)
class _Taken:
    """What included columns I take out of K and M: with A = (K_II + lam I)^-1 K_I:, K - K_I:'A and so on."""

    K_I: Floats  # (i, n)
    A: Floats  # (i, n)
    M_I: Floats | None  # (i, n), as M_II, where M is kept
    M_II: Floats | None

    def from_K(self, rows: Floats, S: Ints, columns: Any = slice(None)) -> Floats:
        return np.asarray(rows - self.K_I[:, S].T @ self.A[:, columns])

    def from_M(self, rows: Floats, S: Ints) -> Floats:
        assert self.M_I is not None
        assert self.M_II is not None
        A_S = self.A[:, S]
        return np.asarray(rows - A_S.T @ self.M_I - self.M_I[:, S].T @ self.A + A_S.T @ self.M_II @ self.A)

    def pairs(self, K: Floats, M: Floats, J: Ints, L: Ints) -> tuple[Floats, Floats]:
        K = K - np.einsum("ip,ip->p", self.K_I[:, J], self.A[:, L])
        if self.M_I is not None and self.M_II is not None:
            A_J, A_L = self.A[:, J], self.A[:, L]
            M = M - np.einsum("ip,ip->p", A_J, self.M_I[:, L]) - np.einsum("ip,ip->p", self.M_I[:, J], A_L)
            M = M + np.einsum("ip,ip->p", A_J, self.M_II @ A_L)
        return K, M


class OnDemandObjective(QuadraticObjective):
    """f(S) over the columns `keep` of a factor F, without an n x n matrix.

    diagonal: (n,) of K; cross: (n, N) B, or None where M = F' T F: `through` is T, symmetric, (r, r) or its diagonal
    (r,); seen: (n,) the diagonal of M then. leading_rows: coordinates p of each column to keep (4 n p bytes) for
    bounds. batch: columns whose rows one pass over F brings. A row of K takes 8 n bytes, and stays; so does one of M,
    where targets are many or Y = X; what is beyond `row_bytes` of them lies on disk (dsel.objective.gram_row_cache).
    targets
    gives Y'Y (N, N), for searches that ask for it.

    Why rows, and not what each search wants to know of a subset (best gains, the outcome of a flip): that would be a
    round trip to the data for every subset that is looked at, and a look at all of F. With the rows of its members a
    subset's table of n gains is kept up here, so that an iteration asks for nothing, and a subset that is taken only
    for columns that were in none before: one pass for a batch of them, however long the search.

    `K` as a whole can be had where it takes no more than `most_bytes`, else CapacityError.
    """

    def __init__(
        self, factor: Factor, diagonal: Floats, cross: Floats | None, c: float, lam: float = 0.0, *,
        through: Floats | None = None, seen: Floats | None = None, keep: Ints | None = None,
        leading_rows: int = 256, most_bytes: int = 1 << 30, batch: int = BATCH, row_bytes: int = 1 << 30,
        included: tuple[int, ...] = (),
        scale: Floats | None = None, total: float | None = None, taken: _Taken | None = None,
        targets: Callable[[], Floats] | None = None,
    ) -> None:  # fmt: skip
        if not lam >= 0.0:
            raise OptionError(f"lam is {lam}; the ridge penalty is a number >= 0.")
        n = diagonal.size
        columns = np.arange(n) if keep is None else keep
        if cross is None and (through is None or seen is None):
            raise OptionError("Without targets M = F' T F needs T and its diagonal.")
        values: dict[str, Any] = {
            "cross": cross, "c": float(c), "lam": float(lam), "columns": columns, "included": included,
            "scale": diagonal + lam if scale is None else scale, "total": float(c if total is None else total),
            "tolerance": DEPENDENCE_TOLERANCE, "moments": None, "factor": factor, "through": through,
            "leading_rows": leading_rows, "most_bytes": most_bytes, "batch": batch, "row_bytes": row_bytes,
            "_taken": taken, "_targets": targets, "_kept": KeptRows(n, row_bytes), "fetched": 0,
            "_diagonal": np.ascontiguousarray(diagonal), "passes": 0, "entered": set(), "pairs_fetched": 0,
        }  # fmt: skip
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if not self.factored and seen is None:
            assert cross is not None
            seen = np.square(cross).sum(axis=1)
        object.__setattr__(self, "_seen", None if self.factored else np.ascontiguousarray(seen))

    factor: Factor
    through: Floats | None
    leading_rows: int
    most_bytes: int
    batch: int
    row_bytes: int
    passes: int
    fetched: int
    _kept: KeptRows
    entered: set[int]
    pairs_fetched: int
    _taken: _Taken | None
    _targets: Callable[[], Floats] | None
    _diagonal: Floats
    _seen: Floats | None

    @property
    def on_demand(self) -> bool:
        """Yes."""
        return True

    @property
    def n(self) -> int:
        """Number of candidate columns."""
        return int(self._diagonal.size)

    @cached_property
    def K(self) -> Floats:
        """(n, n), where that is not too large."""
        if 8 * self.n**2 > self.most_bytes:
            raise CapacityError(
                f"The method needs the whole Gram matrix: {self.n} x {self.n}, {8 * self.n**2 / 2**30:.1f} GiB.",
                "Use forward, omp, foba, exchange, poss, pposs, pposs-asy or astar, or fewer columns.",
            )
        everything = np.arange(self.n)
        for start in range(0, self.n, self.batch):
            self.need(everything[start : start + self.batch])
        return self.rows(everything)

    @cached_property
    def M(self) -> Floats:
        """(n, n), likewise."""
        if self.factored:
            assert self.cross is not None
            return np.ascontiguousarray(self.cross @ self.cross.T)
        self.K  # noqa: B018
        return self.moment_rows(np.arange(self.n))

    @cached_property
    def _gram_table(self) -> Rows:
        return Rows(np.zeros(self.n, np.int64), self._diagonal, {})

    @cached_property
    def _moment_table(self) -> Rows:
        assert self._seen is not None
        return Rows(np.zeros(self.n, np.int64), self._seen, {})

    @property
    def reduced_factor(self) -> Floats | None:
        """W (r, n) where the problem is the eigen-reduced one of Y = X as it is: no penalty, no included columns."""
        if self.lam or self._taken is not None or self.through is None or self.through.ndim != 1:
            return None
        return self.factor.F[:, self.columns] if isinstance(self.factor, InMemoryFactor) else None

    @cached_property
    def target_gram(self) -> Floats:
        """(N, N) Y'Y, of what the included columns leave of the targets."""
        if self._targets is None:
            raise OptionError("The objective was made without Y'Y of its targets.")
        return self._targets()

    @property
    def diagonal(self) -> Floats:
        """(n,) of K."""
        return self._diagonal

    @property
    def moment_diagonal(self) -> Floats:
        """(n,) of M."""
        assert self._seen is not None
        return self._seen

    def rows(self, S: Sequence[int] | Ints) -> Floats:
        """(s, n) rows of K, which have to be there."""
        return _stacked(self._gram_table, S, self.n)

    def moment_rows(self, S: Sequence[int] | Ints) -> Floats:
        """(s, n) rows of M, which have to be there."""
        return _stacked(self._moment_table, S, self.n)

    def counts(self) -> dict[str, int]:
        """What was read: distinct columns that entered a solution before their rows were there, passes over F for them,
        all distinct columns whose rows these brought (likely ones too), bytes of them on disk, single entries."""
        return {
            "columns_entered": len(self.entered), "row_passes": self.passes, "rows_fetched": self.fetched,
            "row_bytes_on_disk": self._kept.on_disk, "entries_fetched": self.pairs_fetched,
        }  # fmt: skip

    def missing(self, S: Iterable[int]) -> list[int]:
        """Those of the columns S whose rows are not there, in that order."""
        addresses = self._gram_table.addresses
        return [int(j) for j in S if addresses[j] == 0]

    def need(self, S: Iterable[int], likely: Callable[[], Ints] | None = None) -> None:
        """Fetch the rows of the columns S that are not there; a batch that is not full takes likely ones along."""
        wanted = self.missing(S)
        if not wanted:
            return
        object.__setattr__(self, "entered", self.entered | {int(self.columns[j]) for j in wanted})
        spare = -len(wanted) % self.batch
        if likely is not None and spare:
            known = set(wanted)
            for j in self.missing(likely()[: 4 * self.batch]):
                if spare and j not in known:
                    wanted.append(j)
                    known.add(j)
                    spare -= 1
        for start in range(0, len(wanted), self.batch):
            self._fetch(np.asarray(wanted[start : start + self.batch], np.int64))

    def _fetch(self, S: Ints) -> None:
        F_S = self.factor.columns(self.columns[S])
        V = np.zeros((F_S.shape[0], self.batch * (1 if self.through is None else 2)))
        V[:, : S.size] = F_S
        if self.through is not None:
            V[:, self.batch : self.batch + S.size] = _times(self.through, F_S)
        found = self.factor.products(V)
        object.__setattr__(self, "passes", self.passes + 1)
        object.__setattr__(self, "fetched", self.fetched + S.size)
        K, M = found[: S.size], found[self.batch : self.batch + S.size]
        if self.columns.size < K.shape[1]:
            K, M = K[:, self.columns], M[:, self.columns]
        if not self.factored and self.through is None:
            assert self.cross is not None
            M = self.cross[S] @ self.cross.T
        taken = self._taken
        if taken is not None:
            K = taken.from_K(K, S)
            if not self.factored and self.through is not None:
                M = taken.from_M(M, S)
        self._keep(self._gram_table, S, K)
        if not self.factored:
            self._keep(self._moment_table, S, M)

    def _keep(self, table: Rows, S: Ints, rows: Floats) -> None:
        for j, values in zip(S.tolist(), rows, strict=True):
            own = self._kept.keep(values)
            own[j] = table.diagonal[j]
            table.held[j] = own
            table.addresses[j] = own.ctypes.data

    @property
    def pass_work(self) -> int:
        """Numbers read to bring a batch of rows."""
        return self.factor.shape[0] * self.factor.shape[1]

    def _evaluate(self, S: Iterable[int]) -> tuple[float, int]:
        """From the rows where all are there, else from the columns S alone: no pass."""
        members = np.unique(np.asarray(list(S), np.int64))
        few = 0 < members.size <= FEW_COLUMNS and 0 <= members[0] <= members[-1] < self.n
        if self._taken is not None or not few or not self.missing(members):
            return super()._evaluate(members.tolist())
        return self.restrict(members)._evaluate(range(members.size))

    def pairs(self, J: Ints, L: Ints) -> Floats:
        """(2, pairs) K_jl and, where M is kept, M_jl, of columns that need not have entered."""
        both, where = np.unique(np.concatenate([J, L]), return_inverse=True)
        F = self.factor.columns(self.columns[both])
        at_J, at_L = where[: J.size], where[J.size :]
        K = np.einsum("rp,rp->p", F[:, at_J], F[:, at_L])
        M = np.zeros(J.size)
        if self.through is not None:
            M = np.einsum("rp,rp->p", F[:, at_J], _times(self.through, F)[:, at_L])
        elif not self.factored:
            assert self.cross is not None
            M = np.einsum("pt,pt->p", self.cross[J], self.cross[L])
        taken = self._taken
        if taken is not None:
            K, M = taken.pairs(K, M, J, L)
        object.__setattr__(self, "pairs_fetched", self.pairs_fetched + J.size)
        return np.vstack([K, M])

    @property
    def most_pairs(self) -> int:
        """Pairs to ask for at once."""
        return int(max(16, COLUMN_BYTES // (16 * self.factor.shape[0])))

    @cached_property
    def _partial(self) -> Partial:
        p = 0 if self._taken is not None else min(self.leading_rows, self.factor.shape[0])
        if p == 0:
            return Partial(np.zeros((self.n, 1), np.float32), np.sqrt(np.maximum(self._diagonal, 0.0)))
        leading = self.factor.leading(p)
        if self.columns.size < leading.shape[0]:
            leading = leading[self.columns]
        known = np.zeros(self.n)
        for x in range(leading.shape[1]):
            known += np.square(leading[:, x], dtype=np.float64)
        rest = np.maximum(self._diagonal - known, 0.0) + _SINGLE_ROUNDING * self._diagonal
        return Partial(np.ascontiguousarray(leading), np.sqrt(rest))

    def memory(self, s_max: int, slots: int) -> Memory:
        """Room for `slots` subsets, for the compiled kernels; one of several may ask for entries outside it."""
        cross = np.ascontiguousarray(self.cross, np.float64) if self.factored else self._moment_table
        one = Partial(np.zeros((1, 1), np.float32), np.zeros(1))
        return pool(
            self._gram_table, cross, np.ascontiguousarray(self.floor), self.lam, self.c, max(s_max, 1), slots,
            self._partial if slots > 1 else one,
        )  # fmt: skip

    def restrict(self, allowed: ArrayLike) -> QuadraticObjective:
        """The same objective over the local columns `allowed` alone; few of them are made whole."""
        keep = np.asarray(allowed, np.int64)
        cross = None if self.cross is None else self.cross[keep]
        if keep.size <= FEW_COLUMNS and self._taken is None:
            F = self.factor.columns(self.columns[keep])
            moments = None if self.through is None else F.T @ _times(self.through, F)
            return QuadraticObjective(
                K=np.ascontiguousarray(F.T @ F), cross=cross, c=self.c, lam=self.lam, columns=self.columns[keep],
                included=self.included, scale=self.scale[keep], total=self.total, moments=moments,
            )  # fmt: skip
        if self._taken is not None:
            raise OptionError("Columns are taken away before others are included.")
        return OnDemandObjective(
            self.factor, self._diagonal[keep], cross, self.c, self.lam, through=self.through,
            seen=None if self._seen is None else self._seen[keep], keep=self.columns[keep],
            leading_rows=self.leading_rows, most_bytes=self.most_bytes, batch=self.batch, row_bytes=self.row_bytes,
            included=self.included,
            scale=self.scale[keep], total=self.total, targets=self._targets,
        )  # fmt: skip

    def condition(self, include: Sequence[int]) -> QuadraticObjective:
        """The objective of what to add to the columns `include`, which are always chosen (local indices)."""
        if not len(include):
            return self
        I, rest = self._parted(include)
        self.need(I.tolist())
        K_I = self.rows(I)
        A = np.linalg.solve(K_I[:, I] + self.lam * np.eye(I.size), K_I)
        M_I = M_II = seen = None
        if self.through is not None:
            M_I = self.moment_rows(I)
            M_II = M_I[:, I]
            seen = self.moment_diagonal - 2.0 * np.einsum("in,in->n", A, M_I) + np.einsum("in,in->n", A, M_II @ A)
            seen, M_I = np.maximum(seen, 0.0)[rest], M_I[:, rest]
        diagonal = self._diagonal - np.einsum("in,in->n", K_I, A)
        taken = _Taken(np.ascontiguousarray(K_I[:, rest]), np.ascontiguousarray(A[:, rest]), M_I, M_II)
        cross = None if self.cross is None else self.cross[rest] - A[:, rest].T @ self.cross[I]

        def targets() -> Floats:
            assert self.cross is not None
            B_I = self.cross[I]
            return np.asarray(self.target_gram - B_I.T @ np.linalg.solve(K_I[:, I] + self.lam * np.eye(I.size), B_I))

        return OnDemandObjective(
            self.factor, np.maximum(diagonal[rest], 0.0), cross, self.value(I), self.lam, through=self.through,
            seen=seen, keep=self.columns[rest], leading_rows=self.leading_rows, most_bytes=self.most_bytes,
            batch=self.batch, row_bytes=self.row_bytes,
            included=self.included + tuple(int(j) for j in self.columns[I]), scale=self.scale[rest], total=self.total,
            taken=taken, targets=targets,
        )  # fmt: skip


def _times(through: Floats, F: Floats) -> Floats:
    return np.asarray(through[:, None] * F if through.ndim == 1 else through @ F)


def _stacked(table: Rows, S: Sequence[int] | Ints, n: int) -> Floats:
    return np.array([table.held[int(j)] for j in S]).reshape(-1, n)
