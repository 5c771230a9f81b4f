"""Check proofs for losses against all subsets of random problems, fitted by an independent Newton method.

The fits are in extended precision, and have their own formulas of the losses. A fit is an upper bound on F of its
subset, so that a bound above it is false.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from dsel._lib.tolerances import DEPENDENCE_TOLERANCE
from dsel._lib.types import Floats
from dsel.objective.losses.gamma import Gamma
from dsel.objective.losses.huber import Huber
from dsel.objective.losses.logistic import Logistic
from dsel.objective.losses.loss import Loss
from dsel.objective.losses.poisson import Poisson
from dsel.objective.losses.quantile import Quantile
from dsel.objective.losses.squared import Squared
from dsel.search.exact.losses.grouping import Grouping
from dsel.search.exact.losses.proof import LossProblem, LossProof, dual_bound, prove_loss
from dsel.search.exact.losses.tree import LossTree
from dsel.search.exact.losses.wide_tree import prove_wide_loss
from dsel.search.exact.near_best import ListRule
from pipelines.proof_check.cox import cox_sums, random_times
from pipelines.proof_check.families import with_sums
from pipelines.proof_check.multinomial import fitted_classes, random_classes

Long = NDArray[np.longdouble]
#: Most Newton steps of a fit, the share of F by which fits may differ, and the gap that rounding may leave.
_STEPS, _EQUAL, _GAP = 200, 1e-8, 1e-6
#: The longest step of a coefficient: differences of linear predictors, which the Cox loss takes, would be lost.
_LONGEST = 1e6


@dataclass
class LossFindings:
    """How many proofs were checked, and what was wrong with them, in words.

    false_bounds: a subset is better than a bound. missed: a finished proof has not the best subset, or another F.
    """

    proofs: int = 0
    finished: int = 0
    false_bounds: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def any(self) -> list[str]:
        """All that was wrong."""
        return self.false_bounds + self.missed + self.failures


@dataclass(frozen=True, eq=False)
class LossCase:
    """A random problem, the size of its subsets, and the columns or groups that are in and out of all."""

    name: str
    problem: LossProblem
    k: int
    include: tuple[int, ...]
    exclude: tuple[int, ...]

    @property
    def subsets(self) -> list[tuple[int, ...]]:
        """All allowed subsets of k columns or groups, or of as many as there are."""
        others = [j for j in range(self.problem.n) if j not in self.include + self.exclude]
        more = min(self.k - len(self.include), len(others))
        return [tuple(sorted(self.include + S)) for S in combinations(others, more)]

    def left(self, S: tuple[int, ...]) -> float:
        """Return the least share of its square that the others leave of a column of S; 1 for groups."""
        problem = self.problem
        if problem.groups is not None or not S:
            return 1.0
        Z, w = (np.asarray(v, np.longdouble) for v in (problem.Z[:, list(S)], problem.w))
        Z = (Z - (w @ Z / w.sum()) * problem.intercept) * np.sqrt(w)[:, None]
        K = Z.T @ Z + problem.lam * np.eye(len(S))
        if not (np.diag(K) > 0.0).all():
            return 0.0
        scale = np.sqrt(np.diag(K))
        values, V = np.linalg.eigh((K / np.outer(scale, scale)).astype(np.float64))
        return float(1.0 / (np.square(V) / np.maximum(values, 1e-16)).sum(axis=1).max())

    def fitted(self, subsets: Sequence[tuple[int, ...]]) -> tuple[Long, Long]:
        """Return F of subsets of one size, and the largest size of a coefficient of each."""
        fit = fitted if self.problem.loss.outputs == 1 else fitted_classes
        if self.problem.groups is None:
            return fit(self.problem, subsets)
        starts = self.problem.groups.starts.tolist()
        columns = [tuple(j for g in S for j in range(starts[g], starts[g + 1])) for S in subsets]
        fits = [fit(self.problem, [S]) for S in columns]
        return np.concatenate([f for f, _ in fits]), np.concatenate([b for _, b in fits])

    def with_groups(self, seed: int, index: int) -> LossCase:
        """Return the case, one in three with groups of columns, unless these could fit all rows exactly."""
        rng, n = np.random.default_rng([seed, index, 14]), self.problem.Z.shape[1]
        free = self.problem.lam == 0.0 and self.problem.limit is None
        if rng.random() > 1.0 / 3.0 or (free and np.count_nonzero(self.problem.w) <= n + 1):
            return self  # at an exact fit F is 0, and the deviance of the fits is their rounding
        most = 3 if self.problem.limit is None else 2  # fits at limits take 3^columns trials
        sizes: list[int] = []
        while sum(sizes) < n:
            sizes.append(min(int(rng.integers(1, most + 1)), n - sum(sizes)))
        g = len(sizes)
        k = int(rng.integers(1, max(2, min(g, most + 1))))
        order = rng.permutation(g).tolist()
        include = tuple(order[: int(rng.integers(0, k + 1))]) if rng.random() < 0.3 else ()
        exclude = tuple(order[-1:]) if rng.random() < 0.3 and len(include) + 1 < g else ()
        problem = replace(self.problem, groups=Grouping.of_sizes(sizes))
        return LossCase(f"{self.name} groups {sizes}", problem, k, include, exclude)


def random_loss_case(seed: int, index: int) -> LossCase:
    """Return the random problem with this number."""
    rng = np.random.default_rng([seed, index, 11])
    m, n = int(rng.integers(6, 40)), int(rng.integers(3, 9))
    if rng.random() < 0.15:  # few rows, and often fewer than columns
        m = int(rng.integers(4, n + 3))
    Z = rng.standard_normal((m, n))
    shape = str(rng.choice(["normal", "correlated", "copies", "binary", "scaled", "means", "sums", "sums"]))
    penalty = str(rng.choice(["lam", "lam", "tiny", "box", "both", "none"]))
    if shape == "correlated":
        Z = 0.3 * Z + rng.standard_normal((m, 1))
    elif shape == "copies":
        least = -3.0 if penalty == "none" else -9.0  # without a penalty, nearly equal columns are nobody's optimum
        Z[:, -1] = Z[:, 0] + 10.0 ** rng.uniform(least, -1.0) * rng.standard_normal(m)
    elif shape == "binary":
        Z = (Z > 0.7).astype(np.float64)
    elif shape == "scaled":
        Z *= 10.0 ** rng.uniform(-2, 2, n)
    elif shape == "means":
        Z += 10.0 ** rng.uniform(0, 4) * rng.standard_normal(n)
    elif shape == "sums":
        Z = with_sums(Z, rng)
    signal = Z[:, :2] @ rng.standard_normal(2)
    signal = (signal - signal.mean()) / max(float(signal.std()), 1e-9) * rng.choice([0.0, 1.0, 1.0, 4.0])
    names = ("squared", "logistic", "poisson", "gamma", "huber", "cox")
    name = names[index % 7]  # those with classes are others
    loss, y = _targets(name, signal, rng)
    w = np.ones(m) if rng.random() < 0.5 else 10.0 ** rng.uniform(-3, 3, m) * (rng.random(m) < rng.choice([0.9, 0.5]))
    if not w.any() or (name == "cox" and not w[~np.signbit(y)].any()):
        w = np.ones(m)
    offset = np.zeros(m) if rng.random() < 0.6 else rng.standard_normal(m)
    size = float(np.median(np.einsum("i,ij,ij->j", w, Z, Z)))
    lam = {"lam": size * 10.0 ** rng.uniform(-3, 1), "tiny": size * 10.0 ** rng.uniform(-9, -4),
           "both": size * 10.0 ** rng.uniform(-4, 0)}.get(penalty, 0.0)  # fmt: skip
    limit = 10.0 ** float(rng.uniform(-2, 1)) if penalty in ("box", "both") else None
    k = int(rng.integers(1, min(n, 4)))
    order = rng.permutation(n).tolist()
    include = tuple(order[: int(rng.integers(0, k + 1))]) if rng.random() < 0.3 else ()
    exclude = tuple(order[-1:]) if rng.random() < 0.3 and len(include) + 1 < n else ()
    problem = LossProblem(Z, y, w, offset, loss, lam, bool(rng.random() < 0.7), limit)
    return LossCase(f"{name} {shape} {penalty}", problem, k, include, exclude)


def _targets(name: str, signal: Floats, rng: Generator) -> tuple[Loss, Floats]:
    """Return a loss and targets that follow a signal (m,)."""
    m = signal.size
    if name == "cox":
        return random_times(signal, rng)
    if name == "logistic":
        y = (rng.random(m) < 1.0 / (1.0 + np.exp(-signal))).astype(np.float64)
        y[:2] = 0.0, 1.0
        return Logistic(), y
    if name == "poisson":
        y = rng.poisson(np.exp(np.minimum(signal, 6.0)) * rng.choice([0.3, 3.0])).astype(np.float64)
        y[0] += 1.0
        return Poisson(), y
    if name == "gamma":
        return Gamma(), rng.gamma(rng.choice([0.7, 3.0]), np.exp(signal)) + 1e-6
    y = signal + rng.standard_t(2, m) * rng.choice([0.1, 1.0])
    width = float(rng.choice([0.3, 1.5]))
    if name == "huber":
        return Huber(width) if rng.random() < 0.5 else Quantile(float(rng.choice([0.1, 0.5, 0.8])), width), y
    return Squared(), y


def _derivatives(loss: Loss, y: Long, eta: Long) -> tuple[Long, Long, Long]:
    """Return deviance, slope and curvature, by formulas of their own, in extended precision."""
    one = np.longdouble(1.0)
    if loss.name == "logistic":
        size = np.exp(-np.abs(eta))
        p = np.where(eta > 0, one / (one + size), size / (one + size))
        towards = np.where(y > 0.5, -eta, eta)
        return 2 * (np.maximum(towards, 0) + np.log1p(size)), 2 * (p - y), 2 * size / (one + size) ** 2
    if loss.name == "poisson":
        mean = np.exp(np.minimum(eta, 5000))
        own = np.where(y > 0, y * np.log(np.where(y > 0, y, one)) - y, 0)
        return 2 * (mean - y * eta + own), 2 * (mean - y), 2 * mean
    if loss.name == "gamma":
        ratio = y * np.exp(np.minimum(-eta, 5000))
        return 2 * (ratio + eta - np.log(y) - one), 2 * (one - ratio), 2 * ratio
    r = y - eta
    if isinstance(loss, Quantile):
        tau, h = np.longdouble(loss.level), np.longdouble(loss.width)
        high, low = r > tau * h, r < (tau - one) * h
        value = np.where(high, tau * r - tau**2 * h / 2, (tau - one) * r - (one - tau) ** 2 * h / 2)
        value = np.where(high | low, value, r * r / (2 * h))
        return value, -np.where(high, tau, np.where(low, tau - one, r / h)), np.where(high | low, 0 * one, one / h)
    if isinstance(loss, Huber):
        delta = np.longdouble(loss.delta)
        inside = np.abs(r) <= delta
        value = np.where(inside, r * r, 2 * delta * np.abs(r) - delta * delta)
        return value, np.where(inside, -2 * r, -2 * delta * np.sign(r)), np.where(inside, 2 * one, 0 * one)
    return r * r, -2 * r, np.full(np.shape(r), 2 * one)


def fitted(problem: LossProblem, subsets: Sequence[tuple[int, ...]]) -> tuple[Long, Long]:
    """Return F of subsets of one size, and the largest size of a coefficient of each."""
    f, b = _newton(problem, subsets, {})
    if problem.limit is None or not subsets[0]:
        return f, np.abs(b).max(axis=1, initial=0.0)
    for i, S in enumerate(subsets):
        if (np.abs(b[i]) > problem.limit).any():
            f[i] = min(_at_limits(problem, S))
    return f, np.full(len(subsets), problem.limit, np.longdouble)


def _at_limits(problem: LossProblem, S: tuple[int, ...]) -> Iterator[Any]:
    """Yield F at coefficients within the limit, for each way in which some are at it."""
    assert problem.limit is not None
    for signs in product((0, 1, -1), repeat=len(S)):
        at = {i: sign * problem.limit for i, sign in enumerate(signs) if sign}
        f, b = _newton(problem, [S], at)
        if (np.abs(b) <= problem.limit).all():
            yield f[0]


def _newton(problem: LossProblem, subsets: Sequence[tuple[int, ...]], at: dict[int, float]) -> tuple[Long, Long]:
    """Return F (B,) and coefficients (B, s) of B subsets of s columns, where those in `at` have these coefficients."""
    used = problem.w > 0.0
    y, w, o = (np.asarray(v[used], np.longdouble) for v in (problem.y, problem.w, problem.offset))
    S = np.asarray(subsets, np.int64).reshape(len(subsets), -1)
    B, s = S.shape
    X = np.concatenate([np.asarray(problem.Z[used], np.longdouble)[:, S].transpose(1, 0, 2), np.ones((B, y.size, 1))],
                       axis=2)  # fmt: skip
    lam = np.array([problem.lam] * s + [0.0], np.longdouble)
    free = s + (problem.intercept and problem.loss.has_intercept)
    loose = np.array([i for i in range(free) if i not in at], np.int64)
    b = np.zeros((B, s + 1), np.longdouble)
    for i, value in at.items():
        b[:, i] = value
    if problem.intercept:  # coefficients at their limits, times columns of large means, are a long way for Newton steps
        b[:, s] = -np.einsum("bmi,bi->bm", X[:, :, :s], b[:, :s]).mean(axis=1)

    def value_at(b: Long) -> Long:
        eta = o + np.einsum("bmi,bi->bm", X, b)
        return np.asarray(_sums(problem.loss, y, w, eta, X[:, :, :0])[0] + (lam * b * b).sum(axis=1))

    f = value_at(b)
    tiny = np.longdouble(1e-18)
    for _ in range(_STEPS if loose.size else 0):
        eta = o + np.einsum("bmi,bi->bm", X, b)
        _, g, H = _sums(problem.loss, y, w, eta, X[:, :, loose])
        g, H = g + (2 * lam * b)[:, loose], H + 2 * np.diag(lam[loose])
        step = np.zeros_like(b)
        step[:, loose] = -_solve(H, g)
        if not problem.loss.by_rows:
            step *= np.minimum(1, _LONGEST / np.maximum(np.abs(step).max(axis=1, keepdims=True), 1))
        share, open_ = np.ones(B, np.longdouble), np.ones(B, np.bool_)
        new, moved = f.copy(), b.copy()
        for _ in range(45):
            trial = b + share[:, None] * step
            found = value_at(trial)
            better = open_ & (found < f)
            new[better], moved[better] = found[better], trial[better]
            open_ &= ~better
            if not open_.any():
                break
            share[open_] /= 2
        settled = (f - new <= tiny * np.abs(f)).all()
        f, b = new, moved
        if settled:
            break
    return f, b[:, :s]


def _sums(loss: Loss, y: Long, w: Long, eta: Long, A: Long) -> tuple[Long, Long, Long]:
    """Return the deviance (B,) at linear predictors (B, m), and its derivatives by the coefficients of A (B, m, s)."""
    if loss.name == "cox":
        return cox_sums(y, w, eta, A)
    value, slope, curvature = _derivatives(loss, y, eta)
    H = np.einsum("bmi,bm,bmj->bij", A, w * np.maximum(curvature, 1e-9), A)
    return np.maximum((w * value).sum(axis=1), 0), np.einsum("bm,bmi->bi", w * slope, A), H


def _solve(H: Long, g: Long) -> Long:
    """Return H^-1 g for stacks of positive definite matrices, by Cholesky decomposition."""
    n = H.shape[1]
    scale = 1 / np.sqrt(np.maximum(np.einsum("bii->bi", H), np.longdouble(1e-300)))
    L, x = H * scale[:, :, None] * scale[:, None, :] + 1e-18 * np.eye(n), g * scale
    for j in range(n):
        L[:, j, j] = np.sqrt(np.maximum(L[:, j, j] - (L[:, j, :j] ** 2).sum(axis=1), np.longdouble(1e-19)))
        for i in range(j + 1, n):
            L[:, i, j] = (L[:, i, j] - (L[:, i, :j] * L[:, j, :j]).sum(axis=1)) / L[:, j, j]
        x[:, j] = (x[:, j] - (L[:, j, :j] * x[:, :j]).sum(axis=1)) / L[:, j, j]
    for j in reversed(range(n)):
        x[:, j] = (x[:, j] - (L[:, j + 1 :, j] * x[:, j + 1 :]).sum(axis=1)) / L[:, j, j]
    return np.asarray(x * scale)


def check_loss(seed: int, index: int) -> LossFindings:
    """Check the proofs of the random problem with this number. Every seventh one has three or more classes."""
    if index % 7 == 6:
        return _check_classes(seed, index)
    case, findings = random_loss_case(seed, index).with_groups(seed, index), LossFindings()
    problem, what = case.problem, f"{case.name} k={case.k} in={case.include} out={case.exclude}"
    rng = np.random.default_rng([seed, index, 12])
    try:
        subsets = case.subsets
        f, sizes = case.fitted(subsets)
        total = float(case.fitted([()])[0][0])
        for a in _vectors(problem, rng):
            bound = dual_bound(problem, a, case.k, case.include, case.exclude)
            if bound > f.min() and problem.lam + (problem.limit or 0.0) > 0.0:
                findings.false_bounds.append(f"{what}: {bound} of a vector, and {f.min()} is possible")
        for nodes in (int(rng.integers(1, 8)), None):
            options: dict[str, Any] = {"include": case.include, "exclude": case.exclude, "nodes": nodes}
            found = prove_loss(problem, case.k, **options)
            findings.proofs += 1
            findings.finished += found.proven
            _compare(found, f, sizes, total, nodes is None, what, findings)
            if problem.groups is None and (problem.lam > 0.0 or problem.limit is not None):
                found = _by_pool(case, nodes, rng)
                findings.proofs += 1
                findings.finished += found.proven
                _compare(found, f, sizes, total, nodes is None, f"{what} (pool)", findings)
            if case.k > len(case.include) and len(subsets[0]) == case.k:
                _check_list(case, nodes, f, sizes, total, rng, what, findings)
        for found, source in _followers(case, rng):
            findings.proofs += 1
            findings.finished += found.proven
            _compare(found, f, sizes, total, True, f"{what} ({source})", findings)
    except Exception as error:  # a finding, like the others
        findings.failures.append(f"{what}: {type(error).__name__}: {error}")
    return findings


def _check_classes(seed: int, index: int) -> LossFindings:
    """Check the proofs of a random problem with three or more classes."""
    case, findings = LossCase(*random_classes(seed, index)).with_groups(seed, index), LossFindings()
    what = f"{case.name} k={case.k} in={case.include} out={case.exclude}"
    try:
        f, sizes = case.fitted(case.subsets)
        total = float(case.fitted([()])[0][0])
        for nodes in (1 + index % 5, None):
            found = prove_loss(case.problem, case.k, include=case.include, exclude=case.exclude, nodes=nodes)
            findings.proofs += 1
            findings.finished += found.proven
            _compare(found, f, sizes, total, nodes is None, what, findings)
    except Exception as error:  # a finding, like the others
        findings.failures.append(f"{what}: {type(error).__name__}: {error}")
    return findings


@dataclass(frozen=True)
class _Columns:
    """The columns of a problem, as a tree with a pool reads them."""

    Z: Floats
    allowed: NDArray[np.bool_]

    def products(self, duals: Floats, errors: Floats) -> Floats:
        """Return the sizes of the products, and what rounding is worth."""
        rounding = np.outer(np.linalg.norm(self.Z, axis=0), 1e-14 * np.linalg.norm(duals, axis=0) + errors)
        return np.asarray(np.abs(self.Z.T @ duals) + rounding)

    def read(self, columns: NDArray[np.int64]) -> Floats:
        """Return some columns."""
        return self.Z[:, columns]


def _by_pool(case: LossCase, nodes: int | None, rng: Generator) -> LossProof:
    """Return the proof of a tree whose pool begins with few columns."""
    problem = case.problem
    allowed = np.ones(problem.Z.shape[1], np.bool_)
    allowed[list(case.exclude)] = False
    incumbent = case.subsets[int(rng.integers(len(case.subsets)))]
    columns = _Columns(problem.Z, allowed)
    empty = replace(problem, Z=problem.Z[:, :0])
    return prove_wide_loss(empty, columns, case.k, incumbent, include=case.include, first=2, nodes=nodes)


def _vectors(problem: LossProblem, rng: Generator) -> Iterator[Floats]:
    """Yield dual vectors of many kinds, or linear predictors for a loss that is not a sum over rows."""
    m, n = problem.Z.shape
    yield np.zeros(m)
    yield np.asarray(rng.standard_normal(m))
    for size in (0.01, 1.0):
        eta = problem.offset + size * problem.Z @ rng.standard_normal(n) / np.maximum(np.abs(problem.Z).max(), 1.0)
        yield problem.rows.slope(eta) if problem.loss.by_rows else eta


def _compare(
    found: LossProof, f: Long, sizes: Long, total: float, finished: bool, what: str, findings: LossFindings
) -> None:  # fmt: skip
    """Compare a proof with F and the coefficients of all subsets. total: F without columns.

    The subset that is found may have larger coefficients than those that the proof is about, and be better than these.
    """
    best = f[sizes <= found.limit].min(initial=np.inf)
    for bound in (found.bound, found.root_bound):
        if bound > best:
            findings.false_bounds.append(f"{what}: the bound {bound}, and {best} is possible")
    # Such as a separable fit, and columns of so unequal scales that rounding is worth more than the gap.
    open_end = (np.isfinite(found.limit) and not found.proven) or found.ended == "rounding"
    slack = _EQUAL * total
    right = f.min() - slack <= found.value <= best + slack
    if finished and not open_end and not (found.proven and right):
        findings.missed.append(f"{what}: {found.members} with {found.value} is the best, not {f.min()} ({found.ended})")
    if finished and not open_end and found.value - found.bound > _GAP * total:
        findings.missed.append(f"{what}: the proof ends with {found.bound} below {found.value}")


def _check_list(
    case: LossCase, nodes: int | None, f: Long, sizes: Long, total: float, rng: Generator, what: str,
    findings: LossFindings,
) -> None:  # fmt: skip
    """Compare near-best subsets, verdicts and prices with all subsets, but for those within rounding of the limit."""
    within, limit = float(rng.choice([0.0, 0.02, 0.3])), int(rng.choice([2, 1000]))
    found = prove_loss(
        case.problem, case.k, include=case.include, exclude=case.exclude, nodes=nodes, listing=ListRule(within, limit)
    )  # fmt: skip
    near = found.near_best
    assert near is not None
    findings.proofs += 1
    findings.finished += found.proven
    columns = [j for j in range(case.problem.n) if j not in case.include + case.exclude]
    inside = np.array([[j in S for j in columns] for S in case.subsets])
    covered, slack = sizes <= found.limit, _EQUAL * total
    left = np.array([case.left(S) for S in case.subsets])
    possible = left > 0.5 * DEPENDENCE_TOLERANCE
    clear = covered & (left > 2.0 * DEPENDENCE_TOLERANCE) & (f < near.threshold - slack)
    listed = {tuple(sorted((*case.include, *(columns[i] for i in S)))): value for S, value in near.subsets}
    lacking = [S for S, one in zip(case.subsets, clear, strict=True) if one and S not in listed]
    if near.complete and lacking:
        findings.missed.append(f"{what}: the list lacks {lacking[0]}")
    for S, value in listed.items():
        least = float(f[case.subsets.index(S)])
        if not possible[case.subsets.index(S)]:
            findings.missed.append(f"{what}: {S} is listed, and is dependent")
        if not least - slack <= value <= max(least, near.threshold) + slack:
            findings.missed.append(f"{what}: {S} is listed with {value}, and has {least}")
    for i, (j, verdict) in enumerate(zip(columns, near.verdicts, strict=True)):
        having, without = inside[:, i], ~inside[:, i]
        wrong = {"useless": having, "necessary": without}.get(verdict)
        if wrong is not None and (clear & wrong).any():
            findings.false_bounds.append(f"{what}: column {j} is not {verdict}")
        for bound, side in ((near.bound_with[i], having), (near.bound_without[i], without)):
            if bound > f[covered & side & (left > 2.0 * DEPENDENCE_TOLERANCE)].min(initial=np.inf):
                findings.false_bounds.append(f"{what}: {bound} is the price of column {j}")


class _Keeper:
    """It keeps the leaves of a tree, or lets a tree follow them."""

    def __init__(self, kept: dict[str, Any] | None = None) -> None:
        self.kept = kept or {}

    def begin(self, tree: LossTree) -> None:
        """Follow the leaves that are known."""
        tree.keeps = True
        if self.kept:
            tree.follow(self.kept)

    def after_node(self, tree: LossTree) -> bool:
        """Continue."""
        return False

    def at_end(self, tree: LossTree) -> None:
        """Keep the leaves, not always all of them."""
        self.kept = tree.kept(2000)


def _followers(case: LossCase, rng: Generator) -> Iterator[tuple[LossProof, str]]:
    """Yield finished proofs that follow a stopped one of the same problem, and one of a problem with other weights."""
    problem, most = case.problem, int(rng.integers(1, 20))
    other = replace(problem, w=problem.w * rng.uniform(0.5, 2.0, problem.w.size))
    for source, first, nodes in (("stopped before", problem, most), ("after others", other, None)):
        keeper = _Keeper()
        prove_loss(first, case.k, include=case.include, exclude=case.exclude, nodes=nodes, watcher=keeper)
        follower = _Keeper(keeper.kept)
        yield prove_loss(problem, case.k, include=case.include, exclude=case.exclude, watcher=follower), source


def check_losses_of(batch: tuple[int, Sequence[int]]) -> list[tuple[int, LossFindings]]:
    """Check the problems with these numbers: (seed, numbers)."""
    seed, numbers = batch
    return [(index, check_loss(seed, index)) for index in numbers]
