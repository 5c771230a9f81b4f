"""The table of the comparison and its summary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.benchmarks.proofs.adapters import GAP
from pipelines.benchmarks.proofs.problems import Problem
from pipelines.benchmarks.proofs.solving import Answer
from pipelines.table import text_table

#: Shorter times, in seconds, make no difference to a user. They count as this.
RESOLUTION = 0.05
#: dsel, without and with a bound on the coefficients.
OWN = ("dsel", "dsel+M")


@dataclass(frozen=True)
class Cell:
    """One problem, with the answer of each solver. total: |y|^2."""

    problem: Problem
    answers: Mapping[str, Answer]
    total: float

    @property
    def best(self) -> float:
        """The least f that any solver found."""
        return min(answer.value for answer in self.answers.values())

    def proved(self, solver: str) -> bool:
        """Return whether a solver proved columns that are as good as the best known ones."""
        answer = self.answers.get(solver)
        return answer is not None and answer.state == "proved" and answer.value <= self.best * (1.0 + 2.0 * GAP)

    def peer(self, with_bound_on_coefficients: bool = False) -> tuple[float, str] | None:
        """Return the seconds and the name of the fastest other solver that proved the problem."""
        return self._fastest([s for s in self.answers if s not in OWN], with_bound_on_coefficients)

    def ratio(self, with_bound_on_coefficients: bool = False) -> float | None:
        """Return dsel's time over that of the fastest other solver, if both prove the problem; see RESOLUTION."""
        peer, own = self.peer(with_bound_on_coefficients), self._fastest(OWN, with_bound_on_coefficients)
        return max(own[0], RESOLUTION) / max(peer[0], RESOLUTION) if peer and own else None

    def _fastest(self, solvers: Iterable[str], with_bound_on_coefficients: bool) -> tuple[float, str] | None:
        """Return the seconds and the name of the fastest of some solvers that proved the problem."""
        able = [s for s in solvers if self.proved(s) and (with_bound_on_coefficients or not s.endswith("+M"))]
        return min([(self.answers[s].seconds, s) for s in able], default=None)

    @property
    def contradictions(self) -> list[str]:
        """The solvers whose bound is above the error of known columns, or that proved worse columns."""
        found = []
        for solver, answer in self.answers.items():
            assumed = solver.endswith("+M")
            wrong = answer.bound > self.best * (1.0 + 2.0 * GAP) or (
                answer.state == "proved" and not self.proved(solver)
            )
            if wrong and not assumed:
                found.append(solver)
        return found


def table(cells: Iterable[Cell], solvers: Iterable[str]) -> str:
    """Return the processor seconds of each solver on each problem, with its gap where it proved nothing."""
    names = list(solvers)
    rows = []
    for cell in cells:
        ratio = cell.ratio()
        answers = [_written(cell, name) for name in names]
        share = 1.0 - cell.best / cell.total
        rows.append([cell.problem.name, f"{share:.4f}", *answers, "" if ratio is None else f"{ratio:.2f}"])
    return text_table(["problem", "explained", *names, "dsel / best"], rows)


def _written(cell: Cell, solver: str) -> str:
    answer = cell.answers.get(solver)
    if answer is None:
        return ""
    if cell.proved(solver):
        return f"{answer.seconds:.2f}"
    if answer.state in ("skipped", "failed"):
        return answer.state
    gap = f"{100.0 * answer.gap:.1f} %" if answer.value < float("inf") and answer.bound > 0.0 else "open"
    return f"{gap} ({answer.seconds:.0f})"


def remarks(cells: Iterable[Cell]) -> list[str]:
    """Return why solvers were skipped, failed or were stopped, each reason once."""
    found: dict[tuple[str, str], int] = {}
    for cell in cells:
        for solver, answer in cell.answers.items():
            if answer.note:
                key = (solver, f"{answer.state}: {answer.note}")
                found[key] = found.get(key, 0) + 1
    return [f"{solver}: {note} ({count} problems)" for (solver, note), count in found.items()]


def summary(cells: list[Cell]) -> dict[str, Any]:
    """Return the figures of the last line."""
    ratios = [ratio for cell in cells if (ratio := cell.ratio()) is not None]
    assumed = [ratio for cell in cells if (ratio := cell.ratio(True)) is not None]
    groups: dict[str, dict[str, int]] = {}
    for cell in cells:
        group = groups.setdefault(cell.problem.group, {"problems": 0, "dsel": 0, "best_peer": 0})
        group["problems"] += 1
        group["dsel"] += cell.proved("dsel")
    for name, group in groups.items():
        own = [cell for cell in cells if cell.problem.group == name]
        counts = {s: sum(cell.proved(s) for cell in own) for cell in own for s in cell.answers}
        group["best_peer"] = max([n for s, n in counts.items() if not (s in OWN or s.endswith("+M"))], default=0)
        group["dsel+M"] = max(counts.get(s, 0) for s in OWN)
        group["best_peer+M"] = max([n for s, n in counts.items() if s not in OWN], default=0)
    return {
        "worst_time_ratio_to_best_peer": max(ratios, default=None),
        "worst_time_ratio_with_bound_on_coefficients": max(assumed, default=None),
        "proved": sum(group["dsel"] for group in groups.values()),
        "proved_by_best_peer": sum(group["best_peer"] for group in groups.values()),
        "longest_within_resolution": max(within_resolution(cells), default=None),
        "clean1_bound": _clean1(cells),
        "groups": groups,
        "behind": behind(cells),
        "behind_with_bound_on_coefficients": behind(cells, True),
        "contradictions": {cell.problem.name: cell.contradictions for cell in cells if cell.contradictions},
    }


def behind(cells: Iterable[Cell], with_bound_on_coefficients: bool = False) -> list[dict[str, Any]]:
    """Return the problems that another solver proves and dsel does not, or not as fast."""
    found = []
    for cell in cells:
        peer, ratio = cell.peer(with_bound_on_coefficients), cell.ratio(with_bound_on_coefficients)
        if peer is not None and (ratio is None or ratio > 1.0):
            seconds = None if ratio is None else round(ratio * max(peer[0], RESOLUTION), 3)
            found.append({"problem": cell.problem.name, "dsel": seconds, "peer": peer[1], "seconds": peer[0]})
    return found


def within_resolution(cells: Iterable[Cell]) -> list[float]:
    """Return dsel's seconds where another solver takes less, both within the resolution."""
    both = [(cell.answers["dsel"].seconds, cell.peer()) for cell in cells if cell.proved("dsel")]
    return [own for own, peer in both if peer is not None and peer[0] < own <= RESOLUTION]


def _clean1(cells: Iterable[Cell]) -> float | None:
    """Return the share that no 8 columns of clean1 explain more than, without a penalty."""
    for cell in cells:
        if cell.problem.data.name == "clean1" and cell.problem.k == 8 and not cell.problem.lam:
            return 1.0 - cell.answers["dsel"].bound / cell.total if "dsel" in cell.answers else None
    return None
