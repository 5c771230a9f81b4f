"""What `dsel.select` should answer to a drawn call, by a separate computation over all subsets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations
from math import comb
from typing import Any

import numpy as np

from dsel._lib.types import Floats
from pipelines.proof_check.drawn_options import Drawn
from pipelines.proof_check.families import Problem
from pipelines.proof_check.oracle import measured

Members = tuple[int, ...]


class Own:
    """The subsets of a call and their errors, computed from the data.

    labels, X (m, n), Y: the columns and the targets that the call becomes. units: columns that enter together; fixed
    and banned ones are included and excluded. f: of each subset; of all that may be chosen in `allowed`. represented:
    columns that lists leave out, because near-copies represent them.
    """

    def __init__(
        self, call: Drawn, lam: float, together: bool, clusters: Sequence[Members], whole: Own | None = None
    ) -> None:
        """Measure all subsets.

        Together: whether the columns of a category are chosen together. clusters: columns of which no subset has two.
        whole: all rows, of which these are some.
        """
        asked = call.asked
        self.w = np.ones(len(call.Y)) if call.weights is None else call.weights
        self.preprocess = asked.get("preprocess", "standardize")
        X, places = self._columns(call)
        self.fill: Floats = whole.fill if whole is not None else np.array([self._mean(column) for column in X.T])
        self.X = self.filled(X)
        self.Y = self.X if call.unsupervised else call.Y[:, asked.get("targets", slice(None))]
        self.problem = Problem(
            "", self.X, self.Y, self.X.shape[1], lam, False, weights=call.weights, preprocess=self.preprocess
        )
        units = self._units(call, places, together)
        self.units = self._used(units)
        self.fixed, self.banned = (
            set(self._used(u for u in units if any(j in u for column in named for j in places[column])))
            for named in (call.include, call.exclude)
        )
        self.included = tuple(sorted(j for u in self.fixed for j in u))
        self.problem = replace(self.problem, include=self.included)
        self.clusters = clusters
        self.copies = {j for S in clusters for j in S}
        self.represented = {j for _, *rest in clusters for j in rest}
        #: A list of groups also counts smaller subsets.
        self.exact_size = all(len(u) == 1 for u in self.units)
        self._measure()

    def _columns(self, call: Drawn) -> tuple[Floats, list[list[int]]]:
        """Return the columns, with one for each value of a category, and the places of each one of the table."""
        self.labels: list[str] = []
        columns: list[Floats] = []
        places: list[list[int]] = []
        for name, values in call.table.items():
            levels: list[str | None] = [None]
            if values.dtype.kind == "U":  # text that is excluded becomes no columns
                levels = [] if list(call.table).index(name) in call.exclude else [*call.levels]
            parts = [values if level is None else (values == level).astype(float) for level in levels]
            places.append(list(range(len(columns), len(columns) + len(parts))))
            columns += parts
            self.labels += [name if level is None else f"{name}={level}" for level in levels]
        return np.column_stack(columns), places

    def _mean(self, column: Floats) -> float:
        known = ~np.isnan(column)
        return float(np.average(column[known], weights=self.w[known]))

    def filled(self, X: Floats) -> Floats:
        """Return rows with the means of the columns for missing values."""
        return np.where(np.isnan(X), self.fill, X)

    def _units(self, call: Drawn, places: list[list[int]], together: bool) -> list[Members]:
        groups = [[j for column in group for j in places[column]] for group in call.groups]
        rest = [place for column, place in enumerate(places) if not any(column in group for group in call.groups)]
        groups += rest if together else [[j] for place in rest for j in place]
        return sorted(tuple(sorted(group)) for group in groups if group)

    def _used(self, units: Iterable[Members]) -> list[Members]:
        """Return units without constant columns and those of zeros, which are never chosen."""
        useful = self.problem.preprocessed[0].any(axis=0)
        used = [tuple(j for j in u if useful[j]) for u in units]
        return [u for u in used if u]

    def _measure(self) -> None:
        """Measure all unions of units."""
        free = [u for u in self.units if u not in self.fixed | self.banned]
        more = [S for s in range(len(free) + 1) for S in combinations(free, s)]
        known = measured(self.problem, [tuple(sorted({*self.included, *(j for u in S for j in u)})) for S in more])
        self.total = float(np.square(self.problem.preprocessed[1]).sum())
        self.f = dict(zip(known.members, known.f.astype(float).tolist(), strict=True))
        self.f |= {S: self.fitted(S) for S in known.members if self.depends(S)}
        sure = known.independent | (not self.exact_size)  # a group may hold columns that depend on others
        both = [set(S) for S in self.clusters if not set(S) <= set(self.included)]
        self.allowed = {
            S: self.f[S]
            for S, ok in zip(known.members, sure.tolist(), strict=True)
            if ok and not any(len(copies & set(S)) > 1 for copies in both)
        }

    def count(self, S: Any) -> float:
        """Return the number of units of a subset; infinity if it does not consist of units."""
        units = [u for u in self.units if set(u) & set(S)]
        return len(units) if sum(map(len, units)) == len(set(S)) else np.inf

    def best(self, size: float) -> float:
        """Return the least f of the allowed subsets of at most this many units."""
        return min((f for S, f in self.allowed.items() if self.count(S) <= size), default=np.inf)

    def counts(self, S: Members, size: int) -> bool:
        """Return whether a list of this size is about a subset."""
        return self.count(S) == size if self.exact_size else self.count(S) <= size

    def best_subset(self, size: float) -> Members:
        """Return the best subset of at most this many units, without represented columns."""
        plain = [S for S in self.allowed if self.count(S) <= size and not self.represented & set(S)]
        return min(plain, key=self.allowed.__getitem__)

    @cached_property
    def scales(self) -> list[tuple[Floats, Floats]]:
        """The centers and the scales of X and of Y."""
        scales = []
        for A in (self.X, self.Y):
            center = self.w @ A / self.w.sum() if self.preprocess in ("standardize", "center") else np.zeros(A.shape[1])
            square = self.w @ (A - center) ** 2
            divided = {"standardize": square / self.w.sum(), "unit": square}
            scale = np.sqrt(divided.get(self.preprocess, np.ones(A.shape[1])))
            scales.append((center, np.where(scale > 1e-13 * abs(center), scale, 1.0)))  # 1 for constant columns
        return scales

    def fit(self, S: Members) -> tuple[Any, Any]:
        """Return the coefficients for preprocessed columns, and the function that predicts from filled rows."""
        (cx, sx), (cy, sy) = self.scales
        root, J = np.sqrt(self.w)[:, None], list(S)
        A, B = root * ((self.X - cx) / sx)[:, J], root * (self.Y - cy) / sy
        A, B = (
            np.vstack([A, np.sqrt(self.problem.lam) * np.eye(len(J))]),
            np.vstack([B, np.zeros((len(J), B.shape[1]))]),
        )
        C = np.linalg.lstsq(A, B, rcond=1e-9)[0]
        return C, lambda X: (((X - cx) / sx)[:, J] @ C) * sy + cy

    def depends(self, S: Members) -> bool:
        """Return whether rounding decides what the columns of a subset explain."""
        X = self.problem.preprocessed[0].astype(float)[:, list(S)]
        X = X / np.maximum(np.linalg.norm(X, axis=0), 1e-300)
        return self.problem.lam == 0.0 and bool(S) and np.linalg.matrix_rank(X, rtol=1e-9) < len(S)

    def fitted(self, S: Members) -> float:
        """Return f of any columns, without what rounding leaves of dependent ones."""
        C = self.fit(S)[0]
        X, Y = (A.astype(float) for A in self.problem.preprocessed)
        return float(np.square(Y - X[:, list(S)] @ C).sum() + self.problem.lam * np.square(C).sum())

    def criterion(self, by: str, S: Members, gamma: float) -> float:
        """Return an information criterion of a subset."""
        m, N, c = self.w.sum(), self.Y.shape[1], float(self.preprocess in ("standardize", "center"))
        candidates = [u for u in self.units if u not in self.banned and not self.represented & set(u)]
        (rss, df), count = self._rss_and_freedom(S), m * N
        if by == "adjusted-r2":
            return float((rss / (m - df - c)) / (self.total / (m - c)) - 1.0)
        if by == "cp":
            of_all, free = self._rss_and_freedom(tuple(sorted(j for u in candidates for j in u)))
            return float(rss / (of_all / (N * (m - free - c))) - count + 2.0 * N * (df + c))
        fit, K = count * np.log(rss / count), N * (df + c) + 1.0
        if by in ("aic", "aicc"):
            if by == "aicc" and count <= K + 1.0:
                return np.inf
            return float(fit + 2.0 * N * df + (2.0 * K * (K + 1.0) / (count - K - 1.0) if by == "aicc" else 0.0))
        choices = comb(len(candidates) - len(self.fixed), int(self.count(S)) - len(self.fixed))
        return float(fit + N * df * np.log(m) + (2.0 * gamma * np.log(choices) if by == "ebic" else 0.0))

    def _rss_and_freedom(self, S: Members) -> tuple[float, float]:
        (cx, sx), lam = self.scales[0], self.problem.lam
        values = np.linalg.svd(np.sqrt(self.w)[:, None] * ((self.X - cx) / sx)[:, list(S)], compute_uv=False) ** 2
        values = values[values > 1e-9 * values.max(initial=0.0)]
        f = self.fitted(S)
        return f - lam * float(np.square(self.fit(S)[0]).sum()), float((values / (values + lam)).sum())
