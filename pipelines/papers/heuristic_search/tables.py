"""Tables 1 and 2 and Figure 3 of Wan and Schweitzer (AAAI 2021): errors and bounds of best-first search.

The paper is "Heuristic search algorithms for approximating one matrix in terms of another matrix". The tables show
errors ||Y - X_S A||^2 of the raw data and bounds b / error of eq. (12). oes97 is centered, and its intercept counts as
one of the k columns, which reproduces the paper's figures. Branch and bound with the combined bound proves the optimum
if best-first search with f = l takes too long. The data sets duke breast cancer, scm20d and mediamill are missing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dsel._lib.types import Floats
from dsel.errors import MissingExtraError
from dsel.objective.dense import DenseObjective
from dsel.search.anytime import Stop, drive
from dsel.search.exact.astar.search import AStar
from dsel.search.exact.branch_and_bound.subproblem_tree import BranchAndBound
from dsel.search.exact.certificate import Certificate
from dsel.search.exact.proof import Proof
from dsel.search.greedy.path import backward, foba, forward, omp
from dsel.search.outcome import SearchOutcome
from dsel.search.pareto.compiled import Poss, paper_iterations
from pipelines.papers.datasets import load, missing
from pipelines.papers.preprocess import regression
from pipelines.table import json_line, text_table

#: The paper's figures by (data set, k) and gamma: (error, bound or None), or None for "-". inf stands for f = u.
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
#: The paper's errors of the other methods, in the order of `other_methods`.
PAPER_COMPARED: dict[tuple[str, int], tuple[float, ...]] = {
    ("eunite2001", 5): (1.169e6, 1.161e6, 1.154e6, 1.509e6, 1.329e6, 1.226e6, 1.169e6),
    ("eunite2001", 10): (1.035e6, 0.920e6, 0.920e6, 1.043e6, 1.043e6, 1.013e6, 1.035e6),
    ("spectf", 5): (39.62, 39.20, 38.64, 40.52, 40.52, 38.87, 39.62),
    ("spectf", 7): (38.36, 38.41, 37.73, 38.74, 37.83, 37.73, 38.36),
    ("libras", 3): (5192.12, 5333.00, 5192.12, 5334.94, 5334.94, 5194.66, 5192.12),
    ("libras", 5): (4796.08, 5086.07, 4723.07, 4953.25, 4953.25, 4777.82, 4796.08),
    ("libras 45/46", 3): (6047, 6169),
    ("libras 45/46", 5): (5632, 5686),
    ("spectf 22/23", 5): (431650, 433697),
    ("spectf 22/23", 10): (384156, 377282),
    ("oes97", 5): (2.498e9, 2.126e9),
    ("oes97", 7): (2.002e9, 1.708e9),
}
FIGURE_3_GAMMAS = (0.0, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, math.inf)


@dataclass(frozen=True)
class Case:
    """A row of the tables: the paper's X and Y, and the number of columns to choose without an intercept."""

    name: str
    k: int
    X: Floats
    Y: Floats
    choose: int


def case(name: str, k: int) -> Case | None:
    """Return the data of a row, or None if there is no file."""
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
    """Run the paper's search and return its error, bound (b / error), whether it ended, and its cost."""
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
    """Return the certificate that branch and bound reaches in the time."""
    proof = Proof.begin(regression(problem.X, problem.Y), problem.choose)
    proof.run(seconds)
    return proof.certificate()


def _leaps(objective: DenseObjective, k: int, seconds: float) -> float | None:
    """Return the optimum by leaps and bounds, or None if it takes too long."""
    search = BranchAndBound(objective, k, bound="leaps", most_open=0)
    search.warm_up()
    drive(search, Stop(iterations=2**62, seconds=seconds))
    return search.best_value if search.done else None


def other_methods(problem: Case, seconds: float) -> dict[str, float | None]:
    """Return the errors of the other methods in the paper.

    SOLS, ISOLS and CM compute forward selection and choose the same columns. SOMP is OMP with several targets.
    """
    objective, k = regression(problem.X, problem.Y), problem.choose

    def error(find: Callable[[DenseObjective, int], SearchOutcome]) -> float:
        return find(objective, k).best(k).value

    if problem.Y.shape[1] > 1:
        return {"SOMP": error(omp), "ISOLS": error(forward)}
    poss = Poss(objective, k, exchange_every=0)
    poss.advance(paper_iterations(k, objective.n))
    return {
        "Forward": error(forward), "Backward": error(backward), "Leaps": _leaps(objective, k, seconds),
        "OMP": error(omp), "FoBa": error(foba), "POSS": poss.best_value, "ISOLS": error(forward),
    }  # fmt: skip


