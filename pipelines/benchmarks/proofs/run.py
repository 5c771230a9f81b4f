"""Run the comparison: python -m pipelines.benchmarks proofs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from dsel._lib.types import Floats
from pipelines.benchmarks.proofs.problems import Data, M, Problem, everything, quick
from pipelines.benchmarks.proofs.report import RESOLUTION, Cell, remarks, summary, table
from pipelines.benchmarks.proofs.solving import (
    SOLVERS,
    TOO_MANY,
    Answer,
    answer_of,
    call,
    obstacle,
    penalty_for,
    squared_error,
)
from pipelines.papers.datasets import missing
from pipelines.table import json_line

#: Processor seconds of a solve, and those of dsel for the bound on clean1.
SECONDS, QUICK_SECONDS, CLEAN1_SECONDS = 3.0, 5.0, 60.0
#: Bytes that a solve may allocate.
MEMORY = 12 << 30
#: Problems are solved together up to this many bytes of data.
_BATCH = 1 << 30
#: The given bound on the coefficients is the largest one of the best known columns, times this.
_LARGEST = 1.2

_EXPLANATION = """
Processor seconds of one thread until the best k columns are proved, or the remaining gap (and the seconds).
Compilation is not counted. On clean1 without a penalty dsel alone may have a longer limit of time.
f(S) = |y - X_S b|^2 + lam |b|^2. dsel proves to rounding, the others to a relative gap of 1e-4. El0ps and L0BnB have
a price of a column in place of k; it is chosen so that k columns are best. "+M": they are given that no coefficient
exceeds 1.2 times the largest one of the best columns, so that they prove less. dsel+M is given the same
bound. El0ps and L0BnB start from the best known columns, which dsel has to find; OKRidge,
leaps and lmSubsets have k itself and no start. The last column compares dsel with the fastest solver that proved the
problem without such a bound. A time below {resolution} s counts as {resolution} s there.
"""


def chosen(quickly: bool, only: Sequence[str]) -> list[Problem]:
    """Return the problems whose group, data or name is requested."""
    found = quick() if quickly else everything()
    return [p for p in found if not only or {p.group, p.data.name, p.name}.intersection(only)]


def run(
    quickly: bool, seconds: float | None = None, only: Sequence[str] = (), solvers: Sequence[str] = SOLVERS
) -> list[Cell]:
    """Print the tables and, as the last line, the figures as JSON; return the cells."""
    limit = seconds or (QUICK_SECONDS if quickly else SECONDS)
    clean1 = CLEAN1_SECONDS if seconds is None and not quickly else limit
    cells: list[Cell] = []
    for batch, columns in _batches(chosen(quickly, only)):
        with TemporaryDirectory() as folder:
            found = _solve(Path(folder), columns, batch, limit, clean1, solvers)
        print(table(found, solvers), "\n", flush=True)
        cells += found
    names = ["dsel", *(s for s in solvers if s != "dsel")]
    print(_EXPLANATION.format(resolution=RESOLUTION))
    print(table(cells, names), "\n")
    prepared = {s: max((c.answers[s].preparation for c in cells if s in c.answers), default=0.0) for s in names}
    print("Compilation and loading, at most:", ", ".join(f"{s} {value:.1f} s" for s, value in prepared.items()))
    print("\n".join(remarks(cells)))
    print(json_line({"benchmark": "proofs", "seconds": limit, **summary(cells), "preparation": prepared}))
    return cells


def figures(quickly: bool, seconds: float, only: Sequence[str], solvers: Sequence[str] = SOLVERS) -> dict[str, Any]:
    """Print the tables, and return the figures with the solvers that are absent."""
    cells = run(quickly, seconds, only, solvers)
    answers = [(s, a) for cell in cells for s, a in cell.answers.items()]
    notes = {s: a.note for s, a in answers if a.state == "skipped" and a.note != TOO_MANY}
    absent = {s: why for s, why in notes.items() if all(a.state == "skipped" for name, a in answers if name == s)}
    return {"limit": seconds, **summary(cells), "absent": absent}


def _batches(problems: Iterable[Problem]) -> Iterator[tuple[list[Problem], dict[Data, Floats]]]:
    """Yield problems that are solved together, so that each solver compiles once, and the columns of their data."""
    batch: list[Problem] = []
    columns: dict[Data, Floats] = {}
    for data, own in groupby(sorted(problems, key=lambda p: (p.data.n, p.data.rho, p.data.name)), key=lambda p: p.data):
        if columns and sum(X.nbytes for X in columns.values()) + 8 * M * data.n > _BATCH:
            yield batch, columns
            batch, columns = [], {}
        X = data.columns()
        if X is None:
            print(missing(data.name))
            continue
        columns[data] = X
        batch += [problem for problem in own if problem.k < X.shape[1]]
    if batch:
        yield batch, columns


def _solve(
    folder: Path, columns: dict[Data, Floats], problems: Sequence[Problem], seconds: float, clean1: float,
    solvers: Sequence[str],
) -> list[Cell]:  # fmt: skip
    """Return the answers of all solvers to some problems."""
    places = {data: folder / f"X{i}.npy" for i, data in enumerate(columns)}
    for data, X in columns.items():
        np.save(places[data], X)
    files: dict[Problem, Path] = {}
    targets: dict[Problem, Floats] = {}
    options: dict[Problem, dict[str, Any]] = {}
    for i, problem in enumerate(problems):
        y = problem.data.target(columns[problem.data], problem.k, problem.ratio, problem.draw)
        np.save(folder / f"y{i}.npy", y)
        limit = clean1 if problem.data.name == "clean1" and not problem.lam else seconds
        options[problem] = {
            "X": str(places[problem.data]), "y": str(folder / f"y{i}.npy"), "k": problem.k, "lam": problem.lam,
            "seconds": limit, "memory": MEMORY, "penalty": None, "largest": None,
        }  # fmt: skip
        files[problem], targets[problem] = folder / f"{i}.json", y
        files[problem].write_text(json.dumps(options[problem]))
    answers: dict[Problem, dict[str, Answer]] = {problem: {} for problem in problems}
    known: dict[Problem, list[list[int]]] = {problem: [] for problem in problems}
    for solver in ("dsel", *(s for s in solvers if s != "dsel")):
        if solver != "dsel" and not any("penalty known" in option for option in options.values()):
            _choose_penalties(columns, targets, options, files, known, seconds)
        able = []
        for problem in problems:
            if why := obstacle(solver, options[problem], columns[problem.data].shape[1]):
                answers[problem][solver] = Answer("skipped", note=why)
            else:
                able.append(problem)
        longest = max((options[p]["seconds"] for p in able), default=seconds)
        found = call(solver, [files[p] for p in able], longest) if able else {}
        for problem in able:
            raw = found[files[problem]]
            known[problem] += [raw["indices"]] if "indices" in raw else []
            answer = answer_of(raw, columns[problem.data], targets[problem], options[problem])
            answers[problem][solver] = answer
            print(f"{problem.name}: {solver} {answer.state}, {answer.seconds:.2f} s {answer.note}", file=sys.stderr)
    return [Cell(problem, answers[problem], float(targets[problem] @ targets[problem])) for problem in problems]


def _choose_penalties(
    columns: dict[Data, Floats], targets: dict[Problem, Floats], options: dict[Problem, dict[str, Any]],
    files: dict[Problem, Path], known: dict[Problem, list[list[int]]], seconds: float,
) -> None:  # fmt: skip
    """Write the price of a column, the largest coefficient and columns to start from to each problem.

    They follow from good subsets of each size.
    """
    found = call("front", list(files.values()), seconds)
    for problem, option in options.items():
        values: dict[int, float] = {}
        largest = 0.0
        for S in [*known[problem], *found[files[problem]].get("front", [])]:
            f, b = squared_error(columns[problem.data], targets[problem], problem.lam, S)
            if f < values.get(len(S), float("inf")):
                values[len(S)] = f
                if len(S) == problem.k:
                    largest, option["start"] = float(np.abs(b).max()), list(S)
        option["penalty known"] = True
        if problem.k in values:
            option["penalty"], option["largest"] = penalty_for(values, problem.k), _LARGEST * largest
        if problem.data.name == "clean1" and not problem.lam:
            option["seconds"] = min(option["seconds"], seconds)  # only dsel is given more time
        files[problem].write_text(json.dumps(option))
