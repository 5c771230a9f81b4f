"""Table 1 of Feng, Qian, Tang, "Unsupervised feature selection by Pareto optimization", AAAI 2019.

The table shows the error ratio ||A - S S^+ A||^2 / ||A - A_k||^2 for k = 50. Columns have norm 1 and are not centered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dsel._lib.types import Floats
from dsel.objective.dense import DenseObjective
from dsel.search.comparators.methods import approx_svd, two_stage
from dsel.search.greedy.exchange import exchange
from dsel.search.greedy.path import forward
from dsel.search.pareto.compiled import Poss, paper_iterations
from pipelines.papers.datasets import load, missing
from pipelines.papers.preprocess import between_minus_one_and_one, self_expression, unit_columns
from pipelines.processes import map_processes
from pipelines.table import json_line, text_table

K = 50
RUNS_IN_PAPER = 10


def pocss(objective: DenseObjective, k: int, seed: int) -> float:
    """Return f of the best subset after the paper's number of iterations, without exchange searches."""
    search = Poss(objective, k, seed=seed, exchange_every=0)
    search.advance(paper_iterations(k, objective.n))
    return search.best_value


METHODS: dict[str, Callable[[DenseObjective, int, int], float]] = {
    "Two-stage": lambda objective, k, seed: two_stage(objective, k, seed).best(k).value,
    "ApproxSVD": lambda objective, k, seed: approx_svd(objective, k).best(k).value,
    "Greedy": lambda objective, k, seed: forward(objective, k).best(k).value,
    "IterFS": lambda objective, k, seed: exchange(objective, k, seed).best(k).value,
    "POCSS": pocss,
}
#: Methods whose result depends on the seed.
RANDOM = ("Two-stage", "IterFS", "POCSS")
ORDER = ("Two-stage", "ApproxSVD", "Greedy", "WA*-b", "IterFS", "POCSS")

#: The paper's mean and standard deviation (0 for deterministic methods and for Two-stage).
PAPER: dict[str, dict[str, tuple[float, float]]] = {
    "sonar": {
        "Two-stage": (2.656, 0.0), "ApproxSVD": (2.860, 0.0), "Greedy": (2.852, 0.0), "WA*-b": (2.785, 0.0),
        "IterFS": (2.524, 0.0), "POCSS": (2.524, 0.0),
    },
    "communities-crime": {
        "Two-stage": (1.265, 0.0), "ApproxSVD": (1.197, 0.0), "Greedy": (1.195, 0.0), "WA*-b": (1.203, 0.0),
        "IterFS": (1.197, 0.004), "POCSS": (1.194, 0.027),
    },
    "dna": {
        "Two-stage": (1.334, 0.0), "ApproxSVD": (1.325, 0.0), "Greedy": (1.320, 0.0), "WA*-b": (1.323, 0.0),
        "IterFS": (1.313, 0.002), "POCSS": (1.311, 0.0),
    },
    "madelon": {
        "Two-stage": (1.123, 0.0), "ApproxSVD": (1.057, 0.0), "Greedy": (1.056, 0.0), "WA*-b": (1.056, 0.0),
        "IterFS": (1.056, 0.0), "POCSS": (1.056, 0.0),
    },
}  # fmt: skip

PAPER["dna-1400"] = PAPER["dna"]

NOTES = {
    "communities-crime": "missing values are 0; the paper does not say how it treats them, and the figures differ",
    "dna": "2000 rows, as the paper says; but its figures match the first 1400 rows",
    "dna-1400": "the first 1400 rows, compared with the paper's figures for dna",
}


def prepared(name: str) -> Floats | None:
    """Return the data (m, n) as the paper prepares them, or None if there is no file."""
    arrays = load(name.removesuffix("-1400"))
    if arrays is None:
        return None
    X = np.nan_to_num(arrays["X"], nan=0.0)
    if name == "dna-1400":
        X = X[:1400]
    return unit_columns(between_minus_one_and_one(X) if name == "sonar" else X)


def one_run(task: tuple[str, str, int, int]) -> float:
    """Return the error ratio of one run; task: (data set, method, k, seed)."""
    name, method, k, seed = task
    X = prepared(name)
    assert X is not None
    objective = self_expression(X)
    return METHODS[method](objective, k, seed) / least_error(objective, k)


def least_error(objective: DenseObjective, k: int) -> float:
    """Return ||A - A_k||^2."""
    return float(np.linalg.eigvalsh(objective.K)[: objective.n - k].sum())


def compare(name: str, method: str, runs: list[float]) -> dict[str, Any]:
    """Return our figures, the paper's and the difference, also in standard errors if either varies."""
    ours = np.asarray(runs)
    std = float(ours.std(ddof=1)) if ours.size > 1 else 0.0
    paper, paper_std = PAPER[name][method]
    mean = float(ours.mean())
    row: dict[str, Any] = {"data": name, "method": method, "mean": mean, "std": std, "runs": ours.size}
    row |= {
        "best": float(ours.min()),
        "paper_mean": paper,
        "paper_std": paper_std,
        "difference": mean - paper,
    }
    error = float(np.sqrt(std**2 / ours.size + paper_std**2 / RUNS_IN_PAPER))
    # The paper prints three digits, so differences below half of the last one are rounding.
    row["standard_errors"] = row["difference"] / error if error > 5e-4 else None
    return row


def run(runs: int, only: Sequence[str], processes: int) -> None:
    """Print the table and, as the last line, the same figures as JSON."""
    start = time.monotonic()
    rows: list[dict[str, Any]] = []
    names = [name for name in only or PAPER if _present(name)]
    plan = [
        (name, method, K, s) for name in names for method in METHODS for s in range(runs if method in RANDOM else 1)
    ]
    ratios = map_processes(one_run, plan, processes)
    for name in names:
        for method in ORDER:
            mine = [r for r, (data, used, _, _) in zip(ratios, plan, strict=True) if (data, used) == (name, method)]
            if mine:
                rows.append(compare(name, method, mine))
            else:
                rows.append({"data": name, "method": method, "mean": None, "paper_mean": PAPER[name][method][0]})
    print(f"POCSS Table 1: error ratio, k = {K}, {runs} runs of the randomised methods\n")
    print(text_table(("data set", "method", "ours", "best", "paper", "difference", "in s.e."), [*map(_written, rows)]))
    for name in names:
        if name in NOTES:
            print(f"{name}: {NOTES[name]}")
    print(json_line({"table": "pocss-table-1", "runs": runs, "seconds": time.monotonic() - start, "rows": rows}))


def _present(name: str) -> bool:
    if prepared(name) is None:
        print(missing(name))
        return False
    return True


def _written(row: dict[str, Any]) -> list[str]:
    if row["mean"] is None:
        return [row["data"], row["method"], "not computed", "", f"{row['paper_mean']:.3f}", "", ""]
    off = "" if row["standard_errors"] is None else f"{row['standard_errors']:+.1f}"
    ours, paper = (f"{row[a]:.3f}±{row[b]:.3f}" for a, b in (("mean", "std"), ("paper_mean", "paper_std")))
    return [row["data"], row["method"], ours, f"{row['best']:.3f}", paper, f"{row['difference']:+.3f}", off]
