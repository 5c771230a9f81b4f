"""Selection in rounds by the error on left-out rows: ask for a round, compute its errors anywhere, tell them.

Sources: Pahikkala, Airola, Salakoski, "Linear time feature selection for regularized least-squares", 2010, Algorithm 3,
and section 5 for backward elimination and floating search (Pudil, Novovicova, Kittler, "Floating search methods in
feature selection", Pattern Recognition Letters 15, 1994). Nothing here reads rows of data.

Ridge regression is fitted on the subsets along a path of insertions and deletions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import scipy.linalg

from dsel._lib.types import Floats, Ints
from dsel.errors import DataError, OptionError
from dsel.objective.cross_validation import leave_one_out as loo
from dsel.objective.cross_validation.leave_one_out import Direction, LooProblem, LooRound, RowErrors
from dsel.search.greedy.path import TIE
from dsel.search.outcome import PathPoint


class GreedyRls:
    """Rounds of insertions and deletions until k columns are chosen. The state is the path so far.

    Parameters
    ----------
    problem : LooProblem
        What all rounds share.
    k : int
        The number of columns to choose, with the included ones.
    candidates : sequence of int
        The columns that may be chosen.
    include : sequence of int
        The columns that are always chosen.
    direction : {"forward", "backward", "floating"}
        Insert columns, delete columns from all of them, or delete columns after each insertion.

    Notes
    -----
    Errors that differ by at most 1e-12 of their value are equal, and the lowest index wins.
    """

    def __init__(
        self, problem: LooProblem, k: int, candidates: Sequence[int], include: Sequence[int] = (),
        direction: Direction = "forward",
    ) -> None:  # fmt: skip
        self.problem, self.k, self.direction = problem, k, direction
        self.include = [int(j) for j in include]
        self.candidates = np.setdiff1d(np.asarray(candidates, np.int64), np.asarray(self.include, np.int64))
        self.members = list(self.include)
        if direction == "backward":
            self.members += [int(j) for j in self.candidates]
            if problem.lam == 0.0 and len(self.members) >= problem.m - 1:
                raise OptionError(
                    f"Backward elimination starts with {len(self.members)} columns and there are {problem.m} rows.",
                    "Set lam > 0.",
                )
        if loo.rank_deficient(problem, np.asarray(self.members, np.int64)):
            ones = " or on the column of ones" if problem.constant else ""
            raise OptionError(
                f"The {len(self.members)} columns to start with depend on each other{ones}, to rounding, with lam "
                f"{problem.lam:g}.",
                "Leave out repeated columns, or raise lam.",
            )
        self.path: list[PathPoint] = []
        self.best: dict[int, tuple[float, list[int]]] = {}
        self.ended = ""
        self.lam_grid: list[tuple[float, float]] | None = (
            None  # the values of lam that were compared, with their errors
        )
        self._asked: LooRound | None = None
        self._grown: LooRound | None = None

    @property
    def iteration(self) -> int:
        """The number of finished rounds."""
        return len(self.path)

    @property
    def best_value(self) -> float:
        """The error of the present subset on left-out rows, over rows and targets."""
        return self.path[-1].error if self.path else float("inf")

    @property
    def last_gain(self) -> int:
        """The last round."""
        return len(self.path)

    @property
    def total(self) -> float:
        """The number of rows."""
        return float(self.problem.m)

    def state(self) -> dict[str, Any]:
        """Return all that a restart needs, as JSON holds it."""
        path = [asdict(point) for point in self.path]
        return {"lam": self.problem.lam, "lam_grid": self.lam_grid, "ended": self.ended, "path": path}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a saved state: repeat the steps of its path, without reading rows."""
        for row in state["path"]:
            point = PathPoint(**row)
            self._note(point.action, point.column, point.error)
        self.ended = state["ended"]
        grid = state.get("lam_grid")
        self.lam_grid = None if grid is None else [(float(lam), float(error)) for lam, error in grid]

    def ask(self) -> LooRound | None:
        """Return the round whose errors are needed next; None when the search has ended."""
        if self.ended:
            return None
        size = len(self.members)
        insert = self.direction != "backward" and size < self.k
        if insert and not self._determined(size + 1):
            insert = False
            if not self.path:
                raise DataError(f"{self.problem.m} rows are too few for least squares without one.", "Set lam > 0.")
        remove = size > len(self.include) and (
            (self.direction == "backward" and size > self.k) or (self.direction == "floating" and size > 2)
        )
        if not (insert or remove):
            self.ended = "complete" if self._determined(size + 1) or size == self.k else "too few rows"
            return None
        if remove:
            self._asked = loo.prepare(self.problem, np.asarray(self.members, np.int64), insert=insert, remove=True)
        else:
            self._asked = self._grown = self._grow()
        return self._asked

    def _grow(self) -> LooRound:
        """Return the round of the present members, from the last round if that has all members but the newest.

        It grows column by column in any case, so that an interruption does not change its bits.
        """
        last = self._grown
        if last is None or last.members.tolist() != self.members[:-1]:
            self.problem.gram.rows(np.asarray(self.members, np.int64))  # in one pass, where they are computed on demand
            last = loo.prepare(self.problem, np.asarray(self.include, np.int64))
        for b in self.members[last.members.size :]:
            last = loo.extend_round(self.problem, last, b)
        return last

    def _determined(self, size: int) -> bool:
        """Return whether all rows but one determine the coefficients of `size` columns; always with a penalty."""
        return self.problem.lam > 0.0 or size + (self.problem.intercept != "none") < self.problem.m

    def tell(self, flat: Floats) -> None:
        """Make the step that the errors of the last round suggest, or end the search."""
        round = self._asked
        assert round is not None
        self._asked = None
        _, inserted, removed = loo.split_errors(round, flat)
        if round.remove and self._removed(removed):
            return
        if self.direction == "backward":
            raise self._undetermined()
        if not round.insert:
            self.ended = "complete" if len(self.members) >= self.k else "too few rows"
            return
        open_ = np.zeros(inserted.size, bool)
        open_[self.candidates] = True
        open_[self.members] = False
        open_ &= loo.insertable(self.problem, round.delta)
        scores = np.where(open_, inserted, np.inf)
        if not np.isfinite(scores).any():
            self.ended = "no column left" if not open_.any() else "no finite error"
            if not self.path and open_.any():
                raise self._undetermined()
            return
        j = _lowest(scores)
        self._note("insert", j, float(scores[j]))

    def _undetermined(self) -> DataError:
        lam = self.problem.lam
        return DataError(
            "The errors on left-out rows are not finite: the other rows leave coefficients undetermined. "
            "Examples are a column that is nonzero in one row only, and a fold that trains on fewer rows than columns.",
            f"Leave such columns out, or {'set lam > 0' if lam == 0.0 else f'raise lam (it is {lam:g})'}.",
        )

    def _removed(self, errors: Floats) -> bool:
        """Delete the cheapest member (in floating search only for a new best subset); return whether there was one."""
        scores = errors.copy()
        scores[: len(self.include)] = np.inf
        if not np.isfinite(scores).any():
            return False
        members = np.asarray(self.members)
        near = scores <= scores.min() * (1.0 + TIE)
        i = int(members[near].min())
        error = float(scores[self.members.index(i)])
        if self.direction == "floating":
            known = self.best.get(len(self.members) - 1)
            if known is None or error >= known[0] * (1.0 - TIE):
                return False
        self._note("remove", i, error)
        return True

    def _note(self, action: str, column: int, error: float) -> None:
        if action == "insert":
            self.members.append(column)
        else:
            self.members.remove(column)
        size = len(self.members)
        self.path.append(PathPoint(action, column, size, error))
        if size not in self.best or error < self.best[size][0]:
            self.best[size] = error, list(self.members)

    def answer(self) -> list[int]:
        """Return the subset of k columns, or of as many as possible: included ones first, then in order of choice."""
        if not self.best:
            return list(self.members)
        sizes = [size for size in self.best if size <= self.k]
        return self.best[max(sizes)][1] if sizes else list(self.members)


