"""Check all proofs of one problem against subsets and their errors, recomputed from the data by QR."""

from __future__ import annotations

import contextlib
import json
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from dsel._lib.tolerances import DEPENDENCE_TOLERANCE, perturbation
from dsel._lib.types import Bools, Floats, Ints
from dsel.objective.dense import DenseObjective
from dsel.search.exact.astar.search import AStar
from dsel.search.exact.bounds import BOUNDS
from dsel.search.exact.branch_and_bound.search import BranchAndBound
from dsel.search.exact.certificate import Certificate
from dsel.search.exact.perspective_tree.search import PerspectiveTree
from dsel.search.exact.proof import Proof
from dsel.search.exact.root_bound import RootBound
from dsel.search.method import SearchTask
from dsel.search.registry import METHODS
from pipelines.proof_check.families import Problem, random_problem

#: Up to this many subsets, all of them are tried.
MOST_SUBSETS = 1500
#: Differences of at most this share of ||Y||^2 are rounding in the QR.
ROUNDING = 1e-12
#: Whether a subset within this share of the tolerance is dependent is decided by rounding.
_EDGE = 1e-4
#: Limits of the searches on large problems.
_NODES, _NODES_OF_LARGE, _LARGE = 20_000, 30, 300
_HEURISTICS = ("forward", "omp", "foba", "exchange", "backward", "two-stage", "approx-svd", "poss")


@dataclass(frozen=True)
class Subsets:
    """Subsets of one problem, in rows of `members`, with their f and tolerance, from the data."""

    members: list[tuple[int, ...]]
    f: Floats
    tolerance: Floats

    @property
    def independent(self) -> Bools:
        """Return which subsets are surely independent."""
        return np.asarray(self.tolerance > DEPENDENCE_TOLERANCE * (1.0 + _EDGE))


@dataclass
class Findings:
    """What was checked about one problem, and what was wrong.

    false_bounds: a proved bound is above the error of an independent subset. missed: a finished proof has a worse
    subset than another one. false_limits: a dependent subset is better by more than `excluded` says. not_finite: bounds
    that were not finite. failures: errors and warnings.
    """

    proofs: int = 0
    finished: int = 0
    false_bounds: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    false_limits: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    not_finite: int = 0


def measured(problem: Problem, members: Iterable[Sequence[int]]) -> Subsets:
    """Return f and the tolerance of subsets, by QR of [X_S; sqrt(lam) I]."""
    wanted = sorted({tuple(sorted(int(j) for j in S)) for S in members}, key=lambda S: (len(S), S))
    f, tolerance = [], []
    for size in sorted({len(S) for S in wanted}):
        group = np.array([S for S in wanted if len(S) == size], np.int64)
        for start in range(0, len(group), 4096):
            found = _by_qr(problem, group[start : start + 4096])
            f.append(found[0])
            tolerance.append(found[1])
    return Subsets(wanted, np.concatenate(f), np.concatenate(tolerance))


def _by_qr(problem: Problem, S: Ints) -> tuple[Floats, Floats]:
    """Return f (t,) and the least share (t,) that the others leave of a column, of the subsets S (t, s)."""
    t, s = S.shape
    total = float(np.square(problem.Y).sum())
    if s == 0:
        return np.full(t, total), np.ones(t)
    columns = np.ascontiguousarray(problem.X.T[S].transpose(0, 2, 1))  # (t, m, s)
    columns = np.concatenate([columns, np.broadcast_to(math.sqrt(problem.lam) * np.eye(s), (t, s, s))], axis=1)
    norms = np.sqrt(np.square(columns).sum(axis=1))
    columns = columns / np.where(norms > 0.0, norms, 1.0)[:, None, :]
    Q, R = np.linalg.qr(columns)
    targets = np.vstack([problem.Y, np.zeros((s, problem.Y.shape[1]))])
    left = targets - Q @ (Q.transpose(0, 2, 1) @ targets)
    tolerance = np.zeros(t)
    for i in range(t):
        diagonal = np.abs(np.diag(R[i]))
        if R.shape[1] == s and diagonal.min() > 1e-13:
            inverse = np.linalg.solve(R[i], np.eye(s))
            tolerance[i] = 1.0 / np.square(inverse).sum(axis=1).max()
    return np.square(left).sum(axis=(1, 2)), tolerance


def check_batch(batch: tuple[int, list[int]]) -> list[tuple[int, Findings]]:
    """Check the problems with these numbers: (seed, numbers)."""
    seed, numbers = batch
    return [(index, check(random_problem(seed, index))) for index in numbers]


