"""Tables 1 and 2 and Figure 3 of Wan, Schweitzer, "Heuristic search algorithms for approximating one matrix in terms
of another matrix", AAAI 2021: errors ||Y - X_S A||^2 and bounds b / error of eq. (12), raw values.

oes97 is centred, the intercept counts as the first of the k columns (that is how the paper's figures come about).
Where f = l does not end in time, branch and bound with the combined bound proves the optimum, or as much as it can.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsel.objective.memory import Floats
from dsel.objective.quadratic import QuadraticObjective
from dsel.search.astar import AStar
from dsel.search.backward import backward
from dsel.search.certificate import Certificate, Proof
from dsel.search.foba import foba
from dsel.search.forward import forward
from dsel.search.omp import omp
from dsel.search.outcome import SearchOutcome
from dsel.search.poss import Poss, paper_iterations
from dsel.search.stopping import Stop, drive
from pipelines.papers.datasets import load, missing
from pipelines.papers.preprocess import regression
from pipelines.table import json_line, text_table

COMPARED: dict[str, Callable[[QuadraticObjective, int], SearchOutcome]] = {
    "forward": forward,
    "backward": backward,
    "OMP": omp,
    "FoBa": foba,
}
#: What the paper has for f = l, f = l + gamma u and f = u, by name and k: gamma: (error, bound or None); None for "-".
PAPER: dict[tuple[str, int], dict[float, tuple[float, float | None] | None]] = {
    ("eunite2001", 5): {0.0: (1.154e6, 0.0), 1.0: (1.154e6, None), 5.0: (1.154e6, None), math.inf: (1.169e6, None)},
    ("eunite2001", 10): {0.0: (0.920e6, 0.0), 1.0: (0.920e6, None), 5.0: (0.931e6, None), math.inf: (1.035e6, None)},
    ("spectf", 5): {0.0: (38.64, 0.0), 1.0: (38.64, None), 5.0: (38.64, None), math.inf: (39.62, None)},
    ("spectf", 7): {0.0: (37.73, 0.0), 1.0: (37.73, None), 5.0: (38.10, None), math.inf: (38.36, None)},
    ("libras", 3): {0.0: (5192.12, 0.0), 1.0: (5192.12, None), 5.0: (5192.12, None), math.inf: (5192.12, None)},
    ("libras", 5): {0.0: (4723.07, 0.0), 1.0: (4723.07, None), 5.0: (4778.88, None), math.inf: (4796.08, None)},
    ("libras 45/46", 3): {
        0.0: (6010, 0.0), 1.0: (6010, 0.0), 2.0: (6010, 0.947), 10.0: (6010, 0.949), math.inf: (6169, 0.95),
    },
    ("libras 45/46", 5): {
        0.0: (5587, None), 1.0: (5587, 0.941), 2.0: (5594, 0.987), 10.0: (5623, 0.987), math.inf: (5686, 0.987),
    },
    ("spectf 22/23", 5): {
        0.0: (423909, 0.0), 1.0: (428524, 0.635), 2.0: (433697, 0.639), 10.0: (433697, 0.639),
        math.inf: (433697, 0.639),
    },
    ("spectf 22/23", 10): {
        0.0: (374453, 0.0), 1.0: (377282, 0.842), 2.0: (377282, 0.842), 10.0: (377282, 0.842),
        math.inf: (377282, 0.842),
    },
    ("oes97", 5): {
        0.0: None, 1.0: (2.120e9, 0.597), 2.0: (2.126e9, 0.598), 10.0: (2.126e9, 0.598), math.inf: (2.126e9, 0.598),
    },
    ("oes97", 7): {
        0.0: None, 1.0: (1.704e9, 0.756), 2.0: (1.708e9, 0.757), 10.0: (1.708e9, 0.757), math.inf: (1.708e9, 0.757),
    },
}  # fmt: skip
FIGURE_3_GAMMAS = (0.0, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, math.inf)


@dataclass(frozen=True)
class Case:
    """A row of the tables: X and Y as the paper has them, and how many columns to choose beside an intercept."""

    name: str
    k: int
    X: Floats
    Y: Floats
    choose: int


def case(name: str, k: int) -> Case | None:
    """The data of a row, or None where they are nowhere."""
    arrays = load(name.split()[0])
    if arrays is None:
        return None
    X, Y = arrays["X"], arrays["Y"]
    if "/" in name:
        half = int(name.split()[1].split("/")[0])
        X, Y = X[:, :half], np.hstack([X[:, half:], Y])
    if name == "oes97":
        return Case(name, k, X - X.mean(axis=0), Y - Y.mean(axis=0), k - 1)
    return Case(name, k, X, Y, k)


def best_first(problem: Case, gamma: float, seconds: float) -> dict[str, Any]:
    """One run of the paper's search: error, bound (b / error), whether it came to its own end, and its cost."""
    objective = regression(problem.X, problem.Y)
    start = time.monotonic()
    search = AStar(objective, problem.choose, gamma=gamma, target_gram=problem.Y.T @ problem.Y)
    drive(search, Stop(iterations=2**62, seconds=seconds))
    error = objective.value(search.answer)
    return {
        "error": error, "bound": search.suboptimality / error, "ended": search.done, "nodes": search.iteration,
        "seconds": time.monotonic() - start,
    }  # fmt: skip