def one_row(name: str, k: int, seconds: float, proof_seconds: float) -> dict[str, Any] | None:
    """Return all figures of one row of a table."""
    problem = case(name, k)
    if problem is None:
        return None
    certificate = optimum(problem, proof_seconds)
    row: dict[str, Any] = {"data": name, "k": k, "optimum": certificate.as_dict()}
    row["search"] = {label(gamma): best_first(problem, gamma, seconds) for gamma in PAPER[name, k]}
    row["compared"] = other_methods(problem, proof_seconds)
    return row


def label(gamma: float) -> str:
    if gamma == 0.0:
        return "f=l"
    return "f=u" if math.isinf(gamma) else f"f=l+{'' if gamma == 1.0 else f'{gamma:g}'}u"


def figure_3(seconds: float) -> list[dict[str, Any]]:
    """Return error and time for each gamma: libras, 46 targets, k = 5."""
    problem = case("libras 45/46", 5)
    if problem is None:
        return []
    return [{"gamma": _gamma(gamma), **best_first(problem, gamma, seconds)} for gamma in FIGURE_3_GAMMAS]


def _gamma(gamma: float) -> float | str:
    return "inf" if math.isinf(gamma) else gamma


def check_plots() -> None:
    """Raise MissingExtraError if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("Figure 3 needs matplotlib.", "pip install 'dsel[plots]'.") from error


def draw(curve: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the upper panel of Figure 3, error and seconds for each gamma; hollow marks are stopped searches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    errors = figure.subplots()
    seconds = errors.twinx()
    places = range(len(curve))
    for axes, name, line, marker, color in (
        (errors, "error", "-", "o", "tab:red"),
        (seconds, "seconds", "--", "s", "tab:blue"),
    ):
        axes.plot(places, [point[name] for point in curve], line, color=color)
        for place, point in enumerate(curve):
            axes.plot(place, point[name], marker, color=color, markerfacecolor=color if point["ended"] else "white")
    errors.set_xticks(list(places), [str(point["gamma"]) for point in curve])
    errors.set_xlabel("gamma (f = l + gamma u; inf: f = u)")
    errors.set_ylabel("error", color="tab:red")
    seconds.set_ylabel("seconds", color="tab:blue")
    seconds.set_yscale("log")
    errors.set_title("libras, 46 targets, k = 5")
    figure.savefig(path, dpi=150)


def run(only: Sequence[str], seconds: float, proof_seconds: float, folder: Path | None = None) -> None:
    """Print the tables with the paper's figures and, as the last line, JSON; draw Figure 3 into `folder`."""
    if folder is not None:
        check_plots()
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
        print("Figure 3: the effect of gamma, libras, 46 targets, k = 5\n")
        lines = [
            [str(p["gamma"]), _number(p["error"]), f"{p['bound']:.3f}", f"{p['seconds']:.2f}", _nodes(p)] for p in curve
        ]
        print(text_table(("gamma", "error", "bound", "seconds", ""), lines))
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            draw(curve, folder / "figure-3.png")
    report = {"table": "heuristic-tables", "seconds": time.monotonic() - start, "rows": rows, "figure_3": curve}
    print(json_line(report))


def _number(value: float) -> str:
    return f"{value:.4e}" if value >= 1e6 else f"{value:.2f}"


def _nodes(found: dict[str, Any]) -> str:
    return f"{'' if found['ended'] else 'stopped after '}{found['nodes']:,} nodes"


def _print_row(row: dict[str, Any]) -> None:
    print(f"{row['data']}, k = {row['k']}\n")
    best = row["optimum"]
    state = "proved" if best["proven"] else f"best known, lower bound {_number(best['bound'])}"
    note = f"{state}, {best['nodes']:,} nodes"
    lines = [["optimum", _number(best["value"]), f"{best['relative_gap']:.3f}", "", "", note]]
    for gamma, paper in PAPER[row["data"], row["k"]].items():
        found = row["search"][label(gamma)]
        theirs = ("-", "-") if paper is None else (_number(paper[0]), "" if paper[1] is None else f"{paper[1]:.3f}")
        lines.append([label(gamma), _number(found["error"]), f"{found['bound']:.3f}", *theirs, _nodes(found)])
    theirs_too = PAPER_COMPARED[row["data"], row["k"]]
    for (method, error), paper_error in zip(row["compared"].items(), theirs_too, strict=True):
        mine = "-" if error is None else _number(error)
        lines.append([method, mine, "", _number(paper_error), "", ""])
    print(text_table(("", "error", "bound", "paper's error", "paper's bound", ""), lines) + "\n")
