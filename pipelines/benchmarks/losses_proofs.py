"""Compare proofs for the logistic loss with those of El0ps, on the same problems.

F(S) = deviance + lam |b|^2 over k columns, without an intercept, which El0ps does not have. El0ps has a price of a
column in place of k: one for which k columns are the best, from what dsel finds for k - 1 and k + 1. It ends at a
relative gap of 1e-4, and dsel proves to rounding. Times are processor seconds with one thread, without compilation.

`proved` and `proved_by_best_peer`: how many problems. `worst_time_ratio_to_best_peer`: the time of dsel over that of
El0ps where both prove. `contradictions`: bounds above an F that the other one found.
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
from pipelines.table import json_line, text_table

#: Data sets with two classes. The others are synthetic.
_REAL = ("sonar", "ionosphere", "australian", "german.numer", "clean1", "madelon", "colon-cancer", "mushrooms")
_QUICK = ("sonar", "australian")
_ROWS, _MEMORY = 3000, 4 << 30
#: Shares of the value by which bound and value may differ before they contradict each other.
_EQUAL = 1e-6
#: Times below this many seconds count as this many.
_SHORTEST = 0.05


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


def _options(case: Case, found: LossProof, limit: float | None, seconds: float) -> dict[str, Any]:
    """Return what El0ps gets, with a price for which k columns are the best as far as dsel knows."""
    near = {k: prove_loss(case.problem(limit), k, nodes=50).value for k in range(max(case.k - 2, 0), case.k + 3)}
    price = penalty_for({**near, case.k: found.value}, case.k)
    return {"k": case.k, "lam": case.lam, "seconds": seconds, "memory": _MEMORY, "penalty": price, "largest": limit,
            "loss": "logistic"}  # fmt: skip


def _by_el0ps(case: Case, options: dict[str, Any], seconds: float, folder: Path) -> dict[str, Any]:
    if options["penalty"] is None:
        return {"skipped": "no penalty gives k columns"}
    file = folder / "problem.json"
    for name, values in (("X", case.X), ("y", case.y)):
        np.save(folder / f"{name}.npy", values)
        options = {**options, name: str(folder / f"{name}.npy")}
    file.write_text(json.dumps(options))
    name = "el0ps" if options["largest"] is None else "el0ps+M"
    return call(name, [file], seconds)[file]


def run(quick: bool, seconds: float | None = None) -> None:
    """Solve all problems, and print a table and the figures."""
    seconds = seconds or (10.0 if quick else 60.0)
    rows, ratios = [], []
    proved = by_peer = stated = contradictions = 0
    with TemporaryDirectory() as folder, threadpool_limits(1):
        for case in cases(quick):
            limit = None
            if case.limited:
                limit = 1.5 * float(np.abs(refit(case.problem(None), _best(case)).point.b).max())
            prove_loss(case.problem(limit), 1, nodes=1)  # compiles
            found, own = _by_dsel(case, case.k, limit, seconds)
            answer = _by_el0ps(case, _options(case, found, limit, seconds), seconds, Path(folder))
            theirs = bool(answer.get("proved"))
            note = answer.get("skipped") or answer.get("failed") or answer.get("stopped") or ""
            proved, by_peer, stated = proved + found.proven, by_peer + theirs, stated + ("skipped" not in answer)
            if theirs:
                inside = np.array(sorted(answer["indices"]), np.int64)
                value = refit(case.problem(limit), inside).value
                slack = _EQUAL * abs(value)
                wrong = found.bound > value + slack or answer["bound"] > found.value + slack
                contradictions += wrong
                note += " contradiction" if wrong else ""
            if theirs and found.proven:
                ratios.append(max(own, _SHORTEST) / max(answer["seconds"], _SHORTEST))
            gap = (found.value - found.bound) / found.value
            rows.append([case.name, "proved" if found.proven else f"gap {gap:.1%}", f"{own:.2f}", str(found.nodes),
                         "proved" if theirs else "open", f"{answer.get('seconds', 0.0):.2f}", note])  # fmt: skip
            print(*rows[-1], sep="  ", flush=True)
    print(text_table(["problem", "dsel", "s", "nodes", "El0ps", "s", ""], rows))
    print(json_line({"problems": len(rows), "stated_by_peer": stated, "proved": proved, "proved_by_best_peer": by_peer,
                     "worst_time_ratio_to_best_peer": max(ratios, default=None),
                     "contradictions": contradictions}))  # fmt: skip


def _best(case: Case) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return good columns, from which the limit of coefficients follows."""
    return np.array(prove_loss(case.problem(None), case.k, nodes=50).members, np.int64)