def optimum(problem: Case, seconds: float) -> Certificate:
    """The optimum by branch and bound, proved as far as the time allows."""
    proof = Proof.begin(regression(problem.X, problem.Y), problem.choose)
    proof.run(seconds)
    return proof.certificate()


def one_row(name: str, k: int, seconds: float, proof_seconds: float) -> dict[str, Any] | None:
    """All figures of one row of a table."""
    problem = case(name, k)
    if problem is None:
        return None
    objective = regression(problem.X, problem.Y)
    certificate = optimum(problem, proof_seconds)
    row: dict[str, Any] = {"data": name, "k": k, "optimum": certificate.as_dict()}
    row["search"] = {_label(gamma): best_first(problem, gamma, seconds) for gamma in PAPER[name, k]}
    row["compared"] = {
        method: find(objective, problem.choose).best(problem.choose).value for method, find in COMPARED.items()
    }
    poss = Poss(objective, problem.choose)
    poss.advance(min(paper_iterations(problem.choose, objective.n), 500_000))
    row["compared"]["POSS"] = poss.best_value
    return row


def _label(gamma: float) -> str:
    if gamma == 0.0:
        return "f=l"
    return "f=u" if math.isinf(gamma) else f"f=l+{'' if gamma == 1.0 else f'{gamma:g}'}u"


def figure_3(seconds: float) -> list[dict[str, Any]]:
    """gamma against error and time: libras, 46 targets, k = 5."""
    problem = case("libras 45/46", 5)
    if problem is None:
        return []
    return [{"gamma": _gamma(gamma), **best_first(problem, gamma, seconds)} for gamma in FIGURE_3_GAMMAS]


def _gamma(gamma: float) -> float | str:
    return "inf" if math.isinf(gamma) else gamma


def run(only: Sequence[str], seconds: float, proof_seconds: float) -> None:
    """Print the tables beside the paper's figures and, as the last line, the same as JSON."""
    start = time.monotonic()
    rows = []
    for name, k in PAPER:
        if only and name.split()[0] not in only:
            continue
        row = one_row(name, k, seconds, proof_seconds)
        if row is None:
            print(missing(name.split()[0]))
            continue
        rows.append(row)
        _print_row(row)
    curve = figure_3(seconds) if not only or "libras" in only else []
    if curve:
        print("Figure 3: libras, 46 targets, k = 5: what gamma does\n")
        lines = [[str(p["gamma"]), _number(p["error"]), f"{p['bound']:.3f}", f"{p['seconds']:.2f}"] for p in curve]
        print(text_table(("gamma", "error", "bound", "seconds"), lines))
    report = {"table": "heuristic-tables", "seconds": time.monotonic() - start, "rows": rows, "figure_3": curve}
    print(json_line(report))


def _number(value: float) -> str:
    return f"{value:.4e}" if value >= 1e6 else f"{value:.2f}"


def _print_row(row: dict[str, Any]) -> None:
    print(f"{row['data']}, k = {row['k']}\n")
    best = row["optimum"]
    state = "proved" if best["proven"] else f"best known; none is below {_number(best['bound'])}"
    note = f"{state}, {best['nodes']:,} nodes"
    lines = [["optimum", _number(best["value"]), f"{best['relative_gap']:.3f}", "", "", note]]
    for gamma, paper in PAPER[row["data"], row["k"]].items():
        found = row["search"][_label(gamma)]
        note = f"{found['nodes']:,} nodes" if found["ended"] else f"stopped after {found['nodes']:,} nodes"
        theirs = ("-", "-") if paper is None else (_number(paper[0]), "" if paper[1] is None else f"{paper[1]:.3f}")
        lines.append([_label(gamma), _number(found["error"]), f"{found['bound']:.3f}", *theirs, note])
    lines += [[method, _number(error), "", "", "", ""] for method, error in row["compared"].items()]
    print(text_table(("", "error", "bound", "paper", "its bound", ""), lines) + "\n")
