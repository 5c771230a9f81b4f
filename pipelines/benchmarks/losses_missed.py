"""Count how often searches by a loss miss the best subset, on drawn problems whose best subset `dsel.certify` proves.

Two columns of each problem explain much together and little alone, so that steps of one column do not reach them.
`optimal`: the share of problems with the best subset. `lost`: the mean and the largest loss of D2 in the others.
"""

from __future__ import annotations

import math
import time
import warnings
import zlib
from typing import Any

import numpy as np

import dsel
from dsel._lib.types import Floats
from pipelines.benchmarks.protocol import Benchmark
from pipelines.table import text_table

LOSSES = ("logistic", "multinomial", "poisson", "cox", "huber", "quantile")
METHODS = ("poss", "forward", "splicing", "exchange")
#: Problems of each loss; the most subsets of a problem; the seconds of a proof.
PROBLEMS, _QUICK, _SUBSETS, _SECONDS = 60, 2, 1000, 60.0
#: D2 that differs by less is equal.
_EQUAL = 1e-6


def run(quick: bool) -> dict[str, Any]:
    """Print how often each method misses the best subset, and return the shares."""
    warnings.filterwarnings("ignore")
    lost: dict[str, list[float]] = {method: [] for method in METHODS}
    cpu, unproved = dict.fromkeys(METHODS, 0.0), 0
    for loss in LOSSES:
        for number in range(_QUICK if quick else PROBLEMS):
            X, y, k = drawn(loss, number)
            found = {}
            for method in METHODS:
                began = time.process_time()
                found[method] = dsel.select(X, y, k=k, loss=loss, method=method)
                cpu[method] += time.process_time() - began
            proof = dsel.certify(max(found.values(), key=lambda answer: answer.r2), X, y, seconds=_SECONDS)
            unproved += not proof.certificate[-1]["proven"]
            for method, answer in found.items():
                lost[method].append(max(proof.r2 - answer.r2, 0.0))
        print(f"{loss}: {len(lost['poss'])} problems", flush=True)
    figures = {method: _figures(values) | {"cpu_seconds": cpu[method]} for method, values in lost.items()}
    rows = [[method, *(f"{value:.3f}" for value in shown.values())] for method, shown in figures.items()]
    print(text_table(["method", "optimal", "mean loss of D2", "most", "CPU s"], rows))
    return {"problems": len(lost["poss"]), "unproved": unproved, "methods": figures}


def _figures(lost: list[float]) -> dict[str, float]:
    missed = [value for value in lost if value > _EQUAL]
    optimal = 1.0 - len(missed) / len(lost)
    return {"optimal": optimal, "lost": float(np.mean(missed or [0.0])), "most": max(missed, default=0.0)}


def drawn(loss: str, number: int) -> tuple[Floats, Any, int]:
    """Return X, the targets and k of a problem: 100 to 300 rows, 8 to 20 columns, one or two pairs of columns."""
    rng = np.random.default_rng([zlib.crc32(loss.encode()), number])
    while math.comb(n := int(rng.integers(8, 21)), k := int(rng.integers(2, 5))) > _SUBSETS:
        pass
    m = int(rng.integers(100, 301))
    common = rng.normal(size=(m, 3))
    X = common @ rng.normal(size=(3, n)) * rng.uniform(0.0, 1.2) + rng.normal(size=(m, n))
    scores, strength = np.zeros((5, m)), rng.uniform(0.5, 3.0)
    pairs, order = int(rng.integers(1, 3)), rng.permutation(n)
    for a, b in order[: 2 * pairs].reshape(-1, 2):
        between, share = rng.normal(size=m), rng.uniform(0.1, 0.5)
        X[:, b] = X[:, a] + share * between
        scores[0] += strength * between * rng.choice([-1, 1])
        for score in scores[1:]:
            score += strength * between * rng.normal()
    for j in order[2 * pairs : 2 * pairs + 3]:
        for score in scores:
            score += 0.5 * strength * X[:, j] / X[:, j].std() * rng.normal()
    return X, _targets(loss, scores, rng), k


def _targets(loss: str, scores: Floats, rng: np.random.Generator) -> Any:
    """Return targets of a loss that follow scores (5, m): the first one, or a score for each class."""
    score, m = scores[0], scores.shape[1]
    if loss == "logistic":
        return (score + rng.logistic(size=m) + 2.0 * rng.normal() > 0.0).astype(np.float64)
    if loss == "multinomial":
        q = int(rng.integers(3, 5))
        return np.array(list("abcd"))[(scores[1 : 1 + q].T + rng.gumbel(size=(m, q))).argmax(axis=1)]
    if loss == "poisson":
        return rng.poisson(np.exp(np.clip(0.5 * score, -6.0, 4.0))).astype(np.float64)
    if loss == "cox":
        event = rng.exponential(np.exp(np.clip(-score, -15.0, 15.0)))
        cut = rng.exponential(2.0 * np.median(event), size=m)
        return np.column_stack([np.minimum(event, cut), event <= cut]).astype(np.float64)
    return score + rng.standard_t(1.2, size=m)


BENCHMARK = Benchmark(
    "losses-missed", "Count how often searches by a loss miss the best subset.", {"missed": run}
)  # fmt: skip
