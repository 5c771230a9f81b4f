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
    fit = relax(problem.of_items(S), every, ~every, 0, start.among(S), enough, _CLOSE)
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
    """Return how much a swap raises F by the model at a fit, (l, o): of each item S[l] that may go, by each other."""
    model, loose = _Changes.of(problem, point, S, free), np.flatnonzero(~fixed[S])
    return loose, model.others, model.of_swaps(loose)


def _changes(problem: LossProblem, point: Point, S: Ints, k: int, fixed: Bools, free: Bools) -> list[Ints]:
    """Return the best subsets with one more item, or with one item in place of another, by the model at a fit."""
    model = _Changes.of(problem, point, S, free)
    if S.size < k:
        order = np.argsort(-model.of_entries(), kind="stable")[:_REFITS]
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
    """The quadratic model at a fit on s columns, for the o free items that are not among them.

    b (s, t): coefficients. A (s, s): the inverse of the Hessian of the columns. own: the columns of each item that is
    chosen, among these. batches: the others of each size.
    """

    others: Ints
    b: Floats
    A: Floats
    own: list[Ints]
    batches: list[_Batch]

    @classmethod
    def of(cls, problem: LossProblem, point: Point, S: Ints, free: Bools) -> _Changes:
        """Return the model; without others if rows have no curvature."""
        loss, Zt, eta = problem.loss, problem.columns, problem.predictors(point)
        inside = problem.members(S)
        b = np.zeros((len(Zt), loss.outputs))
        b[problem.members(point.S)] = problem.coefficients(point).reshape(-1, loss.outputs)
        a = problem.rows.slope(eta).reshape(-1, loss.outputs)
        W = problem.rows.curvature(eta)
        total = float(W.sum())
        own = np.split(np.arange(inside.size), np.cumsum(problem.sizes(S))[:-1]) if S.size else []
        others = np.flatnonzero(free & ~np.isin(np.arange(free.size), S)) if total > 0.0 else np.zeros(0, np.int64)
        if not others.size:
            return cls(others, b[inside], np.eye(inside.size), own, [])
        g = Zt @ a + 2.0 * problem.lam * b
        H = (Zt[inside] * W) @ Zt.T
        cross = Zt @ W / total**0.5 if problem.intercept else np.zeros(len(Zt))
        H -= np.outer(cross[inside], cross)
        A = np.linalg.pinv(H[:, inside] + 2.0 * problem.lam * np.eye(inside.size), hermitian=True)
        U, sizes, squares = A @ H, problem.sizes(others), np.einsum("ij,ij,j->i", Zt, Zt, W)
        batches = []
        for p in np.unique(sizes).tolist():
            places = np.flatnonzero(sizes == p)
            at = problem.members(others[places]).reshape(-1, p)
            block = squares[at][:, :, None] if p == 1 else np.stack([(Zt[j] * W) @ Zt[j].T for j in at])
            block = block - cross[at][:, :, None] * cross[at][:, None] + 2.0 * problem.lam * np.eye(p)
            floor = 1e-9 * np.einsum("opp->op", block) + 1e-300
            rest = block - np.einsum("sop,soq->opq", H[:, at], U[:, at])
            i = np.arange(p)
            rest[:, i, i] = np.maximum(rest[:, i, i], floor) if p == 1 else rest[:, i, i] + floor
            batches.append(_Batch(places, U[:, at], g[at], rest))
        return cls(others, b[inside], np.asarray(A, np.float64), own, batches)

    def of_entries(self) -> Floats:
        """Return how much F falls (o,) if each other item enters."""
        found = np.zeros(self.others.size)
        for batch in self.batches:
            found[batch.places] = _explained(batch.rest, batch.g)
        return found

    def of_swaps(self, loose: Ints) -> Floats:
        """Return how much F rises (l, o) if each other item takes the place of each of these."""
        found = np.full((loose.size, self.others.size), np.inf)
        for row, i in enumerate(loose.tolist()):
            own = self.own[i]
            inverse = np.linalg.pinv(self.A[np.ix_(own, own)], hermitian=True)
            moved = inverse @ self.b[own]
            gone = float(np.vdot(self.b[own], moved))
            for batch in self.batches:
                U = batch.U[own]
                g = batch.g - np.einsum("sop,st->opt", U, moved)
                rest = batch.rest + np.einsum("sop,sr,roq->opq", U, inverse, U)
                found[row, batch.places] = np.nan_to_num(gone - _explained(rest, g), nan=np.inf)
        return found


@dataclass(frozen=True)
class _Batch:
    """Items of p columns each that may enter a model.

    places (o,): which ones. U (s, o, p): the inverse Hessian of the chosen columns times their part for these. g
    (o, p, t), rest (o, p, p): the gradient, and the curvature that the chosen columns leave.
    """

    places: Ints
    U: Floats
    g: Floats
    rest: Floats


def _explained(rest: Floats, g: Floats) -> Floats:
    """Return (o,) tr(g' rest^-1 g) for each item."""
    with np.errstate(all="ignore"):  # a model without curvature has no best change, and the fits decide
        if rest.shape[1] == 1:
            return np.asarray(np.square(g).sum(axis=(1, 2)) / rest[:, 0, 0])
        inverse = np.linalg.pinv(rest, rcond=1e-9, hermitian=True)
        return np.asarray(np.einsum("opt,opq,oqt->o", g, inverse, g))