def check(problem: Problem) -> Findings:
    """Run all heuristics and proofs on a problem, and compare them."""
    findings = Findings()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", category=RuntimeWarning, module="dsel")
        try:
            _check(problem, findings)
        except Exception as error:
            findings.failures.append(f"{problem.name}: {type(error).__name__}: {error}")
    return findings


def _check(problem: Problem, findings: Findings) -> None:
    objective, k, n = problem.objective, min(problem.k, problem.X.shape[1]), problem.X.shape[1]
    subsets = [problem.planted, *_found(problem, objective, k, findings)]
    if sum(math.comb(n, s) for s in range(k + 1)) <= MOST_SUBSETS:
        subsets += [S for s in range(k + 1) for S in combinations(range(n), s)]
    proofs = list(_proofs(objective, k, n, findings))
    known = measured(problem, [*subsets, *(p.indices for p in proofs), ()])
    for proof in proofs:
        _compare(problem, proof, known, findings)


def _found(problem: Problem, objective: DenseObjective, k: int, findings: Findings) -> list[tuple[int, ...]]:
    """Return the subsets of at most k columns that the heuristics find."""
    found = []
    for name in _HEURISTICS:
        method = METHODS[name]
        if method.unsupervised_only and not problem.unsupervised:
            continue
        options = method.options(**({"iterations": 2000} if name == "poss" else {}))
        outcome = method.run(SearchTask(objective, k, 1, options))
        found += [point.members for point in outcome.front if point.size <= k]
    return found


def _proofs(objective: DenseObjective, k: int, n: int, findings: Findings) -> Iterable[Certificate]:
    """Yield what every exact search proves about an objective, without a known subset and with one."""
    nodes = _NODES if n < 40 else _NODES_OF_LARGE
    searches: list[Any] = [BranchAndBound(objective, k, bound=bound, most_open=0) for bound in BOUNDS]
    if n < _LARGE:
        searches += [BranchAndBound(objective, k, pairs=False), AStar(objective, k, bound="combined")]
    searches += [AStar(objective, k), RootBound(objective, k), *_relaxed(objective, k)]
    for search in searches:
        if not isinstance(search, RootBound):
            search.advance(nodes if isinstance(search, BranchAndBound) else min(nodes, 400 if n < _LARGE else 5))
        findings.not_finite += getattr(search, "not_finite", 0)
        value = objective.value(search.best)
        yield Certificate(
            k, value, search.proved, objective.total, search.best, method=f"{search.kind} {search.bound_name}",
            rounding_error=search.guarantee.error, dependent_gap=search.guarantee.hidden(value, objective),
            nodes=int(search.done and not isinstance(search, RootBound)),
        )  # fmt: skip
    if n < _LARGE:
        for limit in (1, nodes):
            proof = Proof.begin(objective, k)
            proof.run(nodes=limit)
            json.dumps(proof.state(), allow_nan=False)
            found = proof.certificate()
            json.dumps(found.as_dict(), allow_nan=False)
            yield found


def _relaxed(objective: DenseObjective, k: int) -> Iterator[PerspectiveTree]:
    """Yield trees of relaxations: with the usual diagonal, with the best one, and with nodes that are handed over."""
    for after, hands_over in ((None, False), (0.0, False), (None, True)):
        with contextlib.suppress(ValueError):
            yield PerspectiveTree(objective, k, diagonal_after=after, hands_over=hands_over)


def _compare(problem: Problem, proof: Certificate, known: Subsets, findings: Findings) -> None:
    findings.proofs += 1
    total, f = proof.total, np.where(known.independent, known.f, np.inf)
    best = int(f.argmin())
    what = f"{problem.name} k={proof.size} {proof.method}"
    if not 0.0 <= proof.bound <= f[best] + ROUNDING * total:
        above = (proof.bound - f[best]) / total
        findings.false_bounds.append(
            f"{what}: {above:.2e} above f of {known.members[best]} (error {proof.rounding_error:.1e})"
        )
    if not proof.nodes:
        return
    own = known.f[known.members.index(tuple(sorted(proof.indices)))]
    finished = proof.status.startswith("optimal") or "astar" in proof.method
    findings.finished += finished
    slack = (proof.rounding_error + 1e-9) * total
    if finished and proof.bound >= proof.value - 2.0 * slack and own > f[best] + 2.0 * slack:
        findings.missed.append(f"{what}: {(own - f[best]) / total:.2e} worse than {known.members[best]}")
    real = known.tolerance > 100.0 * perturbation(problem.X.shape[1])
    hidden = np.where(~known.independent & real & (known.tolerance < DEPENDENCE_TOLERANCE), known.f, np.inf)
    least = proof.value - (proof.dependent_gap + 1e-6) * total
    if finished and hidden.min() < least:
        findings.false_limits.append(f"{what}: {known.members[int(hidden.argmin())]} is better than stated")
