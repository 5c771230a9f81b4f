"""What greedy-rls and kfold share: options, requirements, and rounds on errors of left-out rows."""

from __future__ import annotations

import logging
from numbers import Real
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, field_validator

from dsel.config.size_rule import is_share
from dsel.search.cross_validation.rounds import LAM_GRID, Direction, GreedyRls, choose_lam, run_greedy_rls
from dsel.search.method import SearchTask
from dsel.search.options import Options
from dsel.search.outcome import FrontPoint, SearchOutcome

log = logging.getLogger("dsel")


def _grid(value: Any) -> Any:
    """Validate all forms of the grid at once, so that an error is one sentence."""
    if value is None or (isinstance(value, str) and value == "auto"):
        return value
    numbers = list(value) if isinstance(value, list | tuple | np.ndarray) else []
    if not numbers or any(isinstance(lam, bool) or not isinstance(lam, Real) for lam in numbers):
        raise ValueError("it must be auto or numbers > 0")
    lams = tuple(float(lam) for lam in numbers)
    if not all(0.0 < lam < float("inf") for lam in lams):
        raise ValueError("it must be auto or numbers > 0")
    return lams


LamGrid = Annotated[Literal["auto"] | tuple[float, ...] | None, BeforeValidator(_grid)]


class CrossValidationOptions(Options):
    """Options of selection by the error on left-out rows.

    Parameters
    ----------
    lam_grid : "auto" or sequence of float, optional
        Values of lam to choose from, by the error with all columns; "auto" for 4^-8, ..., 4^8. By default lam is the
        `lam` of the request.
    direction : {"forward", "backward", "floating"}
        Insert columns; or delete columns, starting from all of them; or delete columns after each insertion as long as
        that gives a better subset of its size.
    held_out : float, str, AnyPath or pair (X, Y), optional
        Rows on which the test error of every step is reported. A number is the share of the rows that are drawn at
        random and take no part in the selection. A store has its targets and weights under the names that the data
        have.
    """

    lam_grid: LamGrid = None
    direction: Direction = "forward"
    held_out: Any = None

    @field_validator("held_out")
    @classmethod
    def _share(cls, value: Any) -> Any:
        return float(value) if is_share(value) else value

    @property
    def penalties(self) -> tuple[float, ...]:
        """The values of lam to choose from; empty where lam is given."""
        if self.lam_grid is None:
            return ()
        return LAM_GRID if self.lam_grid == "auto" else self.lam_grid


def run(task: SearchTask) -> SearchOutcome:
    """Run rounds until k columns are chosen. Each round asks for the errors of all neighbours of the subset."""
    objective, options, rows = task.objective, task.options, task.rows
    assert rows is not None
    include = list(objective.included)
    candidates = [int(j) for j in objective.columns]
    lam, tried = objective.lam, None
    if task.state is not None:
        lam = task.state["lam"]
    elif options.penalties:
        lam, tried = choose_lam(rows, options.penalties, sorted([*include, *candidates]))
        log.info("lam = %g by leave-one-out with all columns", lam)
    search = GreedyRls(rows.problem(lam), task.k + len(include), candidates, include, options.direction)
    search.lam_grid = tried
    if task.state is not None:
        search.restore(task.state)
    rounds = run_greedy_rls(search, rows, task.on_slice)
    chosen = search.answer()
    local = {column: place for place, column in enumerate(candidates)}
    members = tuple(local[j] for j in chosen if j in local)
    counts: dict[str, Any] = {"rounds": search.iteration, "rounds_of_this_run": rounds, **rows.counts()}
    if search.lam_grid is not None:
        counts["lam_grid"] = search.lam_grid
    return SearchOutcome(
        (FrontPoint(len(members), objective.value(members), members),), iterations=search.iteration,
        ended=search.ended, counts=counts, path=tuple(search.path), chosen=tuple(chosen), lam=lam,
        passes=rows.passes,
    )  # fmt: skip
