"""Table 2 of Qian, Yu, Zhou, "Subset selection by Pareto optimization", NIPS 2015: training R^2 for k = 8.

Each data set is split at random into two halves, and the training half is standardized. The table shows mean and
standard deviation of R^2 on the training half, over the splits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dsel._lib.types import Floats
from dsel.objective.dense import DenseObjective
from dsel.search.comparators.methods import rfe
from dsel.search.greedy.path import foba, forward, omp
from dsel.search.outcome import SearchOutcome
from dsel.search.pareto.compiled import Poss, paper_iterations
from pipelines.papers.datasets import missing
from pipelines.papers.poss import penalized
from pipelines.papers.poss.halves import rows_and_target, training_half
from pipelines.papers.preprocess import regression
from pipelines.processes import map_processes
from pipelines.table import json_line, text_table

K = 8
GREEDY: dict[str, Callable[[DenseObjective, int], SearchOutcome]] = {
    "FR": forward,
    "FoBa": foba,
    "OMP": omp,
    "RFE": rfe,
}
PENALISED = ("MCP", "SCAD", "Lasso")
METHODS = ("POSS", *GREEDY, *PENALISED)
SPLITS_IN_PAPER = 100

#: The paper's mean and standard deviation. It omits SCAD and Lasso, which it calls very close to MCP.
PAPER: dict[str, dict[str, tuple[float, float]]] = {
    "housing": {
        "POSS": (0.7437, 0.0297), "FR": (0.7429, 0.0300), "FoBa": (0.7423, 0.0301), "OMP": (0.7415, 0.0300),
        "RFE": (0.7388, 0.0304), "MCP": (0.7354, 0.0297),
    },
    "eunite2001": {
        "POSS": (0.8482, 0.0132), "FR": (0.8348, 0.0143), "FoBa": (0.8442, 0.0144), "OMP": (0.8349, 0.0150),
        "RFE": (0.8424, 0.0153), "MCP": (0.8320, 0.0150),
    },
    "ionosphere": {
        "POSS": (0.5990, 0.0329), "FR": (0.5920, 0.0352), "FoBa": (0.5929, 0.0346), "OMP": (0.5921, 0.0353),
        "RFE": (0.5832, 0.0415), "MCP": (0.5740, 0.0348),
    },
    "sonar": {
        "POSS": (0.5365, 0.0410), "FR": (0.5171, 0.0440), "FoBa": (0.5138, 0.0432), "OMP": (0.5112, 0.0425),
        "RFE": (0.4321, 0.0636), "MCP": (0.4496, 0.0482),
    },
    "coil2000": {
        "POSS": (0.0627, 0.0076), "FR": (0.0624, 0.0076), "FoBa": (0.0619, 0.0075), "OMP": (0.0619, 0.0075),
        "RFE": (0.0363, 0.0141), "MCP": (0.0570, 0.0075),
    },
    "mushrooms": {
        "POSS": (0.9912, 0.0020), "FR": (0.9909, 0.0021), "FoBa": (0.9909, 0.0022), "OMP": (0.9909, 0.0022),
        "RFE": (0.6813, 0.1294), "MCP": (0.8652, 0.0474),
    },
    "clean1": {
        "POSS": (0.4368, 0.0300), "FR": (0.4169, 0.0299), "FoBa": (0.4145, 0.0309), "OMP": (0.4132, 0.0315),
        "RFE": (0.1596, 0.0562), "MCP": (0.3563, 0.0364),
    },
}  # fmt: skip


def one_split(task: tuple[str, int, int]) -> dict[str, float]:
    """Return R^2 of every method on the training half of one split; task: (data set, split, seed)."""
    return greedy_split(task, PENALISED)


def greedy_split(task: tuple[str, int, int], penalised: Sequence[str] = ()) -> dict[str, float]:
    """Return R^2 of the searches, and of those of the penalized methods that are installed."""
    name, split, seed = task
    X, y = training_half(name, split, seed)
    objective = regression(X, y)
    k = min(K, objective.n)
    search = Poss(objective, k, seed=split, exchange_every=0)
    search.advance(paper_iterations(k, objective.n))
    errors = {"POSS": search.best_value}
    errors |= {method: find(objective, k).best(k).value for method, find in GREEDY.items()}
    for method in filter(penalized.installed, penalised):
        errors[method] = objective.value(penalized.support(method, objective, k))
    return {method: 1.0 - f / objective.c for method, f in errors.items()}


def compare(name: str, splits: list[dict[str, float]]) -> list[dict[str, Any]]:
    """Return one row per method: our mean, the paper's, the difference in standard errors, POSS's paired t."""
    rows: list[dict[str, Any]] = []
    poss = np.array([split["POSS"] for split in splits])
    for method in METHODS:
        row: dict[str, Any] = {"data": name, "method": method}
        if method in splits[0]:
            ours = np.array([split[method] for split in splits])
            row |= {"mean": float(ours.mean()), "std": float(ours.std(ddof=1)) if ours.size > 1 else 0.0}
            row["paired_t"] = _paired_t(poss - ours)
        if method in PAPER[name]:
            row["paper_mean"], row["paper_std"] = PAPER[name][method]
        if "mean" in row and "paper_mean" in row:
            error = np.sqrt(row["std"] ** 2 / len(splits) + row["paper_std"] ** 2 / SPLITS_IN_PAPER)
            row["standard_errors"] = float((row["mean"] - row["paper_mean"]) / error)
        rows.append(row)
    return rows


def _paired_t(difference: Floats) -> float | None:
    spread = float(difference.std(ddof=1)) if difference.size > 1 else 0.0
    return float(difference.mean()) / (spread / np.sqrt(difference.size)) if spread > 0.0 else None


def run(splits: int, only: Sequence[str], processes: int, seed: int) -> None:
    """Print the table and, as the last line, the same figures as JSON."""
    start = time.monotonic()
    rows: list[dict[str, Any]] = []
    names = [name for name in only or PAPER if _present(name)]
    answers = map_processes(one_split, [(name, split, seed) for name in names for split in range(splits)], processes)
    for place, name in enumerate(names):
        rows += compare(name, answers[place * splits : (place + 1) * splits])
    print(f"POSS Table 2: training R^2, k = {K}, {splits} splits\n")
    header = ("data set", "method", "ours", "paper", "difference in s.e.", "lead of POSS (paired t)")
    print(text_table(header, [_written(row) for row in rows]))
    print(json_line({"table": "poss-table-2", "splits": splits, "seconds": time.monotonic() - start, "rows": rows}))


def _present(name: str) -> bool:
    if rows_and_target(name) is None:
        print(missing(name))
        return False
    return True


def _written(row: dict[str, Any]) -> list[str]:
    ours = f"{row['mean']:.4f}±{row['std']:.4f}" if "mean" in row else "not installed"
    paper = f"{row['paper_mean']:.4f}±{row['paper_std']:.4f}" if "paper_mean" in row else "close to MCP"
    off = f"{row['standard_errors']:+.2f}" if "standard_errors" in row else ""
    lead = "" if row.get("paired_t") is None else f"{row['paired_t']:.1f}"
    return [row["data"], row["method"], ours, paper, off, lead]
