"""Every method compared with the portfolio at equal total time, on the papers' data sets.

The portfolio makes no proof here: like the others, it searches all of its time.
All times are CPU time of one process, so that the load of the machine does not matter.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
from threadpoolctl import threadpool_limits

from dsel._lib.types import Floats
from dsel.objective.dense import DenseObjective
from dsel.search import anytime
from dsel.search.method import SearchTask
from dsel.search.registry import METHODS
from pipelines.papers.datasets import load, missing
from pipelines.papers.preprocess import regression, self_expression, standardized, unit_columns
from pipelines.processes import map_processes
from pipelines.table import text_table

SIZES = (5, 8, 10, 20, 50)
#: Data sets with targets, and data sets whose columns are chosen for the data themselves.
SUPERVISED = (
    "a9a", "australian", "clean1", "coil2000", "colon-cancer", "dna", "eunite2001", "german.numer", "housing",
    "ionosphere", "libras", "madelon", "mnist", "mushrooms", "oes97", "sonar", "spectf",
)  # fmt: skip
COLUMNS = ("communities-crime", "dna", "madelon", "sonar")
QUICK = ("sonar", "clean1", "dna as Y = X")
#: CPU seconds of a method and of the portfolio in a cell, at least.
SECONDS, QUICK_SECONDS = 0.5, 0.2
#: Most rows of a data set: more only make the Gram matrix slower.
_ROWS = 10_000
#: A method beats the portfolio if its error is lower by more than this share of ||Y||^2.
_BETTER = 1e-9
#: Methods that end when they are done, and methods with a limit of time. Restarts are as many as fit the time.
GREEDY = ("forward", "omp", "foba", "rfe", "backward", "lasso")
GREEDY_COLUMNS = ("forward", "backward", "two-stage", "approx-svd", "leverage", "arp", "rpcholesky", "pivoted-qr")
ANYTIME = ("poss", "pposs", "branch-and-bound", "astar")
#: Methods that take a time of the order n^3 are left out from this many columns on.
_CUBIC, _CUBIC_METHODS = 1000, ("backward", "rfe", "lasso", "branch-and-bound", "astar")
_RESTARTS = 10_000


@dataclass(frozen=True)
class Cell:
    """One comparison: a data set and a size."""

    data: str
    k: int
    seconds: float
    seed: int = 0


def names() -> list[str]:
    """Return the names of the problems."""
    return [*SUPERVISED, *(f"{name} as Y = X" for name in COLUMNS)]


def problem(name: str) -> DenseObjective | None:
    """Return the objective of a problem: standardized, or with columns of norm 1 where Y = X; None without its file."""
    arrays = load(name.removesuffix(" as Y = X"))
    if arrays is None:
        return None
    X = arrays["X"][:_ROWS]
    X = np.where(np.isnan(X), np.nan_to_num(np.nanmean(X, axis=0)), X)
    if name.endswith(" as Y = X"):
        return self_expression(unit_columns(X))
    Y = arrays["Y"][:_ROWS]
    return regression(standardized(X), standardized((Y == 5).astype(float) if name == "mnist" else Y))


def run_cell(cell: Cell) -> dict[str, Any]:
    """Return the error of every method in a cell as a share of ||Y||^2, its seconds, and the portfolio's error in them.

    taken: the seconds of the portfolio as a share of its limit.
    """
    objective = problem(cell.data)
    assert objective is not None
    with threadpool_limits(1), patch.object(anytime, "default_clock", time.process_time):
        rows = [_compare(objective, cell, method) for method in _methods(objective)]
        portfolio, taken = _portfolio(objective, cell, cell.seconds)
        for row in rows:
            row["portfolio"] = portfolio
            if row["seconds"] > cell.seconds and row["error"] < portfolio - _BETTER:  # equal total time
                row["portfolio"] = _timed(objective, cell, "portfolio", {"seconds": row["seconds"], "certify": False})[
                    0
                ]
    return {
        "data": cell.data,
        "k": cell.k,
        "n": objective.n,
        "taken": taken / cell.seconds,
        "methods": {row["method"]: row for row in rows},
    }


def _methods(objective: DenseObjective) -> list[str]:
    chosen = [*(GREEDY if objective.cross is not None else GREEDY_COLUMNS), *ANYTIME, "exchange", "random"]
    return [name for name in chosen if objective.n <= _CUBIC or name not in _CUBIC_METHODS]


def _compare(objective: DenseObjective, cell: Cell, method: str) -> dict[str, Any]:
    options: dict[str, Any] = {"seconds": cell.seconds} if method in ANYTIME else {}
    if method == "poss":
        options["iterations"] = 1 << 40  # as long as there is time
    if method == "exchange":
        error, seconds = _restarted(objective, cell)
    else:
        error, seconds = _timed(objective, cell, method, options)
    return {"method": method, "error": error, "seconds": seconds}


def _timed(
    objective: DenseObjective, cell: Cell, method: str, options: dict[str, Any], seed: int = 0
) -> tuple[float, float]:
    """Return the error of the best subset of at most k columns, and the seconds."""
    chosen = METHODS[method]
    task = SearchTask(objective, cell.k, seed, chosen.options(**options))
    start = time.process_time()
    best = chosen.run(task).best(cell.k)
    seconds = time.process_time() - start
    return objective.value(best.members) / objective.total, seconds


def _portfolio(objective: DenseObjective, cell: Cell, seconds: float) -> tuple[float, float]:
    """Return the error of the portfolio without a proof, and the seconds that it took."""
    return _timed(objective, cell, "portfolio", {"seconds": seconds, "certify": False})


def _restarted(objective: DenseObjective, cell: Cell) -> tuple[float, float]:
    """Return the best of exchange searches from random subsets, as many as fit the time."""
    best, start = np.inf, time.process_time()
    for restart in range(_RESTARTS):
        best = min(best, _timed(objective, cell, "exchange", {}, restart)[0])
        if time.process_time() - start >= cell.seconds:
            break
    return best, time.process_time() - start


def _warm_up() -> None:
    """Compile everything before a clock runs."""
    rng = np.random.default_rng(0)
    X: Floats = rng.normal(size=(30, 12))
    for Y in (X[:, :1] + rng.normal(size=(30, 1)), X[:, :3] + rng.normal(size=(30, 3)), None):
        objective = self_expression(X) if Y is None else regression(X, Y)
        for method in [*_methods(objective), "portfolio"]:
            _timed(objective, Cell("", 3, 0.1), method, {"seconds": 0.1} if method in (*ANYTIME, "portfolio") else {})


def _prepared(cell: Cell) -> dict[str, Any]:
    global _warm
    if not _warm:
        _warm_up()
        _warm = True
    found = run_cell(cell)
    ahead = {m: row["error"] - row["portfolio"] for m, row in found["methods"].items() if _beats(row)}
    print(f"{cell.data}, k = {cell.k}: {ahead or 'not beaten'}, {found['taken']:.2f} of the time", file=sys.stderr)
    return found


def _beats(row: dict[str, Any]) -> bool:
    return bool(row["error"] < row["portfolio"] - _BETTER)


_warm = False


def run(
    quick: bool, only: Sequence[str] = (), seconds: float | None = None, processes: int = 2
) -> dict[str, Any]:  # fmt: skip
    """Print the table, and return whether a method beats the portfolio."""
    began = time.monotonic()
    seconds = seconds or (QUICK_SECONDS if quick else SECONDS)
    cells = []
    for name in only or (QUICK if quick else names()):
        objective = problem(name)
        if objective is None:
            print(missing(name))
            continue
        cells += [Cell(name, k, seconds) for k in (SIZES[::2] if quick else SIZES) if k < objective.n]
    found = map_processes(_prepared, cells, processes)
    print(_table(found))
    return {**summary(found), "seconds": time.monotonic() - began}


def summary(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return how many cells there are, in how many a method beats the portfolio, and its worst loss.

    The loss is relative to the error of the better method. longest_portfolio: the largest share of its time limit that
    the portfolio took.
    """
    losses, beaten = [0.0], []
    for cell in found:
        ahead = {m: row for m, row in cell["methods"].items() if _beats(row)}
        losses += [(row["portfolio"] - row["error"]) / max(row["error"], _BETTER) for row in ahead.values()]
        if ahead:
            beaten.append({"data": cell["data"], "k": cell["k"], "by": sorted(ahead)})
    return {
        "cells": len(found), "portfolio_beaten": len(beaten), "worst_relative_loss": max(losses), "beaten": beaten,
        "longest_portfolio": max((cell["taken"] for cell in found), default=0.0),
    }  # fmt: skip


def _table(found: Sequence[dict[str, Any]]) -> str:
    methods = list(dict.fromkeys(m for cell in found for m in cell["methods"]))
    rows = []
    for cell in found:
        own = cell["methods"]
        best = min(row["portfolio"] for row in own.values())
        cells = [f"{1 - own[m]['error']:.6f}" if m in own else "" for m in methods]
        rows.append([f"{cell['data']}, k = {cell['k']}", f"{1 - best:.6f}", *cells])
    return text_table(["share explained", "portfolio", *methods], rows)
