"""Check all proofs of one problem against the errors of subsets, recomputed from the data in extended precision."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from numpy.random import Generator

from dsel._lib.types import Bools
from dsel.search.exact.certificate import GROUPS, Certificate
from dsel.search.method import SearchTask
from dsel.search.registry import METHODS
from dsel.selection.represented import inexact_copies, left_out
from pipelines.proof_check.families import Problem, random_problem
from pipelines.proof_check.oracle import Subsets, measured
from pipelines.proof_check.proofs import LARGE, by_groups, limited, proofs_of
from pipelines.proof_check.stated import dependent_gap_of, rounding_of
from pipelines.proof_check.whole_runs import random_run, run_of

#: Up to this many subsets, all of them are tried.
MOST_SUBSETS = 1500
#: Differences of at most this share of ||Y||^2 are rounding of the sum ||Y||^2.
ROUNDING = 1e-15
_HEURISTICS = ("forward", "omp", "foba", "exchange", "backward", "two-stage", "approx-svd", "poss")
#: One in this many problems is also selected and certified as users do.
_WHOLE_RUNS = 6


@dataclass
class Findings:
    """What was checked about one problem, and what was wrong.

    false_bounds: a proved bound is above the error of an independent subset. missed: a finished proof has a worse
    subset than another one. false_limits: a dependent subset is better by more than the proof says. dependent: a
    certificate names a dependent subset, or one with another error than it says. failures: errors and warnings.
    refused: runs that were refused with a clear error, because squares are out of range.
    """

    proofs: int = 0
    finished: int = 0
    refused: int = 0
    false_bounds: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    false_limits: list[str] = field(default_factory=list)
    dependent: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def check_batch(batch: tuple[int, list[int]]) -> list[tuple[int, Findings]]:
    """Check the problems with these numbers: (seed, numbers)."""
    seed, numbers = batch
    return [(index, check_number(seed, index)) for index in numbers]


def check_number(seed: int, index: int) -> Findings:
    """Check the problem with a number, and one in a few also as a whole run."""
    findings = check(random_problem(seed, index), np.random.default_rng([seed, index, 2]))
    if index % _WHOLE_RUNS == 1:
        _guarded(_check_run, random_run(seed, index), findings)
    return findings


def check(problem: Problem, rng: Generator | None = None) -> Findings:
    """Run all heuristics and proofs on a problem, and compare them."""
    findings, rng = Findings(), rng or np.random.default_rng(0)
    _guarded(lambda p, f: _check(p, f, rng), problem, findings)
    return findings


def _guarded(compare: Callable[[Problem, Findings], None], problem: Problem, findings: Findings) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", category=RuntimeWarning, module="dsel")
        try:
            compare(problem, findings)
        except Exception as error:
            findings.failures.append(f"{problem.name}: {type(error).__name__}: {error}")


def _check(problem: Problem, findings: Findings, rng: Generator) -> None:
    k = min(problem.k, len(problem.others))
    subsets = [problem.planted, *_from_heuristics(problem, k), *all_subsets(problem, k)]
    proofs = list(proofs_of(problem, rng))
    known = measured(problem, [*(_with_included(problem, S) for S in subsets), *(p.indices for p in proofs)])
    for proof in proofs:
        compare(problem, proof, known, findings)
    best = [j for j in proofs[0].indices if j not in problem.include]
    if problem.objective.n < LARGE and problem.Y.shape[1] == 1 and not problem.unsupervised:
        for found in limited(problem, tuple(best)):
            known = measured(problem, [*known.members, found.indices])
            within = known.squares <= found.coefficients * found.total * (1.0 - 1e-6)
            if found.largest_coefficient:
                within = known.largest <= found.largest_coefficient * (1.0 - 1e-6)
            compare(problem, found, known, findings, within)
    if len(problem.others) <= 12:
        _check_groups(problem, findings, rng)


def all_subsets(problem: Problem, k: int) -> list[tuple[int, ...]]:
    """Return all subsets of at most k columns that are not included, or the empty one if there are too many."""
    n = len(problem.others)
    if sum(math.comb(n, s) for s in range(k + 1)) > MOST_SUBSETS:
        return [()]
    return [S for s in range(k + 1) for S in combinations(problem.others, s)]


def _with_included(problem: Problem, S: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({*problem.include, *S}))


def _check_groups(problem: Problem, findings: Findings, rng: Generator) -> None:
    """Compare a proof about groups of columns with all unions of as many groups."""
    shuffled = rng.permutation(problem.others)
    cuts = np.sort(rng.choice(shuffled.size + 1, int(rng.integers(0, max(shuffled.size // 2, 1))), replace=False))
    groups = [tuple(int(j) for j in part) for part in np.split(shuffled, cuts) if part.size]
    k = int(rng.integers(1, min(3, len(groups)) + 1))
    unions = [sum(S, ()) for s in range(k + 1) for S in combinations(groups, s)]
    proof = by_groups(problem, groups, k)
    known = measured(problem, [*(_with_included(problem, S) for S in unions), proof.indices])
    compare(problem, proof, known, findings)


def _from_heuristics(problem: Problem, k: int) -> list[tuple[int, ...]]:
    """Return the subsets of at most k columns that the heuristics find, as columns of the data."""
    found, objective = [], problem.objective
    for name in _HEURISTICS:
        method = METHODS[name]
        if method.unsupervised_only and not problem.unsupervised:
            continue
        options = method.options(**({"iterations": 2000} if name == "poss" else {}))
        outcome = method.run(SearchTask(objective, k, 1, options))
        found += [tuple(objective.in_data(point.members)) for point in outcome.front if point.size <= k]
    return found


def compare(
    problem: Problem, proof: Certificate, known: Subsets, findings: Findings, within: Bools | None = None
) -> None:  # fmt: skip
    """Compare a proof with known subsets. within: which of them it is about, by default all."""
    findings.proofs += 1
    total, covered = proof.total, np.ones(len(known.members), bool) if within is None else np.asarray(within)
    f = np.where(known.independent & covered, known.f, np.inf)
    best = int(f.argmin())
    what = f"{problem.name} k={proof.size} {proof.method}"
    if not 0.0 <= proof.bound <= f[best] + ROUNDING * total:
        above = float((proof.bound - f[best]) / total)
        findings.false_bounds.append(
            f"{what}: {above:.2e} above f of {known.members[best]} (error {rounding_of(proof):.1e})"
        )
    own, slack = known.place(proof.indices), (rounding_of(proof) + 1e-9) * total
    if known.dependent[own] and proof.method != GROUPS:  # groups may have columns that depend on others
        findings.dependent.append(f"{what}: {proof.indices} are dependent ({known.tolerance[own]:.1e})")
    if known.independent[own] and not abs(known.f[own] - proof.value) <= slack:
        findings.dependent.append(f"{what}: f of {proof.indices} is {known.f[own]}, not {proof.value}")
    if not proof.nodes:
        return
    finished = proof.status.startswith("optimal") or "astar" in proof.method
    findings.finished += finished
    if finished and proof.bound >= proof.value - 2.0 * slack and known.f[own] > f[best] + 2.0 * slack:
        findings.missed.append(
            f"{what}: {float((known.f[own] - f[best]) / total):.2e} worse than {known.members[best]}"
        )
    hidden = np.where(known.dependent & known.real & covered, known.f, np.inf)
    if finished and hidden.min() < proof.value - (dependent_gap_of(proof) + rounding_of(proof) + 1e-9) * total:
        findings.false_limits.append(f"{what}: {known.members[int(hidden.argmin())]} is better than stated")


def _check_run(problem: Problem, findings: Findings) -> None:
    """Compare the answer and the certificates of a whole run."""
    selection, certificates = run_of(problem)
    if selection is None:
        findings.refused += 1
        return
    k = max(len(selection.indices), *(proof.size for proof in certificates), 1) - len(problem.include)
    subsets = [_with_included(problem, S) for S in all_subsets(problem, k)]
    known = measured(problem, [*subsets, selection.indices, *(proof.indices for proof in certificates)])
    own = known.place(selection.indices)
    share = 1.0 - float(known.f[own] / np.square(problem.preprocessed[1]).sum())
    if problem.lam == 0.0 and not abs(share - selection.r2) <= 1e-8:
        findings.dependent.append(f"{problem.name}: R2 of {selection.indices} is {share}, not {selection.r2}")
    for proof in certificates:
        limited = proof.coefficients or proof.largest_coefficient
        clusters = selection.counts.get("copies", ())
        represented = set(left_out(clusters) if limited else inexact_copies(selection.counts))
        covered = np.array([len(S) <= proof.size and represented.isdisjoint(S) for S in known.members])
        compare(problem, proof, known, findings, covered)
