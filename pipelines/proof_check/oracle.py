"""The errors of subsets, from the data, in extended precision."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsel._lib.tolerances import DEPENDENCE_TOLERANCE, REAL, perturbation
from dsel._lib.types import Bools, Ints
from pipelines.proof_check.families import Problem

Extended = Any  # arrays of numpy.longdouble: 64 bits of mantissa, and exponents up to 4932
_EXTENDED = np.longdouble
#: Whether a subset within this share of the tolerance is dependent is decided by rounding.
_EDGE = 1e-4
#: What others leave of a column of norm 1 is rounding in extended precision below this.
_NOTHING = 1e-17
#: Subsets that are factored together.
_TOGETHER = 512


@dataclass(frozen=True)
class Subsets:
    """Subsets of one problem, in rows of `members`, included columns counted.

    f: their errors. tolerance: the least share of a chosen column's square that the others leave. squares: the sum of
    the squared coefficients of the chosen columns, for columns of norm 1. largest: the largest of these coefficients.
    columns: the number of columns in the data.
    """

    members: list[tuple[int, ...]]
    f: Extended
    tolerance: Extended
    squares: Extended
    largest: Extended
    columns: int

    @property
    def independent(self) -> Bools:
        """Return which subsets are surely independent."""
        return np.asarray(self.tolerance > DEPENDENCE_TOLERANCE * (1.0 + _EDGE))

    @property
    def dependent(self) -> Bools:
        """Return which subsets are surely dependent."""
        return np.asarray(self.tolerance < DEPENDENCE_TOLERANCE * (1.0 - _EDGE))

    @property
    def real(self) -> Bools:
        """Return for which subsets rounding does not decide what they explain."""
        return np.asarray(self.tolerance > REAL * perturbation(self.columns))

    def place(self, members: Iterable[int]) -> int:
        """Return the row of a subset."""
        return self.members.index(tuple(sorted(int(j) for j in members)))


def measured(problem: Problem, members: Iterable[Sequence[int]]) -> Subsets:
    """Return the errors of subsets, which hold the included columns, by orthogonalization of [X_S; sqrt(lam) I]."""
    wanted = sorted({tuple(sorted(int(j) for j in S)) for S in members}, key=lambda S: (len(S), S))
    parts = []
    for size in sorted({len(S) for S in wanted}):
        same = [S for S in wanted if len(S) == size]
        group = np.array(same, np.int64).reshape(len(same), size)
        parts += [_of_one_size(problem, group[i : i + _TOGETHER]) for i in range(0, len(group), _TOGETHER)]
    f, tolerance, squares, largest = (np.concatenate(values) for values in zip(*parts, strict=True))
    return Subsets(wanted, f, tolerance, squares, largest, problem.X.shape[1])


def _of_one_size(problem: Problem, S: Ints) -> tuple[Extended, Extended, Extended, Extended]:
    """Return f, the tolerance, the squared coefficients and the largest one (t,) of the subsets S (t, s)."""
    t, s = S.shape
    X, Y = problem.preprocessed
    penalty = np.sqrt(_EXTENDED(problem.lam)) * np.eye(s, dtype=_EXTENDED)
    columns = np.concatenate([X.T[S].transpose(0, 2, 1), np.broadcast_to(penalty, (t, s, s))], axis=1)
    norms, own = (np.sqrt(np.square(A).sum(axis=1)) for A in (columns, columns[:, : X.shape[0]]))
    columns = columns / np.where(norms > 0, norms, 1)[:, None, :]
    left = np.broadcast_to(np.concatenate([Y, np.zeros((s, Y.shape[1]), _EXTENDED)]), (t, X.shape[0] + s, Y.shape[1]))
    Q, R = _orthogonalized(columns)
    C = np.zeros((t, s, Y.shape[1]), _EXTENDED)
    for _ in range(2 if s else 0):
        more = np.einsum("tms,tmn->tsn", Q, left)
        C, left = C + more, left - np.einsum("tms,tsn->tmn", Q, more)
    inverse = _inverted(R)
    chosen = ~np.isin(S, problem.include)
    inflation = np.where(chosen, np.square(inverse).sum(axis=2), 0)
    real = (np.einsum("tss->ts", R) > 0).all(axis=1)
    tolerance = np.where(real, 1 / np.maximum(inflation.max(axis=1, initial=0), 1), 0)
    squares = np.square(np.einsum("tsr,trn->tsn", inverse, C)).sum(axis=2) if s else np.zeros((t, 0), _EXTENDED)
    squares = np.where(chosen, squares, 0) * np.square(own / np.where(norms > 0, norms, 1))
    largest = np.sqrt(squares.max(axis=1, initial=0))
    return np.square(left).sum(axis=(1, 2)), tolerance, squares.sum(axis=1), largest


def _orthogonalized(columns: Extended) -> tuple[Extended, Extended]:
    """Return Q (t, m, s) and R (t, s, s) of columns of norm 1; 0 for columns that depend on those before them."""
    Q, R = np.zeros_like(columns), np.zeros((columns.shape[0], columns.shape[2], columns.shape[2]), _EXTENDED)
    for j in range(columns.shape[2]):
        left = columns[:, :, j]
        for _ in range(3 if j else 0):
            within = np.einsum("tms,tm->ts", Q[:, :, :j], left)
            R[:, :j, j] += within
            left = left - np.einsum("tms,ts->tm", Q[:, :, :j], within)
        norm = np.sqrt(np.square(left).sum(axis=1))
        R[:, j, j] = np.where(norm > _NOTHING, norm, 0)
        Q[:, :, j] = np.where(norm > _NOTHING, 1, 0)[:, None] * left / np.where(norm > 0, norm, 1)[:, None]
    return Q, R


def _inverted(R: Extended) -> Extended:
    """Return the inverses (t, s, s) of triangular matrices, with 1 for diagonal elements that are 0."""
    s = R.shape[1]
    inverse = np.zeros_like(R)
    for j in range(s):
        diagonal = np.where(R[:, j, j] > 0, R[:, j, j], 1)
        inverse[:, j, j] = 1 / diagonal
        if j:
            inverse[:, :j, j] = -np.einsum("tip,tp->ti", inverse[:, :j, :j], R[:, :j, j]) / diagonal[:, None]
    return inverse
