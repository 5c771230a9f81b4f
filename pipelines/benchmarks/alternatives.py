"""Measure lists of near-best subsets: the time compared with one proof, and how many columns are decided.

`verdicts_over_one_proof`: the CPU seconds of the list with all verdicts, from the best subset, over those of the proof
of that subset; the worst of the data sets. `decided_1000`: of 1000 correlated columns with a small ridge penalty, the
share that is decided in 60 CPU seconds; the worst of several draws. `decided_1000_noisy`: the same with as much noise
as signal, where the best subset itself is not proved in this time.

`lmsubsets_ratio`: CPU seconds of the best subsets of all sizes (n = 40 and 60), and of the 20 best ones by BIC (n = 100
and 200), over those that lmSubsets publishes for draws of the same kind; the worst. R is not needed. Source: Hofmann,
Gatu, Kontoghiorghes, Colubi and Zeileis, "lmSubsets", J. Stat. Software 2020.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsel._lib.types import Floats
from dsel.objective.dense import DenseObjective
from dsel.search.anytime import Deadline
from dsel.search.exact.all_sizes import best_by_criterion, best_of_sizes
from dsel.search.exact.near_best import ListRule
from dsel.search.exact.proof import Proof
from dsel.search.greedy.path import forward
from dsel.selection.information_criteria import CriterionContext
from pipelines.benchmarks.proofs.problems import Data, M, drawn
from pipelines.benchmarks.protocol import Benchmark
from pipelines.papers.preprocess import standardized
from pipelines.table import text_table

DATA_SETS = ("sonar", "ionosphere", "coil2000")
#: Columns to choose from a data set, and from the synthetic columns.
K, K_OF_MANY = 8, 10
_WITHIN, _LIMIT, _SECONDS = 0.01, 1000, 60.0
_MANY, _RHO, _LAM = 1000, 0.5, 10.0
#: Signal to noise, as in `proofs`, and how many draws there are.
_RATIO, _NOISY, _DRAWS = 5.0, 1.0, 5
#: Slices of wall time in which the CPU seconds of a run are counted.
_SLICE = 2.0


@dataclass(frozen=True)
class Measured:
    """One problem: CPU seconds of the proof and of the list, listed subsets, and the share of columns decided."""

    name: str
    proof: float
    listed: float
    subsets: int
    decided: float
    finished: bool

    @property
    def ratio(self) -> float:
        """The time of the list as a multiple of that of the proof."""
        return self.listed / self.proof


def measured(name: str, objective: DenseObjective, k: int, seconds: float) -> Measured:
    """Prove the best subset of k columns, then list the near-best ones. seconds: CPU time of each, at most."""
    proof, spent = _run(objective, k, (), None, seconds)
    listing, taken = _run(objective, k, proof.search.best, ListRule(_WITHIN, _LIMIT), seconds)
    answer = listing.near_best()
    decided = 1.0 - answer.verdicts.count("undecided") / objective.n
    return Measured(name, spent, taken, len(answer.subsets), decided, listing.search.done)


def _run(
    objective: DenseObjective, k: int, known: tuple[int, ...], rule: ListRule | None, seconds: float
) -> tuple[Proof, float]:  # fmt: skip
    """Return a proof after these CPU seconds at most, and those that it took."""
    start = time.process_time()
    proof = Proof.begin(objective, k, known, deadline=Deadline(seconds), near_best=rule)
    while not proof.search.done and time.process_time() - start < seconds:
        proof.run(min(_SLICE, max(seconds - (time.process_time() - start), 0.05)))
    return proof, time.process_time() - start


def _objective(X: Floats, y: Floats, lam: float) -> DenseObjective:
    return DenseObjective(X.T @ X, X.T @ y[:, None], float(np.square(y).sum()), lam)


def data_set(name: str) -> DenseObjective | None:
    """Return the objective of a data set, or None if there is no file."""
    data = Data(name)
    X = data.columns()
    return None if X is None else _objective(X, data.target(X, K, 0.0), 0.0)


def many_columns(draw: int, ratio: float) -> DenseObjective:
    """Return the objective of 1000 columns, of which neighbours have correlation 0.5.

    draw: of the target; the first one is that of `proofs`. ratio: signal to noise.
    """
    data = drawn(_MANY, _RHO)
    X = data.columns()
    assert X is not None
    if draw == 0:
        return _objective(X, data.target(X, K_OF_MANY, ratio), _LAM)
    rng = np.random.default_rng([_MANY, draw])
    signal = X[:, np.sort(rng.choice(_MANY, K_OF_MANY, replace=False))].sum(axis=1)
    y = signal + signal.std() / np.sqrt(ratio) * rng.standard_normal(M)
    return _objective(X, standardized(y[:, None])[:, 0], _LAM)


def _of_many(draw: int, ratio: float) -> Measured:
    name = f"n={_MANY} k={K_OF_MANY} SNR {ratio:g}, draw {draw}"
    return measured(name, many_columns(draw, ratio), K_OF_MANY, _SECONDS)


#: Columns, and the seconds that lmSubsets publishes for the best subsets of all sizes, and for the 20 best by BIC.
_ALL_SIZES, _BEST_20 = {40: 0.29, 60: 229.0}, {100: 0.08, 200: 119.0}


def half_true(n: int) -> DenseObjective:
    """Return the objective of n independent columns, half of them in the target with noise of deviation 1."""
    rng = np.random.default_rng(n)
    X = rng.standard_normal((M, n))
    y = X[:, : n // 2].sum(axis=1) + rng.standard_normal(M)
    return _objective(X - X.mean(axis=0), y - y.mean(), 0.0)


def all_sizes_seconds(n: int) -> float:
    """Return the CPU seconds of the best subset of every size, from the path of forward selection."""
    objective, start = half_true(n), time.process_time()
    path = [point.members for point in forward(objective, n).front]
    assert best_of_sizes(objective, n, path, Deadline(None)).proven
    return time.process_time() - start


def best_20_seconds(n: int) -> float:
    """Return the CPU seconds of the 20 best subsets by BIC."""
    objective, start = half_true(n), time.process_time()
    context = CriterionContext(M, 1, n, objective.total)

    def value(f: float, s: int) -> float:
        return context.value("bic", f, s, s)

    def limit(at: float, s: int) -> float:
        return context.rss("bic", at, s, s)

    assert best_by_criterion(objective, 20, value, limit, [], Deadline(None)).proven
    return time.process_time() - start


def compared_with_lmsubsets(quick: bool) -> dict[str, tuple[float, float]]:
    """Return CPU seconds here and those that lmSubsets publishes, by problem."""
    all_sizes_seconds(10), best_20_seconds(10)  # compiles
    found = {}
    for what, measure, published in (
        ("all sizes", all_sizes_seconds, _ALL_SIZES),
        ("20 best", best_20_seconds, _BEST_20),
    ):
        for n, there in list(published.items())[: 1 if quick else None]:
            found[f"{what}, n={n}"] = measure(n), there
    for name, (here, there) in found.items():
        print(f"{name}: {here:.2f} s, lmSubsets {there:g} s (published)", flush=True)
    return found


def run(quick: bool) -> dict[str, Any]:
    """Print a table, and return a summary."""
    warm_up = np.random.default_rng(0).standard_normal((50, 12))
    measured("", _objective(warm_up, warm_up[:, 0] + warm_up[:, 1], 0.0), 3, _SECONDS)
    rows = []
    for name in DATA_SETS[: 2 if quick else None]:
        objective = data_set(name)
        if objective is not None:
            rows.append(measured(f"{name} k={K}", objective, K, _SECONDS))
            print(f"{name}: {rows[-1].listed:.2f} s", flush=True)
    draws = [_of_many(draw, _RATIO) for draw in range(1 if quick else _DRAWS)]
    noisy = [] if quick else [_of_many(0, _NOISY)]
    header = ("problem", "proof, s", "list, s", "ratio", "subsets", "decided", "finished")
    lines = []
    for row in rows + draws + noisy:
        times = (f"{row.proof:.2f}", f"{row.listed:.2f}", f"{row.ratio:.2f}")
        lines.append((row.name, *times, str(row.subsets), f"{row.decided:.2%}", str(row.finished)))
    print(text_table(header, lines))
    compared = compared_with_lmsubsets(quick)
    summary = {
        "verdicts_over_one_proof": max((r.ratio for r in rows), default=None),
        "all_decided": all(r.decided == 1.0 for r in rows), "decided_1000": min(r.decided for r in draws),
        "decided_1000_noisy": min((r.decided for r in noisy), default=None),
        "lmsubsets_ratio": max(here / there for here, there in compared.values()),
    }  # fmt: skip
    return summary


BENCHMARK = Benchmark(
    "alternatives",
    "Measure lists of near-best subsets: time compared with one proof, columns decided, lmSubsets' published times.",
    {"alternatives": run},
)
