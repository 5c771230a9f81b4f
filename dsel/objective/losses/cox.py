"""The Cox loss: survival times that may be cut off, by the partial likelihood of proportional hazards.

With the risk set R_k of the rows whose time is at least the k-th event time, and the weight D_k of the events then,

    L(eta) = 2 sum_k D_k (log sum over R_k of w_j exp(eta_j) - log D_k) - 2 sum over events of w_i eta_i.

That is -2 log partial likelihood with Breslow's formula for ties, less that of a saturated model: without ties and
weights, D_k is 1 and the difference 0. Sources: Cox, J. Royal Statistical Society B 34, 1972; Breslow, Biometrics 30,
1974; Simon, Friedman, Hastie and Tibshirani, J. Statistical Software 39, 2011 (the working response).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import scipy

from dsel._lib.types import Floats, Ints
from dsel.errors import DataError
from dsel.objective.losses.loss import LARGEST, LONGEST, VANISHES, Loss, LossOfRows, clipped_exp

_EPS = float(np.finfo(np.float64).eps)
#: Sums of exponentials whose exponents differ by more than this have several units.
_RANGE = 300.0
#: The Hessian has at least this share of the curvature of each column without its means.
_FLOOR = 1e-12


@dataclass(frozen=True)
class Cox(Loss):
    """The deviance of Cox regression for right-censored times, with Breslow's formula for ties.

    The targets of the data are two columns: the time, and 1 for an event or 0 for a time that was cut off. Encoded they
    are one number: the time, with the sign - if it was cut off.

    events: the weight of the events, which information criteria count. event_first: whether the event comes before the
    time, as where the first column has 0 and 1 alone, and the second has not. saturated: -2 log partial likelihood of a
    perfect order of the events, which is 0 without ties and weights.
    """

    events: float | None = None
    event_first: bool = False
    saturated: float = 0.0

    name = "cox"
    link = "log hazard"
    summary = "times to an event, right-censored: the deviance of Cox regression (proportional hazards)"
    by_rows = False
    has_intercept = False
    target_columns = 2
    target_words = "two targets, the time and the event"
    ratio = "hazard ratio"
    endless = "order the events"
    predicts = "hazard ratio"

    def fitted_to(self, y: Floats, w: Floats | None = None) -> Cox:
        """Return the loss with the weight of its events. y: (m, 2) time and event."""
        if y.ndim != 2 or y.shape[1] != 2:
            raise DataError(
                f'loss="cox" takes two targets, the time and the event, and the targets have the shape {y.shape}.',
                "Give two columns: the time, and 1 for an event or 0 for a time that was cut off.",
            )
        first, second = (bool(np.isin(column, (0.0, 1.0)).all()) for column in y.T)
        found = replace(self, event_first=first and not second)
        time, event = y.T[::-1] if found.event_first else y.T
        other = np.flatnonzero((event != 0.0) & (event != 1.0))
        if other.size:
            raise DataError(
                f'loss="cox" takes 1 for an event and 0 for a time that was cut off, and row {other[0]} has '
                f"{event[other[0]]:g}.",
                "Give 0 and 1, or booleans.",
            )
        wrong = np.flatnonzero(~(time >= 0.0) | np.isinf(time))
        if wrong.size:
            raise DataError(
                f'loss="cox" takes times of at least 0, and row {wrong[0]} has {time[wrong[0]]:g}.',
                "Correct the times, or leave these rows out.",
            )
        events = float((event if w is None else event * w).sum())
        if not events > 0.0:
            raise DataError(
                "No row with weight has an event: all times are cut off, which says nothing about hazard ratios.",
                "Check the second target: 1 says that the event happened.",
            )
        D = RiskSets(found, found.encode(y), np.ones(len(y)) if w is None else w).D
        return replace(found, events=events, saturated=2.0 * float(scipy.special.xlogy(D, D).sum()))

    def encode(self, y: Floats) -> Floats:
        """Return the times (m,), with the sign - of those that were cut off."""
        time, event = y.T[::-1] if self.event_first else y.T
        return np.asarray(np.copysign(time, event - 0.5))

    def of_rows(self, y: Floats, w: Floats) -> RiskSets:
        """Return the loss of rows as a function of all linear predictors."""
        return RiskSets(self, y, w)

    def count(self, rows: float) -> float:
        """Return the weight of the events, as R does for BIC."""
        return rows if self.events is None else self.events

    def likelihood(self, deviance: float, count: float) -> float:
        """Return -2 log partial likelihood."""
        return deviance + self.saturated

    def deviance(self, y: Floats, eta: Floats) -> Floats:
        """Return what each row adds to L, if these are all rows: events have the logarithm of their risk set."""
        return self.of_rows(y, np.ones(len(y))).terms(eta)

    def slope(self, y: Floats, eta: Floats) -> Floats:
        """Return the gradient of L, if these are all rows."""
        return self.of_rows(y, np.ones(len(y))).slope(eta)

    def curvature(self, y: Floats, eta: Floats) -> Floats:
        """Return the diagonal of the Hessian of L, if these are all rows."""
        return self.of_rows(y, np.ones(len(y))).diagonal(eta)

    def conjugate(self, y: Floats, a: Floats) -> Floats:
        """Return terms (m,) whose sum is the conjugate of L, if these are all rows.

        The events of each time put their number into a pool. The rows that leave before the next event time take
        c = event + a / 2 from it, which must be possible. The conjugate is twice the sum of c log c, and of Q log Q of
        what stays in the pool Q, less V log V of what was in it, and the sum of D log D.
        """
        sets = self.of_rows(y, np.ones(len(y)))
        c, group = sets.event + a / 2.0, sets.group
        taken = np.bincount(group, c, sets.D.size + 1)[1:]
        stays = np.cumsum(sets.D - taken)
        stays[-1] = stays[-1] if abs(stays[-1]) > 1e-9 * sets.D.sum() else 0.0
        before = np.append(0.0, stays[:-1]) + sets.D
        slack = 1e-9 * sets.D.sum()
        possible = (c >= -slack).all() and (stays >= -slack).all() and stays[-1] == 0.0
        if not (possible and (np.abs(a[group == 0]) <= slack).all()):
            return np.full(len(y), np.inf)
        c, stays = np.maximum(c, 0.0), np.maximum(stays, 0.0)
        terms = 2.0 * scipy.special.xlogy(c, c)
        pools = scipy.special.xlogy(stays, stays) - scipy.special.xlogy(before, before)
        terms[0] += 2.0 * float((pools + scipy.special.xlogy(sets.D, sets.D)).sum())
        return np.asarray(terms)

    def notes(self) -> tuple[str, ...]:
        """Return that the first target is the event, if it is."""
        return ("the first target is the event, and the second one the time",) if self.event_first else ()

    def mean(self, eta: Floats) -> Floats:
        """Return the hazard ratio to a row whose linear predictor is 0."""
        return clipped_exp(eta)


@dataclass(frozen=True)
class RiskSets(LossOfRows):
    """The Cox loss of given rows. All functions take O(m) operations after one sort by time.

    In the notation of this file: c_j = w_j exp(eta_j) sum of D_k / sum over R_k of w exp(eta), for the events up to the
    time of row j. The gradient is 2 (c - w event), and the Hessian is below 2 diag(c).
    """

    @cached_property
    def event(self) -> Floats:
        """1 for an event with weight, 0 for other rows (m,)."""
        return np.asarray(~np.signbit(self.y) & (self.w > 0.0), np.float64)

    @cached_property
    def _sorted(self) -> tuple[Ints, Floats, Ints, Ints, Floats]:
        """The rows by time, the event times, the first row of each risk set, the groups of rows, and D."""
        time = np.abs(self.y)
        order = np.argsort(time, kind="stable")
        happened = self.event > 0.0
        times, number = np.unique(time[happened], return_inverse=True)
        first = np.searchsorted(time[order], times)
        group = np.searchsorted(times, time, side="right")
        D = np.bincount(number, self.w[happened], times.size).astype(np.float64)
        return order.astype(np.int64), times, first.astype(np.int64), group.astype(np.int64), D

    @property
    def group(self) -> Ints:
        """How many event times there are up to that of each row (m,)."""
        return self._sorted[3]

    @property
    def D(self) -> Floats:
        """The weight of the events of each event time (K,)."""
        return self._sorted[4]

    @cached_property
    def _log_w(self) -> Floats:
        with np.errstate(divide="ignore"):
            return np.log(self.w)

    def _logs(self, eta: Floats) -> tuple[Floats, Floats]:
        """Return the logarithm of the sum over each risk set (K,), and of c_j of each row (m,)."""
        order, _, first, group, D = self._sorted
        size = self._log_w + eta
        risk = np.logaddexp.accumulate(size[order][::-1])[::-1][first]
        hazard = np.append(-np.inf, np.logaddexp.accumulate(np.log(D) - risk))
        return risk, size + hazard[group]

    def terms(self, eta: Floats) -> Floats:
        """Return what each row adds to L: events have the logarithm of their risk set."""
        risk, _ = self._logs(eta)
        inside = self.event > 0.0
        found = np.zeros(self.y.size)
        found[inside] = (risk - np.log(self.D))[self.group[inside] - 1] - eta[inside]
        return 2.0 * self.w * found

    def value(self, eta: Floats) -> float:
        """Return L(eta)."""
        return float(self.terms(eta).sum())

    def slope(self, eta: Floats) -> Floats:
        """Return the gradient of L, whose sum is 0."""
        return np.asarray(2.0 * (np.exp(self._logs(eta)[1]) - self.w * self.event))

    def curvature(self, eta: Floats) -> Floats:
        """Return 2 c (m,), whose diagonal matrix is above the Hessian."""
        return np.asarray(2.0 * np.exp(self._logs(eta)[1]))

    def diagonal(self, eta: Floats) -> Floats:
        """Return the diagonal of the Hessian (m,)."""
        risk, log_c = self._logs(eta)
        squares = np.append(-np.inf, np.logaddexp.accumulate(np.log(self.D) - 2.0 * risk))[self.group]
        return np.asarray(2.0 * np.maximum(np.exp(log_c) - np.exp(2.0 * (self._log_w + eta) + squares), 0.0))

    def hessian(self, eta: Floats, Z: Floats, safe: float = 0.0) -> Floats:
        """Return the Hessian of L as a function of the coefficients of the columns Z (m, s)."""
        c, means = np.exp(self._logs(eta)[1]), self._means(eta, Z).T * np.sqrt(self.D)
        H = Z.T @ (Z * c[:, None])
        floor = _FLOOR * np.diag(H)  # where the difference is rounding, it stays above 0
        return np.asarray(2.0 * (H - means @ means.T + np.diag(floor)))

    def _means(self, eta: Floats, Z: Floats) -> Floats:
        """Return the means (K, s) of the columns Z over each risk set, weighted by w exp(eta)."""
        order, _, first, _, _ = self._sorted
        latest = order[::-1]
        sums, _ = _running_sums((self._log_w + eta)[latest], np.hstack([Z, np.ones((len(Z), 1))])[latest])
        found = sums[eta.size - 1 - first]
        return np.asarray(found[:, :-1] / found[:, -1:])

    def working_response(self, eta: Floats) -> tuple[Floats, Floats]:
        """Return the weights (m,) of a least-squares model about eta, and how far its targets are below eta."""
        slope, curvature = self.slope(eta), self.curvature(eta)
        curvature = np.maximum(curvature, np.maximum(np.abs(slope) / LONGEST, 1e-12))
        return np.asarray((self.w > 0.0) * curvature / 2.0), np.asarray(slope / curvature)

    def model_to_null(self, eta: Floats, null: Floats) -> tuple[Floats, Floats]:
        """Return a least-squares model about eta whose curvature does not vanish where a fit has no end.

        With the baseline hazard at eta, each row has the deviance of a count. null: up to a constant of all rows.
        """
        slope, curvature = self.slope(eta), self.curvature(eta)
        log_c = self._logs(eta)[1]
        gap = null - eta + np.log(self.D.sum()) - scipy.special.logsumexp(log_c + null - eta)
        gap = np.clip(np.where(gap < 1.0, 1.0, gap), -LARGEST, LARGEST)
        chord = 2.0 * (np.expm1(gap) - gap) / (gap * gap)
        curvature = curvature * np.where(VANISHES * chord > 1.0, chord, 1.0)
        curvature = np.maximum(curvature, np.maximum(np.abs(slope) / LONGEST, 1e-12))
        return np.asarray((self.w > 0.0) * curvature / 2.0), np.asarray(slope / curvature)

    def dual(self, eta: Floats, offset: Floats) -> tuple[Floats, float, float, float]:
        """Return the gradient a (m,) at about eta, and what it proves.

        For all linear predictors e, L(offset + e) >= constant + a'e, where a is the exact gradient.

        Returns
        -------
        tuple
            The gradient, the constant less its rounding, how much that is, and the largest error of the gradient, as
            a norm. Any eta proves something: it counts as it is in float64, relative to its largest value.
        """
        order, _, first, group, D = self._sorted
        there = self.w > 0.0
        x = np.where(there, eta - eta[there].max(), eta[there].min() - eta[there].max())
        quantum = 2.0 ** (np.ceil(np.log2(max(-x.min(), 1.0))) - 52.0)
        x = np.rint(x / quantum) * quantum  # so that differences have no rounding
        sums, units = (part[eta.size - 1 - first] for part in _running_sums(x[order[::-1]], self.w[order[::-1], None]))
        hazards, below = _running_sums(-units, D[:, None] / sums)
        before = group - 1  # rows before the first event have no hazard
        c = np.where(group > 0, self.w * np.exp(np.minimum(x + below[before], _RANGE)) * hazards[before, 0], 0.0)
        a = 2.0 * (c - self.w * self.event)
        logs, log_D = np.log(sums[:, 0]), np.log(D)
        constant = 2.0 * float(D @ (units + logs - log_D) - c @ x) + float(a @ offset)
        share = (4.0 * x.size + 64.0) * _EPS  # sums of positive numbers one after the other, and quotients of them
        error = 2.0 * share * float(np.linalg.norm(c)) + _EPS * float(np.linalg.norm(a))
        terms = 2.0 * float(D @ (2.0 + np.abs(units) + np.abs(logs) + np.abs(log_D)) - c @ x)
        rounding = share * (terms + float(np.abs(a) @ np.abs(offset))) + error * float(np.linalg.norm(offset))
        return a, constant - rounding, rounding, error

    def figures(self, eta: Floats) -> dict[str, float]:
        """Return the concordance: of the pairs whose order is known, the share in which the first has more risk."""
        from dsel.objective.kernels.concordance import concordant  # here: a finished job compiles nothing

        values, rank = np.unique(eta, return_inverse=True)
        order = self._sorted[0][::-1]
        tree, own = np.zeros(values.size + 1), np.zeros(values.size)
        ranks = np.asarray(rank.reshape(-1)[order], np.int64)
        agree, pairs = concordant(np.abs(self.y)[order], self.event[order], ranks, self.w[order], tree, own)
        return {"concordance": agree / pairs if pairs > 0.0 else float("nan")}


def _running_sums(exponents: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Return the sums over the first rows of values (r, s) times exp(exponents), and the logarithms of their units.

    Sums may grow by more than float64 has room for: ranges of rows have a unit each. Overwrites the values.
    """
    top = np.maximum.accumulate(exponents)
    top = np.maximum(top, top[np.argmax(top > -np.inf)])
    edges = [0, *(1 + np.flatnonzero(np.diff((top - top[0]) // _RANGE))), top.size]
    units = np.empty(top.size)
    for begin, end in pairwise(edges):
        rows, units[begin:end] = values[begin:end], top[begin]
        rows *= np.exp(exponents[begin:end] - top[begin])[:, None]
        if begin:
            rows[0] += values[begin - 1] * np.exp(units[begin - 1] - top[begin])
        np.cumsum(rows, axis=0, out=rows)
    return values, units