def _lowest(scores: Floats) -> int:
    return int(np.argmax(scores <= scores.min() * (1.0 + TIE)))


def run_greedy_rls(search: GreedyRls, rows: RowErrors, on_round: Callable[[GreedyRls], None] | None = None) -> int:
    """Run rounds until the search has ended, and return their number."""
    rounds = 0
    while (round := search.ask()) is not None:
        search.tell(rows.errors(round))
        rounds += 1
        if on_round is not None:
            on_round(search)
    return rounds


#: The default grid for lam. On standardized data lam is in units of rows.
LAM_GRID = tuple(4.0**p for p in range(-8, 9))


def choose_lam(
    rows: RowErrors, grid: Sequence[float], members: Sequence[int]
) -> tuple[float, list[tuple[float, float]]]:
    """Return the lam of least error with all columns (section 4.2), the first of equal ones, and all errors."""
    lams = np.asarray(grid, np.float64)
    errors = np.where(np.isnan(found := rows.lam_errors(lams, np.asarray(members, np.int64))), np.inf, found)
    best = _lowest(errors)
    return float(lams[best]), [(float(lam), float(error)) for lam, error in zip(lams, errors, strict=True)]


def members_along(path: Sequence[PathPoint], start: Sequence[int]) -> list[list[int]]:
    """Return the subset after each step of a path that began with `start`."""
    members, along = list(start), []
    for point in path:
        if point.action == "insert":
            members.append(point.column)
        else:
            members.remove(point.column)
        along.append(list(members))
    return along


def subset_fit(problem: LooProblem, members: Sequence[int]) -> tuple[Ints, Floats, Floats]:
    """Return members, coefficients (s, N) and intercept (N,) of ridge regression, in preprocessed units."""
    S = np.asarray(members, np.int64)
    w = loo.coefficients(problem, S)
    if problem.constant:
        return S, w[1:], w[0]
    return S, w, np.zeros(w.shape[1])


def nested_fits(problem: LooProblem, order: Sequence[int], sizes: Sequence[int]) -> list[tuple[Ints, Floats, Floats]]:
    """Return `subset_fit` of the first columns in `order`, for each size. O(s^3) for all sizes together."""
    last = np.asarray(order, np.int64)
    L = np.linalg.cholesky(loo.member_gram(problem, last) + problem.lam * np.eye(last.size + problem.constant))
    half = scipy.linalg.solve_triangular(L, loo.member_cross(problem, last), lower=True)
    fits = []
    for size in sizes:
        s = size + problem.constant
        w = scipy.linalg.solve_triangular(L[:s, :s], half[:s], lower=True, trans="T")
        fits.append((last[:size], w[s - size :], w[0] if problem.constant else np.zeros(w.shape[1])))
    return fits


def fits_along(
    problem: LooProblem, path: Sequence[PathPoint], start: Sequence[int]
) -> list[tuple[Ints, Floats, Floats]]:
    """Return `subset_fit` of the subset after each step of a path that began with `start`."""
    subsets = members_along(path, start)
    if path and all(point.action == "insert" for point in path):
        return nested_fits(problem, subsets[-1], [len(members) for members in subsets])
    return [subset_fit(problem, members) for members in subsets]
