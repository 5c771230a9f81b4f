"""Compare proofs for the logistic loss with those of El0ps, on the same problems.

F(S) = deviance + lam |b|^2 over k columns, without an intercept, which El0ps does not have. El0ps has a price of a
column in place of k: one for which k columns are the best, from what dsel finds for k - 1 and k + 1. It ends at a
relative gap of 1e-4, and dsel proves to rounding. Times are processor seconds with one thread, without compilation.

`proved` and `proved_by_best_peer`: how many problems. `worst_time_ratio_to_best_peer`: the time of dsel over that of
El0ps where both prove. `contradictions`: bounds of dsel above an F that El0ps found, as this code fits it again.
`peer_bounds_above`: bounds of El0ps above an F that dsel found, by more than the gap at which El0ps ends.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from dsel._lib.types import Floats
from dsel.objective.losses.logistic import Logistic
from dsel.search.exact.losses.local_search import refit
from dsel.search.exact.losses.proof import LossProblem, LossProof, prove_loss
from pipelines.benchmarks.proofs.problems import synthetic
from pipelines.benchmarks.proofs.solving import call, penalty_for
from pipelines.papers.datasets import load
from pipelines.papers.preprocess import standardized
from pipelines.table import text_table

#: Data sets with two classes. The others are synthetic.
_REAL = ("sonar", "ionosphere", "australian", "german.numer", "clean1", "madelon", "colon-cancer", "mushrooms")
_QUICK = ("sonar", "australian")
_ROWS, _MEMORY = 3000, 4 << 30
#: Shares of the value by which bound and value may differ before they contradict each other: of dsel, and of El0ps.
_EQUAL, _PEER_GAP = 1e-6, 1e-4
#: Times below this many seconds count as this many.
_SHORTEST = 0.05


_NOT_ASKED = {"skipped": "not asked"}


@dataclass(frozen=True)
class Case:
    """One problem: columns (m, n), classes (m,) 0 and 1, the size, the penalty and the limit of coefficients."""

    name: str
    X: Floats
    y: Floats
    k: int
    lam: float
    limited: bool = False

    def problem(self, limit: float | None) -> LossProblem:
        """Return the problem as dsel takes it."""
        m = self.y.size
        return LossProblem(self.X, self.y, np.ones(m), np.zeros(m), Logistic(), self.lam, False, limit)


def cases(quick: bool) -> Iterator[Case]:
    """Yield the problems."""
    for n, k, share, limited in (
        (100, 10, 0.01, False), (1000, 5, 0.01, False), (1000, 10, 0.01, False), (300, 10, 0.001, False),
        (300, 10, 0.001, True), (2000, 10, 0.01, False),
    )[: 2 if quick else None]:  # fmt: skip
        X = synthetic(n, 0.5)
        true = np.linspace(0.0, n - 1.0, k + 2).astype(np.int64)[1:-1]
        chance = np.random.default_rng([n, k, 2]).random(X.shape[0])
        y = (chance < 1.0 / (1.0 + np.exp(-X[:, true].sum(axis=1)))).astype(np.float64)
        yield Case(f"n={n} k={k} lam={share:g} m{' limited' if limited else ''}", X, y, k, share * X.shape[0], limited)
    for name in _QUICK if quick else _REAL:
        arrays = load(name)
        if arrays is None:
            continue
        X, labels = arrays["X"], arrays["Y"][:, 0]
        if X.shape[0] > _ROWS:  # some files have their classes in order
            rows = np.sort(np.random.default_rng(0).permutation(X.shape[0])[:_ROWS])
            X, labels = X[rows], labels[rows]
        X = standardized(X)
        X = X[:, np.isfinite(X).all(axis=0) & (np.abs(X).max(axis=0) > 0.0)]
        for k in (5,) if quick else (5, 10):
            for share in (0.01, 0.1):
                lam = share * X.shape[0]
                yield Case(f"{name} k={k} lam={share:g} m", X, (labels == labels.max()).astype(np.float64), k, lam)


def _by_dsel(case: Case, k: int, limit: float | None, seconds: float) -> tuple[LossProof, float]:
    """Return what dsel proves in these processor seconds, and how many it took."""
    load = 1.0
    for _ in range(4):  # the limit of a proof is wall time
        start, begun = time.process_time(), time.monotonic()
        found = prove_loss(case.problem(limit), k, seconds=load * seconds)
        spent = time.process_time() - start
        if found.proven or spent > 0.95 * seconds:
            break
        load *= 1.2 * max((time.monotonic() - begun) / spent, 1.0)
    return found, spent


@dataclass(frozen=True)
class Solved:
    """What dsel found for a problem, and what El0ps gets. file: of the problem, or None if El0ps cannot state it."""

    case: Case
    limit: float | None
    found: LossProof
    seconds: float
    file: Path | None


def _solved(case: Case, number: int, seconds: float, folder: Path) -> Solved:
    """Solve a problem by dsel, and write it for El0ps with a price for which k columns are the best as far as known."""
    prove_loss(case.problem(None), 1, nodes=1)  # compiles
    limit = None
    if case.limited:
        limit = 1.5 * float(np.abs(refit(case.problem(None), _best(case)).point.b).max())
    found, spent = _by_dsel(case, case.k, limit, seconds)
    near = {k: prove_loss(case.problem(limit), k, nodes=50).value for k in range(max(case.k - 2, 0), case.k + 3)}
    price = penalty_for({**near, case.k: found.value}, case.k)
    if price is None:
        return Solved(case, limit, found, spent, None)
    options = {"k": case.k, "lam": case.lam, "seconds": seconds, "memory": _MEMORY, "penalty": price,
               "largest": limit, "loss": "logistic"}  # fmt: skip
    for name, values in (("X", case.X), ("y", case.y)):
        np.save(folder / f"{number}{name}.npy", values)
        options[name] = str(folder / f"{number}{name}.npy")
    file = folder / f"{number}.json"
    file.write_text(json.dumps(options))
    return Solved(case, limit, found, spent, file)


def _compared(solved: Solved, answer: dict[str, Any]) -> tuple[list[str], bool, float | None, bool, bool]:
    """Return a row of the table, whether El0ps proves it, the ratio of the times, and whose bound is contradicted."""
    case, found, own = solved.case, solved.found, solved.seconds
    theirs, wrong, above, ratio = bool(answer.get("proved")), False, False, None
    note = str(answer.get("skipped") or answer.get("failed") or answer.get("stopped") or "")
    if theirs:
        value = refit(case.problem(solved.limit), np.array(sorted(answer["indices"]), np.int64)).value
        wrong = found.bound > value * (1.0 + _EQUAL)
        above = answer["bound"] > found.value * (1.0 + _PEER_GAP)
        note = "contradiction" if wrong else "bound of El0ps above F" if above else note
    if theirs and found.proven:
        ratio = max(own, _SHORTEST) / max(answer["seconds"], _SHORTEST)
    gap = (found.value - found.bound) / found.value
    row = [case.name, "proved" if found.proven else f"gap {gap:.1%}", f"{own:.2f}", str(found.nodes),
           "proved" if theirs else "open", f"{answer.get('seconds', 0.0):.2f}", note]  # fmt: skip
    return row, theirs, ratio, wrong, above


def run(quick: bool, seconds: float = 5.0, peer: bool = True) -> dict[str, Any]:
    """Solve all problems, print a table, and return the figures.

    peer: whether El0ps solves them, too. It compiles for half a minute.
    """
    with TemporaryDirectory() as place, threadpool_limits(1):
        solved = []
        for number, case in enumerate(cases(quick)):
            solved.append(_solved(case, number, seconds, Path(place)))
            proof = solved[-1].found
            print(case.name, proof.ended, f"{solved[-1].seconds:.2f} s", f"{proof.nodes} nodes", flush=True)
        answers: dict[Path, dict[str, Any]] = {}
        for name, limited in (("el0ps", False), ("el0ps+M", True)):
            files = [one.file for one in solved if one.file is not None and one.case.limited == limited]
            answers |= call(name, files, seconds) if files and peer else {file: _NOT_ASKED for file in files}
        none = {"skipped": "no penalty gives k columns"}
        compared = [_compared(one, none if one.file is None else answers[one.file]) for one in solved]
    ratios = [ratio for _, _, ratio, *_ in compared if ratio is not None]
    print(text_table(["problem", "dsel", "s", "nodes", "El0ps", "s", ""], [row for row, *_ in compared]))
    return {
        "problems": len(solved), "stated_by_peer": sum(one.file is not None for one in solved),
        "proved": sum(one.found.proven for one in solved), "proved_by_best_peer": sum(row[1] for row in compared),
        "worst_time_ratio_to_best_peer": max(ratios, default=None),
        "contradictions": sum(row[3] for row in compared), "peer_bounds_above": sum(row[4] for row in compared),
    }  # fmt: skip


def _best(case: Case) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return good columns, from which the limit of coefficients follows."""
    return np.array(prove_loss(case.problem(None), case.k, nodes=50).members, np.int64)
