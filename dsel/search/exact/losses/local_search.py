"""Subsets for a loss without a proof: refits by Newton steps, and swaps by the quadratic model at a fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dsel._lib.types import Bools, Floats, Ints
from dsel.search.exact.losses.problem import START, LossProblem, Point, Relaxed
from dsel.search.exact.losses.relaxation import relax

#: How many of the best changes by the model are refitted before a subset counts as best among its neighbors.
_REFITS = 6


#: The gap of a fit, as a share of F.
_CLOSE = 1e-12


def refit(problem: LossProblem, S: Ints, start: Point = START, enough: float = np.inf) -> Relaxed:
    """Return the fit on columns S; its value is F(S), unless it is proved to be at least `enough`."""
    every = np.ones(S.size, np.bool_)
    fit = relax(problem.of_columns(S), every, ~every, 0, start.among(S), enough, _CLOSE)
    return replace(fit, point=fit.point.of(S))


def improved(
    problem: LossProblem, S: Ints, k: int, fixed: Bools, free: Bools, over: Callable[[], bool]
) -> tuple[Relaxed, Ints]:  # fmt: skip
    """Add free columns up to k, then swap columns until no swap helps, and return the fit and its columns.

    fixed: columns (n,) that stay. over: whether the time is.
    """
    fit = refit(problem, S)
    while not over():
        better = None
        for taken in _changes(problem, fit.point, S, k, fixed, free):
            found = refit(problem, taken, fit.point, fit.value if better is None else better[0].value)
            if found.value < fit.value * (1.0 - 1e-12) and (better is None or found.value < better[0].value):
                better = found, taken
                if S.size < k:
                    break
        if better is None:
            break
        fit, S = better
    return fit, S


def swap_scores(problem: LossProblem, point: Point, S: Ints, fixed: Bools, free: Bools) -> tuple[Ints, Ints, Floats]:
    """Return how much a swap raises F by the model at a fit, (l, o): of each column S[l] that may go, by each other."""
    model, loose = _Changes.of(problem, point, S, free), np.flatnonzero(~fixed[S])
    return loose, model.others, model.of_swaps(loose)


def _changes(problem: LossProblem, point: Point, S: Ints, k: int, fixed: Bools, free: Bools) -> list[Ints]:
    """Return the best subsets with one more column, or with one column in place of another, by the model at a fit."""
    model = _Changes.of(problem, point, S, free)
    if S.size < k:
        with np.errstate(over="ignore"):  # a column that nothing is left of
            order = np.argsort(-np.square(model.g).sum(axis=1) / model.rest, kind="stable")[:_REFITS]
        return [np.append(S, model.others[j]) for j in order]
    loose = np.flatnonzero(~fixed[S])
    score = model.of_swaps(loose)
    order = np.argsort(score, axis=None, kind="stable")[:_REFITS]
    found = []
    for i, j in zip(*np.unravel_index(order, score.shape), strict=True):
        taken = S.copy()
        taken[loose[i]] = model.others[j]
        found.append(taken)
    return found


@dataclass(frozen=True)
class _Changes:
    """The quadratic model at a fit on s columns, for the o free columns that are not among them.

    b (s, t): coefficients. A (s, s): the inverse of the Hessian of the columns. U (s, o): A times its part for the
    others. g (o, t), rest (o,): their gradient, and the curvature that the columns leave.
    """

    others: Ints
    b: Floats
    A: Floats
    U: Floats
    g: Floats
    rest: Floats

    @classmethod
    def of(cls, problem: LossProblem, point: Point, S: Ints, free: Bools) -> _Changes:
        """Return the model; without others if rows have no curvature."""
        loss, Zt, eta = problem.loss, problem.columns, problem.predictors(point)
        b = np.zeros((free.size, loss.outputs))
        b[point.S] = point.b.reshape(-1, loss.outputs)
        a = problem.rows.slope(eta).reshape(-1, loss.outputs)
        W = problem.rows.curvature(eta)
        total = float(W.sum())
        others = np.flatnonzero(free & ~np.isin(np.arange(free.size), S)) if total > 0.0 else np.zeros(0, np.int64)
        if not others.size:
            return cls(others, b[S], np.eye(S.size), np.zeros((S.size, 0)), np.zeros((0, loss.outputs)), np.zeros(0))
        g = Zt @ a + 2.0 * problem.lam * b
        diagonal, H = _squares(Zt, W) + 2.0 * problem.lam, (Zt[S] * W) @ Zt.T
        if problem.intercept:
            cross = Zt @ W
            diagonal, H = diagonal - cross * cross / total, H - np.outer(cross[S], cross) / total
        A = np.linalg.pinv(H[:, S] + 2.0 * problem.lam * np.eye(S.size), hermitian=True)
        U = A @ H[:, others]
        rest = np.maximum(diagonal[others] - np.einsum("ij,ij->j", H[:, others], U), 1e-9 * diagonal[others] + 1e-300)
        return cls(others, b[S], np.asarray(A, np.float64), U, g[others], rest)

    def of_swaps(self, loose: Ints) -> Floats:
        """Return how much F rises (l, o) if each other column takes the place of each column of these."""
        a_ii, b_i = np.maximum(np.diag(self.A)[loose], 1e-300), self.b[loose]
        with np.errstate(all="ignore"):  # a model without curvature has no best change, and the fits decide
            moved = self.g - self.U[loose][:, :, None] * (b_i / a_ii[:, None])[:, None]
            grown = self.rest + np.square(self.U[loose]) / a_ii[:, None]
            gone, new = np.square(b_i).sum(axis=1), np.square(moved).sum(axis=2)
            return np.asarray(np.nan_to_num((gone / a_ii)[:, None] - new / grown, nan=np.inf))


def _squares(Zt: Floats, W: Floats) -> Floats:
    """Return z_j' diag(W) z_j of each column (n,)."""
    return np.asarray(np.einsum("ij,ij,j->i", Zt, Zt, W))
